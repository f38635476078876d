"""Numbers for Prometheus: requests by route and outcome, charges, shares of budgets.

None of them depends on data. The time that requests took is left out, since that of a question may
depend on the data.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class _MetricFamily:
    """A family of numbers, as Prometheus calls all numbers of one name.

    Attributes:
        name: the name, without the prefix "dptopk_".
        kind: "counter" or "gauge".
        help: what the numbers are, in one sentence.
        labels: the names of the labels that tell the numbers apart.
        samples: for each number the values of these labels, in their order, and the number.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    samples: Iterable[tuple[tuple[Any, ...], float]]

    def text(self) -> str:
        """Return the lines of the family in the text format of Prometheus."""
        lines = [
            f"# HELP dptopk_{self.name} {self.help}\n",
            f"# TYPE dptopk_{self.name} {self.kind}\n",
        ]
        for label_values, number in self.samples:
            pairs = zip(self.labels, label_values, strict=True)
            selectors = [f'{label}="{_quoted_value(str(value))}"' for label, value in pairs]
            # A count keeps all its digits; of a share six say enough.
            value = str(number) if isinstance(number, int) else f"{number:g}"
            if selectors:
                lines.append(f"dptopk_{self.name}{{{','.join(selectors)}}} {value}\n")
            else:
                lines.append(f"dptopk_{self.name} {value}\n")
        return "".join(lines)


class Metrics:
    """Counters of one worker, and the text that Prometheus reads."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self._outcomes: Counter[tuple[str, str]] = Counter()  # by data set and outcome
        self._lock = threading.Lock()

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count an answered request.

        Args:
            method: its method, such as "GET".
            route: its route, such as "/v1/me"; "other" for an address that has none.
            status: the status of the answer; 0: the connection ended before one was sent.
        """
        with self._lock:
            self._requests[method, route, status] += 1

    def count_question(self, dataset: str, outcome: str) -> None:
        """Count a question by its outcome: "answered", "again" (the stored answer was sent once
        more), "refused" (by the budget), "cancelled" or "failed".
        """
        with self._lock:
            self._outcomes[dataset, outcome] += 1

    def text(self, shares: Mapping[str, Mapping[str, float]], running: int, entries: int) -> str:
        """Return all numbers in the text format of Prometheus.

        Args:
            shares: data set -> part of its budget, such as "budget" -> the used share of it, a
                number from 0 to 1.
            running: the number of questions that are being answered.
            entries: the number of entries of the ledger.
        """
        with self._lock:
            requests = list(self._requests.items())
            outcomes = list(self._outcomes.items())
        families = (
            _MetricFamily(
                name="requests_total",
                kind="counter",
                help="Requests, by route and status.",
                labels=("method", "route", "status"),
                samples=sorted(requests),
            ),
            _MetricFamily(
                name="questions_total",
                kind="counter",
                help="Questions that spend, by outcome.",
                labels=("dataset", "outcome"),
                samples=sorted(outcomes),
            ),
            _MetricFamily(
                name="budget_used_ratio",
                kind="gauge",
                help="Share of a data set's budget that is used.",
                labels=("dataset", "of"),
                samples=_share_samples(shares),
            ),
            _MetricFamily(
                name="jobs_running",
                kind="gauge",
                help="Questions that are being answered.",
                samples=[((), running)],
            ),
            _MetricFamily(
                name="ledger_entries",
                kind="gauge",
                help="Entries of the ledger.",
                samples=[((), entries)],
            ),
        )
        return "".join(family.text() for family in families)


def _share_samples(
    shares: Mapping[str, Mapping[str, float]],
) -> list[tuple[tuple[str, str], float]]:
    """Return each share with its labels: (data set, part of its budget) and the share."""
    samples = []
    for dataset, parts in shares.items():
        samples += [((dataset, part), share) for part, share in parts.items()]
    return samples


def _quoted_value(text: str) -> str:
    """Return a label's value as Prometheus quotes it."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
