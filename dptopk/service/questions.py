"""Questions as JSON: what an analyst asks, the plan that answers it, and how a charge
records both.
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
from dptopk.costs import Budget, Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.labels import from_plain
from dptopk.ledger.entries import normal_form
from dptopk.mechanisms.named import mechanism_of, names
from dptopk.planning import Plan, TopKPlan, plan as plan_topk, revived as revived_plan
from dptopk.planning.gauge import Kind
from dptopk.planning.per_segment import same_for_segments
from dptopk.planning.single import Single
from dptopk.service.catalog import DatasetSpec
from dptopk.service.messages import in_words

if TYPE_CHECKING:
    from dptopk.ledger.spends import Spend

MOST_ROWS = 1000  # the most rows of an answer about one histogram
MOST_LABELS = 20_000  # the most rows of the answers of all segments together
BudgetPart = Annotated[float, Field(ge=1e-6, le=100.0)]  # what a question may cost, in ε or ρ
Label = str | int | float | bool | dict[str, Any] | None
Labels = Annotated[list[Label], Field(min_length=1, max_length=MOST_ROWS)]


class Answerer(Protocol):
    """A service that charges and answers questions of a kind."""

    def charge_of_key(
        self, spec: DatasetSpec, analyst: str, key: str, question: Any, /
    ) -> Spend | None:
        """Return the charge under a key; None if there is none.

        Args:
            spec: the data set.
            analyst: the analyst who asks.
            key: the idempotency key.
            question: the question.
        """

    def ask(self, spec: DatasetSpec, analyst: str, key: str, question: Any, /) -> Spend:
        """Charge and answer a question, unless that was done before; return the charge, whose
        answer is stored.

        The arguments are those of ``charge_of_key``.

        Raises:
            DptopkError: when it is refused, or cannot be answered now.
        """


class Body(BaseModel):
    """The body of a request, which holds these fields and no others."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True, frozen=True)


class PostedQuestion(Body):
    """A question about a data set, as requests state it and charges record it.

    Attributes:
        where: column -> the value that rows must have.
        segments: column -> the values whose rows are one segment each.
        action: the word for such a question in the audit log.
        cancellable: whether such a question can be called off before it is charged.
        paid: whether an earlier charge pays for such a question, as a stream's for its days.
    """

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
    paid: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """Return how many rows the answer about one histogram will have, as an estimate by which
        long answers are refused and requests cost more.
        """
        raise NotImplementedError

    def plan_for(self, spec: DatasetSpec) -> Plan:
        """Return the plan that will run on each histogram, made without data.

        Raises:
            InvalidParameter: when nothing fits the question.
        """
        raise NotImplementedError

    def revive_plan(self, spec: DatasetSpec, record: Mapping[str, Any]) -> Plan:
        """Return the plan that was charged for the question, from the record of the charge.

        Args:
            spec: the data set.
            record: the record, as ``record_of`` writes it.

        Raises:
            DptopkError: when this version cannot make it.
        """
        raise NotImplementedError

    def answerer(self, service: Any) -> Answerer:
        """Return the service that charges and answers the question."""
        return service.answer_service

    def plain(self) -> dict[str, Any]:
        """Return the question as JSON; ``question_of`` reads it."""
        defaults = self.omitted_defaults()
        return {
            name: value
            for name, value in self.model_dump().items()
            if name not in defaults or value != defaults[name]
        }

    def omitted_defaults(self) -> dict[str, Any]:
        """Return the fields that are left out of the JSON if they have these values."""
        return {"segments": {}}

    def fingerprint(self, spec: DatasetSpec) -> str:
        """Return a hash of the question and the data set; it is equal for equal questions."""
        return fingerprint([spec.name, self.plain()])

    def equals_json(self, plain: Mapping[str, Any] | None) -> bool:
        """Return whether ``plain`` is the JSON of this question; the labels 1, 1.0 and true are
        different ones there.
        """
        return canonical_json(plain) == canonical_json(self.plain())

    def check(self, spec: DatasetSpec) -> None:
        """Refuse conditions and segments that the data set does not offer.

        Raises:
            InvalidParameter: naming the field.
        """
        spec.check_conditions(self.where)
        segment_reading = spec.segment_reading(self.segments, self.where)
        if self.rows * len(segment_reading.values) > MOST_LABELS:
            raise InvalidParameter(
                f"segments: an answer may have at most {MOST_LABELS} rows in all"
            )
        for column in spec.overlapping_columns:
            if column not in {segment_reading.column, *self.where}:
                raise InvalidParameter(
                    f"where: name one {column}, or ask by segments: a user may be in several of "
                    f"them"
                )


