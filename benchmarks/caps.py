"""What a cap costs: the loss of one phase and of two against the true counts, on eight made-up
tables of events.

    python -m benchmarks.caps                # one real table, k = 10, few answers
    python -m benchmarks.caps --real         # docs/notes/two-phases.md, the tables of REPORT
    python -m benchmarks.caps --made-up      # docs/notes/events-measured.md, its first four tables
    python -m benchmarks.caps --hindsight    # docs/notes/two-phases.md, the choice by a profile
    python -m benchmarks.caps --small        # docs/notes/two-phases.md, what small tables pay
    python -m benchmarks.caps --coverage     # how often error bars cover the true counts

Loss: root mean square error of the shown counts against the true (uncapped) counts, plus the count
missed per row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pandas as pd

from benchmarks.tables import REPORT, table as real_table
from dptopk import Budget, Histogram, Sensitivity, plan_topk
from dptopk._internal.choices import FindBy
from dptopk.datasets import EventCounts, make_events
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT, finding_sensitivity
from dptopk.planning import Plan, plan_two_phases
from dptopk.planning.profile import capped_menu, finding_sensitivity_of, menu
from dptopk.planning.two_phase import TwoPhasePlan
from dptopk.planning.ways import FINDING_DELTA, Counting, Way, calibrate_way

BUDGET = Budget(1.0, 1e-6)
RANKS, ONE, TWO = (10, 25, 100), (5, 10, 20, 60, None), (2, 5, 10, 30, 100, 300)
ALL_RANKS, SHARES, CAPS = (10, 25, 100, 300), (0.1, 0.2, 0.3, 0.5, 0.7), (10, 30, 100)
DRAWS, SCREEN, ANEW = 20, 8, 100
# Up to which k box noise is tried in hindsight, and every how many ways of the menu.
BOXED, HINDSIGHT_STEP = 25, 2
FIXED: tuple[int, float] = (5, 0.4)
SMALL_RANKS = (5, 10)
# All that find labels under a cap; to find them without one is a part of the menu.
CAPPED_FINDERS = tuple(find for find in FINDING_DELTA if find != "uncapped")


def worlds(number: int) -> Iterator[tuple[str, pd.DataFrame]]:
    """The first tables of distinct pairs (user, item)."""
    with TemporaryDirectory() as folder:
        make_events(
            path := Path(folder) / "e.parquet", events=200_000, users=8_000, items=2_000, seed=1
        )
        made = pd.read_parquet(path).drop_duplicates(["member", "article"])
        items = made["article"].astype(str).str[-4:].astype(int)
        yield "make_events", pd.DataFrame({"user": made["member"], "item": items})
    rng = np.random.default_rng(7)
    yield "geometric", _drawn(rng, rng.geometric(1 / 12, 12_000), 3_000, 1.0)
    yield "few users", _drawn(rng, rng.geometric(1 / 10, 3_000), 500, 0.8)
    yield (
        "heavy tail",
        _drawn(rng, np.minimum(1 + rng.pareto(1.1, 30_000) * 2, 500).astype(int), 5_000, 0.9),
    )
    if number > 4:
        yield "flat", _drawn(rng, rng.geometric(1 / 10, 20_000), 1_000, 0.4)
        yield "steep", _drawn(rng, rng.geometric(1 / 15, 10_000), 3_000, 1.5)
        yield "few labels each", _drawn(rng, rng.geometric(0.6, 60_000), 2_000, 0.9)
        yield (
            "heaviest tail",
            _drawn(rng, np.minimum(1 + rng.pareto(0.7, 8_000) * 2, 800).astype(int), 3_000, 0.7),
        )


def _drawn(
    rng: np.random.Generator, degrees: np.ndarray, items: int, exponent: float
) -> pd.DataFrame:
    """Users with about this many labels each, of Zipf popularity."""
    law = np.cumsum(np.arange(1, items + 1) ** -exponent)
    item = np.searchsorted(law, rng.random(degrees.sum()) * law[-1])
    return pd.DataFrame(
        {"user": np.repeat(np.arange(len(degrees)), degrees), "item": item}
    ).drop_duplicates()


def both(
    pairs: pd.DataFrame, cap: int | None, rng: np.random.Generator, *, weights: bool
) -> EventCounts:
    """The two histograms; each user's labels under the cap by coins."""
    true = pairs["item"].value_counts().sort_index()
    place = pd.Series(rng.random(len(pairs)), index=pairs.index).groupby(pairs["user"]).rank()
    kept = pairs[place <= (cap or np.inf)]
    labels = kept.groupby("user")["item"].transform("size")
    weight = labels.map(lambda d: isqrt(WEIGHT**2 // d) if weights else 1)
    capped = weight.groupby(kept["item"]).sum()
    under = Sensitivity() if cap is None else finding_sensitivity(cap, 1, weights=weights)
    there = {narrow: pairs["item"][place <= narrow].value_counts() for narrow in NARROW}
    narrow = {cap: c.reindex(true.index, fill_value=0).to_numpy() for cap, c in there.items()}
    degrees = pairs.groupby("user").size().to_numpy()
    users = np.histogram(degrees, [*(cell + 1 for cell in CELLS), np.inf])[0]
    return EventCounts.of_histograms(
        Histogram(true.index.to_numpy(), true.to_numpy()),
        Histogram(capped.index.to_numpy(), capped.to_numpy(), sensitivity=under, capped=True),
        Histogram(list(CELLS), users, sensitivity=Sensitivity(l0=1), domain="public"),
        narrow,
    )  # fmt: skip


def loss(plan: Plan, histogram: Histogram, true: Histogram, k: int, draws: int = DRAWS) -> float:
    """The mean over some answers."""
    rng, top, squares, missed = (
        np.random.default_rng(draws),
        np.sort(true.counts)[::-1][:k].sum(),
        [],
        0.0,
    )
    for _ in range(draws):
        answer = plan.release(histogram, rng)
        there = true.count_of(list(answer.labels))
        squares += ((answer.counts - there) ** 2).tolist()
        missed += max(top - there.sum(), 0) / k / draws
    return float(np.sqrt(np.mean(squares)) + missed) if squares else missed


@cache
def one_phase(k: int, cap: int | None) -> Plan:
    """The default design of one phase at a cap."""
    return plan_topk(k, BUDGET, sensitivity=Sensitivity(l0=cap))


@cache
def two_phases(k: int, cap: int, find: FindBy, share: float | Literal["auto"] = "auto") -> Plan:
    """Labels found under a cap, counted without one."""
    return plan_two_phases(k, BUDGET, labels_per_user=cap, find=find, share=share)


@cache
def by_profile(k: int) -> Plan:
    """The default of events whose cap is not stated: a look first, where it pays."""
    return plan_two_phases(k, BUDGET, profile=True)


def table() -> None:
    """A line for each world, k and way."""
    rng = np.random.default_rng(11)
    for name, pairs in worlds(4):
        under = {
            (cap, weights): both(pairs, cap, rng, weights=weights)
            for cap in TWO
            for weights in (True, False)
        }
        for k in RANKS:
            for find in ("weights", "counts"):
                made = ((cap, under[cap, find == "weights"]) for cap in TWO)
                told = [loss(two_phases(k, cap, find), each, each, k) for cap, each in made]
                print(
                    f"| {name}, {k} | {find} |",
                    " | ".join(f"{x:.3g}" for x in told),
                    "|",
                    flush=True,
                )


def hindsight() -> None:
    """The fixed default, that by a profile, a fixed cap of 5, and the best of all, drawn anew after
    it was chosen.
    """
    rng = np.random.default_rng(11)
    for name, pairs in worlds(8):
        caps = sorted({*CAPS, FIXED[0]})
        under = {
            (cap, weights): both(pairs, cap, rng, weights=weights)
            for cap in caps
            for weights in (True, False)
        }
        alone = {cap: both(pairs, cap, rng, weights=False) for cap in ONE}
        for k in ALL_RANKS:
            tried = {}
            for cap, find, share in product(CAPS, CAPPED_FINDERS, SHARES):
                try:
                    tried[f"{find} {cap} {share}"] = (
                        two_phases(k, cap, find, share),
                        under[cap, find == "weights"],
                    )
                except InvalidParameter:
                    continue
            tried |= {
                f"one phase {cap}": (one_phase(k, cap), each.under_cap)
                for cap, each in alone.items()
            }
            true = under[CAPS[0], True]
            found = {
                way: loss(plan, histogram, true, k, SCREEN)
                for way, (plan, histogram) in tried.items()
            }
            best = min(found, key=found.__getitem__)
            before = loss(two_phases(k, 100, "weights"), under[100, True], true, k, ANEW)
            default = loss(by_profile(k), under[100, True], true, k, ANEW)
            fixed = loss(
                two_phases(k, FIXED[0], "counts", FIXED[1]), under[FIXED[0], False], true, k, ANEW
            )
            again = loss(*tried[best], true, k, ANEW)
            print(
                f"| {name}, {k} | {before:.3g} | {default:.3g} | {fixed:.3g} | {again:.3g} | "
                f"{best} |",
                f"{before / again:.2f} | {default / again:.2f} | {default / fixed:.2f} |",
                flush=True,
            )


def small_worlds() -> Iterator[tuple[str, pd.DataFrame]]:
    """Tables of 60 to 300 users; in the last one users of many labels have other labels."""
    rng = np.random.default_rng(19)
    yield "60 users", _drawn(rng, rng.geometric(1 / 8, 60), 40, 1.0)
    yield "120 users", _drawn(rng, rng.geometric(1 / 3, 120), 200, 1.2)
    yield "200 users", _drawn(rng, rng.geometric(1 / 10, 200), 500, 0.8)
    light = _drawn(rng, rng.geometric(1 / 2, 240), 60, 1.0)
    heavy = _drawn(rng, np.full(60, 40), 300, 0.5)
    heavy = heavy.assign(user=heavy["user"] + 240, item=heavy["item"] + 30)
    yield "300 users, 60 of them of 40 labels", pd.concat([light, heavy], ignore_index=True)


def losses(plan: Plan, histogram: EventCounts, k: int, draws: int = DRAWS) -> np.ndarray:
    """The loss of each answer by itself, shape (draws,)."""
    rng, top = np.random.default_rng(draws), np.sort(histogram.counts)[::-1][:k].sum()
    found = []
    for _ in range(draws):
        answer = plan.release(histogram, rng)
        there = histogram.count_of(list(answer.labels))
        error = np.sqrt(np.mean((answer.counts - there) ** 2)) if len(there) else 0.0
        found.append(error + max(top - there.sum(), 0) / k)
    return np.array(found)


def small() -> None:
    """What the looks cost small tables: the mean loss with them over that of the plan without."""
    rng = np.random.default_rng(23)
    for name, pairs in small_worlds():
        histogram = both(pairs, 100, rng, weights=True)
        for k in SMALL_RANKS:
            plans = (by_profile(k), plan_two_phases(k, BUDGET))
            told = [losses(plan, histogram, k) for plan in plans]
            means = [float(each.mean()) for each in told]
            errors = [float(each.std(ddof=1)) / len(each) ** 0.5 for each in told]
            ratio = means[0] / means[1]
            spread = ratio * float(np.hypot(errors[0] / means[0], errors[1] / means[1]))
            largest = float(np.sort(histogram.counts)[::-1][:k].mean())
            cells = [f"{mean:.3g} ± {se:.2g}" for mean, se in zip(means, errors, strict=True)]
            print(
                f"| {name}; {k} | {largest:.3g} | {' | '.join(cells)} | {ratio:.2f} ± {spread:.2f} |",
                flush=True,
            )


def coverage(answers: int = 500, confidence: float = 0.95) -> None:
    """The share of answers of which all bars cover, and of rows covered by the narrower ones."""
    rng = np.random.default_rng(13)
    for name, pairs in worlds(4):
        histogram = both(pairs, 100, rng, weights=True)
        for k in (10, 100):
            plan, all_covered, rows = two_phases(k, 100, "weights"), [], []
            for _ in range(answers):
                answer = plan.release(histogram, rng)
                true = histogram.count_of(list(answer.labels))
                for kind, covered in (("simultaneous", all_covered), ("fcr", rows)):
                    bars = answer.intervals(confidence=confidence, kind=kind)
                    inside = (bars["low"] <= true) & (true <= bars["high"])
                    covered.append(inside.all() if kind == "simultaneous" else inside.mean())
            print(f"| {name}, {k} | {np.mean(all_covered):.3f} | {np.mean(rows):.4f} |", flush=True)


def menu_of(k: int, step: int) -> list[Way]:
    """The ways that are tried in hindsight: a part of the menu of a look."""
    families: tuple[Counting, ...] = ("box",) if k <= BOXED else ("gaussian",)
    return [*menu(k, families)[::step], *capped_menu()[:: max(step // 6, 1)]]


@cache
def in_way(k: int, way: Way) -> TwoPhasePlan | None:
    """The plan without a look in one way; None where the budget is too small for it."""
    usual = plan_two_phases(k, BUDGET)
    try:
        return usual.in_way(
            calibrate_way(way, k, BUDGET, finding_sensitivity_of(way), usual.sensitivity)
        )
    except InvalidParameter:
        return None


def real(names: Sequence[str], ranks: Sequence[int], draws: int, step: int) -> None:
    """On real tables: the default, that without a look, one phase without a cap, and the best of
    the menu in hindsight, which is chosen by a third of the answers and drawn anew.
    """
    rng = np.random.default_rng(17)
    for name in names:
        pairs = real_table(name)
        histogram = both(pairs, 100, rng, weights=True)
        alone = Histogram(histogram.labels, histogram.counts)
        for k in ranks:
            tried = {way: plan for way in menu_of(k, step) if (plan := in_way(k, way)) is not None}
            few = max(draws // 3, 1)
            found = {way: loss(plan, histogram, histogram, k, few) for way, plan in tried.items()}
            best = min(found, key=found.__getitem__)
            again = loss(tried[best], histogram, histogram, k, draws)
            default = loss(by_profile(k), histogram, histogram, k, draws)
            unlooked = loss(plan_two_phases(k, BUDGET), histogram, histogram, k, draws)
            capless = loss(one_phase(k, None), alone, histogram, k, draws)
            print(
                f"| {name}; {k} | {default:.3g} | {unlooked:.3g} | {capless:.3g} | {again:.3g} | "
                f"{best.words} | {default / again:.2f} | {default / capless:.2f} |",
                flush=True,
            )


def main(options: list[str]) -> None:
    """Run what is asked for; without options everything that takes no hours."""
    if options == ["--quick"]:
        real(["character, word"], (10,), 4, 36)
    elif options == ["--real"]:
        real(list(REPORT), RANKS, DRAWS, HINDSIGHT_STEP)
    else:
        {"--hindsight": hindsight, "--coverage": coverage, "--small": small}.get(
            options[-1], table
        )()


if __name__ == "__main__":
    main(sys.argv[1:] or ["--quick"])
