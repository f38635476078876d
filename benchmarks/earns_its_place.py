"""Which designs of plan_topk are ever the best, on counts of real tables?

    python -m benchmarks.earns_its_place [CELLS [FILE]]    # docs/notes/what-wins.md
    python -m benchmarks.earns_its_place --design NAME CELLS    # "NAME (domain)", on a wider grid

A cell is a table, a domain with its δ, a k, an l0, an ε, and counts shown or labels alone. In each,
every design that answers the request, also those that are only taken by name, gets its best
division of the budget for the true counts, and its loss is simulated. A design earns its place
where it loses least and the best of the others at least 3% more, by more than two standard errors
of the simulation; or where it does so among the designs that a plan compares without a shape, since
others cannot stand in for it there. Designs without such a cell are struck out one by one, the one
that is rarely near the best first, and after each the others are compared again: of two designs
that do equally well one stays. Cells come in an order that a seed shuffles; CELLS of them are looked at. FILE keeps the
losses, a line a cell: a run that was stopped continues from it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.tables import table
from dptopk import Sensitivity
from dptopk.errors import InvalidParameter
from dptopk.planning.best_design import default_d_bar
from dptopk.planning.designs import DESIGNS, Design
from dptopk.planning.request import Request
from dptopk.planning.scaling import Candidate, at_budget, scale_coarse
from dptopk.planning.shape import Shape

TABLES = ("character, word", "package, tag", "header, include", "manual page, word")
# The domain, δ, and whether the whole histogram is at hand or only its 10 k largest counts.
DOMAINS = (("private", 1e-6, True), ("private", 1e-6, False), ("public", 1e-6, True))
DOMAINS += (("public", 0.0, True),)
K = (1, 5, 25, 100)
L0 = (1, 5, 20, None)
EPSILONS = (0.1, 1.0, 10.0)
COUNTS = ("auto", "none")
WIDE_K, WIDE_L0 = (3, 10, 30, 100), (1, 3, 5, 10, 20, 60, None)
WIDE_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
LEAST_GAIN = 1.03
# Smaller losses, in counts a row, are those of an answer that is as good as exact: all are equal.
LEAST_LOSS = 0.1
# How many divisions of the budget are looked at closely, and the draws of that look and of the
# last, which is for the designs that are within NEAR of the best.
DIVISIONS, FEW, MANY, NEAR = 2, 256, 1024, 1.15
# What is this much worse by an estimate is not looked at closely.
FAR = 1.5

Cell = tuple[str, tuple[str, float, bool], int, int | None, float, str]
# Loss and its standard error of each design, by "name (domain)".
Losses = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Win:
    """Where a design is the best.

    Attributes:
        design: "name (domain)".
        factor: the loss of the best other one over its loss; inf where it is alone.
        clear: whether that is at least LEAST_GAIN, and beyond two standard errors.
    """

    design: str
    factor: float
    clear: bool


def named(design: Design) -> str:
    """A design and its domain: two designs may share a name."""
    return f"{design.name} ({design.domain})"


# Those that a plan compares where no shape of the counts is given.
WITHOUT_A_SHAPE = frozenset(
    named(one) for one in DESIGNS if one.additive and not one.coins_then_counts
)


def winner(losses: Losses) -> Win:
    """The design with the least loss; losses below LEAST_LOSS are equal."""
    floored = {name: max(loss, LEAST_LOSS) for name, (loss, _) in losses.items()}
    best = min(floored, key=lambda name: floored[name])
    others = [name for name in floored if name != best]
    if not others:
        return Win(best, math.inf, clear=True)
    second = min(others, key=lambda name: floored[name])
    factor = floored[second] / floored[best]
    error = math.hypot(losses[best][1], losses[second][1])
    apart = floored[second] - floored[best] > 2 * error
    return Win(best, factor, clear=factor >= LEAST_GAIN and apart)


def gains(cells: Sequence[Losses], designs: frozenset[str]) -> dict[str, float]:
    """The largest factor by which each of these designs clearly wins among them, or among those of
    them that need no shape; 1 without one.
    """
    found = dict.fromkeys(designs, 1.0)
    for losses in cells:
        for among in (designs, designs & WITHOUT_A_SHAPE):
            left = {name: loss for name, loss in losses.items() if name in among}
            if left:
                win = winner(left)
                if win.clear:
                    found[win.design] = max(found[win.design], win.factor)
    return found


def struck_out(cells: Sequence[Losses], designs: frozenset[str]) -> list[str]:
    """The designs that are not needed, in the order in which they are struck out.

    Of those without a clear win the one goes first that is within LEAST_GAIN of the best in fewest
    cells; then the others are compared again.
    """
    gone: list[str] = []
    left = designs
    while True:
        gained = gains(cells, left)
        idle = [name for name in sorted(left) if gained[name] == 1.0]
        if not idle:
            return gone
        near = _near(cells, left)
        last = min(idle, key=lambda name: near[name])
        gone.append(last)
        left -= {last}


def _near(cells: Sequence[Losses], designs: frozenset[str]) -> Counter[str]:
    """In how many cells each design is within LEAST_GAIN of the best of these."""
    near: Counter[str] = Counter()
    for losses in cells:
        floored = {
            name: max(loss, LEAST_LOSS) for name, (loss, _) in losses.items() if name in designs
        }
        if floored:
            limit = LEAST_GAIN * min(floored.values())
            near.update(name for name, loss in floored.items() if loss <= limit)
    return near


def _price(losses: Losses, designs: frozenset[str]) -> float:
    """The loss of the best of these designs over that of the best of all in a cell."""
    floored = {name: max(loss, LEAST_LOSS) for name, (loss, _) in losses.items()}
    left = [loss for name, loss in floored.items() if name in designs]
    return min(left, default=math.inf) / min(floored.values())


def losses_in(cell: Cell, shape: Shape) -> dict[str, tuple[float, float]]:
    """The loss of every design that answers the request of a cell, and its standard error."""
    _, (domain, delta, whole), k, l0, epsilon, counts = cell
    request = Request(
        k=k,
        epsilon=epsilon,
        delta=delta,
        accuracy=None,
        sensitivity=Sensitivity(l0=l0),
        domain=domain,
        d_bar=default_d_bar(k),
        whole=whole,
        counts=counts,
        method="auto",
        selection_share=None,
        fit=True,
        shape=shape,
    )
    guesses = {}
    for design in DESIGNS:
        asked = replace(request, method=design.name)
        if not design.misfit(asked):
            guesses[named(design)] = _divisions(asked, design)
    rough = {name: found[0].loss - found[0].doubt for name, found in guesses.items() if found}
    limit = FAR * max(min(rough.values()), LEAST_LOSS)
    found = {}
    for name, loss in rough.items():
        best = guesses[name][0] if loss > limit else _at_scale(guesses[name])
        if best is not None:
            found[name] = best
    least = max(min(one.loss for one in found.values()), LEAST_LOSS)
    for name, one in found.items():
        if one.loss <= NEAR * least:
            found[name] = replace(one, draws=MANY)
    return {name: (one.loss, one.doubt / 2) for name, one in found.items()}


def _divisions(request: Request, design: Design) -> list[Candidate]:
    """The divisions of the budget for a design, the best of them by few draws first."""
    try:
        guesses = [at_budget(request, design, split) for split in design.splits(request)]
    except InvalidParameter:
        return []
    return sorted(guesses, key=lambda guess: guess.loss)


def _at_scale(guesses: Sequence[Candidate]) -> Candidate | None:
    """The best of the first divisions, scaled by ``compose``; None where the budget is too small."""
    try:
        scaled = [scale_coarse(replace(guess, draws=FEW)) for guess in guesses[:DIVISIONS]]
    except InvalidParameter:
        return None
    return min(scaled, key=lambda guess: guess.loss)


def in_words(cell: Cell) -> str:
    """A cell for the table."""
    name, (domain, delta, whole), k, l0, epsilon, counts = cell
    shown = "labels" if counts == "none" else "counts"
    cut = "" if whole else ", the largest 10 k alone"
    return f"{name}; {domain}{cut}, δ = {delta:g}, ε = {epsilon:g}, k = {k}, l0 = {l0}, {shown}"


def measured(cells: Sequence[Cell], path: Path | None) -> Iterator[tuple[Cell, Losses]]:
    """The losses of each cell; those in the file are read, those that are not are added to it."""
    known = {}
    if path is not None and path.exists():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        known = {line["cell"]: line["losses"] for line in lines}
    shapes = {}
    for cell in cells:
        words = in_words(cell)
        if words not in known:
            if cell[0] not in shapes:
                shapes[cell[0]] = table(cell[0])["item"].value_counts().to_numpy()
            known[words] = losses_in(cell, Shape.of(shapes[cell[0]]))
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps({"cell": words, "losses": known[words]}) + "\n")
        yield cell, known[words]


def report(found: Sequence[tuple[Cell, Losses]]) -> None:
    """Print a row for each design, then those that are struck out."""
    fits: Counter[str] = Counter()
    wins: Counter[str] = Counter()
    largest: dict[str, tuple[float, str]] = {}
    for cell, losses in found:
        win = winner(losses)
        fits.update(losses.keys())
        if win.clear:
            wins[win.design] += 1
            where = f"{in_words(cell)}, loss {losses[win.design][0]:.3g}"
            before = largest.get(win.design, (1.0, ""))
            largest[win.design] = max(before, (win.factor, where))
    print("| design | cells where it fits | best by 3% | largest factor | in |")
    print("|---|---|---|---|---|")
    names = [named(design) for design in DESIGNS]
    for design in sorted(names, key=lambda one: (-wins[one], -fits[one], one)):
        factor, where = largest.get(design, (1.0, ""))
        print(f"| {design} | {fits[design]} | {wins[design]} | {factor:.2f} | {where} |")
    cells = [losses for _, losses in found]
    gone = struck_out(cells, frozenset(fits))
    stay = frozenset(fits) - set(gone)
    kept = gains(cells, stay)
    price, where = max((_price(losses, stay), in_words(cell)) for cell, losses in found)
    print(f"\nWhat is left loses at most {price:.3f} times the loss of the best, in {where}")
    print("\nStruck out, in this order:", "; ".join(gone))
    print("\nLeft, with the largest factor by which each wins among those left:")
    print("; ".join(f"{name} {factor:.2f}" for name, factor in sorted(kept.items())))
    print("\nThey answer no cell:", "; ".join(name for name in names if not fits[name]))


def alone(design: str, number: int) -> None:
    """Print in how many random cells of a wider grid that it answers a design is the best by 3%."""
    rng = random.Random(7)
    shapes = {name: Shape.of(table(name)["item"].value_counts().to_numpy()) for name in TABLES}
    domains = [one for one in DOMAINS if one[0] in design]
    found: list[tuple[float, str]] = []
    looked_at = 0
    while looked_at < number:
        name, counts = rng.choice(TABLES), rng.choice(COUNTS)
        k, l0, epsilon = rng.choice(WIDE_K), rng.choice(WIDE_L0), rng.choice(WIDE_EPSILONS)
        cell = name, rng.choice(domains), k, l0, epsilon, counts
        if 2 * k > len(shapes[name].counts):
            continue
        losses = losses_in(cell, shapes[name])
        if design in losses:
            looked_at += 1
            win = winner(losses)
            if win.design == design and win.clear:
                found.append((win.factor, in_words(cell)))
    print(f"{design}: the best by 3% in {len(found)} of {number} cells")
    for factor, words in sorted(found, reverse=True):
        print(f"{factor:.2f}: {words}")


def main(number: int | None, path: Path | None) -> None:
    """Measure the cells and print the table."""
    cells = list(itertools.product(TABLES, DOMAINS, K, L0, EPSILONS, COUNTS))
    random.Random(45).shuffle(cells)
    looked_at = cells[:number]
    print(f"{len(looked_at)} of {len(cells)} cells.\n")
    report(list(measured(looked_at, path)))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--design"]:
        alone(arguments[1], int(arguments[2]))
        raise SystemExit
    main(
        int(arguments[0]) if arguments else None,
        Path(arguments[1]) if len(arguments) > 1 else None,
    )
