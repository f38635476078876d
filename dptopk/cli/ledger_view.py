"""What ``dptopk ledger show`` prints of a data set: numbers, tables, bars and a plot over time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
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

    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType

    from dptopk.costs import Budget
    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.spends import Spend


RECENT_ROWS = 10  # the most charges that the table of the latest ones lists
MOST_KINDS = 5  # only for the latest kinds of query it is counted how many more fit
# A registration is suggested after this many equal questions, and only if at least WORTH_A_HINT
# times as many of them would fit.
LONG_HISTORY = 10
WORTH_A_HINT = 1.1
# A plot's times are cut to these years: matplotlib's dates need room for margins.
EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def visible_text(text: object) -> Text:
    """Return the text without markup, and with control characters made visible."""
    return Text(visible(str(text)))


def show(state: DatasetState, spends: list[Spend]) -> None:
    """Print one data set: guarantee, balance, analysts, affordable queries and the latest charges.

    Args:
        state: the state of the data set.
        spends: its latest charges, in order.
    """
    console = Console(highlight=False)
    console.rule(visible_text(f"dataset {state.name}"), align="left")
    for line in (*_state_lines(state), *registration_hint(state, spends)):
        console.print(visible_text(line))
    console.print(_balance_table(state))
    if state.totals_since_renewal:
        console.print(_analysts_table(state))
    if spends:
        console.print(_affordable_table(state, spends))
        console.print(_latest_table(spends))


def _state_lines(state: DatasetState) -> list[str]:
    """Return lines on what is protected, guaranteed, spent and left of a data set."""
    summary = state.account.summary()
    lines = [f"{unit_change(state)}; data version {state.version}; {state.sensitivity.neighbours}"]
    if state.segments:
        names = ", ".join(state.segments["names"])
        lines.append(f"segments by {state.segments['by']}, each with the whole budget: {names}")
    kind = kind_of(state.last_question_kind, state.account, state.sensitivity)
    largest_epsilon = format_lower(epsilon_left(state.account, kind), 4)
    so_far = ""
    if math.isfinite(summary.epsilon_total):
        so_far = f"ε about {summary.epsilon_spent:.4g} of {summary.epsilon_total:.4g} "
        so_far += "(an estimate); "
    lines += [
        f"guarantee: {guarantee(state)}",
        f"so far:    {so_far}{summary.share:.1%} of the budget is used",
        f"left:      ε up to {largest_epsilon} for {kind}",
        *lines_on_registered_costs(state.account.remaining()),
        f"spent:     {rounded_up(state.spent())}",
    ]
    if state.renewals:
        renewals = numbered(state.renewals, "renewal")
        lines.append(f"lifetime:  {rounded_up(state.spent(lifetime=True))} ({renewals})")
    return lines


def lines_on_registered_costs(left: Charge | str) -> list[str]:
    """Return one line on the registered costs that remain; no line for a filter, which has none.

    Args:
        left: what the account states as remaining: costs, or a text of a filter.
    """
    if isinstance(left, Charge):
        return [f"remaining: {left}"]
    return []


def registration_hint(state: DatasetState, spends: list[Spend]) -> list[str]:
    """Return a line that suggests to register the most frequent question, if that would fit more of
    it.

    The registration is tried as the question was asked, and with Gaussian noise on its counts. Only
    a filter in ε with a long history of equal questions gets a hint; else the list is empty.

    Args:
        state: the state of the data set.
        spends: its latest charges, in order.
    """
    account = state.account
    queries = Counter(_query_name(spend) for spend in spends if spend.charge)
    if not queries or not isinstance(account, Filter) or account.budget.rho is not None:
        return []
    name, times = queries.most_common(1)[0]
    if times < LONG_HISTORY:
        return []
    latest = next(spend for spend in reversed(spends) if _query_name(spend) == name)
    # Spent ones count too: a registration would have paid for them from the beginning.
    fit_as_filter = times + account.fits(latest.charge, latest.stated)
    numbers = _numbers_as_registered(latest, account.budget, WORTH_A_HINT * fit_as_filter)
    if not numbers:
        return []
    fits = f"{' or '.join(numbers)} of {rounded_up(name)} would fit, not {fit_as_filter}"
    return [f"note:      registered beforehand, {fits}"]


def _numbers_as_registered(spend: Spend, budget: Budget, least: float) -> list[str]:
    """Return how many of a question would have fitted if they had been registered, in words: as it
    was asked, and with Gaussian noise on its counts; numbers below ``least`` are left out.

    Args:
        spend: a charge of the question.
        budget: the total that would be registered for.
        least: the smallest number that is returned.
    """
    charges = [(spend.charge, "")]
    gaussian = _gaussian_charge(spend)
    if gaussian is not None:
        charges.append((gaussian, ' with counts="gaussian"'))
    numbers = []
    for charge, noise_in_words in charges:
        fit_as_registered = queries_affordable(charge, budget, effort="quick")
        if fit_as_registered >= least:
            numbers.append(f"{int(fit_as_registered)}{noise_in_words}")
    return numbers


def _gaussian_charge(spend: Spend) -> Charge | None:
    """Return the charge of a recorded question, planned again with Gaussian noise on its counts and
    the same (ε, δ).

    It is None if the spend was no question with counts, or if no such plan fits its budget.
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


