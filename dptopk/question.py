"""A question and the public facts that its plan may depend on.

The command line, HTTP, the client and a session make their forms from the fields of ``Question``;
``dptopk.planning.plan`` makes the plan. docs/architecture.md, "To add an option", names each place
of a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, Self, TypedDict

from dptopk._internal import validate
from dptopk._internal.choices import ChargeAs, Counts, Domain, Effort, FindBy, LookShare
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity

# Who may state a field. Seeds, files and columns are no fields: a question can travel, and they
# belong to the machine that reads the data.
Shell = Literal["cli", "http", "client", "session"]
EVERYWHERE: frozenset[Shell] = frozenset({"cli", "http", "client", "session"})
OVER_HTTP: frozenset[Shell] = frozenset({"http", "client"})
PLAIN_NUMBERS: frozenset[Shell] = frozenset({"cli", "http"})  # Python has a Budget for them
NOT_IN_SESSIONS: frozenset[Shell] = frozenset({"cli", "http", "client"})
IN_PYTHON: frozenset[Shell] = frozenset({"session"})
Phases = Literal[1, 2]


@dataclass(frozen=True)
class Asking:
    """The words and bounds that a shell needs to offer a field of a question.

    A shell is one of the ways in which a question is asked: the command line, HTTP, the client, a
    session.

    Attributes:
        help: one sentence for people.
        at_least, at_most: bounds of a number; HTTP checks them before anything is planned.
        above, below: bounds that the number itself must not reach.
        metavar: what stands for the value in the help of the command line; None: its type.
        panel: the heading under which the command line lists it; None: the usual one.
        shells: where it may be stated.
        defaults: shell -> default, where it differs from that of the field.
        unsaid: whether records leave the field out where it has its default, so that questions that
            were charged before the field existed are still the same questions.
        phases: the function from a stated value to the number of phases that it asks for, 1 or 2;
            None: it goes with both.
    """

    help: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    metavar: str | None = None
    panel: str | None = None
    shells: frozenset[Shell] = EVERYWHERE
    defaults: Mapping[Shell, Any] = field(default_factory=dict)
    unsaid: bool = False
    phases: Callable[[Any], Phases | None] = lambda value: None  # noqa: ARG005


def question_field(default: object, asking: Asking) -> Any:
    """Return a dataclass field of a question; ``asking_of`` reads what shells need to know of it.

    Args:
        default: its default; a type, such as ``dict``, makes a new value for each question.
        asking: what shells need to know of it.
    """
    facts = {"asking": asking}
    if isinstance(default, type):
        return field(default_factory=default, metadata=facts)
    return field(default=default, metadata=facts)


def always_one_phase(_: object) -> Phases:
    """Return 1: a field of one phase, whatever its value."""
    return 1


def always_two_phases(_: object) -> Phases:
    """Return 2: a field of two phases, whatever its value."""
    return 2


def phases_of_counts(counts: Counts) -> Phases | None:
    """Return 1 for Laplace noise, which counts of two phases never have; None for other noise."""
    if counts == "laplace":
        return 1
    return None


def phases_of_look(look: LookShare) -> Phases | None:
    """Return 1 for a look at a stated share of ε, which two phases do not take; None for "auto" and
    None, which go with both.
    """
    if isinstance(look, float):
        return 1
    return None


def phases_of_fit(fit: bool | None) -> Phases | None:
    """Return 1 where counts are fitted: those of selections in one phase are; None where not,
    which goes with one phase and with two.
    """
    if fit:
        return 1
    return None


@dataclass(frozen=True, kw_only=True)
class Question:
    """The top k, for a total: what an analyst asks, without the data and without the budget.

    Two stated fields that ask for a different number of phases are refused by name; so is a field
    that the data cannot serve. The shells have the same names and, but for ``Asking.defaults``, the
    same defaults.

    >>> Question(k=10, epsilon=1.0, delta=1e-6, method="peel").stated()
    ('epsilon', 'delta', 'method')
    """

    k: int = field(metadata={"asking": Asking("How many labels.", at_least=1, at_most=10**6)})
    epsilon: float | None = question_field(
        None,
        Asking(
            "Total ε of the answer: smaller is more private, and noisier.",
            at_least=1e-6,
            at_most=100.0,
            shells=PLAIN_NUMBERS,
        ),
    )
    rho: float | None = question_field(
        None,
        Asking(
            "Instead of ε: the total ρ of zCDP; half of δ is for failures.",
            at_least=1e-6,
            at_most=100.0,
            unsaid=True,
            shells=PLAIN_NUMBERS,
        ),
    )
    accuracy: float | None = question_field(
        None,
        Asking(
            "Instead of ε: the smallest ε whose noise is within ± this number for 95% of the "
            "counts (printed intervals hold for all at once, and are wider).",
            above=0,
            at_most=1e9,
            phases=always_one_phase,
            shells=NOT_IN_SESSIONS,
        ),
    )
    delta: float | None = question_field(
        None,
        Asking(
            "Total δ of the answer: the probability that the ε guarantee fails. Choose it well "
            "below 1/users (default: 1/(10 users) if that number is stated; with a ledger, a part "
            "of its δ).",
            at_least=0,
            below=1,
            defaults={"http": 0.0},
            shells=NOT_IN_SESSIONS,
        ),
    )
    counts: Counts = question_field(
        "auto", Asking("Noise of the released counts.", phases=phases_of_counts)
    )
    users: int | None = question_field(
        None,
        Asking(
            "Number of users, if public. Gives δ its default, and a warning where δ exceeds "
            "1/users.",
            at_least=1,
            unsaid=True,
        ),
    )
    d_bar: int | None = question_field(
        None,
        Asking(
            "Only this many of the largest counts are considered (private labels only). Default: "
            "chosen for you.",
            at_least=1,
            at_most=10**6,
            phases=always_one_phase,
        ),
    )
    method: str = question_field(
        "auto",
        Asking(
            "How the top k are found; NAME: a design, as [bold]dptopk plan --alternatives[/bold] "
            "lists them.",
            metavar="[auto|peel|threshold|whole|NAME]",
            phases=always_one_phase,
        ),
    )
    fit: bool | None = question_field(
        None,
        Asking(
            "Adjust noisy counts so that they agree with the selected ranking.",
            unsaid=True,
            phases=phases_of_fit,
        ),
    )
    look: LookShare = question_field(
        "auto",
        Asking(
            "Plan by a private look at a few ranks, for this share of ε; auto: where it is "
            "worth its cost.",
            metavar="[auto|none|SHARE]",
            defaults={"http": None, "client": None},
            unsaid=True,
            phases=phases_of_look,
        ),
    )
    selection_share: float | Literal["best"] | None = question_field(
        None,
        Asking(
            "Share of the budget in ρ for selections that counts follow; best: the one with the "
            "smallest error.",
            metavar="[best|SHARE]",
            unsaid=True,
            phases=always_one_phase,
        ),
    )
    find: FindBy = question_field(
        "auto",
        Asking(
            "How labels of events are found under the cap.",
            panel="Of events",
            unsaid=True,
            phases=always_two_phases,
        ),
    )
    share: float | Literal["auto"] = question_field(
        "auto",
        Asking(
            "Share of μ² to find labels of events; the rest counts them.",
            metavar="[auto|SHARE]",
            panel="Of events",
            unsaid=True,
            phases=always_two_phases,
        ),
    )
    min_users: int = question_field(
        1,
        Asking(
            "Never show a label that fewer users have (in two phases).",
            at_least=1,
            at_most=10**9,
            panel="Of events",
            unsaid=True,
            phases=always_two_phases,
        ),
    )
    effort: Effort = question_field(
        "normal",
        Asking(
            "How much work each bound may take: about 0.25, 2.5 or 25 seconds of one processor.",
            shells=frozenset({"cli", "session"}),
            unsaid=True,
        ),
    )
    where: Mapping[str, str] = question_field(
        dict, Asking("Column to value, out of the data set's public lists.", shells=OVER_HTTP)
    )
    segments: Mapping[str, tuple[str, ...]] = question_field(
        dict,
        Asking(
            "Column to values, one column at most: ask of each of these segments at once; [] "
            "= of all.",
            shells=OVER_HTTP,
            unsaid=True,
        ),
    )
    like: Any = question_field(
        None,
        Asking(
            "Counts of the expected shape, public or already released.",
            shells=IN_PYTHON,
            unsaid=True,
            phases=always_one_phase,
        ),
    )
    charge_as: ChargeAs | Literal["auto"] | None = question_field(
        None,
        Asking(
            "What selections pay for; None: what the budget takes.",
            shells=IN_PYTHON,
            unsaid=True,
            phases=always_one_phase,
        ),
    )
    max_seconds: float | None = question_field(
        None,
        Asking(
            "A guard for the search for a plan.",
            shells=IN_PYTHON,
            unsaid=True,
            phases=always_one_phase,
        ),
    )

    @classmethod
    def of(cls, shell: Shell, **stated: Any) -> Self:
        """Return the question that was stated in a shell, with the defaults of that shell.

        Args:
            shell: the shell.
            stated: the values of the fields that were stated, by name.

        Raises:
            TypeError: for a field that is not there, or that may not be stated in this shell.
        """
        fields_here = {spec.name: spec for spec in offered_fields(shell, cls)}
        for name in stated:
            if name not in fields_here:
                raise TypeError(f"a question got an unexpected keyword argument {name!r}")
        defaults = {name: asking_of(spec).defaults for name, spec in fields_here.items()}
        defaults_here = {
            name: by_shell[shell] for name, by_shell in defaults.items() if shell in by_shell
        }
        return cls(**defaults_here | stated)

    def with_total(self, budget: Budget) -> Self:
        """Return the same question for another budget.

        Raises:
            InvalidParameter: for what is no Budget.
        """
        total = validate.instance(Budget, budget=budget)
        epsilon = total.epsilon if total.rho is None else None
        return replace(self, epsilon=epsilon, rho=total.rho, delta=total.delta, accuracy=None)

    @property
    def budget(self) -> Budget:
        """Return the total as a budget.

        Raises:
            InvalidParameter: unless exactly one of epsilon and rho is given, and no accuracy.
        """
        if self.accuracy is not None or (self.epsilon is None) == (self.rho is None):
            raise InvalidParameter("give exactly one of epsilon and rho, and no accuracy")
        return Budget(self.epsilon, self.delta or 0.0, rho=self.rho)

    def check_total(self, mark: str = "") -> None:
        """Refuse two totals, and none.

        Args:
            mark: what stands before the names of fields in the message, such as "--".

        Raises:
            InvalidParameter: unless exactly one of epsilon, rho and accuracy is given.
        """
        if [self.epsilon, self.rho, self.accuracy].count(None) != 2:
            raise InvalidParameter(
                f"give exactly one of {mark}epsilon, {mark}rho and {mark}accuracy"
            )

    def stated(self) -> tuple[str, ...]:
        """Return the names of the fields that are not at their defaults, in order, without k."""
        return tuple(spec.name for spec in fields(self) if spec.name != "k" and self._states(spec))

    def asking_for(self, phases: Phases) -> tuple[str, ...]:
        """Return the names of the stated fields that ask for this number of phases, in order; k and
        fields that go with both numbers are never among them.
        """
        stated = (spec for spec in fields(self) if spec.name != "k" and self._states(spec))
        return tuple(
            spec.name
            for spec in stated
            if asking_of(spec).phases(getattr(self, spec.name)) == phases
        )

    def _states(self, spec: Field[Any]) -> bool:
        """Return whether the value of a field differs from the field's default."""
        value = getattr(self, spec.name)
        default = default_of(spec)
        # ``like`` may be an array, whose comparison has no one truth; its default is None.
        if value is None or default is None:
            return value is not default
        return bool(value != default)


