"""Questions as they travel: what an analyst asks, the plan that answers it, and how a charge remembers both."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

from dptopk import _validate as validate, mechanisms
from dptopk._choices import COUNTS, METHODS
from dptopk.accounting.budget import Budget
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.mechanisms.base import Mechanism
from dptopk.planning import Plan, plan_topk
from dptopk.service.catalog import DatasetSpec

__all__ = ["Plans", "Question", "recorded", "revived"]

MOST_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an analyst asks of a data set: its top k, for a part of the budget or at a wanted accuracy.

    Args:
        k: how many labels, in 1..1000.
        epsilon, delta: the part of the budget; ``epsilon`` or ``accuracy`` is given.
        accuracy: the smallest ε at which 95% of the noise on a count is within ± this many.
        counts, method, d_bar: as for ``plan_topk``.
        where: column -> value, out of the data set's public lists.
    """

    k: int
    epsilon: float | None = None
    delta: float = 0.0
    accuracy: float | None = None
    counts: str = "auto"
    method: str = "auto"
    d_bar: int | None = None
    where: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if validate.count(k=self.k) > MOST_ROWS:
            raise InvalidParameter(f"k must be at most {MOST_ROWS} here, got {self.k}")
        if (self.epsilon is None) == (self.accuracy is None):
            raise InvalidParameter("give exactly one of epsilon and accuracy")
        validate.member(COUNTS, counts=self.counts)
        validate.member(METHODS, method=self.method)
        validate.probability(delta=self.delta)
        if self.d_bar is not None and validate.count(d_bar=self.d_bar) > 1000 * MOST_ROWS:
            raise InvalidParameter(f"d_bar must be at most {1000 * MOST_ROWS} here, got {self.d_bar}")
        if self.epsilon is not None and not 1e-6 <= validate.positive(epsilon=self.epsilon) <= 100:
            raise InvalidParameter(f"epsilon must be in [1e-6, 100] here, got {self.epsilon}")
        if self.accuracy is not None and not 0 < validate.positive(accuracy=self.accuracy) <= 1e9:
            raise InvalidParameter(f"accuracy must be at most 1e9 here, got {self.accuracy}")

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"where": dict(self.where)}

    def fingerprint(self, spec: DatasetSpec) -> str:
        """A hash of the question and the data set; equal for equal questions."""
        return hashlib.sha256(json.dumps([spec.name, self.plain()], sort_keys=True).encode()).hexdigest()


class Plans:
    """Plans by question: what was shown before the charge is what is charged.

    Args:
        at_most: how many are kept.
    """

    def __init__(self, at_most: int = 256) -> None:
        self._kept: OrderedDict[str, Plan] = OrderedDict()
        self._at_most = at_most
        self._lock = threading.Lock()
        self._planning = threading.Semaphore(1)  # planning is arithmetic: more at a time only get in each other's way

    def get(self, spec: DatasetSpec, question: Question) -> Plan:
        """The plan for a question; the data takes no part in it.

        Raises:
            InvalidParameter: when nothing fits.
        """
        key = question.fingerprint(spec)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with self._planning:
            made = _plan(spec, question)
        with self._lock:
            kept = self._kept.setdefault(key, made)
            while len(self._kept) > self._at_most:
                self._kept.popitem(last=False)
        return kept


def _plan(spec: DatasetSpec, question: Question) -> Plan:
    options: dict[str, Any] = {"counts": question.counts, "method": question.method, "d_bar": question.d_bar}
    if spec.top is not None:
        if question.d_bar is not None and question.d_bar >= spec.top:
            raise InvalidParameter(f"d_bar must be below {spec.top} here: so many rows are brought back")
        options["d_bar"] = question.d_bar or min(max(10 * question.k, 100), spec.top - 1)
    total: dict[str, Any] = (
        {"accuracy": question.accuracy, "delta": question.delta}
        if question.epsilon is None
        else {"budget": Budget(question.epsilon, question.delta)}
    )
    return plan_topk(question.k, sensitivity=spec.sensitivity, domain=spec.domain, **total, **options)


def recorded(question: Question, plan: Plan) -> dict[str, Any]:
    """What a charge remembers of its question: enough to draw the answer after everything else is lost."""
    phases = [{"name": p.name, "mechanism": _plain(p.mechanism), "charge": str(p.charge)} for p in plan.phases]
    text = " then ".join(str(mechanism) for mechanism in plan.mechanisms)
    return {"text": text, "question": question.plain(), "phases": phases}


def revived(spec: DatasetSpec, plans: Plans, record: Mapping[str, Any], charged: Charge) -> Plan:
    """The plan that a charge paid for.

    Raises:
        LedgerError: when what comes out would cost anything but what was charged: nothing is drawn then.
    """
    fresh = plans.get(spec, Question(**record["question"]))
    phase = type(fresh.phases[0])
    phases = tuple(
        phase(name=p["name"], mechanism=_mechanism(p["mechanism"]), charge=Charge.parse(p["charge"]))
        for p in record["phases"]
    )
    plan = replace(fresh, phases=phases)
    if str(plan.charge) != str(charged):  # that what runs costs no more is checked again when the answer is stored
        raise LedgerError("the plan that was charged cannot be run by this version; its charge stays")
    return plan


def _plain(value: Any) -> Any:
    """A mechanism as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return value


def _mechanism(plain: Mapping[str, Any]) -> Mechanism:
    """The mechanism that ``_plain`` wrote."""
    parts = dict(plain)
    name = parts.pop("name")
    if name not in dir(mechanisms):
        raise LedgerError(f"there is no mechanism {name!r}")
    made: Mechanism = getattr(mechanisms, name)(
        **{key: _mechanism(value) if isinstance(value, Mapping) else value for key, value in parts.items()}
    )
    return made
