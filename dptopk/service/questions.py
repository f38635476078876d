"""Questions as they travel: what an analyst asks, what will run for it, and how a charge remembers both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

from dptopk._internal import validate
from dptopk._internal.choices import COUNTS, METHODS
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk._internal.lru import LRUCache
from dptopk.costs import Budget, Charge
from dptopk.datasets import segments_charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import from_plain
from dptopk.ledger.entries import normal
from dptopk.mechanisms.base import Mechanism
from dptopk.mechanisms.named import mechanism_of
from dptopk.planning import Plan, plan_topk, plan_two_phases
from dptopk.release.release import Release
from dptopk.service.catalog import DatasetSpec

MOST_ROWS = 1000  # of one histogram
MOST_LABELS = 20_000  # of all segments together
# What a question may ask for, here and in the schema of requests.
MOST_SLOTS, EPSILONS, LARGEST_ACCURACY = 1000 * MOST_ROWS, (1e-6, 100.0), 1e9


class Prepared(Protocol):
    """The plan or single mechanism that will run on each histogram of a question."""

    @property
    def charge(self) -> Charge:
        """The most that it can cost."""

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms that run, in order."""

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise, without drawing noise."""

    def release(self, histogram: Histogram) -> Release:
        """Draw the answer."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a data set.

    Args:
        where: column -> value, out of the data set's public lists.
        segments: column -> values, one column at most: the question is put to each of these segments at once; no
            values = the whole public list.
    """

    where: Mapping[str, str] = field(default_factory=dict)
    segments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    action: ClassVar[str] = "topk"
    cancellable: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """About how many rows an answer has, of one histogram."""
        raise NotImplementedError

    def prepared(self, spec: DatasetSpec) -> Prepared:
        """Return the plan that will run on each histogram, made without data."""
        raise NotImplementedError

    def answerer(self, service: Any) -> Any:
        """What charges and answers it."""
        return service.answer_service

    def plain(self) -> dict[str, Any]:
        """As JSON; ``question_of`` reads it."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)} | {"where": dict(self.where)}
        segments = {column: list(values) for column, values in plain.pop("segments").items()}
        return plain | ({"segments": segments} if segments else {})

    def fingerprint(self, spec: DatasetSpec) -> str:
        """A hash of the question and the data set; equal for equal questions."""
        return fingerprint([spec.name, self.plain()])

    def is_that(self, plain: Any) -> bool:
        """Whether ``plain`` wrote this same question: as labels, 1, 1.0 and true differ."""
        return canonical_json(plain) == canonical_json(self.plain())

    def check(self, spec: DatasetSpec) -> None:
        """Refuse conditions and segments that the data set does not offer."""
        spec.checked(self.where)
        asked = spec.segmented(self.segments, self.where)
        if self.rows * len(asked.values) > MOST_LABELS:
            raise InvalidParameter(f"segments: an answer may have at most {MOST_LABELS} rows in all")
        for column in spec.several:
            if column not in {asked.column, *self.where}:
                raise InvalidParameter(
                    f"where: name one {column}, or ask by segments: a user may be in several of them"
                )


