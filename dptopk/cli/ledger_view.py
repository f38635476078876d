"""This module says how ``dptopk ledger show`` looks: numbers, tables, bars and a plot of what is
spent over time.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dptopk._internal.formatting import (
    describe_l0,
    format_lower,
    format_upper,
    numbered,
    rounded_up,
    visible,
)
from dptopk.accounting.calibration import queries_affordable
from dptopk.budgets.filter import Filter
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter
from dptopk.planning.choose import plan
from dptopk.planning.gauge import Kind, epsilon_left, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from dptopk.costs import Budget
    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.spends import Spend


RECENT_ROWS = 10
MOST_KINDS = 5  # of queries, of which it is counted how many more fit
LONG_HISTORY = 10  # equal questions: from here on a registration is spoken of
MORE = 1.1  # times as many questions: where a registration is worth a word
# They leave room for margins.
EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def plain(text: object) -> Text:
    """Text as it is: no markup, and control characters are shown, not obeyed."""
    return Text(visible(str(text)))


def show(state: DatasetState, spends: list[Spend]) -> None:
    """Print one dataset: guarantee, balance, analysts, affordable queries and the latest charges.

    Args:
        state: of the dataset.
        spends: its latest charges, in order.
    """
    console = Console(highlight=False)
    summary = state.account.summary()
    console.rule(plain(f"dataset {state.name}"), align="left")
    lines = [f"{moved(state)}; data version {state.version}; {state.sensitivity.neighbours}"]
    if state.segments:
        names = ", ".join(state.segments["names"])
        lines.append(f"segments by {state.segments['by']}, each with the whole budget: {names}")
    kind = kind_of(state.kind, state.account, state.sensitivity)
    left = format_lower(epsilon_left(state.account, kind), 4)
    so_far = ""
    if math.isfinite(summary.epsilon_total):
        so_far = f"ε about {summary.epsilon_spent:.4g} of {summary.epsilon_total:.4g} "
        so_far += "(an estimate); "
    lines += [
        f"guarantee: {guarantee(state)}",
        f"so far:    {so_far}{summary.share:.1%} of the budget is used",
        f"left:      ε up to {left} for {kind}",
        *registered_left(state.account.remaining()),
        f"spent:     {rounded_up(state.spent())}",
    ]
    if state.renewals:
        renewed = numbered(state.renewals, "renewal")
        lines.append(f"lifetime:  {rounded_up(state.spent(lifetime=True))} ({renewed})")
    lines += registration_hint(state, spends)
    for line in lines:
        console.print(plain(line))
    console.print(_balance(state))
    if state.now:
        console.print(_analysts(state))
    if spends:
        console.print(_affordable(state, spends))
        console.print(_latest(spends))


def registered_left(left: Charge | str) -> list[str]:
    """A line about the registered costs that are left; none for budgets of free choice."""
    if isinstance(left, Charge):
        return [f"remaining: {left}"]
    return []


def registration_hint(state: DatasetState, spends: list[Spend]) -> list[str]:
    """A line where a registration of the question that was asked most would have fitted more of it,
    as it was asked or with Gaussian noise on its counts; for long histories of a budget of free
    choice.
    """
    account = state.account
    queries = Counter(_query_name(spend) for spend in spends if spend.charge)
    if not queries or not isinstance(account, Filter) or account.budget.rho is not None:
        return []
    name, times = queries.most_common(1)[0]
    if times < LONG_HISTORY:
        return []
    latest = next(spend for spend in reversed(spends) if _query_name(spend) == name)
    in_all = times + account.fits(latest.charge, latest.stated)
    ways = {"": latest.charge}
    gaussian = _with_gaussian_noise(latest)
    if gaussian is not None:
        ways[' with counts="gaussian"'] = gaussian
    would = []
    for way, charge in ways.items():
        registered = queries_affordable(charge, account.budget, effort="quick")
        if registered >= MORE * in_all:
            would.append(f"{int(registered)}{way}")
    if not would:
        return []
    fits = f"{' or '.join(would)} of {rounded_up(name)} would fit, not {in_all}"
    return [f"note:      registered beforehand, {fits}"]


def _with_gaussian_noise(spend: Spend) -> Charge | None:
    """The charge of a recorded question with Gaussian noise on its counts, at the same (ε, δ);
    None: it has none, or cannot have it.
    """
    record = spend.mechanism.get("question_kind")
    if record is None or spend.stated is None:
        return None
    try:
        kind = Kind.of(record)
        if kind.question.counts == "none":
            return None
        question = replace(kind.question.with_total(spend.stated), counts="gaussian", look=None)
        return plan(question, replace(kind.facts, looks=False)).charge
    except (InvalidParameter, IncompatibleCosts, BudgetExceeded):
        return None


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=None)


def as_dict(state: DatasetState, spends: list[Spend]) -> dict[str, Any]:
    """One dataset as JSON can hold it: what is spent and left, by analyst, and how many more of
    each query fit.
    """
    analysts = {
        analyst: {
            "queries": total.queries,
            "spent": str(total.charge(state.sensitivity.neighbours)),
        }
        for analyst, total in state.now.items()
    }
    return {name: getattr(state, name) for name in ("unit", "version", "segments")} | {
        "dataset": state.name,
        "sensitivity": {"linf": state.sensitivity.linf, "l0": state.sensitivity.l0},
        "spent": str(state.spent()),
        "shares_used": dict(state.account.summary().shares),
        **remaining(state, spends).to_dict(),
        "analysts": analysts,
    }


def remaining(state: DatasetState, spends: list[Spend]) -> Remaining:
    """The remaining budget of a dataset, for questions like its last one."""
    kind = kind_of(state.kind, state.account, state.sensitivity)
    return Remaining.of(
        state.account,
        _largest(spends),
        epsilon_left=epsilon_left(state.account, kind),
        question=str(kind),
    )


def _balance(state: DatasetState) -> Table:
    table = _table("used")
    for name, share in state.account.summary().shares.items():
        table.add_row(
            plain(name), ProgressBar(total=1.0, completed=share, width=40), f"{share:.1%}"
        )
    return table


def moved(state: DatasetState) -> str:
    """Return what one unit can move, in words."""
    return (
        f"one {state.unit} moves {describe_l0(state.sensitivity.l0)}, each by at most "
        f"{state.sensitivity.linf}"
    )


def guarantee(state: DatasetState) -> str:
    """Return what holds of all answers together, in words."""
    from dptopk.ledger.disclosure import zcdp_of

    summary = state.account.summary()
    zcdp = [format_upper(each) for each in zcdp_of(state.terms).values()]
    if zcdp:
        in_rho = "{}-zCDP but for failures of at most {}; ".format(*zcdp)
    else:
        in_rho = ""
    return (
        f"{in_rho}({format_upper(summary.epsilon_total)}, {summary.delta:g})-DP for "
        f"all answers together, at any time"
    )


def _analysts(state: DatasetState) -> Table:
    table = _table("by analyst", "analyst", "queries", "spent", "limit")
    for analyst, total in state.now.items():
        left = "; ".join(
            f"{account.remaining()} left" for account in state.limits_of(analyst).values()
        )
        spent = rounded_up(total.charge(state.sensitivity.neighbours))
        table.add_row(plain(analyst), str(total.queries), plain(spent), plain(left))
    return table


def _affordable(state: DatasetState, spends: list[Spend]) -> Table:
    table = _table("affordable", "query", "asked", "more")
    queries = Counter(_query_name(spend) for spend in spends)
    for name, kind in _largest(spends).items():
        table.add_row(plain(rounded_up(name)), str(queries[name]), str(state.account.fits(*kind)))
    return table


def _largest(spends: list[Spend]) -> dict[str, tuple[Charge, Budget | None]]:
    """The largest charge of each of the latest kinds of query, with what was stated for it; the
    days of a stream, which was paid for at once, cost nothing.
    """
    largest: dict[str, tuple[Charge, Budget | None]] = {}
    for spend in (spend for spend in spends if spend.charge):
        name = _query_name(spend)
        before = largest.pop(name, None)
        if before is None or spend.charge.count > before[0].count:
            largest[name] = (spend.charge, spend.stated)
        else:
            largest[name] = before
    latest = list(largest)[-MOST_KINDS:]
    return {name: largest[name] for name in latest}


def _query_name(spend: Spend) -> str:
    return str(spend.mechanism.get("text") or spend.mechanism.get("name") or spend.charge)


def _latest(spends: list[Spend]) -> Table:
    table = _table("latest", "entry", "time (UTC)", "analyst", "charge", "status")
    for spend in spends[-RECENT_ROWS:]:
        if "stream" in spend.mechanism:
            waiting = "charged for all its days"
        else:
            waiting = "charged, no answer recorded"
        status = "released" if spend.released else waiting
        cells = map(plain, (spend.at[:19], spend.analyst, rounded_up(spend.charge), status))
        table.add_row(str(spend.seq), *cells)
    return table


def plot(state: DatasetState, spends: list[Spend], file: Path, file_format: str) -> None:
    """Draw what share of the budget each charge left used, over time, in total and by analyst, as
    PNG or SVG.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    current = [spend for spend in spends if spend.current]
    analysts = list(dict.fromkeys(spend.analyst for spend in current))
    for colour, analyst in zip(
        ["black", *mpl.color_sequences["tab10"]], [None, *analysts], strict=False
    ):
        points = _used_over_time(state, current, analyst)
        when, used = zip(*points, strict=True) if points else ((), ())
        label = "everyone" if analyst is None else plain(analyst).plain
        axes.step(
            when, used, where="post", label=label.replace("$", r"\$"), color=colour, marker="."
        )
    axes.axhline(100, linestyle="--", color="grey", label="budget")
    axes.set(xlabel="time (UTC)", ylabel="share of the budget used, %")
    axes.set_title(f"Spent of {plain(state.name).plain}".replace("$", r"\$"))
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(file, dpi=150, format=file_format)


def _used_over_time(
    state: DatasetState, spends: list[Spend], analyst: str | None
) -> list[tuple[datetime, float]]:
    """When one analyst (None: anyone) spent, and what percentage of the budget was used then."""
    replayed = state.unspent()
    points = list[tuple[datetime, float]]()
    for spend in spends:
        part = replayed.accounts(spend.analyst, spend.segments)["dataset"]
        if analyst in {None, spend.analyst} and part.can_spend(spend.charge, spend.stated):
            part.spend(spend.charge, stated=spend.stated)
            at = min(max(datetime.fromisoformat(spend.at), EARLIEST), LATEST)
            points.append((at, 100 * replayed.account.share()))
    return points
