"""The calls of a Session, over HTTP: a service holds the data, the ledger and the noise."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from dptopk import _validate as validate
from dptopk._choices import Counts, Method
from dptopk.accounting.budget import Budget
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.release import Release

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Client", "ServiceError"]


class ServiceError(DptopkError):
    """The service refused, or cannot be reached.

    Attributes:
        status: of HTTP; 0 when there was no answer.
        code: the service's word for the reason.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


class Client:
    """A data set of a service, asked as a Session is.

    A question that spends carries a key of its own and is sent again after a broken connection or an overloaded
    service: it is charged once, and the answer is the same.

    Args:
        url: of the service, such as "https://topk.example.org".
        token: from ``dptopk ledger analyst add``.
        dataset: which to ask; None = the only one there is.
        patience: seconds for which a question is sent again.

    Raises:
        InvalidParameter: on a URL that is not http or https.
    """

    def __init__(self, url: str, token: str, *, dataset: str | None = None, patience: float = 60.0) -> None:
        if urlsplit(validate.text(url=url)).scheme not in {"http", "https"}:
            raise InvalidParameter("url must begin with https:// or http://")
        self._url = url.rstrip("/")
        self._token = validate.text(token=token)
        self._dataset = dataset
        self._patience = validate.positive(patience=patience)
        self._answered: list[dict[str, Any]] = []

    def datasets(self) -> pd.DataFrame:
        """The data sets that may be asked about, a row each: never data."""
        import pandas as pd

        return pd.DataFrame(self._call("GET", "/datasets"))

    def schema(self) -> dict[str, Any]:
        """What is known of the data set without looking into it."""
        return self._about("GET", "")

    def budget(self) -> dict[str, Any]:
        """The data set's budget and one's own part in numbers, and how often earlier questions still fit."""
        return self._about("GET", "/budget")

    def remaining(self) -> str:
        """What remains of the part that is used up first: of one's own, where one was allotted."""
        balance = self.budget()
        return str(balance.get("mine", balance["total"])["remaining"])

    def plan(
        self, k: int, *, budget: Budget | None = None, accuracy: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """What a question would cost and deliver, and what it would leave; free. Arguments as for ``top_k``."""
        return self._about("POST", "/plan", _asked(k, budget, accuracy, options))

    def top_k(
        self,
        k: int,
        *,
        budget: Budget | None = None,
        accuracy: float | None = None,
        delta: float | None = None,
        counts: Counts | None = None,
        method: Method | None = None,
        d_bar: int | None = None,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Release:
        """Ask for the top k.

        Args:
            k: how many labels.
            budget: the (ε, δ) of this answer.
            accuracy: instead, with ``delta``: 95% of the noise on a count within ± this many.
            delta: that goes with ``accuracy``.
            counts: as for plan_topk; None = the service's default.
            method: as for plan_topk.
            d_bar: as for plan_topk.
            where: column -> value, out of the data set's public lists.
            key: names the question: a later call with the same key, from anywhere, gives the same answer and costs
                nothing. None = a new one.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the question does not fit; nothing was charged.
            LedgerError: the service could not store an answer for as long as ``patience``; ask again with the same key.
            ServiceError: any other refusal.
        """
        options = {"delta": delta, "counts": counts, "method": method, "d_bar": d_bar, "where": where}
        body = _asked(k, budget, accuracy, options)
        headers = {"Idempotency-Key": key or f"client-{secrets.token_hex(16)}"}
        end = time.monotonic() + self._patience
        pause = 0.1
        while True:
            try:
                answer = self._about("POST", "/topk?wait=10", body, headers)
                if "release" in answer:
                    break
                pause = 0.1
            except (ServiceError, LedgerError) as error:
                worth = isinstance(error, LedgerError) or error.status in {0, 429, 502, 503, 504}
                if not worth or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)
        release = Release.from_dict(answer["release"])
        self._answered.append(
            {
                "entry": answer["entry"],
                "mechanism": str(release.mechanism),
                "charge": answer["charge"],
                "rows": len(release),
            }
        )
        return release

    def releases(self) -> list[Release]:
        """One's earlier answers, newest first; free."""
        path = self._path("/releases?limit=100")
        return [Release.from_dict(answer["release"]) for answer in self._call("GET", path)]

    def report(self) -> pd.DataFrame:
        """The answers of this client, a row each: entry of the ledger, mechanism, charge, rows released."""
        import pandas as pd

        return pd.DataFrame(self._answered, columns=["entry", "mechanism", "charge", "rows"])

    def _path(self, path: str) -> str:
        if self._dataset is None:
            names = [one["name"] for one in self._call("GET", "/datasets")]
            if len(names) != 1:
                raise InvalidParameter(f"dataset: name one of {', '.join(names)}")
            self._dataset = names[0]
        return f"/datasets/{quote(self._dataset, safe='')}{path}"

    def _about(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._call(method, self._path(path), body, headers)
        return answer

    def _call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        request = Request(f"{self._url}/v1{path}", data=data, headers=sent, method=method)  # noqa: S310 - checked above
        try:
            with urlopen(request, timeout=self._patience) as answer:  # noqa: S310 - the same
                return json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(), body) from None
        except (URLError, OSError, ValueError) as error:
            raise ServiceError(0, "unreachable", f"the service cannot be reached ({type(error).__name__})") from None


def _asked(k: int, budget: Budget | None, accuracy: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A question as JSON; what is None is left to the service."""
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if budget is not None:
        if "delta" in asked:
            raise InvalidParameter("delta goes with accuracy; a budget has its own")
        asked |= {"epsilon": validate.instance(Budget, budget=budget).epsilon, "delta": budget.delta}
    else:
        asked["accuracy"] = accuracy
    return {"k": k, **asked}


def _refusal(status: int, text: bytes, body: Any) -> DptopkError:
    """A refusal as the error that a Session would raise."""
    try:
        told = json.loads(text)
        code, message = str(told["error"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unknown", f"the service answered {status}"
    if code == "invalid":
        return InvalidParameter(message)
    if code == "ledger":
        return LedgerError(message)
    if code == "budget_exceeded":
        requested = Charge() if not isinstance(body, dict) else _told(message)
        return BudgetExceeded(requested, message.partition("; remaining ")[2], "the service refused")
    return ServiceError(status, code, message)


def _told(message: str) -> Charge:
    """The charge that a refusal names."""
    text = message.partition("requested ")[2].partition("; remaining")[0]
    try:
        return Charge.parse(text)
    except DptopkError:
        return Charge()
