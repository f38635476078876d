"""Which ways to answer from events are ever the best, on real tables?

    python -m benchmarks.ways_for_events [FILE]    # the second table of docs/notes/what-wins.md

A cell is a table, a k and an ε at δ = 1e-6, counts shown. Compared are the families of ways among
which a look chooses, each with the division, floor and cap that lose least there in hindsight, and
one phase without a cap and under one: released, against the counts of all events. A family earns
its place where it loses least and the best of the others at least 3% more, by more than two
standard errors. FILE keeps the losses, a line a cell: a run that was stopped continues from it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.caps import both
from benchmarks.earns_its_place import Losses, winner
from benchmarks.field import OneDraw, Seen, seen
from benchmarks.tables import table
from dptopk import Budget, Histogram, Plan, Sensitivity, plan_topk
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.planning import plan_two_phases
from dptopk.planning.profile import capped_menu, finding_sensitivity_of, menu
from dptopk.planning.ways import Counting, Way, calibrate_way

TABLES = ("package, tag", "file, import", "function, argument", "plane, day")
K = (10, 100)
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
FEW, MANY = 4, 24
ONE_PHASE = (5, 20, 60)
# Up to which k box noise is tried, and every how many ways of the menu; coprime to the 12 or 15 of a
# share, so that all kinds are among them.
BOXED, STEP = 25, 7


def family(way: Way) -> str:
    """The kind of a way, in words."""
    if way.counting == "capped":
        chosen = "selected again" if way.selecting else "the largest"
        return f"capped counts over a threshold, {chosen}"
    if way.counts_all:
        return f"{way.find}, then counts of all"
    return {"uncapped": "selections without a cap"}.get(way.find, f"{way.find}, then selections")


def options(k: int, budget: Budget, data: EventCounts) -> Iterator[tuple[str, OneDraw]]:
    """Every way that the budget allows, by its family."""
    noise: tuple[Counting, ...] = ("box",) if k <= BOXED else ("gaussian",)
    usual = plan_two_phases(k, budget)
    for way in (*menu(k, noise)[::STEP], *capped_menu()[::3]):
        try:
            scaled = calibrate_way(way, k, budget, finding_sensitivity_of(way), usual.sensitivity)
        except InvalidParameter:
            continue
        yield family(way), drawing(usual.in_way(scaled), data, data)
    alone = Histogram(data.labels, data.counts)
    yield "one phase, no cap", drawing(plan_topk(k, budget), alone, data)
    for cap in ONE_PHASE:
        plan = plan_topk(k, budget, sensitivity=Sensitivity(l0=cap))
        yield "one phase under a cap", drawing(plan, data.under(cap), data)


def drawing(plan: Plan, histogram: Histogram, true: Histogram) -> OneDraw:
    """Releases of a plan: the true counts of their labels, and the counts shown."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        answer = plan.release(histogram, rng)
        there = np.asarray(true.count_of(list(answer.labels)), dtype=float)
        return there, np.asarray(answer.counts, dtype=float)

    return draw


def losses_in(k: int, budget: Budget, data: EventCounts) -> dict[str, tuple[float, float]]:
    """The loss of the best way of each family, drawn anew, and its standard error."""
    best: dict[str, tuple[float, OneDraw]] = {}
    true = np.asarray(data.counts, dtype=float)
    for name, draw in options(k, budget, data):
        loss = seen(draw, true, k, FEW).loss
        if name not in best or loss < best[name][0]:
            best[name] = loss, draw

    def again(draw: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Seen:
        return seen(draw, true, k, MANY, seed=29)

    found = {name: again(draw) for name, (_, draw) in best.items()}
    return {name: (one.loss, one.error) for name, one in found.items()}


def measured(path: Path | None) -> Iterator[tuple[str, Losses]]:
    """The losses of each cell; those in the file are read, those that are not are added to it."""
    known = {}
    if path is not None and path.exists():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        known = {line["cell"]: line["losses"] for line in lines}
    for name in TABLES:
        cells = {
            f"{name}; k = {k}, ε = {epsilon:g}": (k, Budget(epsilon, DELTA))
            for k, epsilon in itertools.product(K, EPSILONS)
        }
        if not cells.keys() <= known.keys():
            data = both(table(name), 100, np.random.default_rng(31), weights=True)
        for cell, (k, budget) in cells.items():
            if cell not in known:
                known[cell] = losses_in(k, budget, data)
                if path is not None:
                    with path.open("a") as file:
                        file.write(json.dumps({"cell": cell, "losses": known[cell]}) + "\n")
            yield cell, known[cell]


def main(path: Path | None) -> None:
    """Print a row for each cell: the loss of each family, the best one and its factor."""
    header: list[str] = []
    for cell, losses in measured(path):
        if not header:
            header = sorted(losses)
            print("| cell |", " | ".join(header), "| best | factor |")
            print("|---" * (len(header) + 3) + "|")
        win = winner(losses)
        shown = ("–" if one not in losses else f"{losses[one][0]:.3g}" for one in header)
        clear = "**" if win.clear else ""
        print(
            f"| {cell} |",
            " | ".join(shown),
            f"| {clear}{win.design}{clear} | {win.factor:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
