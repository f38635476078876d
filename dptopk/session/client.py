"""The calls of a Session, over HTTP: a service holds the data, the ledger and the noise."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.labels import listed, to_plain
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.question import Question, Stated
from dptopk.release.release import Release

if TYPE_CHECKING:
    from datetime import date

    import pandas as pd


class ServiceError(DptopkError):
    """The service refused, or cannot be reached.

    Attributes:
        status: of HTTP; 0 when there was no answer.
        code: the service's word for the reason.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class _Nowhere(HTTPRedirectHandler):
    """Follows no redirect: it would take the token to wherever an answer points."""

    def redirect_request(self, *_: object) -> None:
        """None: the redirect becomes an error with its status."""


_OPENER = build_opener(_Nowhere)


class Client:
    """A data set of a service, asked as a Session is.

    A question that spends carries its own key and is sent again after a broken connection, or when
    the service failed or is overloaded: it is charged once, and the answer is the same. Was it
    given up before its outcome was known, the same call of this client goes on with its key.

    Args:
        url: of the service, such as "https://topk.example.org".
        token: from ``dptopk ledger analyst add``.
        dataset: which to ask; None = the only one there is.
        patience: seconds for which a question is sent again.

    Raises:
        InvalidParameter: on a URL that is not http or https, or a token that no header can carry.
    """

    def __init__(
        self, url: str, token: str, *, dataset: str | None = None, patience: float = 60.0
    ) -> None:
        if urlsplit(validate.text(url=url)).scheme not in {"http", "https"}:
            raise InvalidParameter("url must begin with https:// or http://")
        self._url = url.rstrip("/")
        self._token = _sent(token=token)
        self._dataset = dataset
        self._patience = validate.positive(patience=patience)
        self._answered: list[dict[str, Any]] = []
        self._open: dict[
            str, str
        ] = {}  # questions whose outcome is not known, and the keys that were made for them

    def datasets(self) -> pd.DataFrame:
        """The data sets that may be asked about, a row each: never data."""
        import pandas as pd

        return pd.DataFrame(self._call("GET", "/datasets"))

    def schema(self) -> dict[str, Any]:
        """Return what is known about the data set without reading it."""
        return self._about("GET", "")

    def budget(self) -> dict[str, Any]:
        """The data set's budget and one's own part in numbers, and how often earlier questions
        still fit.
        """
        return self._about("GET", "/budget")

    def remaining(self) -> Remaining:
        """Return the remaining part that is used up first: the analyst's own, if one was allotted
        and has no more left than all of the data set.
        """
        balance = self.budget()
        part = balance["total"]
        own = balance.get("mine", part)
        if _number(own["epsilon_left"]) <= _number(part["epsilon_left"]):
            part = own
        fits = {str(one["text"]): int(one["fits"]) for one in balance["fits"]}
        spent = _number(part["epsilon_spent"])
        total = _number(part["epsilon"])
        left = _number(part["epsilon_left"])
        return Remaining(
            part["remaining"],
            spent,
            total,
            left,
            part["delta"],
            part["share"],
            fits,
            part.get("question", ""),
        )

    def plan(
        self,
        k: int | Mechanism,
        *,
        budget: Budget | None = None,
        accuracy: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the cost and accuracy of a question and the budget it would leave; free.

        Args:
            k: how many labels; or a mechanism.
            budget: as for ``top_k``.
            accuracy: as for ``top_k``.
            options: further arguments of ``top_k`` or ``run``; ``segments`` as for ``top_k_each``.
        """
        segments = _segments(options.pop("segments")) if "segments" in options else {}
        if isinstance(k, Mechanism):
            fields = {name: options.get(name) for name in ("labels", "ranking", "where")}
            return self._about("POST", "/plan", _run(k, **fields) | segments)
        return self._about("POST", "/plan", _question_body(k, budget, accuracy, options) | segments)

    def top_k(
        self,
        k: int,
        *,
        budget: Budget | None = None,
        accuracy: float | None = None,
        delta: float | None = None,
        counts: Counts | None = "auto",
        look: LookShare = None,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
        **stated: Unpack[Stated],
    ) -> Release:
        """Ask for the top k.

        Args:
            k: how many labels.
            budget: the (ε, δ) or ρ of this answer.
            accuracy: instead, with ``delta``: 95% of the noise on a count within ± this many.
            delta: that goes with ``accuracy``.
            counts: "auto", "gaussian", "laplace" or "box" for noisy counts, as ``Session.top_k``;
                None for labels alone.
            look: as for ``Session.top_k``, but None unless it is asked for: one charge of the whole
                (ε, δ) then covers the look and whatever plan it leads to, and several such answers
                cost the sum of their ε's and δ's.
            where: column -> value, out of the data set's public lists.
            key: names the question: a later call with the same key, from anywhere, gives the same
                answer and costs nothing. None = a new one, or that of the same question when its
                outcome is not known.
            stated: further fields of ``dptopk.question.Question``: method, d_bar, fit,
                selection_share, users; of events find, share, min_users.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the question does not fit; nothing was charged.
            LedgerError: the service could not store an answer for as long as ``patience``; ask
            again with the same key.
            ServiceError: any other refusal.
        """
        options = {"delta": delta, "counts": counts, "look": look, "where": where, **stated}
        return self._one("/topk", _question_body(k, budget, accuracy, options), key)

    def top_k_each(
        self,
        segments: str | Mapping[str, Sequence[str]],
        k: int,
        *,
        budget: Budget | None = None,
        accuracy: float | None = None,
        key: str | None = None,
        **options: Any,
    ) -> dict[str, Release]:
        """Ask for the top k of every segment at once; charged in parallel, as ``run_each`` is.

        Args:
            segments: a column that the data set offers (all its values), or that column -> some of
                them.
            k: how many labels of each.
            budget: the (ε, δ) of one segment's answer.
            accuracy: as for ``top_k``.
            key: as for ``top_k``.
            options: further arguments of ``top_k``.
        """
        return self._each(
            "/topk", _question_body(k, budget, accuracy, options) | _segments(segments), key
        )

    def run(
        self,
        mechanism: Mechanism,
        *,
        labels: Release | Sequence[Any] | None = None,
        ranking: Release | Sequence[Any] | None = None,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Release:
        """Charge and run one mechanism.

        Args:
            mechanism: one of ``dptopk.mechanisms``.
            labels: for counts of public labels, or of labels that were released before; or a
                Release.
            ranking: the same for CountMLE, the first label first.
            where: as for ``top_k``.
            key: as for ``top_k``.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the question does not fit; nothing was charged.
            LedgerError: as for ``top_k``.
            ServiceError: any other refusal.
        """
        return self._one("/run", _run(mechanism, labels, ranking, where), key)

    def run_each(
        self,
        segments: str | Mapping[str, Sequence[str]],
        mechanism: Mechanism,
        *,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, Release]:
        """Charge and run one mechanism on every segment, together: segments compose in parallel.

        Args:
            segments: a column that the data set offers (all its values), or that column -> some of
                them.
            mechanism: one of ``dptopk.mechanisms``; it runs on each segment with its own noise.
            where: as for ``top_k``.
            key: as for ``top_k``.
        """
        return self._each("/run", _run(mechanism, None, None, where) | _segments(segments), key)

    def stream_price(self, k: int, days: int, *, budget: Budget, **calendar: str) -> dict[str, Any]:
        """Return what ``stream`` would cost: charge, ε, balance; and how exact the totals of each
        day would be. Free.
        """
        return self._about("POST", "/streams/price", _stream(k, days, budget, calendar))

    def stream(
        self, name: str, k: int, days: int, *, budget: Budget, **calendar: str
    ) -> ClientStream:
        """Charge a top k of all days so far, on each of these days; or open it: the same terms are
        charged once.

        Args:
            name: of the stream: letters, digits, ".", "_", "-".
            k: labels in each answer.
            days: how many days; fixed now.
            budget: the (ε, δ) of all days together, for one user of as many days as the data set
                says.
            calendar: first_day, the date of day 1 as 2026-11-01 (without it days have numbers
                alone), and time_zone, whose midnight parts two days, in words ("UTC").

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the data set has no streams, or this name stands for other terms;
            nothing was charged.
            LedgerError: as for ``top_k``; call again with the same terms.
            ServiceError: any other refusal.
        """
        self._answer(
            "/streams", {"stream": name} | _stream(k, days, budget, calendar), _sent(name=name)
        )
        return ClientStream(self, name)

    def streams(self) -> list[dict[str, Any]]:
        """One's streams of the data set, with their terms; free."""
        return list(self._call("GET", self._path("/streams")))

    def _one(self, path: str, body: dict[str, Any], key: str | None) -> Release:
        answer = self._spend(path, body, key)
        release = Release.from_dict(answer["release"])
        self._note(answer, str(release.mechanism), len(release))
        return release

    def _each(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Release]:
        answer = self._spend(path, body, key)
        releases = _released(answer)
        first = next(iter(releases.values()))
        self._note(
            answer,
            f"{first.mechanism} in each of {len(releases)} segments",
            sum(map(len, releases.values())),
        )
        return releases

    def _note(self, answer: Mapping[str, Any], what: str, rows: int) -> None:
        self._answered.append(
            {"entry": answer["entry"], "mechanism": what, "charge": answer["charge"], "rows": rows}
        )

    def _spend(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Ask under a key; one that was made here stays with the question until its outcome is
        known.
        """
        if key is not None:
            return self._answer(path, body, _sent(key=key))
        question = canonical_json([path, body])
        token = self._open.setdefault(question, f"client-{secrets.token_hex(16)}")
        try:
            answer = self._answer(path, body, token)
        except DptopkError as error:
            if _final(error):
                del self._open[question]
            else:
                error.add_note(
                    f"It may have been charged: ask the same again, or give key={token!r}, to "
                    f"pay once."
                )
            raise
        del self._open[question]
        return answer

    def _answer(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        """Ask until there is an answer, always with the same key."""
        end = time.monotonic() + self._patience
        pause = 0.1
        while True:
            try:
                answer = self._about("POST", f"{path}?wait=10", body, {"Idempotency-Key": key})
                if "entry" in answer:
                    return answer
                pause = 0.1
            except (ServiceError, LedgerError) as error:
                if not _passing(error) or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def releases(self) -> list[Release | dict[str, Release]]:
        """One's earlier answers, newest first; free. An answer for segments is a dictionary."""
        found = self._call("GET", self._path("/releases?limit=100"))
        return [
            _released(one) if "segments" in one else Release.from_dict(one["release"])
            for one in found
        ]

    def report(self) -> pd.DataFrame:
        """The answers of this client, a row each: entry of the ledger, mechanism, charge, rows
        released.
        """
        import pandas as pd

        return pd.DataFrame(self._answered, columns=["entry", "mechanism", "charge", "rows"])

    def _repr_html_(self) -> str:
        """For notebooks: what was asked, and what is left."""
        rows = self.report()
        return (
            html_table(list(rows.columns), rows.itertuples(index=False))
            + self.remaining()._repr_html_()
        )

    def _path(self, path: str) -> str:
        if self._dataset is None:
            names = [one["name"] for one in self._call("GET", "/datasets")]
            if len(names) != 1:
                raise InvalidParameter(f"dataset: name one of {', '.join(names)}")
            self._dataset = names[0]
        return f"/datasets/{quote(self._dataset, safe='')}{path}"

    def _about(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return self._call(method, self._path(path), body, headers)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        data = None if body is None else canonical_json(body).encode()
        sent = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        # checked above
        url = f"{self._url}/v1{path}"
        request = Request(url, data=data, headers=sent, method=method)  # noqa: S310
        try:
            with _OPENER.open(request, timeout=self._patience) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise _refusal(error.code, error.read()) from None
        except (URLError, OSError, ValueError) as error:
            raise ServiceError(
                0, "unreachable", f"the service cannot be reached ({type(error).__name__})"
            ) from None


class ClientStream:
    """A stream of a service, as ``StreamSession`` is one of a ledger; made by ``Client.stream``."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._path = client, f"/streams/{quote(name, safe='')}/days"

    def answer(self, day: int | str | date) -> Release:
        """The answer of a day, by number or date, from the service's data: drawn once, and given
        again ever after.

        Raises:
            InvalidParameter: for a day after the next one.
            LedgerError: as for ``Client.top_k``; ask again.
            ServiceError: any other refusal, such as that the day's data are not there (503).
        """
        # made by it
        reply = self._client._answer(self._path, {"day": str(day)}, "stream")  # noqa: SLF001
        return Release.from_dict(reply["release"])

    def answered(self) -> dict[int, Release]:
        """The answers so far, by day; free."""
        found: dict[int, Release] = {}
        while page := self._about(len(found) + 1)["answers"]:
            found |= {one["day"]: Release.from_dict(one["release"]) for one in page}
        return found

    def half_widths(self) -> list[int]:
        """Within ± how much 95% of the noise on a total is, on each day; free."""
        return list(self._about(1)["half_width"])

    def _about(self, first: int) -> dict[str, Any]:
        # made by it
        return self._client._about("GET", f"{self._path}?first={first}")  # noqa: SLF001


def _stream(k: int, days: int, budget: Budget, calendar: dict[str, str]) -> dict[str, Any]:
    """A stream as JSON."""
    total = {"epsilon": validate.instance(Budget, budget=budget).epsilon, "delta": budget.delta}
    return {"k": k, "days": days, **total, **calendar}


def _passing(error: DptopkError) -> bool:
    """Whether a retry with the same key may succeed."""
    return isinstance(error, LedgerError) or (
        isinstance(error, ServiceError) and (error.status in {0, 429} or error.status >= 500)
    )


def _final(error: DptopkError) -> bool:
    """Whether a question is refused permanently, so that its key is void; false if only the token
    is unknown.
    """
    return not (_passing(error) or (isinstance(error, ServiceError) and error.status < 402))


def _released(answer: Mapping[str, Any]) -> dict[str, Release]:
    return {one["segment"]: Release.from_dict(one["release"]) for one in answer["segments"]}


def _segments(segments: str | Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Encode the segments as JSON: a column, or a column -> values."""
    if isinstance(segments, str):
        return {"segments": {segments: []}}
    return {"segments": {column: list(values) for column, values in segments.items()}}


def _run(
    mechanism: Mechanism,
    labels: Release | Sequence[Hashable] | None,
    ranking: Release | Sequence[Hashable] | None,
    where: Mapping[str, str] | None,
) -> dict[str, Any]:
    """A mechanism and the labels that it counts, as JSON."""
    options = {
        name: [
            to_plain(label)
            for label in (value.labels if isinstance(value, Release) else listed(value))
        ]
        for name, value in (("labels", labels), ("ranking", ranking))
        if value is not None
    }
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter("mechanism must be one of dptopk.mechanisms")
    return {
        "mechanism": mechanism.to_dict(),
        **options,
        **({} if where is None else {"where": dict(where)}),
    }


def _number(value: float | None) -> float:
    """A number of the service's, which writes null for what is not finite."""
    if value is None:
        return math.inf
    return float(value)


def _question_body(
    k: int, budget: Budget | None, accuracy: float | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """A question as JSON; what is None is left to the service, but for the counts: None is none."""
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    fields = {name: value for name, value in options.items() if value is not None}
    fields["counts"] = options.get("counts", "auto") or "none"
    Question.of("client", k=k, **fields)  # refuses what is no field
    if budget is not None:
        if "delta" in fields:
            raise InvalidParameter("delta is for accuracy=; a budget has its own delta")
        return {"k": k, **fields, **_part(budget)}
    return {"k": k, **fields, "accuracy": accuracy}


def _part(budget: Budget) -> dict[str, Any]:
    """A budget as JSON."""
    if validate.instance(Budget, budget=budget).rho is None:
        kind = "epsilon"
    else:
        kind = "rho"
    return {kind: getattr(budget, kind), "delta": budget.delta}


def _refusal(status: int, text: bytes) -> DptopkError:
    """A refusal as the error that a Session would raise."""
    try:
        refusal = json.loads(text)
        code = str(refusal["error"])
        message = str(refusal["message"])
    except (ValueError, KeyError, TypeError):
        code = "unknown"
        message = f"the service answered {status}"
    if code == "invalid":
        return InvalidParameter(message)
    if code == "ledger":
        return LedgerError(message)
    if code == "budget_exceeded":
        sentence, _, remaining = message.partition("; remaining ")
        why, _, requested = sentence.partition(": requested ")
        return BudgetExceeded(
            _requested_charge(requested),
            remaining,
            why.removeprefix("budget exceeded").strip(" ()"),
        )
    return ServiceError(status, code, message)


def _sent(**arguments: str) -> str:
    """The one argument, if a header of HTTP can carry it; what it cannot would look like a broken
    connection.
    """
    ((name, value),) = arguments.items()
    if not (validate.text(**arguments).isascii() and value.isprintable()):
        raise InvalidParameter(f"{name} must be printable ASCII text, without a line break")
    return str(value)


def _requested_charge(requested: str) -> Charge:
    """The charge that a refusal names."""
    try:
        return Charge.parse(requested)
    except DptopkError:
        return Charge()
