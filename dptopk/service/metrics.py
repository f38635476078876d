"""Numbers for Prometheus: requests by route and outcome, charges, shares of budgets; nothing that
depends on data.

How long requests took is not among them: of a question it may depend on the data.
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

    def request(self, method: str, route: str, status: int) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[method, route, status] += 1

    def question(self, dataset: str, outcome: str) -> None:
        """Count a question: "answered", "again", "refused", "cancelled", "failed"."""
        with self._lock:
            self._outcomes[dataset, outcome] += 1

    def text(self, shares: Mapping[str, Mapping[str, float]], running: int, entries: int) -> str:
        """All of it, with the shares used of each data set's budget."""
        with self._lock:
            requests = list(self._requests.items())
            outcomes = list(self._outcomes.items())
        used = [
            ((name, kind), share) for name, kinds in shares.items() for kind, share in kinds.items()
        ]
        families = (  # name, type, what it is, its labels, and a value for each
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
                used,
            ),
            ("jobs_running", "gauge", "Questions that are being answered.", "", [((), running)]),
            ("ledger_entries", "gauge", "Entries of the ledger.", "", [((), entries)]),
        )
        return "".join(line for family in families for line in _family(*family))


def _family(
    name: str, kind: str, text: str, labels: str, values: Iterable[tuple[tuple[Any, ...], float]]
) -> list[str]:
    lines = [f"# HELP dptopk_{name} {text}\n", f"# TYPE dptopk_{name} {kind}\n"]
    for named, value in values:
        sample_lines = [
            f'{key}="{_escaped(str(one))}"' for key, one in zip(labels.split(), named, strict=True)
        ]
        if sample_lines:
            lines.append(f"dptopk_{name}{{{','.join(sample_lines)}}} {value:g}\n")
        else:
            lines.append(f"dptopk_{name} {value}\n")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
