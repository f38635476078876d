"""Numbers for Prometheus: requests by route and outcome, charges, shares of budgets.

None of them depends on data. The time that requests took is left out, since that of a question may
depend on the data.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


class Metrics:
    """Counters of one worker, and the text that Prometheus reads."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._outcomes: Counter[tuple[str, str]] = Counter()
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
        """Count a question by its outcome: "answered", "again", "refused", "cancelled" or
        "failed".
        """
        with self._lock:
            self._outcomes[dataset, outcome] += 1

    def text(self, shares: Mapping[str, Mapping[str, float]], running: int, entries: int) -> str:
        """Return all numbers in the text format of Prometheus.

        Args:
            shares: for each data set the used share of each part of its budget.
            running: the number of questions that are being answered.
            entries: the number of entries of the ledger.
        """
        with self._lock:
            requests = list(self._requests.items())
            outcomes = list(self._outcomes.items())
        families = (  # name, type, help, names of labels, and (values of labels, number) pairs
            (
                "requests_total",
                "counter",
                "Requests, by route and status.",
                "method route status",
                sorted(requests),
            ),
            (
                "questions_total",
                "counter",
                "Questions that spend, by outcome.",
                "dataset outcome",
                sorted(outcomes),
            ),
            (
                "budget_used_ratio",
                "gauge",
                "Share of a data set's budget that is used.",
                "dataset of",
                _share_samples(shares),
            ),
            ("jobs_running", "gauge", "Questions that are being answered.", "", [((), running)]),
            ("ledger_entries", "gauge", "Entries of the ledger.", "", [((), entries)]),
        )
        lines: list[str] = []
        for family in families:
            lines += _family(*family)
        return "".join(lines)


def _share_samples(
    shares: Mapping[str, Mapping[str, float]],
) -> list[tuple[tuple[str, str], float]]:
    """Return each share with its labels: (data set, part of its budget) and the share."""
    samples = []
    for dataset, parts in shares.items():
        samples += [((dataset, part), share) for part, share in parts.items()]
    return samples


def _family(
    name: str, kind: str, text: str, labels: str, values: Iterable[tuple[tuple[Any, ...], float]]
) -> list[str]:
    """Return the lines of one family of numbers.

    Args:
        name: the name, without the prefix "dptopk_".
        kind: "counter" or "gauge".
        text: the help, in one sentence.
        labels: the names of its labels, separated by blanks.
        values: for each number the values of the labels, and the number.
    """
    lines = [f"# HELP dptopk_{name} {text}\n", f"# TYPE dptopk_{name} {kind}\n"]
    label_names = labels.split()
    for label_values, number in values:
        pairs = zip(label_names, label_values, strict=True)
        selectors = [f'{label}="{_quoted_value(str(value))}"' for label, value in pairs]
        # A count keeps all its digits; of a share six say enough.
        value = str(number) if isinstance(number, int) else f"{number:g}"
        if selectors:
            lines.append(f"dptopk_{name}{{{','.join(selectors)}}} {value}\n")
        else:
            lines.append(f"dptopk_{name} {value}\n")
    return lines


def _quoted_value(text: str) -> str:
    """Return a label's value as Prometheus quotes it."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
