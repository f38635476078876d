"""This module says what a budget is made of, by the options of ``dptopk ledger``: costs, a total,
shares, or a planned question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptopk._internal import validate
from dptopk._internal.choices import COUNTS, DOMAINS
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.costs import Charge
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning.repeated import RepeatedPlan
    from dptopk.planning.topk_plan import TopKPlan


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The options of a budget: registered costs, or a total in ε or ρ."""

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
        """The arguments of ``Ledger.create_dataset``, ``renew`` and ``set_limit`` that say what the
        budget is.

        Raises:
            InvalidParameter: when the options do not go together, naming them.
        """
        from dptopk.costs import Budget

        if self.failure_delta is not None and self.epsilon is None is self.rho:
            raise InvalidParameter(
                "--failure-delta is for --epsilon and --rho: a registration says what its costs "
                "need"
            )
        if [self.registered, self.epsilon, self.rho].count(None) != 2:
            raise InvalidParameter("give exactly one of --registered, --epsilon and --rho")
        if self.registered is not None:
            return {"registered": costs_of(self.registered, "--registered"), "delta": self.delta}
        return {
            "budget": Budget(self.epsilon, self.delta, rho=self.rho),
            "failure_delta": self.failure_delta,
        }


@dataclass(frozen=True, kw_only=True)
class Terms(Limit):
    """The options of a data set's budget: those of a budget, or the shares of analysts."""

    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SHARE",
            help="Instead of these, repeated: an analyst's own costs, 'ann=50*BR(0.1)', or (ε, "
            "δ), 'ann=0.5,1e-7'; "
            "'reserve' is for everybody else. All are fixed now; the guarantee is for all of "
            "them together.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The same, of shares too."""
        if not self.share:
            return super().arguments()
        if (self.registered, self.epsilon, self.rho, self.failure_delta) != (None,) * 4:
            raise InvalidParameter(
                "give --share alone, without --registered, --epsilon, --rho and --failure-delta"
            )
        return {"shares": dict(map(_share, self.share)), "delta": self.delta}


def costs_of(text: str, option: str) -> Charge:
    """The costs that an option, or an argument, says.

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


def _share(text: str) -> tuple[str, Any]:
    """An analyst's name and share, of NAME=COSTS or NAME=EPSILON,DELTA."""
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
    """The numbers of ``--ranges``.

    Raises:
        InvalidParameter: when one is none.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(f"ranges must be numbers such as '0.1,0.05', got {text!r}") from None


def planned(
    query: str, times: int, sensitivity: Sensitivity, delta: float
) -> RepeatedPlan[TopKPlan]:
    """Return what n answers to a planned question cost with each kind of noise, at the δ of the
    ledger.
    """
    from dptopk.planning.choose import plan_repeated
    from dptopk.question import Facts, Question

    terms = dict(part.partition("=")[::2] for part in query.split())
    try:
        total = {
            name: float(terms.pop(name)) for name in ("epsilon", "rho", "delta") if name in terms
        }
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
    facts = Facts(sensitivity=sensitivity, domain=domain, looks=False)
    return plan_repeated(question, facts, times, delta)