@dataclass(frozen=True, kw_only=True)
class TopK(Question):
    """The top k, for a part of the budget or at a wanted accuracy.

    Args:
        k: how many labels, in 1..1000.
        epsilon, delta: the part of the budget, in each segment; ``epsilon`` or ``accuracy`` is given.
        accuracy: the smallest ε at which 95% of the noise on a count is within ± this many.
        counts, method, d_bar: as for ``plan_topk``.
    """

    k: int
    epsilon: float | None = None
    delta: float = 0.0
    accuracy: float | None = None
    counts: str = "auto"
    method: str = "auto"
    d_bar: int | None = None

    def __post_init__(self) -> None:
        _bounded(MOST_ROWS, k=self.k)
        if (self.epsilon is None) == (self.accuracy is None):
            raise InvalidParameter("give exactly one of epsilon and accuracy")
        validate.member(COUNTS, counts=self.counts)
        validate.member(METHODS, method=self.method)
        validate.probability(delta=self.delta)
        if self.d_bar is not None:
            _bounded(MOST_SLOTS, d_bar=self.d_bar)
        if self.epsilon is not None and not EPSILONS[0] <= validate.positive(epsilon=self.epsilon) <= EPSILONS[1]:
            raise InvalidParameter(f"epsilon must be in [{EPSILONS[0]:g}, {EPSILONS[1]:g}] here, got {self.epsilon}")
        if self.accuracy is not None and validate.positive(accuracy=self.accuracy) > LARGEST_ACCURACY:
            raise InvalidParameter(f"accuracy must be at most {LARGEST_ACCURACY:g} here, got {self.accuracy}")

    @property
    def rows(self) -> int:
        """As many as k."""
        return self.k

    def prepared(self, spec: DatasetSpec) -> Plan:
        """The plan.

        Raises:
            InvalidParameter: when nothing fits.
        """
        if spec.finds and self.counts != "laplace" and (self.accuracy, self.method, self.d_bar) == (None, "auto", None):
            asked: dict[str, Any] = {"counts": self.counts, "per_label_cap": spec.per_label_cap}
            asked["labels_per_user"] = spec.labels_per_user or "auto"
            return plan_two_phases(self.k, Budget(self.epsilon or 0.0, self.delta), **asked)
        options: dict[str, Any] = {"counts": self.counts, "method": self.method, "d_bar": self.d_bar}
        if spec.top is not None:
            if self.d_bar is not None and self.d_bar >= spec.top:
                raise InvalidParameter(f"d_bar must be below {spec.top} here: only that many rows are read")
            options["d_bar"] = self.d_bar or min(max(10 * self.k, 100), spec.top - 1)
        total: dict[str, Any] = (
            {"accuracy": self.accuracy, "delta": self.delta}
            if self.epsilon is None
            else {"budget": Budget(self.epsilon, self.delta)}
        )
        # Selections one by one: a filter has no price for clocks, and a registration for other questions no tokens.
        options["charge_as"] = "bounded_range"
        return plan_topk(self.k, sensitivity=spec.sensitivity, domain=spec.domain, **total, **options)


@dataclass(frozen=True, kw_only=True)
class Run(Question):
    """One mechanism by name.

    Args:
        mechanism: its name and parameters, as its ``to_dict`` writes them.
        labels, ranking: whose counts are asked for, as ``to_plain`` writes them: public labels, or released before.
    """

    mechanism: Mapping[str, Any]
    labels: Sequence[Any] | None = None
    ranking: Sequence[Any] | None = None
    action: ClassVar[str] = "run"

    def __post_init__(self) -> None:
        for name in ("mechanism", "labels", "ranking"):
            normal(**{name: {name: getattr(self, name)}})  # a number that is not finite has no fingerprint
            if name != "mechanism" and getattr(self, name) is not None:
                _bounded(MOST_ROWS, **{name: len(getattr(self, name))})

    @property
    def rows(self) -> int:
        """k, the labels that are named, or the largest counts that take part."""
        given = self.labels or self.ranking
        sizes = ({name: self.mechanism[name]} for name in ("k", "d_bar") if self.mechanism.get(name))
        return len(given) if given else validate.count(**next(sizes, {"k": 1}))

    def prepared(self, spec: DatasetSpec) -> Single:
        """The mechanism, and what it costs.

        Raises:
            InvalidParameter: on parameters that it does not take.
        """
        mechanism = mechanism_of(self.mechanism)
        for name, most in (("k", MOST_ROWS), ("d_bar", MOST_LABELS)):
            if getattr(mechanism, name, None) is not None:
                _bounded(most, **{name: getattr(mechanism, name)})
        options = {
            name: [from_plain(label) for label in given]
            for name, given in (("labels", self.labels), ("ranking", self.ranking))
            if given is not None
        }
        try:
            inspect.signature(mechanism.check).bind(None, **options)
        except TypeError as error:  # names the option
            raise InvalidParameter(f"{type(mechanism).__name__}: {error}") from None
        counted = next((len(given) for given in options.values()), spec.domain_size)
        return Single(mechanism, mechanism.charge(spec.sensitivity, labels=counted), options)