# Fields of a question that allow less over HTTP than in the library: name -> the largest value, and
# name -> the type.
LARGEST_VALUES = {"k": MOST_ROWS}
NARROWER_TYPES = {"method": Method}  # a design cannot be named over HTTP


def question_model(kind: type[questions.Question] = questions.Question) -> type[PostedQuestion]:
    """Return the pydantic model of a question, with each field that is offered over HTTP.

    The fields ``where`` and ``segments`` are those of PostedQuestion, which questions for single
    mechanisms have too.

    Args:
        kind: Question, or a class with more fields.
    """
    hints = get_type_hints(kind)
    fields = {}
    for field in questions.offered_fields("http", kind):
        if field.name not in PostedQuestion.model_fields:
            hint = NARROWER_TYPES.get(field.name, hints[field.name])
            fields[field.name] = (hint, _pydantic_field(field))
    return create_model("Asked", __base__=PostedQuestion, **fields)  # type: ignore[call-overload]


def _pydantic_field(field: dataclasses.Field[Any]) -> Any:
    """Return pydantic's description of a field: its default over HTTP, its bounds and its help."""
    asking = questions.asking_of(field)
    required = field.default is dataclasses.MISSING
    return Field(
        default=... if required else questions.default_of(field, "http"),
        ge=asking.at_least,
        le=LARGEST_VALUES.get(field.name, asking.at_most),
        gt=asking.above,
        lt=asking.below,
        description=asking.help,
    )


if TYPE_CHECKING:
    QuestionBody = PostedQuestion
else:
    QuestionBody = question_model()


class TopK(QuestionBody):
    """A question: the top k, for (epsilon, delta), for rho, or at a wanted accuracy; of segments,
    in each of them.
    """

    def check(self, spec: DatasetSpec) -> None:
        """Refuse conditions and segments that the data set does not offer, and two totals.

        Raises:
            InvalidParameter: naming the field.
        """
        super().check(spec)
        self.question.check_total()

    @property
    def rows(self) -> int:
        """Return the number of rows of an answer, k."""
        return self.question.k

    def plan_for(self, spec: DatasetSpec) -> TopKPlan:
        """Return the plan that will run on each histogram.

        Raises:
            InvalidParameter: when nothing fits.
        """
        return plan_topk(self.question, facts_of(spec))

    @property
    def question(self) -> questions.Question:
        """Return the question as the planner takes it."""
        return questions.Question.of("http", **self.model_dump())

    def omitted_defaults(self) -> dict[str, Any]:
        """Return the fields that are left out of the JSON at their defaults.

        Earlier versions did not have them: without them a question has the same JSON as before.
        """
        values = {}
        for field in questions.offered_fields("http"):
            if questions.asking_of(field).unsaid:
                values[field.name] = questions.default_of(field, "http")
        return values

    def revive_plan(self, spec: DatasetSpec, record: Mapping[str, Any]) -> TopKPlan:
        """Return the plan that was charged, from the record of the charge."""
        return revived_plan(record, self.question, facts_of(spec))


