"""The options of ``dptopk ledger`` that state a budget: registered costs, a total in ε or ρ, shares
of analysts, or a planned question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dptopk._internal import validate
from dptopk._internal.choices import COUNTS, DOMAINS, Domain
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.costs import Budget, Charge
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning.repeated import RepeatedPlan
    from dptopk.planning.topk_plan import TopKPlan
    from dptopk.question import Question

_Stated = TypeVar("_Stated")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The options of a budget: registered costs, or a total in ε or ρ; exactly one of the three is
    given.
    """

    delta: Annotated[float, typer.Option(help="The δ at which the guarantee is stated.")]
    registered: Annotated[
        str | None,
        typer.Option(
            help='Costs that may be spent in any order, such as "500*BR(0.05) + 50*DP(0.1)".'
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="Instead of --registered: the total ε of a fully adaptive filter."),
    ] = None
    rho: Annotated[
        float | None,
        typer.Option(help="Instead of --epsilon: the total ρ of zCDP; half of δ is for failures."),
    ] = None
    failure_delta: Annotated[
        float | None,
        typer.Option(help="With --epsilon or --rho: how much of δ is for thresholds and failures."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that state this budget to ``Ledger.create_dataset``,
        ``renew`` and ``set_limit``.

        Raises:
            InvalidParameter: when the options do not go together, or one of them cannot be read,
                naming them.
        """
        from dptopk.costs import Budget

        is_registration = self.epsilon is None and self.rho is None
        if self.failure_delta is not None and is_registration:
            raise InvalidParameter(
                "--failure-delta is for --epsilon and --rho: a registration says what its costs "
                "need"
            )
        totals = [self.registered, self.epsilon, self.rho]
        if totals.count(None) != 2:
            raise InvalidParameter("give exactly one of --registered, --epsilon and --rho")
        if self.registered is not None:
            return {"registered": costs_of(self.registered, "--registered"), "delta": self.delta}
        return {
            "budget": Budget(self.epsilon, self.delta, rho=self.rho),
            "failure_delta": self.failure_delta,
        }


@dataclass(frozen=True, kw_only=True)
class Terms(Limit):
    """The options of a data set's budget: those of ``Limit``, or instead the shares of analysts."""

    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SHARE",
            help="Instead of these, repeated: an analyst's own costs, 'ann=50*BR(0.1)', or (ε, "
            "δ), 'ann=0.5,1e-7'; 'reserve' is for everybody else. All are fixed now; the guarantee "
            "is for all of them together.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that state this budget, or these shares, to
        ``Ledger.create_dataset`` and ``renew``.

        Raises:
            InvalidParameter: when the options do not go together, one of them cannot be read, or an
                analyst has two shares, naming them.
        """
        if not self.share:
            return super().arguments()
        other_options = (self.registered, self.epsilon, self.rho, self.failure_delta)
        if any(other is not None for other in other_options):
            raise InvalidParameter(
                "give --share alone, without --registered, --epsilon, --rho and --failure-delta"
            )
        shares: dict[str, Charge | Budget] = {}
        for text in self.share:
            name, share = _share(text)
            add_once(shares, name, share, "--share")
        return {"shares": shares, "delta": self.delta}


def add_once(stated: dict[str, _Stated], name: str, value: _Stated, option: str) -> None:
    """Add what an option states under a name to what it stated before.

    Raises:
        InvalidParameter: naming the option, when it stated something under this name before.
    """
    if name in stated:
        raise InvalidParameter(f"{option}: {name!r} is named twice")
    stated[name] = value


def costs_of(text: str, option: str) -> Charge:
    """Return the charge that an option or argument states as text.

    Args:
        text: costs, such as "25*BR(0.1) + DP(0.3)".
        option: the option or argument, for messages.

    Raises:
        InvalidParameter: naming the option, for what cannot be read, and for no costs at all.
    """
    from dptopk.costs import Charge

    try:
        charge = Charge.parse(text)
    except InvalidParameter as error:
        raise InvalidParameter(f"{option}: {str(error).removeprefix('charge: ')}") from None
    if not charge.costs:
        raise InvalidParameter(
            f"{option}: no costs are given; write them as in '25*BR(0.1) + DP(0.3)'"
        )
    return charge


def _share(text: str) -> tuple[str, Charge | Budget]:
    """Return the name and the share of an analyst that a value of --share states.

    Args:
        text: NAME=COSTS, such as "ann=50*BR(0.1)", of which the share is a charge, or
            NAME=EPSILON,DELTA, such as "ann=0.5,1e-7", of which it is a budget.

    Raises:
        InvalidParameter: for another text, or numbers out of range.
    """
    from dptopk.costs import Budget

    name, _, share = text.partition("=")
    if "(" in share:
        return name, costs_of(share, "--share")
    try:
        epsilon, delta = map(float, share.split(","))
    except ValueError:
        raise InvalidParameter(
            f"share must be such as 'ann=50*BR(0.1)' or 'ann=0.5,1e-7', got {text!r}"
        ) from None
    return name, Budget(epsilon, delta)


def ranges_of(text: str) -> list[float]:
    """Return the ε of each range that a value of --ranges states, such as "0.1,0.05".

    Raises:
        InvalidParameter: when one of them is not a number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(f"ranges must be numbers such as '0.1,0.05', got {text!r}") from None


def plan_of_query(
    query: str, times: int, sensitivity: Sensitivity, delta: float
) -> RepeatedPlan[TopKPlan]:
    """Return the plan of a number of answers to a question, with the noise whose total cost is
    least.

    Args:
        query: the question as text, such as 'k=25 epsilon=0.5 delta=1e-7'.
        times: the number of answers.
        sensitivity: the caps on one user's contribution.
        delta: the δ of all answers together.

    Raises:
        InvalidParameter: if the text is no such question, or no plan answers it.
    """
    from dptopk.planning.choose import plan_repeated
    from dptopk.question import Facts

    question, domain = _question_of_text(query)
    facts = Facts(sensitivity=sensitivity, domain=domain, looks=False)
    return plan_repeated(question, facts, times, delta)


def _question_of_text(query: str) -> tuple[Question, Domain]:
    """Return the question that a text such as 'k=25 epsilon=0.5 delta=1e-7' states, and the domain
    of its labels.

    Raises:
        InvalidParameter: if the text is no such question, or states something twice.
    """
    from dptopk.question import Question

    terms: dict[str, str] = {}
    for part in query.split():
        name, _, value = part.partition("=")
        add_once(terms, name, value, "--query")
    total: dict[str, float] = {}
    try:
        for name in ("epsilon", "rho", "delta"):
            if name in terms:
                total[name] = float(terms.pop(name))
        k = int(terms.pop("k"))
    except (KeyError, ValueError):
        raise InvalidParameter(
            f"query must be such as 'k=25 epsilon=0.5 delta=1e-7', got {query!r}"
        ) from None
    if terms.keys() - {"counts", "domain"}:
        raise InvalidParameter(
            f"query: k, epsilon, rho, delta, counts and domain may be given, got {', '.join(terms)}"
        )
    counts = validate.member(COUNTS, counts=terms.get("counts", "auto"))
    domain = validate.member(DOMAINS, domain=terms.get("domain", "private"))
    question = Question(
        k=k,
        counts=counts,
        epsilon=total.get("epsilon"),
        rho=total.get("rho"),
        delta=total.get("delta"),
    )
    return question, domain
