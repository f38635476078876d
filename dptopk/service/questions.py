"""Questions as they travel: what an analyst asks, what will run for it, and how a charge remembers
both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from dptopk import question as questions
from dptopk._internal import validate
from dptopk._internal.choices import Method
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk._internal.lru import LRUCache
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.labels import from_plain
from dptopk.ledger.entries import normal
from dptopk.mechanisms.named import mechanism_of, names
from dptopk.planning import Plan, TopKPlan, plan, revived as revived_plan
from dptopk.planning.gauge import Kind
from dptopk.planning.per_segment import alike
from dptopk.planning.single import Single
from dptopk.service.catalog import DatasetSpec
from dptopk.service.messages import in_words

if TYPE_CHECKING:
    from dptopk.ledger.spends import Spend

MOST_ROWS = 1000  # of one histogram
MOST_LABELS = 20_000  # of all segments together
Part = Annotated[float, Field(ge=1e-6, le=100.0)]  # of a budget, in ε or ρ
Label = str | int | float | bool | dict[str, Any] | None
Labels = Annotated[list[Label], Field(min_length=1, max_length=MOST_ROWS)]


class Answerer(Protocol):
    """A service that charges and answers questions of a kind."""

    def known(self, spec: DatasetSpec, analyst: str, key: str, question: Any, /) -> Spend | None:
        """The charge under a key, if there is one."""

    def ask(self, spec: DatasetSpec, analyst: str, key: str, question: Any, /) -> Spend:
        """Charge and answer, or find what was done before."""


class Body(BaseModel):
    """The body of a request, which holds these fields and no others."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True, frozen=True)


class PostedQuestion(Body):
    """A question about a data set, as requests have it and charges remember it."""

    where: dict[str, str] = Field(
        default={}, description="Column to value, out of the data set's public lists."
    )
    segments: dict[str, list[str]] = Field(
        default={},
        max_length=1,
        description="Column to values, one column at most: ask of each of these segments at "
        "once; [] = of all.",
    )
    action: ClassVar[str] = "topk"
    cancellable: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """About how many rows an answer has, of one histogram."""
        raise NotImplementedError

    def prepared(self, spec: DatasetSpec) -> Plan:
        """Return the plan that will run on each histogram, made without data."""
        raise NotImplementedError

    def revived(self, spec: DatasetSpec, record: Mapping[str, Any]) -> Plan:
        """Return the plan that was charged for it, as the charge remembers it."""
        raise NotImplementedError

    def answerer(self, service: Any) -> Answerer:
        """Return what charges and answers it."""
        return service.answer_service

    def plain(self) -> dict[str, Any]:
        """Return it as JSON; ``question_of`` reads it."""
        unsaid = self.unsaid()
        return {
            name: value
            for name, value in self.model_dump().items()
            if name not in unsaid or value != unsaid[name]
        }

    def unsaid(self) -> dict[str, Any]:
        """Fields that are not written down where they have these values."""
        return {"segments": {}}

    def fingerprint(self, spec: DatasetSpec) -> str:
        """A hash of the question and the data set; equal for equal questions."""
        return fingerprint([spec.name, self.plain()])

    def is_that(self, plain: Mapping[str, Any] | None) -> bool:
        """Whether ``plain`` wrote this same question: as labels, 1, 1.0 and true differ."""
        return canonical_json(plain) == canonical_json(self.plain())

    def check(self, spec: DatasetSpec) -> None:
        """Refuse conditions and segments that the data set does not offer."""
        spec.checked(self.where)
        segmented = spec.segmented(self.segments, self.where)
        if self.rows * len(segmented.values) > MOST_LABELS:
            raise InvalidParameter(
                f"segments: an answer may have at most {MOST_LABELS} rows in all"
            )
        for column in spec.several:
            if column not in {segmented.column, *self.where}:
                raise InvalidParameter(
                    f"where: name one {column}, or ask by segments: a user may be in several of "
                    f"them"
                )


# What the service holds to be too much, or offers less of than the library.
LIMITS = {"k": MOST_ROWS}
WORDS = {"method": Method}  # not every design by its name