def _empty_table(title: str, *columns: str) -> Table:
    """Return a table with a title and no rows yet, without lines around its cells.

    Args:
        title: the title, which stands above it at the left.
        columns: the headers of its columns; none: it has no headers.
    """
    return Table(*columns, title=title, title_justify="left", box=None)


def balance_as_dict(state: DatasetState, spends: list[Spend]) -> dict[str, Any]:
    """Return a JSON-safe dictionary of what is spent and left of a data set, by analyst, and how
    many more of each query fit.

    Args:
        state: the state of the data set.
        spends: its latest charges, in order.
    """
    neighbours = state.sensitivity.neighbours
    analysts = {
        analyst: {"queries": total.queries, "spent": str(total.charge(neighbours))}
        for analyst, total in state.totals_since_renewal.items()
    }
    return {
        "unit": state.unit,
        "version": state.version,
        "segments": state.segments,
        "dataset": state.name,
        "sensitivity": {"linf": state.sensitivity.linf, "l0": state.sensitivity.l0},
        "spent": str(state.spent()),
        "shares_used": dict(state.account.summary().shares),
        **remaining(state, spends).to_dict(),
        "analysts": analysts,
    }


def remaining(state: DatasetState, spends: list[Spend]) -> Remaining:
    """Return the remaining budget of a data set, with the largest ε of a further question of the
    kind that was asked last.

    Args:
        state: the state of the data set.
        spends: its latest charges, in order, whose kinds are listed with how many more fit.
    """
    kind = kind_of(state.last_question_kind, state.account, state.sensitivity)
    return Remaining.of(
        state.account,
        _largest_charges(spends),
        epsilon_left=epsilon_left(state.account, kind),
        question=str(kind),
    )


def _balance_table(state: DatasetState) -> Table:
    """Return a table with a bar for the used share of each part of the budget."""
    table = _empty_table("used")
    for name, share in state.account.summary().shares.items():
        table.add_row(
            visible_text(name), ProgressBar(total=1.0, completed=share, width=40), f"{share:.1%}"
        )
    return table


def unit_change(state: DatasetState) -> str:
    """Return in words the change of the data that one unit can make."""
    return (
        f"one {state.unit} moves {describe_l0(state.sensitivity.l0)}, each by at most "
        f"{state.sensitivity.linf}"
    )


def guarantee(state: DatasetState) -> str:
    """Return in words the (ε, δ) of all answers together, after its ρ where the budget is stated in
    ρ.
    """
    from dptopk.ledger.disclosure import zcdp_of

    summary = state.account.summary()
    in_rho = ""
    zcdp = zcdp_of(state.terms)
    if zcdp:
        rho = format_upper(zcdp["rho"])
        failures = format_upper(zcdp["failure_delta"])
        in_rho = f"{rho}-zCDP but for failures of at most {failures}; "
    return (
        f"{in_rho}({format_upper(summary.epsilon_total)}, {format_upper(summary.delta)})-DP for "
        f"all answers together, at any time"
    )


def _analysts_table(state: DatasetState) -> Table:
    """Return a table of how many queries each analyst asked, what they spent and what their limit
    leaves.
    """
    table = _empty_table("by analyst", "analyst", "queries", "spent", "limit")
    for analyst, total in state.totals_since_renewal.items():
        limits = state.limits_of(analyst).values()
        left_of_limit = "; ".join(f"{account.remaining()} left" for account in limits)
        spent = rounded_up(total.charge(state.sensitivity.neighbours))
        table.add_row(
            visible_text(analyst),
            str(total.queries),
            visible_text(spent),
            visible_text(left_of_limit),
        )
    return table


def _affordable_table(state: DatasetState, spends: list[Spend]) -> Table:
    """Return a table of how often each of the latest kinds of query was asked, and how many more
    fit.

    Args:
        state: the state of the data set.
        spends: its latest charges, in order.
    """
    table = _empty_table("affordable", "query", "asked", "more")
    queries = Counter(_query_name(spend) for spend in spends)
    for name, (charge, budget) in _largest_charges(spends).items():
        more = state.account.fits(charge, budget)
        table.add_row(visible_text(rounded_up(name)), str(queries[name]), str(more))
    return table