def facts_of(spec: DatasetSpec) -> questions.Facts:
    """Return the public facts about a data set of the catalog that a plan may depend on."""
    events = questions.Events(
        labels_per_user=spec.labels_per_user or "auto",  # without a cap the plan chooses one
        per_label_cap=spec.per_label_cap,
        profile="always" if spec.spends_freely else False,
    )
    return questions.Facts(
        sensitivity=spec.sensitivity,
        domain=spec.domain,
        events=events if spec.finds_labels else None,
        rows=spec.top,
        looks=spec.top is None and spec.spends_freely,
        # Each selection is charged as a BoundedRange. The other way, as exponential clocks, would
        # be refused by a budget spent freely and by costs that were registered as BoundedRange.
        charge_as="bounded_range",
        registered=not spec.spends_freely,
        covers=lambda plan: spec.covers(plan.charge),
    )


class Named(Body):
    """A mechanism: its name, and its parameters as the library's classes take them."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    name: str = Field(json_schema_extra=lambda schema: schema.update(enum=list(names())))


class Run(PostedQuestion):
    """One mechanism by name and, if it counts certain labels, those labels."""

    mechanism: Named
    labels: Labels | None = Field(
        default=None, description="Count only these: public labels, or ones released before."
    )
    ranking: Labels | None = Field(
        default=None, description="For CountMLE: labels released before, the first first."
    )
    action: ClassVar[str] = "run"

    def model_post_init(self, _: Any) -> None:
        """Refuse numbers that are not finite, since JSON cannot hold them and the question would
        have no hash.

        Raises:
            InvalidParameter: naming the field.
        """
        for name in ("mechanism", "labels", "ranking"):
            value = self.model_dump(include={name})[name]
            # ``normal_form`` is called for its refusals alone; what it takes is an object.
            normal_form(**{name: {name: value}})

    @property
    def rows(self) -> int:
        """Return the number of labels that are named, else the mechanism's k or d_bar, else 1."""
        labels = self.labels or self.ranking
        if labels:
            return len(labels)
        parameters = self.mechanism.model_extra or {}  # pydantic has None for no parameters
        for name in ("k", "d_bar"):
            if parameters.get(name):
                return validate.count(at_most=MOST_LABELS, **{name: parameters[name]})
        return 1

    def plan_for(self, spec: DatasetSpec) -> Single:
        """Return the plan that runs the mechanism.

        Raises:
            InvalidParameter: on parameters that it does not take.
        """
        mechanism = mechanism_of(self.mechanism.model_dump())
        # Both calls refuse answers that are too long; a mechanism without k or d_bar has no limit.
        validate.count(at_most=MOST_ROWS, k=getattr(mechanism, "k", None) or 1)
        validate.count(at_most=MOST_LABELS, d_bar=getattr(mechanism, "d_bar", None) or 1)
        options = {}
        if self.labels is not None:
            options["labels"] = [from_plain(label) for label in self.labels]
        if self.ranking is not None:
            options["ranking"] = [from_plain(label) for label in self.ranking]
        return Single.of(mechanism, options, spec.sensitivity, spec.domain_size)

    def revive_plan(self, spec: DatasetSpec, record: Mapping[str, Any]) -> Single:  # noqa: ARG002
        """Return the plan that runs the mechanism; the question alone determines it."""
        return self.plan_for(spec)


def question_of(plain: Mapping[str, Any]) -> PostedQuestion:
    """Return the question that a JSON object, as ``plain`` writes it, stands for.

    Raises:
        InvalidParameter: when it is no question that may be asked.
    """
    try:
        if "mechanism" in plain:
            return Run(**plain)
        return TopK(**plain)
    except ValidationError as error:
        # As if the question was the body of a request, whose errors ``in_words`` knows.
        errors = [mistake | {"loc": ("body", *mistake["loc"])} for mistake in error.errors()]
        raise InvalidParameter(in_words(errors)) from None