def form(kind: type[questions.Question] = questions.Question) -> type[PostedQuestion]:
    """The model of a question with a field for each one that is asked over HTTP.

    ``where`` and ``segments`` are of every question, those of single mechanisms too.
    """
    hints = get_type_hints(kind)
    own = [
        one
        for one in questions.offered("http", kind)
        if one.name not in PostedQuestion.model_fields
    ]
    fields = {one.name: (WORDS.get(one.name, hints[one.name]), _limited(one)) for one in own}
    return create_model("Asked", __base__=PostedQuestion, **fields)  # type: ignore[call-overload]


def _limited(one: dataclasses.Field[Any]) -> Any:
    """The default, the bounds and the description of a field."""
    asking = questions.asking_of(one)
    required = one.default is dataclasses.MISSING
    return Field(
        default=... if required else questions.default_of(one, "http"),
        ge=asking.at_least,
        le=LIMITS.get(one.name, asking.at_most),
        gt=asking.above,
        lt=asking.below,
        description=asking.help,
    )


if TYPE_CHECKING:
    QuestionBody = PostedQuestion
else:
    QuestionBody = form()


class TopK(QuestionBody):
    """A question: the top k, for (epsilon, delta), for rho, or at a wanted accuracy; of segments,
    in each of them.
    """

    def check(self, spec: DatasetSpec) -> None:
        """Refuse two totals too."""
        super().check(spec)
        self.question.check_total()

    @property
    def rows(self) -> int:
        """Return it as many as k."""
        return self.question.k

    def prepared(self, spec: DatasetSpec) -> TopKPlan:
        """The plan.

        Raises:
            InvalidParameter: when nothing fits.
        """
        return plan(self.question, facts_of(spec))

    @property
    def question(self) -> questions.Question:
        """The question as the planner takes it."""
        return questions.Question.of("http", **self.model_dump())

    def unsaid(self) -> dict[str, Any]:
        """Fields that earlier versions did not have, at their defaults."""
        there = questions.offered("http")
        return {
            one.name: questions.default_of(one, "http")
            for one in there
            if questions.asking_of(one).unsaid
        }

    def revived(self, spec: DatasetSpec, record: Mapping[str, Any]) -> TopKPlan:
        """The plan that a charge remembers."""
        return revived_plan(record, self.question, facts_of(spec))


def facts_of(spec: DatasetSpec) -> questions.Facts:
    """Return what plans may depend on, of a data set of the catalog.

    A filter has no price for clocks, and a registration for other questions no tokens: selections
    are charged one by one.
    """
    events = questions.Events(
        labels_per_user=spec.labels_per_user or "auto",
        per_label_cap=spec.per_label_cap,
        profile="always" if spec.free else False,
    )
    return questions.Facts(
        sensitivity=spec.sensitivity,
        domain=spec.domain,
        events=events if spec.finds else None,
        rows=spec.top,
        looks=spec.top is None and spec.free,
        charge_as="bounded_range",
        registered=not spec.free,
        covers=lambda plan: spec.covers(plan.charge),
    )


