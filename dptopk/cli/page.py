"""An answer as one HTML page that needs nothing from elsewhere: rows, error bars, cost, what is left, how to cite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.formatting import escape, html_lines, html_page, html_rows, html_table, percent

if TYPE_CHECKING:
    from dptopk.planning import Plan
    from dptopk.release.release import Release


CITE = """The dptopk developers: dptopk, differentially private top-k queries on histograms (version {version}).
Mechanisms and their accounting: D. Durfee, R. Rogers: Practical differentially private top-k selection with
pay-what-you-get composition. NeurIPS 2019. J. Dong, D. Durfee, R. Rogers: Optimal differential privacy composition
for exponential mechanisms. ICML 2020. M. Cesar, R. Rogers: Bounding, concentrating, and truncating: unifying privacy
loss composition for data analytics. ALT 2021."""


def answer_page(plan: Plan, release: Release, *, guarantee: str, left: list[str], confidence: float) -> str:
    """The page; everything that comes from data or users is escaped."""
    from importlib.metadata import version

    rows = html_rows(release.shown(confidence=confidence)) if len(release) else "<p>No label passed the threshold.</p>"
    phases = [(phase.name, phase.mechanism, release.phases.get(phase.name, "already paid")) for phase in plan.phases]
    sections = [
        rows,
        html_lines(notes(plan, release, confidence)),
        "<h2>What it cost</h2>",
        html_table(["phase", "mechanism", "charge"], phases),
        html_lines([guarantee, f"Split: {plan.split}."]),
        *(["<h2>What is left</h2>", html_lines(left)] if left else []),
        "<h2>How to cite</h2>",
        "<pre>" + "\n".join(escape(line) for line in CITE.format(version=version("dptopk")).splitlines()) + "</pre>",
    ]
    return html_page(f"The top {plan.k}", sections)


def notes(plan: Plan, release: Release, confidence: float) -> list[str]:
    """What a reader of the rows must know."""
    lines = []
    if len(release) < plan.k:
        passed = "were shown by their coins" if plan.threshold is None else "passed the threshold that hides rare ones"
        lines.append(f"{len(release)} of {plan.k} labels {passed}: {plan.appearing()}.")
        if plan.sensitivity.l0 is None:
            lines.append("If each user affects only a few labels, set --labels-per-user to lower this threshold.")
    if release.measurement is not None and len(release):
        count = "count of the capped data" if release.capped else "true count"
        lines.append(f"With {percent(confidence)} confidence, every interval above contains its {count}.")
    if release.note:
        lines.append(f"Note: {release.note}.")
    if release.seeded:
        lines.append("Made with a fixed seed: for tests and examples, not for production.")
    return lines
