"""The calls of a Session, over HTTP: a service holds the data, the ledger and the noise."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Hashable, Mapping, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Unpack
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.labels import labels_as_list, to_plain
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.question import Question, Stated
from dptopk.release.release import Release

if TYPE_CHECKING:
    from datetime import date

    import pandas as pd


class ServiceError(DptopkError):
    """The service refused a call, or cannot be reached.

    Attributes:
        status: the HTTP status; 0 when there was no answer.
        code: the service's word for the reason, such as "unauthorized".
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirect, since that would send the token to wherever an answer
    points.
    """

    def redirect_request(self, *_: object) -> None:
        """Return no request, so that the redirect becomes an error with its status."""


_OPENER = build_opener(_NoRedirects)
# How long the service may hold a request until it has the answer, in seconds; and the pauses, in
# seconds, after which a question is sent again: each is twice the one before.
SECONDS_PER_REQUEST = 10
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Client:
    """A data set of a service, with the calls that a Session has.

    A question that spends carries its own key and is sent again after a broken connection, or when
    the service failed or is overloaded: it is charged once, and the answer is the same. If a
    question was given up before its outcome was known, the same call of this client uses its key
    again.

    Every call raises the error that a Session would raise where the service sends one, and
    ServiceError for any other refusal and where the service cannot be reached.

    Args:
        url: the address of the service, such as "https://topk.example.org".
        token: the analyst's token, from ``dptopk ledger analyst add``.
        dataset: the data set to ask; None: the only one there is.
        patience: the number of seconds, above 0, for which a question is sent again.
        longest: the number of seconds, above 0, after which an answer that is still being computed
            is waited for no more. The question goes on at the service; the same call asks for its
            answer.

    Raises:
        InvalidParameter: on a URL that is not http or https, a token that no header can carry, or
            seconds that are not finite and above 0.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        dataset: str | None = None,
        patience: float = 60.0,
        longest: float = 3600.0,
    ) -> None:
        _refuse_other_schemes(url)
        self._url = url.rstrip("/")
        self._token = _header_value(token=token)
        self._dataset = dataset
        self._patience = validate.positive(patience=patience)
        self._longest = validate.positive(longest=longest)
        # The answers that ``report`` lists, a row each.
        self._answered: list[dict[str, Any]] = []
        # The keys of questions whose outcome is not known, by the question as JSON.
        self._unresolved_keys: dict[str, str] = {}

    def datasets(self) -> pd.DataFrame:
        """Return a table of the data sets that may be asked about, a row each, without any data."""
        import pandas as pd

        return pd.DataFrame(self._call("GET", "/datasets"))

    def schema(self) -> dict[str, Any]:
        """Return what is known about the data set without reading it: columns, caps, unit and
        offers.
        """
        return self._dataset_call("GET", "")

    def budget(self) -> dict[str, Any]:
        """Return the budget of the data set, this analyst's part of it, and how often earlier
        questions still fit.
        """
        return self._dataset_call("GET", "/budget")

    def remaining(self) -> Remaining:
        """Return what is left for this analyst.

        Of the data set's budget and the analyst's own part of it, if there is one, it is the
        budget in which less ε is left.
        """
        budgets = self.budget()
        scarcer_budget = budgets["total"]
        analyst_budget = budgets.get("mine", scarcer_budget)
        left_to_all = _number_or_inf(scarcer_budget["epsilon_left"])
        if _number_or_inf(analyst_budget["epsilon_left"]) <= left_to_all:
            scarcer_budget = analyst_budget
        fits = {str(query["text"]): int(query["fits"]) for query in budgets["fits"]}
        return Remaining(
            left=scarcer_budget["remaining"],
            epsilon_spent=_number_or_inf(scarcer_budget["epsilon_spent"]),
            epsilon_total=_number_or_inf(scarcer_budget["epsilon"]),
            epsilon_left=_number_or_inf(scarcer_budget["epsilon_left"]),
            delta=scarcer_budget["delta"],
            share_used=scarcer_budget["share"],
            fits=fits,
            question=scarcer_budget.get("question", ""),
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
            k: the number of labels, or a mechanism that is planned instead of a top k.
            budget: the total of the answer, as for ``top_k``.
            accuracy: the half-width instead of a budget, as for ``top_k``.
            options: further arguments of ``top_k`` or ``run``; ``segments`` as for ``top_k_each``.
        """
        segments = {}
        if "segments" in options:
            segments = _segments_field(options.pop("segments"))
        if isinstance(k, Mechanism):
            body = _run_body(
                k,
                labels=options.get("labels"),
                ranking=options.get("ranking"),
                where=options.get("where"),
            )
        else:
            body = _question_body(k, budget, accuracy, options)
        return self._dataset_call("POST", "/plan", body | segments)

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
        """Ask for the top k; return the answer.

        Args:
            k: how many labels are asked for.
            budget: the (ε, δ) or ρ of this answer.
            accuracy: a half-width instead of a budget: 95% of the noise on a count is within it.
            delta: the δ of the answer; only with ``accuracy``.
            counts: "auto", "gaussian", "laplace" or "box" for noisy counts, as ``Session.top_k``;
                None for labels alone.
            look: as for ``Session.top_k``, but None unless it is asked for: one charge of the whole
                (ε, δ) then covers the look and whatever plan it leads to, and several such answers
                cost the sum of their ε's and δ's.
            where: column -> value, out of the data set's public lists.
            key: a name of the question: a later call with the same key, from anywhere, gives the
                same answer and costs nothing. None: a new key, or that of the same question if its
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
        return self._one_answer("/topk", _question_body(k, budget, accuracy, options), key)

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
        """Ask for the top k of every segment at once; return the answers by segment.

        Segments are charged in parallel, as ``run_each`` does: all together cost one segment's
        charge times the number of segments that one user can be in.

        Args:
            segments: a column that the data set offers (all its values), or that column -> some of
                them.
            k: how many labels of each segment are asked for.
            budget: the (ε, δ) of one segment's answer.
            accuracy: the half-width instead of a budget, as for ``top_k``.
            key: the name of the question, as for ``top_k``.
            options: further arguments of ``top_k``.
        """
        body = _question_body(k, budget, accuracy, options) | _segments_field(segments)
        return self._answers_by_segment("/topk", body, key)

    def run(
        self,
        mechanism: Mechanism,
        *,
        labels: Release | Sequence[Any] | None = None,
        ranking: Release | Sequence[Any] | None = None,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Release:
        """Charge and run one mechanism; return its answer.

        Args:
            mechanism: one of ``dptopk.mechanisms``.
            labels: the labels to count, which are public or were released before, or their Release;
                None: those that the mechanism chooses.
            ranking: for CountMLE, the labels in their released order, or their Release.
            where: column -> value, as for ``top_k``.
            key: the name of the question, as for ``top_k``.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the question does not fit; nothing was charged.
            LedgerError: the service could not store an answer, as for ``top_k``.
            ServiceError: any other refusal.
        """
        return self._one_answer("/run", _run_body(mechanism, labels, ranking, where), key)

    def run_each(
        self,
        segments: str | Mapping[str, Sequence[str]],
        mechanism: Mechanism,
        *,
        where: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, Release]:
        """Charge and run one mechanism on every segment; return the answers by segment.

        The charge is that of one segment times the number of segments that one user can be in:
        segments compose in parallel.

        Args:
            segments: a column that the data set offers (all its values), or that column -> some of
                them.
            mechanism: one of ``dptopk.mechanisms``; it runs on each segment with its own noise.
            where: column -> value, as for ``top_k``.
            key: the name of the question, as for ``top_k``.
        """
        body = _run_body(mechanism, None, None, where) | _segments_field(segments)
        return self._answers_by_segment("/run", body, key)

    def stream_price(
        self,
        k: int,
        days: int,
        *,
        budget: Budget,
        first_day: str | None = None,
        time_zone: str = "UTC",
    ) -> dict[str, Any]:
        """Return what ``stream`` would cost, what it would leave, and how exact each day would be;
        free.

        The arguments are those of ``stream`` without its name.

        Returns:
            The ``charge``, its ``epsilon`` and ``delta``, and the ``balance`` that it would leave;
            for each day, in counts, the ``half_width`` that the noise on a total stays within with
            the probability ``confidence``, and where labels are private the ``thresholds``.

        Raises:
            InvalidParameter: the data set has no streams, or the terms are none of a stream.
            ServiceError: any other refusal.
        """
        terms = _stream_terms(k, days, budget, first_day, time_zone)
        return self._dataset_call("POST", "/streams/price", terms)

    def stream(
        self,
        name: str,
        k: int,
        days: int,
        *,
        budget: Budget,
        first_day: str | None = None,
        time_zone: str = "UTC",
    ) -> ClientStream:
        """Charge a top k of all days so far, on each of these days, and return the open stream.

        A stream of the same name and terms is charged once; a later call opens it.

        Args:
            name: the stream's name: letters, digits, ".", "_", "-".
            k: how many labels are in each answer.
            days: how many days there will be; the number cannot be changed later.
            budget: the (ε, δ) of all days together, for one user of as many days as the data set
                says.
            first_day: the date of day 1, as 2026-11-01; None: days have numbers alone.
            time_zone: the time zone whose midnight parts two days, in words.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: the data set has no streams, or this name stands for other terms;
                nothing was charged.
            LedgerError: as for ``top_k``; call again with the same terms.
            ServiceError: any other refusal.
        """
        body = {"stream": name} | _stream_terms(k, days, budget, first_day, time_zone)
        # The name in the body is what is charged once; the service reads no key here.
        self._answer("/streams", body, _header_value(name=name))
        return ClientStream(self, name)

    def streams(self) -> list[dict[str, Any]]:
        """Return this analyst's streams of the data set, with their terms; free."""
        return list(self._call("GET", self._path("/streams")))

    def _one_answer(self, path: str, body: dict[str, Any], key: str | None) -> Release:
        """Ask a question that spends, and return its single answer.

        Args:
            path: the path of the question under the data set.
            body: the question as JSON.
            key: the name of the question; None: a new one.
        """
        answer = self._spend(path, body, key)
        release = Release.from_dict(answer["release"])
        self._note_answer(answer, str(release.mechanism), len(release))
        return release

    def _answers_by_segment(
        self, path: str, body: dict[str, Any], key: str | None
    ) -> dict[str, Release]:
        """Ask a question of several segments that spends, and return the answers by segment;
        arguments as for ``_one_answer``.
        """
        answer = self._spend(path, body, key)
        releases = _releases_by_segment(answer)
        first = next(iter(releases.values()))
        rows = sum(len(release) for release in releases.values())
        self._note_answer(answer, f"{first.mechanism} in each of {len(releases)} segments", rows)
        return releases

    def _note_answer(self, answer: Mapping[str, Any], mechanism: str, rows: int) -> None:
        """Add an answer to those that ``report`` lists.

        Args:
            answer: the service's answer, with its entry in the ledger and its charge.
            mechanism: what ran, in words.
            rows: how many rows were released.
        """
        entry = answer["entry"]
        charge = answer["charge"]
        self._answered.append(
            {"entry": entry, "mechanism": mechanism, "charge": charge, "rows": rows}
        )

    def _spend(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Ask a question under its key, or under a new one, and return the service's answer.

        A new key is remembered until the outcome of the question is known, so that the same
        question asked again is not charged again.

        Raises:
            DptopkError: as ``_answer``; where the question may have been charged nevertheless, a
                note says under which key it is asked again.
        """
        if key is not None:
            return self._answer(path, body, _header_value(key=key))
        question = canonical_json([path, body])
        token = self._unresolved_keys.setdefault(question, f"client-{secrets.token_hex(16)}")
        try:
            answer = self._answer(path, body, token)
        except DptopkError as error:
            if _is_final(error):
                del self._unresolved_keys[question]
            else:
                error.add_note(
                    f"It may have been charged: ask the same again, or give key={token!r}, to "
                    f"pay once."
                )
            raise
        del self._unresolved_keys[question]
        return answer

    def _answer(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        """Send a question with the same key until the service has an answer, or ``patience`` or
        ``longest`` is over; return the answer.

        Args:
            path: the path of the question under the data set.
            body: the question as JSON.
            key: the key under which it is charged once.

        Raises:
            ServiceError: if ``longest`` is over, or for a refusal that waiting does not end.
            LedgerError: if the ledger was busy for as long as ``patience``.
        """
        start = time.monotonic()
        end = start + self._patience
        path_that_waits = f"{path}?wait={SECONDS_PER_REQUEST}"
        pause = FIRST_PAUSE
        while True:
            try:
                answer = self._dataset_call("POST", path_that_waits, body, {"Idempotency-Key": key})
                if _is_complete(answer):
                    return answer
                pause = FIRST_PAUSE  # the service is there, and computes
            except (ServiceError, LedgerError) as error:
                if not _is_transient(error) or time.monotonic() + pause > end:
                    raise
            if time.monotonic() - start > self._longest:
                raise ServiceError(
                    202, "unfinished", f"there was no answer within {self._longest:g} seconds"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def releases(self) -> list[Release | dict[str, Release]]:
        """Return this analyst's latest answers, at most 100, newest first; free. An answer for
        segments is a dictionary.
        """
        releases: list[Release | dict[str, Release]] = []
        for answer in self._call("GET", self._path("/releases?limit=100")):
            if "segments" in answer:
                releases.append(_releases_by_segment(answer))
            else:
                releases.append(Release.from_dict(answer["release"]))
        return releases

    def report(self) -> pd.DataFrame:
        """Return a table of this client's answers, a row each: entry in the ledger, mechanism,
        charge, rows released.
        """
        import pandas as pd

        return pd.DataFrame(self._answered, columns=["entry", "mechanism", "charge", "rows"])

    def _repr_html_(self) -> str:
        """Return a table for notebooks of what was asked, and what is left of the budget."""
        rows = self.report()
        return (
            html_table(list(rows.columns), rows.itertuples(index=False))
            + self.remaining()._repr_html_()
        )

    def _path(self, path: str) -> str:
        """Return a path under the data set; a data set that was not named is looked up first.

        Raises:
            InvalidParameter: if none was named and the service does not have exactly one.
        """
        if self._dataset is None:
            names = [dataset["name"] for dataset in self._call("GET", "/datasets")]
            if len(names) != 1:
                raise InvalidParameter(f"dataset: name one of {', '.join(names)}")
            self._dataset = names[0]
        return f"/datasets/{quote(self._dataset, safe='')}{path}"

    def _dataset_call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call a path under the data set, and return the service's JSON.

        Args:
            method: the HTTP method.
            path: the path under the data set, "" or beginning with "/".
            body: what is sent as JSON; None: nothing.
            headers: further headers; None: none.
        """
        return self._call(method, self._path(path), body, headers)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request to the service, and return its JSON.

        Args:
            method: the HTTP method.
            path: the path after /v1.
            body: what is sent as JSON; None: nothing.
            headers: further headers.

        Raises:
            DptopkError: the refusal of the service, or ServiceError if it cannot be reached.
        """
        data = None if body is None else canonical_json(body).encode()
        all_headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        url = f"{self._url}/v1{path}"
        # __init__ has checked that the URL is http or https.
        request = Request(url, data=data, headers=all_headers, method=method)  # noqa: S310
        try:
            status, text = _response(request, self._patience)
            answer = json.loads(text) if status < 300 else None
        except (HTTPException, OSError, ValueError) as error:
            # HTTPException: the service was killed while it sent its answer.
            raise ServiceError(
                0, "unreachable", f"the service cannot be reached ({type(error).__name__})"
            ) from None
        if status >= 300:
            raise _refusal(status, text)
        return answer


class ClientStream:
    """An open stream of a service; ``Client.stream`` makes it, and it has the calls of
    ``StreamSession``.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._path = f"/streams/{quote(name, safe='')}/days"

    def answer(self, day: int | str | date) -> Release:
        """Return the answer of a day, which is drawn once from the service's data and then
        repeated.

        Args:
            day: the day's number from 1, or its date.

        Raises:
            InvalidParameter: for a day after the next one.
            LedgerError: the service could not store the answer; ask again.
            ServiceError: any other refusal, such as that the day's data are not there (503).
        """
        # The client makes this object, which may use its calls. The stream and the day in the
        # request are what is answered once; the service reads no key here.
        reply = self._client._answer(self._path, {"day": str(day)}, "stream")  # noqa: SLF001
        return Release.from_dict(reply["release"])

    def answered(self) -> dict[int, Release]:
        """Return the answers so far by the day's number; free."""
        answers: dict[int, Release] = {}
        while True:
            page = self._stream_page(len(answers) + 1)["answers"]
            if not page:
                return answers
            for answer in page:
                answers[answer["day"]] = Release.from_dict(answer["release"])

    def half_widths(self) -> list[int]:
        """Return for each day the half-width of a total: 95% of its noise is within it; free."""
        return list(self._stream_page(1)["half_width"])

    def _stream_page(self, first: int) -> dict[str, Any]:
        """Return the service's facts on the stream, with a page of its answers.

        Args:
            first: the number of the day with which the page begins.
        """
        return self._client._dataset_call("GET", f"{self._path}?first={first}")  # noqa: SLF001


def _refuse_other_schemes(url: str) -> None:
    """Refuse an address that is not one of http or https.

    Raises:
        InvalidParameter: saying what it must begin with, or that it cannot be read.
    """
    text = validate.text(url=url)
    try:
        scheme = urlsplit(text).scheme
    except ValueError:  # such as a bracket that is not closed
        raise InvalidParameter("url is no address of a service") from None
    if scheme not in {"http", "https"}:
        raise InvalidParameter("url must begin with https:// or http://")


def _stream_terms(
    k: int, days: int, budget: Budget, first_day: str | None, time_zone: str
) -> dict[str, Any]:
    """Return the terms of a stream as JSON; the arguments are those of ``Client.stream``."""
    budget = validate.instance(Budget, budget=budget)
    return {
        "k": k,
        "days": days,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "first_day": first_day,
        "time_zone": time_zone,
    }


def _response(request: Request, timeout: float) -> tuple[int, bytes]:
    """Return the status and the body of the service's response, whatever its status.

    Args:
        request: the request.
        timeout: the number of seconds without a byte after which the service counts as not reached.

    Raises:
        OSError: if there is no response.
        http.client.HTTPException: if it breaks off.
    """
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Return whether the service has sent an answer, or else the name of its job.

    Raises:
        ServiceError: when it is neither.
    """
    if "entry" in answer or "job" in answer:
        return "entry" in answer
    raise ServiceError(0, "unknown", "the service's answer is not understood")


def _is_transient(error: DptopkError) -> bool:
    """Return whether a retry with the same key may succeed.

    That is so if the ledger is busy, the service was not reached (status 0), asks to wait (429) or
    failed (500 and above).
    """
    if isinstance(error, LedgerError):
        return True
    if isinstance(error, ServiceError):
        return error.status in {0, 429} or error.status >= 500
    return False


def _is_final(error: DptopkError) -> bool:
    """Return whether a question is refused permanently, so that its key is not needed again.

    A refusal of the request or of the token (status 400 or 401) says nothing about the question.
    """
    if _is_transient(error):
        return False
    return not (isinstance(error, ServiceError) and error.status < 402)


def _releases_by_segment(answer: Mapping[str, Any]) -> dict[str, Release]:
    """Return the releases in the service's answer for segments, by segment."""
    parts = answer["segments"]
    return {part["segment"]: Release.from_dict(part["release"]) for part in parts}


def _segments_field(segments: str | Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the field "segments" of a question as JSON: column -> values, [] for all of them."""
    if isinstance(segments, str):
        return {"segments": {segments: []}}
    return {"segments": {column: list(values) for column, values in segments.items()}}


def _run_body(
    mechanism: Mechanism,
    labels: Release | Sequence[Hashable] | None,
    ranking: Release | Sequence[Hashable] | None,
    where: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return the body of a request to run a mechanism, of the arguments of ``Client.run``.

    Raises:
        InvalidParameter: for what is no mechanism.
    """
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter("mechanism must be one of dptopk.mechanisms")
    body: dict[str, object] = {"mechanism": mechanism.to_dict()}
    if labels is not None:
        body["labels"] = _plain_labels(labels)
    if ranking is not None:
        body["ranking"] = _plain_labels(ranking)
    if where is not None:
        body["where"] = dict(where)
    return body


def _plain_labels(labels: Release | Sequence[Hashable]) -> list[Any]:
    """Return labels, or those of a release, as JSON holds them."""
    if isinstance(labels, Release):
        return [to_plain(label) for label in labels.labels]
    return [to_plain(label) for label in labels_as_list(labels)]


def _number_or_inf(value: float | None) -> float:
    """Return a number from the service, which writes null for infinity."""
    if value is None:
        return math.inf
    return float(value)


def _question_body(
    k: int, budget: Budget | None, accuracy: float | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of a question.

    Fields that are None are left out, and the service takes its defaults; ``counts=None`` is sent
    as "none".

    Args:
        k: the number of labels.
        budget: the total; None with an accuracy.
        accuracy: the half-width instead of a budget.
        options: further fields of the question.

    Raises:
        InvalidParameter: unless exactly one of budget and accuracy is given, or if delta is given
            with a budget.
        TypeError: for an option that is no field of a question.
    """
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    fields = {name: value for name, value in options.items() if value is not None}
    fields["counts"] = options.get("counts", "auto") or "none"
    Question.of("client", k=k, **fields)  # refuses what is no field
    if budget is not None:
        if "delta" in fields:
            raise InvalidParameter("delta is for accuracy=; a budget has its own delta")
        return {"k": k, **fields, **_plain_budget(budget)}
    return {"k": k, **fields, "accuracy": accuracy}


def _plain_budget(budget: Budget) -> dict[str, Any]:
    """Return a budget as JSON: its δ, and its ε or its ρ, whichever it is stated in."""
    budget = validate.instance(Budget, budget=budget)
    if budget.rho is None:
        return {"epsilon": budget.epsilon, "delta": budget.delta}
    return {"rho": budget.rho, "delta": budget.delta}


def _refusal(status: int, text: bytes) -> DptopkError:
    """Return a refusal of the service as the error that a Session would raise.

    Args:
        status: the HTTP status.
        text: the body of the answer, JSON with "error" and "message".
    """
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
        # The message is "budget exceeded (why): requested CHARGE; remaining WHAT IS LEFT".
        sentence, _, remaining = message.partition("; remaining ")
        beginning, _, requested = sentence.partition(": requested ")
        why = beginning.removeprefix("budget exceeded").strip(" ()")
        return BudgetExceeded(_requested_charge(requested), remaining, why)
    return ServiceError(status, code, message)


def _header_value(**arguments: str) -> str:
    """Return the value of the one keyword argument, if an HTTP header can carry it.

    Any other value would fail while it is sent, which looks like a broken connection.

    Raises:
        InvalidParameter: naming the argument.
    """
    ((name, value),) = arguments.items()
    if not (validate.text(**arguments).isascii() and value.isprintable()):
        raise InvalidParameter(f"{name} must be printable ASCII text, without a line break")
    return str(value)


def _requested_charge(requested: str) -> Charge:
    """Return the charge that a refusal names; an empty charge if it cannot be read."""
    try:
        return Charge.parse(requested)
    except DptopkError:
        return Charge()
