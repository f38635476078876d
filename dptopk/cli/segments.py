"""``dptopk topk --segment-by``: one answer for each segment of a public list, charged together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from dptopk._internal.formatting import format_upper, numbered, spreadsheet, visible
from dptopk._internal.json_text import readable_json
from dptopk._internal.search import bisect
from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound
from dptopk.cli.output import as_dict, print_rows, spreadsheet_rows
from dptopk.cli.shell import tell
from dptopk.cli.target import opened, write
from dptopk.costs import Budget
from dptopk.datasets import segments_charge
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.cli.options import Output
    from dptopk.planning import Plan
    from dptopk.release.release import Release


STEPS = 5


def plan_each(planned: Callable[[Budget], Plan], budget: Budget, segments: int, per_user: int) -> Plan:
    """The plan of one segment, so that all segments together stay within the budget.

    With one segment a user it is the plan of the whole budget. With more, the largest ε of a few that were tried.
    """
    if per_user == 1:
        return planned(budget)
    if budget.rho is not None:
        raise InvalidParameter("--rho is for segments with --segments-per-user 1; give --epsilon")

    @cache
    def plan(epsilon: float) -> Plan:
        return planned(Budget(epsilon, budget.delta / per_user))

    def fits(epsilon: float) -> bool:
        return total_bound(plan(epsilon), segments, per_user, budget.delta).epsilon <= budget.epsilon

    return plan(bisect(fits, budget.epsilon / per_user, budget.epsilon, halvings=STEPS)[0])


def total_bound(plan: Plan, segments: int, per_user: int, delta: float) -> Bound:
    """The guarantee of the plan on every segment, of which each user is in at most ``per_user``."""
    if per_user == 1:
        return plan.bound
    return compose(segments_charge([plan.charge] * segments, segments_per_user=per_user), delta=delta)


def write_segments(
    plan: Plan, answers: Mapping[str, Release], bound: Bound, per_user: int, to: Output, left: Sequence[str]
) -> None:
    """Write the answers: a table each, rows with a column of segments, or JSON.

    Args:
        plan: of each segment.
        answers: by segment, in the order of the list.
        bound: the guarantee of all of them.
        per_user: in how many segments one user is at most.
        to: in which of the formats table, csv and json, where, and the confidence of the error bars.
        left: what is left of the budget, in lines.
    """
    said = (
        f"Total: ({format_upper(bound.epsilon, 4)}, {bound.delta:g})-DP at most, by {bound.name} ({bound.source}), for "
        f"{numbered(len(answers), 'segment')}, a user in at most {per_user} of them. {plan.told_in_rho}"
    ).rstrip()
    out, confidence = to.out, to.confidence
    if to.output_format == "json":
        text: dict[str, Any] = {
            "segments": {name: as_dict(plan, answer, confidence) for name, answer in answers.items()},
            "guarantee": {"epsilon": bound.epsilon, "delta": bound.delta, "bound": bound.name},
            "segments_per_user": per_user,
        }
        write(readable_json(text), out)
    elif to.output_format == "csv":
        _csv(answers, out, confidence)
        tell(said)
    else:
        with opened(out) as file:
            console = Console(file=file, highlight=False)
            for name, answer in answers.items():
                console.rule(Text(visible(name)), align="left")
                print_rows(plan, answer, console, confidence)
            console.print()
            for line in (said, *left):
                console.print(Text(visible(line)))


def _csv(answers: Mapping[str, Release], out: Path | None, confidence: float) -> None:
    import pandas as pd

    parts, names = [spreadsheet_rows(one, confidence) for one in answers.values()], [*map(spreadsheet, answers)]
    write(pd.concat(parts, keys=names, names=["segment", None]).reset_index(level=0).to_csv(index=False), out)
