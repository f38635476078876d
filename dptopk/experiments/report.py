"""One self-contained HTML page: for each experiment the setting, our figure, and "paper says / we get".

Nothing in it points elsewhere: the images, the tables behind them and the drawings are inside.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dptopk

if TYPE_CHECKING:
    from dptopk.experiments.experiment import Comparison, Outcome, Settings


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dptopk experiments</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
h2 {{ margin: 3rem 0 .2rem; border-top: 1px solid #ddd; padding-top: 1.5rem; }}
p.source {{ color: #666; margin: 0 0 .5rem; }} img {{ max-width: 100%; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #eee; vertical-align: top; }}
td.no {{ color: #b00020; font-weight: 600; }} td.yes {{ color: #00703c; }} nav li {{ line-height: 1.3; }}
</style></head><body>
<h1>dptopk experiments</h1>
<p>Version {version}, seed {seed}{quick}. Each figure is made of the table linked below it; all is inside this page.</p>
<nav><ul>{contents}</ul></nav>
{sections}
</body></html>
"""
_SECTION = """<section id="{name}"><h2>{title}</h2>
<p class="source">{source} · <code>dptopk reproduce {name}</code> · {seconds}</p>
<p>{setting}</p>
<img alt="{title}" src="data:image/png;base64,{image}">
{table}
<p><a download="{name}.csv" href="data:text/csv;base64,{data}">data (CSV)</a> ·
<a download="{name}.svg" href="data:image/svg+xml;base64,{drawing}">figure (SVG)</a></p></section>
"""


def write_report(outcomes: Sequence[Outcome], path: Path, settings: Settings) -> None:
    """Write the page; images are inside it."""
    sections = "".join(_section(outcome) for outcome in outcomes)
    contents = "".join(
        f'<li><a href="#{outcome.experiment.name}">{html.escape(outcome.experiment.title)}</a></li>'
        for outcome in outcomes
    )
    quick = ", quick run: few points and trials" if settings.quick else ""
    page = _PAGE.format(
        version=dptopk.__version__, seed=settings.seed, quick=quick, contents=contents, sections=sections
    )
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)


def _section(outcome: Outcome) -> str:
    experiment = outcome.experiment
    return _SECTION.format(
        name=experiment.name,
        title=html.escape(experiment.title),
        source=html.escape(experiment.source),
        setting=html.escape(experiment.setting),
        seconds=f"computed in {outcome.seconds:.1f} s{' by an earlier run' if outcome.resumed else ''}",
        image=_encoded(outcome, ".png"),
        data=_encoded(outcome, ".csv"),
        drawing=_encoded(outcome, ".svg"),
        table=_table(outcome.comparisons),
    )


def _encoded(outcome: Outcome, ending: str) -> str:
    return base64.b64encode(outcome.stem.with_suffix(ending).read_bytes()).decode()


def _table(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return ""
    marks = {True: ("yes", "agrees"), False: ("no", "differs"), None: ("", "")}
    rows = []
    for line in comparisons:
        style, mark = marks[line.agrees]
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in (line.quantity, line.paper, line.ours))
        rows.append(f'<tr>{cells}<td class="{style}">{mark}</td></tr>')
    return f"<table><tr><th></th><th>paper says</th><th>we get</th><th></th></tr>{''.join(rows)}</table>"
