"""The calls of a Session, over HTTP: a service holds the data, the ledger and the noise."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget
from dptopk.errors import DptopkError, InvalidParameter
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.question import Stated
from dptopk.release.release import Release
from dptopk.session.client_stream import ClientStream
from dptopk.session.question_json import question_json, run_json, segments_json, stream_json
from dptopk.session.service_connection import (
    ServiceConnection,
    ServiceError as ServiceError,  # noqa: PLC0414 - users who catch it import it from here
    header_value,
    is_final,
)

if TYPE_CHECKING:
    import pandas as pd


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
        self._connection = ServiceConnection(url, token, patience=patience, longest=longest)
        self._dataset = dataset
        # The answers that ``report`` lists, a row each.
        self._answered: list[dict[str, Any]] = []
        # The keys of questions whose outcome is not known, by the question as JSON.
        self._unresolved_keys: dict[str, str] = {}

    def datasets(self) -> pd.DataFrame:
        """Return a table of the data sets that may be asked about, a row each, without any data."""
        import pandas as pd

        return pd.DataFrame(self._connection.call("GET", "/datasets"))

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
        """Return the cost and accuracy of a question and the budget that it would leave; free of
        charge.

        Args:
            k: the number of labels, or a mechanism that is planned instead of a top k.
            budget: the total of the answer, as for ``top_k``.
            accuracy: the half-width instead of a budget, as for ``top_k``.
            options: further arguments of ``top_k`` or ``run``; ``segments`` as for ``top_k_each``.

        Returns:
            The service's JSON, documented in docs/service.md.

        Raises:
            InvalidParameter: the question does not fit.
            TypeError: for an option that is no field of a question.
            ServiceError: any other refusal.
        """
        segments = {}
        if "segments" in options:
            segments = segments_json(options.pop("segments"))
        if isinstance(k, Mechanism):
            body = run_json(
                k,
                labels=options.get("labels"),
                ranking=options.get("ranking"),
                where=options.get("where"),
            )
        else:
            body = question_json(k, budget, accuracy, options)
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
        return self._one_answer("/topk", question_json(k, budget, accuracy, options), key)

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

        Raises:
            BudgetExceeded, InvalidParameter, LedgerError, ServiceError: as for ``top_k``.
            TypeError: for an option that is no field of a question.
        """
        body = question_json(k, budget, accuracy, options) | segments_json(segments)
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
        return self._one_answer("/run", run_json(mechanism, labels, ranking, where), key)

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

        Raises:
            BudgetExceeded, InvalidParameter, LedgerError, ServiceError: as for ``run``.
        """
        body = run_json(mechanism, None, None, where) | segments_json(segments)
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
        terms = stream_json(k, days, budget, first_day, time_zone)
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
        body = {"stream": name} | stream_json(k, days, budget, first_day, time_zone)
        # The name in the body is what is charged once; the service reads no key here.
        self._answer("/streams", body, header_value(name=name))
        path_of_days = self._path(f"/streams/{quote(name, safe='')}/days")
        return ClientStream(self._connection, path_of_days)

    def streams(self) -> list[dict[str, Any]]:
        """Return this analyst's streams of the data set, with their terms; free."""
        return list(self._connection.call("GET", self._path("/streams")))

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
            return self._answer(path, body, header_value(key=key))
        question = canonical_json([path, body])
        token = self._unresolved_keys.setdefault(question, f"client-{secrets.token_hex(16)}")
        try:
            answer = self._answer(path, body, token)
        except DptopkError as error:
            if is_final(error):
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
        """Return the service's answer to a question about the data set, as
        ``ServiceConnection.call_until_answered`` gets it.
        """
        return self._connection.call_until_answered(partial(self._path, path), body, key)

    def releases(self) -> list[Release | dict[str, Release]]:
        """Return this analyst's latest answers, at most 100, newest first; free. An answer for
        segments is a dictionary.
        """
        releases: list[Release | dict[str, Release]] = []
        for answer in self._connection.call("GET", self._path("/releases?limit=100")):
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
            names = [dataset["name"] for dataset in self._connection.call("GET", "/datasets")]
            if not names:
                raise InvalidParameter("dataset: the service has none that this token may ask")
            if len(names) != 1:
                raise InvalidParameter(f"dataset: name one of {', '.join(names)}")
            self._dataset = names[0]
        return f"/datasets/{quote(self._dataset, safe='')}{path}"

    def _dataset_call(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Call a path under the data set, and return the service's JSON.

        Args:
            method: the HTTP method.
            path: the path under the data set, "" or beginning with "/".
            body: what is sent as JSON; None: nothing.

        Raises:
            DptopkError: as ``ServiceConnection.call``.
        """
        return dict(self._connection.call(method, self._path(path), body))


def _releases_by_segment(answer: Mapping[str, Any]) -> dict[str, Release]:
    """Return the releases in the service's answer for segments, by segment."""
    parts = answer["segments"]
    return {part["segment"]: Release.from_dict(part["release"]) for part in parts}


def _number_or_inf(value: float | None) -> float:
    """Return a number from the service, which writes null for infinity."""
    if value is None:
        return math.inf
    return float(value)