class Plans:
    """A cache of the plans of questions: the plan shown before the charge is the one that is
    charged.

    Args:
        at_most: the number of plans that are cached.
        datasets: the data sets of the catalog that is served, as for ``Histograms``; None: all.
    """

    def __init__(
        self, at_most: int = 256, *, datasets: Mapping[str, DatasetSpec] | None = None
    ) -> None:
        self._datasets = datasets
        self._by_fingerprint: LRUCache[Plan] = LRUCache(at_most)

    def get(self, spec: DatasetSpec, question: PostedQuestion) -> Plan:
        """Return the plan for a question, made without data.

        Raises:
            InvalidParameter: when nothing fits.
        """
        # A data set of an earlier catalog leaves nothing for the one that is served.
        if self._datasets is not None and self._datasets.get(spec.name) is not spec:
            return question.plan_for(spec)
        name = question.fingerprint(spec)
        return self._by_fingerprint.get(name, lambda: question.plan_for(spec))


def charge_of(spec: DatasetSpec, question: PostedQuestion, prepared: Plan) -> Charge:
    """Return the charge of a question; for segments, that of a user who is in as many of them as
    the data set allows.

    Args:
        spec: the data set.
        question: the question.
        prepared: its plan for one histogram.
    """
    segment_reading = spec.segment_reading(question.segments, question.where)
    if not segment_reading.values:
        return prepared.charge
    return same_for_segments(prepared, segment_reading.values, segment_reading.per_user).charge


def stated_for(prepared: Plan, charge: Charge) -> Budget | None:
    """Return the (ε, δ)-DP guarantee that a plan states for a charge, which may be smaller than the
    one that the costs of the charge imply by themselves.

    It is None if the plan states none, or the charge is another one than the plan's own, as that of
    several segments may be.

    Args:
        prepared: the plan for one histogram.
        charge: the charge of the whole question.
    """
    if charge == prepared.charge:
        return prepared.stated
    return None


def kind_of(spec: DatasetSpec, question: PostedQuestion) -> Kind | None:
    """Return the kind of a top-k question: all of it but its ε, so that the largest ε at which the
    budget still pays for such a question can be found. None for other questions.
    """
    if not isinstance(question, TopK):
        return None
    return Kind(question.question, facts_of(spec), in_steps=False)


def kind_record(spec: DatasetSpec, question: PostedQuestion) -> dict[str, Any]:
    """Return the part of a charge's record that states the kind of a top-k question (``kind_of``);
    empty for other questions.
    """
    kind = kind_of(spec, question)
    if kind is None:
        return {}
    return {"question_kind": kind.plain()}


def record_of(question: PostedQuestion, prepared: Plan) -> dict[str, Any]:
    """Return the question and its plan as the charge records them, under names of JSON.

    The record is enough to draw the answer after everything else is lost.

    Args:
        question: the question.
        prepared: its plan for one histogram.
    """
    text = prepared.text
    if question.segments:
        text += " in each segment"
    return prepared.record() | {"text": text, "question": question.plain()}


def revive(
    spec: DatasetSpec, record: Mapping[str, Any], charged: Charge
) -> tuple[PostedQuestion, Plan]:
    """Return the question of a charge, and the plan that was charged.

    Args:
        spec: the data set.
        record: the record in the charge, as ``record_of`` writes it.
        charged: the charge.

    Raises:
        LedgerError: when this version makes no plan of the record, or one with another charge:
            nothing is drawn then.
    """
    try:
        question = question_of(record["question"])
        prepared = question.revive_plan(spec, record)
        cost = charge_of(spec, question, prepared)
        is_paid = str(cost) == str(charged)
        # Records of the first version state no kind of plan. Their charges include private looks,
        # which this version leaves out, so that the plan of today may cost less.
        if not is_paid and "kind" not in record:
            is_paid = charged.includes(cost)
    except DptopkError as error:  # the catalog or this version no longer offers it
        raise LedgerError(
            f"the question that was charged cannot be put again ({error}); its charge stays"
        ) from None
    # Before an answer is stored it is checked once more that it costs no more than was charged.
    if not is_paid:
        raise LedgerError(
            "the plan that was charged cannot be run by this version; its charge stays"
        )
    return question, prepared
