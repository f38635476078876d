"""The report, a self-contained HTML page: for each experiment the setting, our figure, and "paper
says / we get".

It has no links to other files: images, data and vector drawings are embedded.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dptopk
from dptopk._internal.formatting import escape, html_page, html_table

if TYPE_CHECKING:
    from dptopk.experiments.experiment import Comparison, ExperimentResult, RunSettings


_SECTION = """<section id="{name}"><h2>{title}</h2>
<p>{source} · <code>dptopk reproduce {name}</code> · {seconds}</p>
<p>{setting}</p>
<img alt="{title}" src="data:image/png;base64,{image}">
{table}
<p><a download="{name}.csv" href="data:text/csv;base64,{data}">data (CSV)</a> ·
<a download="{name}.svg" href="data:image/svg+xml;base64,{drawing}">figure (SVG)</a></p></section>
"""


def write_report(outcomes: Sequence[ExperimentResult], path: Path, settings: RunSettings) -> None:
    """Write the report of these results to a path; an older file is replaced at once, when the new
    one is complete.

    Args:
        outcomes: the results, in the order of the report.
        path: the path of the HTML file.
        settings: of the run, which the report states.
    """
    titles = {outcome.experiment.name: escape(outcome.experiment.title) for outcome in outcomes}
    items = [f'<li><a href="#{name}">{title}</a></li>' for name, title in titles.items()]
    quick = ", quick run: few points and trials" if settings.quick else ""
    description = (
        f"Version {dptopk.__version__}, seed {settings.seed}{quick}. Each figure is made of "
        f"the table below it."
    )
    head = f"<p>{description}</p><ul>{''.join(items)}</ul>"
    page = html_page("dptopk experiments", [head, *map(_section, outcomes)])
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)


def _section(outcome: ExperimentResult) -> str:
    """Return the HTML of one experiment."""
    experiment = outcome.experiment
    seconds = f"computed in {outcome.seconds:.1f} s"
    if outcome.resumed:
        seconds += " by an earlier run"
    return _SECTION.format(
        name=experiment.name,
        title=escape(experiment.title),
        source=escape(experiment.source),
        setting=escape(experiment.setting),
        seconds=seconds,
        image=_base64_of(outcome, ".png"),
        data=_base64_of(outcome, ".csv"),
        drawing=_base64_of(outcome, ".svg"),
        table=_table(outcome.comparisons),
    )


def _base64_of(outcome: ExperimentResult, ending: str) -> str:
    """Return the file of a result with this ending in base64."""
    content = outcome.stem.with_suffix(ending).read_bytes()
    return base64.b64encode(content).decode()


def _table(comparisons: Sequence[Comparison]) -> str:
    """Return the table "paper says / we get" as HTML; '' if it has no lines."""
    marks = {True: "agrees", False: "<strong>differs</strong>", None: ""}
    rows = [(line.quantity, line.paper, line.ours, marks[line.agrees]) for line in comparisons]
    if rows:
        return html_table(["", "paper says", "we get", ""], rows, raw=frozenset({3}))
    return ""
