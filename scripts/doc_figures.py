"""Make the figures of the docs: the README's picture of one answer, and copies of experiments.

Usage: python scripts/doc_figures.py FOLDER, where FOLDER is what `dptopk reproduce all` wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from dptopk import Budget, Sensitivity, Session
from dptopk.datasets import macbeth
from dptopk.experiments import style

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
EXPERIMENTS = ("adaptivity", "affordable-queries", "cr-figure-6", "truncated-gaussian")
K = 10
BUDGET = Budget(0.1, 1e-6)
SEED = 5
# Of a quantised PNG: more colours than a figure has, with the shades between them.
COLOURS = 64


def answer(path: Path) -> None:
    """Draw the true counts of ten words, and what one private answer says of them."""
    words = macbeth(sensitivity=Sensitivity(l0=1))
    truth = dict(zip(words.labels.tolist(), words.counts.tolist(), strict=True))
    session = Session(words, budget=BUDGET, rng=np.random.default_rng(SEED))
    release = session.top_k(K, budget=BUDGET, counts="auto", look=None)
    intervals = release.intervals()
    place = np.arange(len(release.labels))
    figure, axes = style.figure(width=7.2, height=3.6)
    true_counts = [truth[label] for label in release.labels]
    axes.bar(place, true_counts, width=0.75, color="#DDDDDD", label="true count (secret)")
    below = release.counts - intervals["low"]
    above = intervals["high"] - release.counts
    axes.errorbar(
        place,
        release.counts,
        [below, above],
        fmt="o",
        color=style.COLOURS[0],
        capsize=4,
        label="private count, with the interval that holds the true one (95%, all at once)",
    )
    axes.set_xticks(place, release.labels)
    axes.grid(visible=False, axis="x")
    axes.set(
        ylabel="occurrences",
        ylim=(0, None),
        title=f"The {K} most frequent words of Macbeth, ε = {BUDGET.epsilon:g}, "
        f"δ = {BUDGET.delta:.0e}".replace("e-0", "e-"),
    )
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=200)


def smaller(source: Path, target: Path) -> None:
    """Copy a PNG with a palette of its own colours: a third of the bytes, and no colour merged."""
    picture = Image.open(source).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.MEDIANCUT).save(target, optimize=True)


def main(folder: Path) -> None:
    """Write all figures of the docs."""
    for name in EXPERIMENTS:
        smaller(folder / f"{name}.png", FIGURES / f"{name}.png")
    picture = FIGURES / "answer.png"
    answer(picture)
    smaller(picture, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