def _largest_charges(spends: list[Spend]) -> dict[str, tuple[Charge, Budget | None]]:
    """Return the largest charge of each of the latest kinds of query, by the query's name, with its
    stated budget.

    The largest charge is that with most costs. Days of a stream charge nothing and are left out.
    """
    largest: dict[str, tuple[Charge, Budget | None]] = {}
    for spend in spends:
        if not spend.charge:
            continue
        name = _query_name(spend)
        this_charge = (spend.charge, spend.stated)
        # It is taken out and put back, so that the order is that of the latest spends.
        earlier_charge = largest.pop(name, this_charge)
        # Of charges with equally many costs ``max`` takes the earlier one.
        largest[name] = max(earlier_charge, this_charge, key=lambda charged: charged[0].count)
    latest = list(largest)[-MOST_KINDS:]
    return {name: largest[name] for name in latest}


def _query_name(spend: Spend) -> str:
    """Return the name of a spend's query: its text if there is one, else its mechanism's name or
    its charge.
    """
    return str(spend.mechanism.get("text") or spend.mechanism.get("name") or spend.charge)


def _latest_table(spends: list[Spend]) -> Table:
    """Return a table of the latest charges, and whether each was answered."""
    table = _empty_table("latest", "entry", "time (UTC)", "analyst", "charge", "status")
    for spend in spends[-RECENT_ROWS:]:
        if "stream" in spend.mechanism:
            status_without_answer = "charged for all its days"
        else:
            status_without_answer = "charged, no answer recorded"
        status = "released" if spend.released else status_without_answer
        time = spend.at[:19]  # to the second
        cells = map(visible_text, (time, spend.analyst, rounded_up(spend.charge), status))
        table.add_row(str(spend.seq), *cells)
    return table


def plot(state: DatasetState, spends: list[Spend], file: Path, file_format: str) -> None:
    """Draw the share of the budget that was used after each charge, in total and by analyst, of as
    many analysts as there are colours (ten): those who asked first.

    Args:
        state: the state of the data set.
        spends: all its charges, in order; those of earlier budgets are left out.
        file: the file to write.
        file_format: "png" or "svg".
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    current = [spend for spend in spends if spend.current]
    analysts = list(dict.fromkeys(spend.analyst for spend in current))
    colours = ["black", *mpl.color_sequences["tab10"]]
    # ``zip`` ends with the colours: more lines could not be told apart.
    for colour, analyst in zip(colours, [None, *analysts], strict=False):
        points = _spending_points(state, current, analyst)
        name = "everyone" if analyst is None else visible_text(analyst).plain
        _draw_steps(axes, points, name, colour)
    axes.axhline(100, linestyle="--", color="grey", label="budget")
    axes.set(xlabel="time (UTC)", ylabel="share of the budget used, %")
    axes.set_title(f"Spent of {visible_text(state.name).plain}".replace("$", r"\$"))
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(file, dpi=150, format=file_format)


def _draw_steps(
    axes: Axes, points: list[tuple[datetime, float]], name: str, colour: ColorType
) -> None:
    """Draw a line that steps up at each of the times, with a name in the legend.

    Args:
        axes: where the line is drawn.
        points: pairs of a time and the percentage of the budget that was used from then on.
        name: the name in the legend.
        colour: of the line.
    """
    times = np.array([time for time, _ in points])
    percentages = [percentage for _, percentage in points]
    label = name.replace("$", r"\$")  # a dollar sign would begin a formula
    axes.step(times, percentages, where="post", label=label, color=colour, marker=".")


def _spending_points(
    state: DatasetState, spends: list[Spend], analyst: str | None
) -> list[tuple[datetime, float]]:
    """Return the times at which an analyst spent, each with the percentage of the budget that was
    used afterwards.

    Only this analyst's charges are replayed on an account with nothing spent; those it refuses are
    left out.

    Args:
        state: the state of the data set.
        spends: the charges of the current budget, in order.
        analyst: whose charges count; None: everybody's.
    """
    replayed = state.unspent()
    points = list[tuple[datetime, float]]()
    for spend in spends:
        if analyst not in {None, spend.analyst}:
            continue
        account = replayed.accounts(spend.analyst, spend.segments)["dataset"]
        if account.can_spend(spend.charge, spend.stated):
            account.spend(spend.charge, stated=spend.stated)
            time = min(max(datetime.fromisoformat(spend.at), EARLIEST), LATEST)
            points.append((time, 100 * replayed.account.share()))
    return points
