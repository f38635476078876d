"""``dptopk topk --segment-by``: one answer for each segment of a public list, charged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dptopk._internal.formatting import format_upper, numbered, spreadsheet, visible
from dptopk._internal.json_text import readable_json
from dptopk.accounting.registry import Bound
from dptopk.cli.output import as_dict, print_rows, spreadsheet_rows
from dptopk.cli.page import details
from dptopk.cli.shell import tell
from dptopk.cli.target import opened, write

if TYPE_CHECKING:
    from dptopk.cli.options import Output
    from dptopk.planning import TopKPlan
    from dptopk.planning.per_segment import PerSegment
    from dptopk.release.release import Release


def write_segments(
    plans: PerSegment[TopKPlan],
    answers: Mapping[str, Release],
    bound: Bound,
    to: Output,
    left: Sequence[str],
) -> None:
    """Write the answers: a table each, rows with a column of segments, or JSON.

    Args:
        plans: of the segments.
        answers: by segment, in the order of the list.
        bound: the guarantee of all of them.
        to: in which of the formats table, csv and json, where, and the confidence of the error
            bars.
        left: what is left of the budget, in lines.
    """
    plan = plans.each
    confidence = to.confidence
    said = _guarantee(plans, bound)
    if to.form == "json":
        told = {name: as_dict(plan, answer, confidence) for name, answer in answers.items()}
        total = {"epsilon": bound.epsilon, "delta": bound.delta, "bound": bound.name}
        text = {"segments": told, "guarantee": total, "segments_per_user": plans.per_user}
        write(readable_json(text), to.out)
    elif to.form == "csv":
        _csv(answers, to.out, confidence)
        tell(said)
    else:
        with opened(to.out) as file:
            console = Console(file=file, highlight=False)
            for name, answer in answers.items():
                console.rule(Text(visible(name)), align="left")
                print_rows(plan, answer, console, confidence)
                for line in details(answer):
                    console.print(Text(visible(line)))
            console.print()
            for line in (said, *left):
                console.print(Text(visible(line)))


def _guarantee(plans: PerSegment[TopKPlan], bound: Bound) -> str:
    """The guarantee of all segments in one sentence."""
    total = f"({format_upper(bound.epsilon, 4)}, {bound.delta:g})-DP"
    segments = numbered(len(plans.plans), "segment")
    said = (
        f"Total: {total} at most, by {bound.name} ({bound.source}), for {segments}, a user in at "
        f"most {plans.per_user} of them. {plans.each.told_in_rho}"
    )
    return said.rstrip()


def _csv(answers: Mapping[str, Release], out: Path | None, confidence: float) -> None:
    import pandas as pd

    parts = [spreadsheet_rows(answer, confidence) for answer in answers.values()]
    names = list(map(spreadsheet, answers))
    together = pd.concat(parts, keys=names, names=["segment", None])
    rows = together.reset_index(level=0)
    write(rows.to_csv(index=False), out)
