"""An answer as one HTML page that needs nothing from elsewhere: rows with error bars first, then
how they were made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.formatting import (
    describe_caps,
    format_upper,
    html_lines,
    html_page,
    html_rows,
    html_table,
    html_terms,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from dptopk.planning import TopKPlan
    from dptopk.release.release import Release


CITE = (
    "The dptopk developers: dptopk, differentially private top-k queries on histograms (version "
    "{version}). Mechanisms and their accounting: D. Durfee, R. Rogers: Practical differentially "
    "private top-k selection with pay-what-you-get composition. NeurIPS 2019. J. Dong, D. Durfee, "
    "R. Rogers: Optimal differential privacy composition for exponential mechanisms. ICML 2020. M. "
    "Cesar, R. Rogers: Bounding, concentrating, and truncating: unifying privacy loss composition "
    "for data analytics. ALT 2021."
)


BARS = (
    "Counts are noisy on purpose. Each bar ends at the noisy count; the line across its end "
    "is the interval."
)


def answer_page(
    plan: TopKPlan,
    release: Release,
    *,
    guarantee: str,
    budget_lines: Sequence[str],
    rows: pd.DataFrame,
    about: Mapping[str, str],
) -> str:
    """Return the HTML page of an answer; everything that comes from data or users is escaped.

    Args:
        plan: the plan that ran.
        release: its answer.
        guarantee: the guarantee in words.
        budget_lines: lines on what is left of the budget; empty where nothing pays.
        rows: the rows with their intervals, as ``Release.display_table`` gives them.
        about: the title block, heading to text: what the data are, the date, who is protected.
    """
    from importlib.metadata import version

    if len(release):
        table = html_rows(rows)
    else:
        table = "<p>No label passed the threshold.</p>"
    phases = [
        (phase.name, phase.mechanism, release.phases.get(phase.name, "already paid"))
        for phase in plan.phases
    ]
    epsilon = format_upper(plan.bound.epsilon, 4)
    promise = {"Guarantee": f"({epsilon}, {format_upper(plan.budget.delta)})-differential privacy"}
    title = f"The top {plan.k}"
    if "Data set" in about:
        title += f" of {about['Data set']}"
    remarks = notes(plan, release, rows)
    if "low" in rows:
        remarks.insert(0, BARS)
    sections = [
        html_terms({**about, **promise}),
        table,
        html_lines(remarks),
        _remaining_section(budget_lines),
        "<details><summary>How this was computed</summary>",
        html_table(["phase", "mechanism", "charge"], phases),
        html_lines([*technical_notes(release), guarantee, f"Split: {plan.split}."]),
        "<h2>How to cite</h2>",
        html_lines([CITE.format(version=version("dptopk"))]),
        "</details>",
    ]
    return html_page(title, sections)


def _remaining_section(budget_lines: Sequence[str]) -> str:
    """Return the HTML section on what is left of the budget; empty where nothing pays."""
    if not budget_lines:
        return ""
    return f"<h2>What is left</h2>\n{html_lines(budget_lines)}"


def _meaning_of_counts(release: Release) -> str:
    """Return one sentence on what the numbers count, with the caps that made them smaller."""
    count = "a label's count"
    if release.capped:
        under = release.sensitivity
        caps = describe_caps(under.linf, under.l0, under.l1)
        count += f" after each user was limited to {caps},"
    return f"Each number is {count} plus random noise, which protects every user."


def _interval_promise(release: Release, rows: pd.DataFrame) -> str:
    """Return one or two sentences on what the intervals promise, and with what confidence.

    Args:
        release: the answer.
        rows: its rows with their intervals, as ``Release.shown`` gives them.
    """
    confidence = percent(rows.attrs["confidence"])
    promise = f"With {confidence} confidence, every interval above contains its "
    if release.capped:
        promise += "count after that limit; true counts can only be larger."
    elif rows.attrs["ranks"] == "rows":
        promise += "true count; a label that is not shown may have a larger one."
    else:
        promise += "true count."
    if rows["low"].min() <= 1:
        promise += (
            " An interval that begins at 0 or 1 says only how large the count can be at most: the "
            "noise may be as large as the count."
        )
    return promise


def cost_sentence(plan: TopKPlan) -> str:
    """Return one sentence with the (ε, δ) of the whole answer; ε is an upper bound, rounded up."""
    epsilon = format_upper(plan.bound.epsilon, 4)
    delta = format_upper(plan.budget.delta)
    return f"The answer costs at most ε = {epsilon}, δ = {delta} of privacy."


def technical_notes(release: Release) -> list[str]:
    """Return the line with the technical note of an answer; no line if it has none."""
    if release.note:
        return [f"Note: {release.note}."]
    return []


def notes(plan: TopKPlan, release: Release, rows: pd.DataFrame) -> list[str]:
    """Return the sentences that a reader of the rows must know: labels that were hidden, what the
    numbers count, what the intervals promise, and what is missing.

    Args:
        plan: the plan that ran.
        release: its answer.
        rows: the rows with their intervals, as ``Release.display_table`` gives them.
    """
    lines = []
    if len(release) < plan.k:
        if plan.threshold is None:
            condition = "were shown by their coins"
        else:
            condition = "passed the threshold that hides rare ones"
        lines.append(f"{len(release)} of {plan.k} labels {condition}: {plan.appearing()}.")
        if plan.sensitivity.l0 is None:
            lines.append(
                "If each user affects only a few labels, set --labels-per-user to lower this "
                "threshold."
            )
    if release.counts is not None and len(release):
        lines.append(_meaning_of_counts(release))
    if release.measurement is not None and len(release):
        lines.append(_interval_promise(release, rows))
    lines += release.omissions()
    if release.seeded:
        lines.append("Made with a fixed seed: for tests and examples, not for production.")
    return lines
