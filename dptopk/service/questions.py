"""Questions as they travel: what an analyst asks, what will run for it, and how a charge remembers both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare, Method
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk._internal.lru import LRUCache
from dptopk.costs import Charge
from dptopk.datasets import segments_charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import from_plain
from dptopk.ledger.entries import normal
from dptopk.mechanisms.base import Mechanism
from dptopk.mechanisms.named import mechanism_of, names
from dptopk.planning import Plan, TwoPhasePlan, plan_topk, plan_two_phases
from dptopk.planning.probe import LookedPlan, with_look
from dptopk.planning.request import total_of
from dptopk.release.release import Release
from dptopk.service.catalog import DatasetSpec
from dptopk.service.messages import in_words

MOST_ROWS = 1000  # of one histogram
MOST_LABELS = 20_000  # of all segments together
Part = Annotated[float, Field(ge=1e-6, le=100.0)]  # of a budget, in ε or ρ
# What is not written down: earlier versions did not have it.
UNSAID: list[tuple[str, Any]] = [("segments", {}), ("rho", None), ("look", None)]
Labels = Annotated[list[str | int | float | bool | dict[str, Any] | None], Field(min_length=1, max_length=MOST_ROWS)]


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


class Body(BaseModel):
    """What a request holds: nothing else."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True, frozen=True)


class Question(Body):
    """A question about a data set, as requests have it and charges remember it."""

    where: dict[str, str] = Field(default={}, description="Column to value, out of the data set's public lists.")
    segments: dict[str, list[str]] = Field(
        default={},
        max_length=1,
        description="Column to values, one column at most: ask of each of these segments at once; [] = of all.",
    )
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
        return {name: value for name, value in self.model_dump().items() if (name, value) not in UNSAID}

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


class TopK(Question):
    """A question: the top k, for (epsilon, delta), for rho, or at a wanted accuracy; of segments, in each of them."""

    k: int = Field(ge=1, le=MOST_ROWS, description="How many labels.")
    epsilon: Part | None = Field(default=None, description="Part of the budget; or give rho or accuracy.")
    rho: Part | None = Field(default=None, description="Part of the budget, in zCDP.")
    delta: float = Field(default=0.0, ge=0, lt=1)
    accuracy: float | None = Field(
        default=None, gt=0, le=1e9, description="95% of the noise on a count is to be within ± this many."
    )
    counts: Counts = "auto"
    method: Method = "auto"
    d_bar: int | None = Field(default=None, ge=1, le=1000 * MOST_ROWS)
    look: LookShare = Field(default=None, description="A share of epsilon for a private look that the plan is made by.")

    @property
    def total(self) -> dict[str, Any]:
        """The total, as plan_topk takes it."""
        return total_of(self.epsilon, self.rho, self.accuracy, self.delta)

    def check(self, spec: DatasetSpec) -> None:
        """Refuse two totals too."""
        super().check(spec)
        _ = self.total

    @property
    def rows(self) -> int:
        """As many as k."""
        return self.k

    def prepared(self, spec: DatasetSpec) -> Plan:
        """The plan.

        Raises:
            InvalidParameter: when nothing fits.
        """
        one = (self.accuracy, self.method, self.d_bar) != (None, "auto", None) or isinstance(self.look, float)
        if spec.finds and self.counts != "laplace" and not one:
            asked: dict[str, Any] = {"counts": self.counts, "per_label_cap": spec.per_label_cap}
            asked |= {"labels_per_user": spec.labels_per_user or "auto", "profile": spec.free}
            with nullcontext() if spec.free else suppress(InvalidParameter):
                made = plan_two_phases(self.k, **self.total, **asked)
                if spec.covers(made.charge):
                    return made
        options: dict[str, Any] = {"counts": self.counts, "method": self.method, "d_bar": self.d_bar}
        if spec.top is not None:
            if self.d_bar is not None and self.d_bar >= spec.top:
                raise InvalidParameter(f"d_bar must be below {spec.top} here: only that many rows are read")
            options["d_bar"] = self.d_bar or min(max(10 * self.k, 100), spec.top - 1)
        # Selections one by one: a filter has no price for clocks, and a registration for other questions no tokens.
        options["charge_as"] = "bounded_range"
        planned = partial(plan_topk, k=self.k, sensitivity=spec.sensitivity, domain=spec.domain, **options)
        return with_look(self.look, planned, whole=spec.top is None and spec.free, **self.total)()


class Named(Body):
    """A mechanism: its name, and its parameters as the library's classes take them."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    name: str = Field(json_schema_extra=lambda schema: schema.update(enum=list(names())))


class Run(Question):
    """One mechanism by name; for counts of certain labels, which."""

    mechanism: Named
    labels: Labels | None = Field(default=None, description="Count only these: public labels, or ones released before.")
    ranking: Labels | None = Field(default=None, description="For CountMLE: labels released before, the first first.")
    action: ClassVar[str] = "run"

    def model_post_init(self, _: Any) -> None:
        """Refuse numbers that are not finite, which have no fingerprint."""
        for name in ("mechanism", "labels", "ranking"):
            normal(**{name: {name: self.model_dump(include={name})[name]}})

    @property
    def rows(self) -> int:
        """k, the labels that are named, or the largest counts that take part."""
        given = self.labels or self.ranking
        more = self.mechanism.model_extra or {}
        sizes = ({name: more[name]} for name in ("k", "d_bar") if more.get(name))
        return len(given) if given else validate.count(**next(sizes, {"k": 1}))

    def prepared(self, spec: DatasetSpec) -> Single:
        """The mechanism, and what it costs.

        Raises:
            InvalidParameter: on parameters that it does not take.
        """
        mechanism = mechanism_of(self.mechanism.model_dump())
        for name, most in (("k", MOST_ROWS), ("d_bar", MOST_LABELS)):
            validate.count(at_most=most, **{name: getattr(mechanism, name, None) or 1})
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
    """The question that ``plain`` wrote.

    Raises:
        InvalidParameter: when it is none that may be asked.
    """
    try:
        return Run(**plain) if "mechanism" in plain else TopK(**plain)
    except ValidationError as error:
        raise InvalidParameter(in_words(one | {"loc": ("body", *one["loc"])} for one in error.errors())) from None


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
    looked = ("a look", "a plan by it") if isinstance(prepared, LookedPlan) else prepared.mechanisms
    text = " then ".join(map(str, looked)) + (" in each segment" if question.segments else "")
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
        if isinstance(prepared, Plan):  # phases of one kind of plan do not run as those of the other
            same &= isinstance(prepared, TwoPhasePlan) == (prepared.phases[0].name == "find")
    except DptopkError as error:  # the catalog or this version no longer offers it
        raise LedgerError(f"the question that was charged cannot be put again ({error}); its charge stays") from None
    if not same:  # that what runs costs no more is checked again when the answer is stored
        raise LedgerError("the plan that was charged cannot be run by this version; its charge stays")
    return question, prepared