def question_of(plain: Mapping[str, Any]) -> Question:
    """The question that ``plain`` wrote."""
    return Run(**plain) if "mechanism" in plain else TopK(**plain)


def _bounded(most: int, **arguments: int) -> None:
    ((name, value),) = arguments.items()
    if validate.count(**{name: value}) > most:
        raise InvalidParameter(f"{name} must be at most {most} here, got {value}")


@dataclass(frozen=True)
class Single:
    """One mechanism with the labels that it counts."""

    mechanism: Mechanism
    charge: Charge
    options: Mapping[str, Any]

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The one."""
        return (self.mechanism,)

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise, without drawing noise."""
        self.mechanism.check(histogram, **self.options)

    def release(self, histogram: Histogram) -> Release:
        """Draw the answer."""
        return self.mechanism.release(histogram, **self.options)


class Plans:
    """The plans of questions: the plan shown before the charge is the one that is charged.

    Args:
        at_most: how many are kept.
    """

    def __init__(self, at_most: int = 256) -> None:
        self._kept: LRUCache[Prepared] = LRUCache(at_most)

    def get(self, spec: DatasetSpec, question: Question) -> Prepared:
        """Return the plan for a question, made without data.

        Raises:
            InvalidParameter: when nothing fits.
        """
        return self._kept.get(question.fingerprint(spec), lambda: question.prepared(spec))


def charge_of(spec: DatasetSpec, question: Question, prepared: Prepared) -> Charge:
    """Return the charge of a question; for segments, that of a user in as many of them as the data set allows."""
    asked = spec.segmented(question.segments, question.where)
    if not asked.values:
        return prepared.charge
    return segments_charge([prepared.charge] * len(asked.values), segments_per_user=asked.per_user)


def recorded(question: Question, prepared: Prepared) -> dict[str, Any]:
    """Return the record of a question in its charge: enough to draw the answer after everything else is lost."""
    text = " then ".join(map(str, prepared.mechanisms)) + (" in each segment" if question.segments else "")
    record: dict[str, Any] = {"text": text, "question": question.plain()}
    if isinstance(prepared, Plan):
        record["phases"] = [
            {"name": phase.name, "mechanism": phase.mechanism.to_dict(), "charge": str(phase.charge)}
            for phase in prepared.phases
        ]
    return record


def revived(spec: DatasetSpec, plans: Plans, record: Mapping[str, Any], charged: Charge) -> tuple[Question, Prepared]:
    """Return the question of a charge, and the plan that was charged.

    Raises:
        LedgerError: when what comes out would cost anything but what was charged: nothing is drawn then.
    """
    try:
        question = question_of(record["question"])
        prepared = plans.get(spec, question)
        if isinstance(prepared, Plan):
            phase = type(prepared.phases[0])
            phases = tuple(
                phase(name=p["name"], mechanism=mechanism_of(p["mechanism"]), charge=Charge.parse(p["charge"]))
                for p in record["phases"]
            )
            prepared = replace(prepared, phases=phases)
        same = str(charge_of(spec, question, prepared)) == str(charged)
    except DptopkError as error:  # the catalog or this version no longer offers it
        raise LedgerError(f"the question that was charged cannot be put again ({error}); its charge stays") from None
    if not same:  # that what runs costs no more is checked again when the answer is stored
        raise LedgerError("the plan that was charged cannot be run by this version; its charge stays")
    return question, prepared
