"""``dptopk topk --segment-by``: one answer for each segment of a public list, charged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dptopk._internal.formatting import format_upper, numbered, spreadsheet_cell, visible
from dptopk.accounting.registry import Bound
from dptopk.cli.answer_sheet import AnswerSheet
from dptopk.cli.output import TopKSheet, answer_as_dict
from dptopk.cli.page import technical_notes

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.planning import TopKPlan
    from dptopk.planning.per_segment import PerSegment
    from dptopk.release.release import Release


@dataclass(frozen=True)
class SegmentsSheet(AnswerSheet):
    """The answers of all segments, as they are written in each format.

    As a table for people each segment has a table of its own; in CSV there is a column of
    segments.

    Attributes:
        plans: the plan of each segment.
        answers: the answer of each segment, by its name, in the order of the list.
        bound: the ε and δ of all answers together.
        confidence: the confidence of the error bars, in (0, 1).
        budget_lines: lines on what is left of the budget; empty where nothing pays.
    """

    plans: PerSegment[TopKPlan]
    answers: Mapping[str, Release]
    bound: Bound
    confidence: float
    budget_lines: Sequence[str]

    @property
    def sheets(self) -> dict[str, TopKSheet]:
        """Return the sheet of each segment's answer, by the segment's name."""
        plan = self.plans.each
        answers = self.answers.items()
        return {name: TopKSheet.of(plan, answer, self.confidence) for name, answer in answers}

    def remarks(self) -> list[str]:
        """Return the guarantee of all segments together, then each sentence that a reader of the
        rows must know, after the names of its segments where it is not about all of them.
        """
        names_by_sentence: dict[str, list[str]] = {}
        for name, sheet in self.sheets.items():
            for sentence in dict.fromkeys([*sheet.notes, *technical_notes(sheet.release)]):
                names_by_sentence.setdefault(sentence, []).append(name)
        lines = [_guarantee(self.plans, self.bound)]
        for sentence, names in names_by_sentence.items():
            if len(names) == len(self.answers):
                lines.append(sentence)
            else:
                lines.append(f"{', '.join(names)}: {sentence}")
        return lines

    def cells(self) -> pd.DataFrame:
        """Return the rows of all segments in one table, with a column that names the segment."""
        import pandas as pd

        parts = [sheet.cells() for sheet in self.sheets.values()]
        names = list(map(spreadsheet_cell, self.answers))
        table = pd.concat(parts, keys=names, names=["segment", None])
        return table.reset_index(level=0)

    def as_dict(self) -> dict[str, object]:
        """Return a JSON-safe dictionary of the answers by segment and the guarantee of all
        of them.
        """
        plan = self.plans.each
        segments = {
            name: answer_as_dict(plan, answer, self.confidence)
            for name, answer in self.answers.items()
        }
        bound = self.bound
        total = {"epsilon": bound.epsilon, "delta": bound.delta, "bound": bound.name}
        per_user = self.plans.per_user
        return {"segments": segments, "guarantee": total, "segments_per_user": per_user}

    def print_to(self, console: Console) -> None:
        """Print a table for each segment, then the guarantee of all of them together."""
        for name, sheet in self.sheets.items():
            console.rule(Text(visible(name)), align="left")
            sheet.print_rows(console)
            for line in technical_notes(sheet.release):
                console.print(Text(visible(line)))
        console.print()
        for line in (_guarantee(self.plans, self.bound), *self.budget_lines):
            console.print(Text(visible(line)))


def _guarantee(plans: PerSegment[TopKPlan], bound: Bound) -> str:
    """Return the guarantee of all segments together in words, and for a budget in ρ what the plans
    say of it; ε is an upper bound.
    """
    total = f"({format_upper(bound.epsilon, 4)}, {format_upper(bound.delta)})-DP"
    segments = numbered(len(plans.plans), "segment")
    guarantee = (
        f"Total: {total} at most, by {bound.name} ({bound.source}), for {segments}, a user in at "
        f"most {plans.per_user} of them. {plans.each.summary_in_rho}"
    )
    return guarantee.rstrip()