def asking_of(spec: Field[Any]) -> Asking:
    """Return what shells need to know of a field."""
    asking: Asking = spec.metadata["asking"]
    return asking


def default_of(spec: Field[Any], shell: Shell | None = None) -> Any:
    """Return the default of a field.

    Args:
        spec: the field.
        shell: where the question is stated; None: the default where shells do not differ.
    """
    asking = asking_of(spec)
    if shell is not None and shell in asking.defaults:
        return asking.defaults[shell]
    if callable(spec.default_factory):
        return spec.default_factory()
    return spec.default


def offered_fields(shell: Shell, kind: type[Question] | None = None) -> tuple[Field[Any], ...]:
    """Return the fields that a shell offers, in their order.

    Args:
        shell: the shell.
        kind: the class of the question; None: ``Question``.
    """
    return tuple(spec for spec in fields(kind or Question) if shell in asking_of(spec).shells)


class Stated(TypedDict, total=False):
    """The fields of a question that Python callers state by keyword, beside those that are
    arguments of ``top_k``: for type checkers. A test compares them with the fields of ``Question``.
    """

    method: str
    d_bar: int | None
    fit: bool | None
    selection_share: float | Literal["best"] | None
    find: FindBy
    share: float | Literal["auto"]
    min_users: int
    users: int | None