class Named(Body):
    """A mechanism: its name, and its parameters as the library's classes take them."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    name: str = Field(json_schema_extra=lambda schema: schema.update(enum=list(names())))


class Run(PostedQuestion):
    """One mechanism by name; for counts of certain labels, which."""

    mechanism: Named
    labels: Labels | None = Field(
        default=None, description="Count only these: public labels, or ones released before."
    )
    ranking: Labels | None = Field(
        default=None, description="For CountMLE: labels released before, the first first."
    )
    action: ClassVar[str] = "run"

    def model_post_init(self, _: Any) -> None:
        """Refuse numbers that are not finite, which have no fingerprint."""
        for name in ("mechanism", "labels", "ranking"):
            value = self.model_dump(include={name})[name]
            normal(**{name: {name: value}})

    @property
    def rows(self) -> int:
        """k, the labels that are named, or the largest counts that take part."""
        labels = self.labels or self.ranking
        more = self.mechanism.model_extra or {}
        sizes = ({name: more[name]} for name in ("k", "d_bar") if more.get(name))
        if labels:
            return len(labels)
        return validate.count(**next(sizes, {"k": 1}))

    def prepared(self, spec: DatasetSpec) -> Single:
        """The mechanism, and what it costs.

        Raises:
            InvalidParameter: on parameters that it does not take.
        """
        mechanism = mechanism_of(self.mechanism.model_dump())
        for name, most in (("k", MOST_ROWS), ("d_bar", MOST_LABELS)):
            validate.count(at_most=most, **{name: getattr(mechanism, name, None) or 1})
        options = {
            name: [from_plain(label) for label in labels]
            for name, labels in (("labels", self.labels), ("ranking", self.ranking))
            if labels is not None
        }
        return Single.of(mechanism, options, spec.sensitivity, spec.domain_size)

    def revived(self, spec: DatasetSpec, record: Mapping[str, Any]) -> Single:  # noqa: ARG002
        """The mechanism: the question is all of it."""
        return self.prepared(spec)


def question_of(plain: Mapping[str, Any]) -> PostedQuestion:
    """The question that ``plain`` wrote.

    Raises:
        InvalidParameter: when it is none that may be asked.
    """
    try:
        if "mechanism" in plain:
            return Run(**plain)
        return TopK(**plain)
    except ValidationError as error:
        errors = [one | {"loc": ("body", *one["loc"])} for one in error.errors()]
        raise InvalidParameter(in_words(errors)) from None


class Plans:
    """The plans of questions: the plan shown before the charge is the one that is charged.

    Args:
        at_most: how many are kept.
    """

    def __init__(self, at_most: int = 256) -> None:
        self._kept: LRUCache[Plan] = LRUCache(at_most)

    def get(self, spec: DatasetSpec, question: PostedQuestion) -> Plan:
        """Return the plan for a question, made without data.

        Raises:
            InvalidParameter: when nothing fits.
        """
        return self._kept.get(question.fingerprint(spec), lambda: question.prepared(spec))


def charge_of(spec: DatasetSpec, question: PostedQuestion, prepared: Plan) -> Charge:
    """Return the charge of a question; for segments, that of a user in as many of them as the data
    set allows.
    """
    segmented = spec.segmented(question.segments, question.where)
    if not segmented.values:
        return prepared.charge
    return alike(prepared, segmented.values, segmented.per_user).charge


def kind_of(spec: DatasetSpec, question: PostedQuestion) -> Kind | None:
    """The kind of a top-k question; None: of another one."""
    if not isinstance(question, TopK):
        return None
    return Kind(question.question, facts_of(spec), in_steps=False)


def recorded_kind(spec: DatasetSpec, question: PostedQuestion) -> dict[str, Any]:
    """The kind of a top-k question as its charge records it, for what is left of the budget."""
    kind = kind_of(spec, question)
    if kind is None:
        return {}
    return {"question_kind": kind.plain()}


def recorded(question: PostedQuestion, prepared: Plan) -> dict[str, Any]:
    """Return the record of a question in its charge: enough to draw the answer after everything
    else is lost.
    """
    each = " in each segment" if question.segments else ""
    record = prepared.record()
    return record | {"text": prepared.text + each, "question": question.plain()}


def revived(
    spec: DatasetSpec, record: Mapping[str, Any], charged: Charge
) -> tuple[PostedQuestion, Plan]:
    """Return the question of a charge, and the plan that was charged.

    Raises:
        LedgerError: when what comes out would cost anything but what was charged: nothing is drawn
        then.
    """
    try:
        question = question_of(record["question"])
        prepared = question.revived(spec, record)
        cost = charge_of(spec, question, prepared)
        same = str(cost) == str(charged)
        if "kind" not in record:  # of the first version, whose looks are no more
            same |= charged.includes(cost)
    except DptopkError as error:  # the catalog or this version no longer offers it
        raise LedgerError(
            f"the question that was charged cannot be put again ({error}); its charge stays"
        ) from None
    if not same:  # that what runs costs no more is checked again when the answer is stored
        raise LedgerError(
            "the plan that was charged cannot be run by this version; its charge stays"
        )
    return question, prepared
