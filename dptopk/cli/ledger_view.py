"""How ``dptopk ledger show`` looks: tables, bars and a plot of what is spent over time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dptopk.costs import Charge

if TYPE_CHECKING:
    from pathlib import Path

    from dptopk.accounting.accountant import Account
    from dptopk.accounting.ledger.state import DatasetState, Spend

__all__ = ["affordable", "plot", "show"]

RECENT = 10


def show(state: DatasetState, guarantee: str) -> None:
    """Print one dataset: guarantee, balance, analysts, affordable queries and the latest charges."""
    console = Console(highlight=False)
    console.rule(Text(f"dataset {state.name}"), align="left")
    console.print(
        f"one {state.unit} moves {'any number of' if state.sensitivity.l0 is None else state.sensitivity.l0} label(s) "
        f"by at most {state.sensitivity.linf}; data version {state.version}; {state.sensitivity.neighbours}"
    )
    console.print(f"guarantee: {guarantee}")
    console.print(Text(f"remaining: {state.account.remaining()}"))
    console.print(Text(f"spent:     {Charge.join(*state.current())}"))
    if state.renewals:
        console.print(Text(f"lifetime:  {Charge.join(*state.current(lifetime=True))} ({state.renewals} renewal(s))"))
    console.print(_balance(state))
    if state.spends:
        console.print(_analysts(state))
        console.print(_affordable(state))
        console.print(_latest(state))


def _balance(state: DatasetState) -> Table:
    table = Table(title="used", title_justify="left", box=None)
    for name, share in state.account.shares().items():
        table.add_row(Text(name), ProgressBar(total=1.0, completed=share, width=40), f"{share:.1%}")
    return table


def _analysts(state: DatasetState) -> Table:
    table = Table("analyst", "queries", "spent", "limit", title="by analyst", title_justify="left", box=None)
    for analyst in dict.fromkeys(spend.analyst for spend in state.spends.values()):
        charges = state.current(analyst=analyst)
        limit = state.limits.get(analyst)
        left = "" if limit is None else f"{limit[1].remaining()} left"
        table.add_row(Text(analyst), str(len(charges)), Text(str(Charge.join(*charges))), Text(left))
    return table


def affordable(account: Account, charge: Charge) -> int:
    """How many more times a charge fits into an account."""
    fits, too_many = 0, 1
    while too_many <= 2**30 and account.can_spend(_times(charge, too_many)):
        fits, too_many = too_many, too_many * 2
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if account.can_spend(_times(charge, middle)) else (fits, middle)
    return fits


def _times(charge: Charge, repetitions: int) -> Charge:
    """Repetitions of a charge; a δ that would pass 1 stays below it, where no budget reaches."""
    if charge.delta * repetitions < 1:
        return charge.times(repetitions)
    return Charge(charge.costs, delta=1 - 2**-53, adaptive=charge.adaptive, neighbours=charge.neighbours)


def _affordable(state: DatasetState) -> Table:
    table = Table("query", "asked", "more", title="affordable", title_justify="left", box=None)
    kinds: dict[str, list[Spend]] = {}
    for spend in state.spends.values():
        kinds.setdefault(_query_name(spend), []).append(spend)
    for name, spends in kinds.items():
        largest = max((spend.charge for spend in spends), key=lambda charge: charge.count)
        table.add_row(Text(name), str(len(spends)), str(affordable(state.account, largest)))
    return table


def _query_name(spend: Spend) -> str:
    return str(spend.mechanism.get("text") or spend.mechanism.get("name") or spend.charge)


def _latest(state: DatasetState) -> Table:
    table = Table("entry", "time (UTC)", "analyst", "charge", "status", title="latest", title_justify="left", box=None)
    for spend in list(state.spends.values())[-RECENT:]:
        status = "released" if spend.released else "charged, no answer recorded"
        table.add_row(str(spend.seq), spend.at[:19], Text(spend.analyst), Text(str(spend.charge)), status)
    return table


def plot(state: DatasetState, path: Path) -> None:
    """Draw the number of costs of each kind spent over time, against what is registered, into a PNG or SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    registered = {} if "budget" in state.terms else Charge.parse(state.terms["registered"]).costs
    total: Counter[str] = Counter()
    series: dict[str, list[tuple[datetime, int]]] = {}
    for spend in state.spends.values():
        if spend.renewals == state.renewals:
            for cost, times in spend.charge:
                total[str(cost)] += times
                series.setdefault(str(cost), []).append((datetime.fromisoformat(spend.at), total[str(cost)]))
    colours = mpl.color_sequences["tab10"]
    for number, (name, points) in enumerate(series.items()):
        when, counts = zip(*points, strict=True)
        colour = colours[number % len(colours)]
        axes.step(when, counts, where="post", label=name, color=colour)
        for cost, most in registered.items():
            if str(cost) == name:
                axes.axhline(most, linestyle="--", color=colour, label=f"{name}: registered {most}")
    axes.set(title=f"Spent of {state.name}", xlabel="time (UTC)", ylabel="costs spent")
    axes.set_ylim(bottom=0)
    if series:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(path, dpi=150)