class StatedInSession(Stated, total=False):
    """The fields that a session takes besides; they cannot be sent to a service."""

    effort: Effort
    like: Any
    charge_as: ChargeAs | Literal["auto"] | None
    max_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events with private labels, which can be found under a cap and counted without it.

    Attributes:
        labels_per_user: the cap under which labels are found; "auto": the planner's.
        per_label_cap: τ, the most that one user adds to one label, in both phases.
        weights: whether the events were read for finding labels by sums of weights; None: they were
            not read yet, and the plan decides.
        profile: whether private looks at users and counts may choose the way to find labels: True:
            where the question's ``look`` allows it; "always": also where ``look`` is None, which
            is then about one phase alone; False: never.
        instead: the advice for a question that asks for one phase, where these data were read for
            two phases and cannot answer it; "": they can answer it.
    """

    labels_per_user: int | Literal["auto"] = "auto"
    per_label_cap: int = 1
    weights: bool | None = None
    profile: bool | Literal["always"] = True
    instead: str = ""


def any_plan(_: object) -> bool:
    """Return True, whatever the plan: as an account that pays for every plan answers."""
    return True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The public facts that a plan may depend on: nothing here is computed from private data.

    Attributes:
        sensitivity: of the histogram that one phase runs on.
        domain: whether the labels are public.
        events: where labels may be found under a cap and counted without it; else None.
        complete: whether all rows of the histogram are at hand.
        rows: at most this many of the largest counts are read; None: all.
        looks: whether a private look may come before one phase: all rows are at hand, and the
            account pays for a look and a plan that depends on it.
        charge_as: what selections pay for, as the account takes it.
        registered: whether only registered costs can be paid: two phases are then planned only if
            they are covered.
        covers: the function from a Plan to whether the account pays for it, or has paid for it, so
            that its answer comes again.
    """

    sensitivity: Sensitivity = field(default_factory=Sensitivity)
    domain: Domain = "private"
    events: Events | None = None
    complete: bool = True
    rows: int | None = None
    looks: bool = True
    charge_as: ChargeAs | Literal["auto"] = "auto"
    registered: bool = False
    covers: Callable[[Any], bool] = any_plan
