"""Numbers for Prometheus: requests by route and outcome, charges, shares of budgets; nothing that depends on data.

How long requests took is not among them: of a question it may depend on the data.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping


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
            requests, outcomes = list(self._requests.items()), list(self._outcomes.items())
        lines = [
            *_family("dptopk_requests_total", "counter", "Requests, by route and status."),
            *(
                _line("dptopk_requests_total", n, method=method, route=route, status=str(status))
                for (method, route, status), n in sorted(requests)
            ),
            *_family("dptopk_questions_total", "counter", "Questions that spend, by outcome."),
            *(_line("dptopk_questions_total", n, dataset=name, outcome=what) for (name, what), n in sorted(outcomes)),
            *_family("dptopk_budget_used_ratio", "gauge", "Share of a data set's budget that is used."),
            *(
                _line("dptopk_budget_used_ratio", share, dataset=name, of=kind)
                for name, kinds in shares.items()
                for kind, share in kinds.items()
            ),
            *_family("dptopk_jobs_running", "gauge", "Questions that are being answered."),
            f"dptopk_jobs_running {running}",
            *_family("dptopk_ledger_entries", "gauge", "Entries of the ledger."),
            f"dptopk_ledger_entries {entries}",
        ]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str) -> Iterable[str]:
    return (f"# HELP {name} {text}", f"# TYPE {name} {kind}")


def _line(name: str, value: float, **labels: str) -> str:
    escaped = (f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{','.join(escaped)}}} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
