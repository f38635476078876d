"""The loss of default plans beside published mechanisms, on the eight shapes of regret.py: `make
measure WHAT=field`.

Reimplemented in floats: OpenDP's Laplace noise over a threshold, Gaussian noise over one (the
weighted Gaussian where all users touch Δ labels) and then a peel of what passed; as ours:
canonical, one-shot and JOINT draws, then K-norm counts. Ours is what plan_topk takes without a
shape, and with private counts what it takes after a look. A few minutes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from look import after_looks
from regret import COUNTS
from scipy.stats import norm

from dptopk import (
    Box,
    Budget,
    CanonicalTopK,
    JointTopK,
    OneShotTopK,
    RoutedTopK,
    Sensitivity,
    plan_topk,
)
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.planning.probe import worth_a_look
from dptopk.planning.shape import Shape

DELTA, DRAWS, WITHIN = 1e-6, 256, 1.05
Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Cell = tuple[str, str, dict[str, float], float]


def over_a_threshold(
    counts: np.ndarray, k: int, noise: Noise, threshold: float, peel: float | None = None
) -> float:
    """The loss of the k largest noisy counts above a threshold; of labels alone that are peeled
    with Gumbel noise.
    """
    rng, top, squares, shown, missed = (
        np.random.default_rng(3),
        np.sort(counts)[::-1][:k].sum(),
        0.0,
        0,
        0.0,
    )
    for _ in range(DRAWS):
        noisy = counts + noise(rng, counts.shape)
        passed = np.flatnonzero((noisy > threshold) & (counts > 0))
        order = noisy if peel is None else counts + rng.gumbel(size=counts.shape) * peel
        best = passed[np.argsort(-order[passed])[:k]]
        squares += ((noisy - counts)[best] ** 2).sum()
        shown += len(best)
        missed += max(top - counts[best].sum(), 0.0) / k
    error = math.sqrt(squares / max(shown, 1)) if peel is None else 0.0
    return min(shown / DRAWS, 1.0) * error + missed / DRAWS


def gaussian(l0: int, epsilon: float, delta: float) -> tuple[float, float]:
    """σ and the threshold of Gaussian noise on counts of which a user touches l0, half of δ for
    labels of one user.
    """
    sigma = math.sqrt(l0) / gaussian_mu(epsilon=epsilon, delta=delta / 2)
    return sigma, 1 + sigma * norm.isf(delta / 2 / l0)


def private(l0: int, k: int, counted: bool) -> Iterator[Cell]:
    """Cells of private labels at (1, 1e-6)."""
    budget = Budget(1, DELTA)
    plan = plan_topk(k, budget, sensitivity=Sensitivity(l0=l0), counts="auto" if counted else None)
    for name, shape in COUNTS.items():
        counts = np.rint(np.asarray(shape, dtype=float))
        ours = Shape.of(shape).outcome(plan.mechanisms, k, plan.sensitivity, counted, DRAWS).loss
        if counted and worth_a_look(k, budget, Sensitivity(l0=l0), "private", "auto"):
            ours = float(np.mean(after_looks(name, l0, k, budget)))
        sigma, above = gaussian(l0, 1.0, DELTA)
        half, half_above = gaussian(l0, 0.5, DELTA / 2)
        each = (
            gaussian_mu(epsilon=0.5, delta=DELTA / 2) * 2 / math.sqrt(k)
        )  # ρ of a selection is ε²/8
        scale = l0 + l0 * math.log(l0 / (2 * DELTA))
        peers = {
            "Laplace threshold": over_a_threshold(
                counts, k, lambda r, n: r.laplace(size=n) * l0, scale - l0 + 1
            ),
            "Gaussian threshold": over_a_threshold(counts, k, normal(sigma), above),
        }
        if not counted:
            peers = {
                "weighted Gaussian, peel": over_a_threshold(
                    counts, k, normal(half), half_above, 1 / each
                )
            }
        yield f"private, l0={l0}, k={k}, {'counts' if counted else 'labels'}", name, peers, ours


def normal(sigma: float) -> Noise:
    """Normal noise."""
    return lambda rng, shape: rng.normal(size=shape) * sigma


def public(k: int, counted: bool) -> Iterator[Cell]:
    """Cells of public labels at pure ε = 1, any number of labels a user."""
    sensitivity, share = Sensitivity(), 0.5 if counted else 1.0
    plan = plan_topk(k, Budget(1), domain="public", counts="auto" if counted else None)
    counts = (Box(epsilon=0.5),) if counted else ()
    draws = {
        "canonical": CanonicalTopK(k=k, epsilon=share),
        "one-shot": OneShotTopK(k=k, epsilon=share),
        "JOINT": JointTopK(k=k, epsilon=share),
        "routed": RoutedTopK(k=k, epsilon=share),
    }
    for name, given in COUNTS.items():
        shape = Shape.of(np.rint(given))
        peers = {
            draw: shape.outcome((one, *counts), k, sensitivity, counted, DRAWS).loss
            for draw, one in draws.items()
        }
        ours = shape.outcome(plan.mechanisms, k, sensitivity, counted, DRAWS).loss
        yield f"public, δ = 0, k={k}, {'counts' if counted else 'labels'}", name, peers, ours


def main() -> None:
    """For each setting our loss over the best peer's, in the geometric mean, and the cells where it
    is above WITHIN.
    """
    settings = [
        private(l0, k, counted)
        for l0, k, counted in itertools.product((1, 5, 20), (10, 25), (True, False))
    ]
    settings += [public(k, counted) for k, counted in itertools.product((10, 25), (True, False))]
    for cells in settings:
        ratios, lost, setting = [], [], ""
        for setting, name, peers, ours in cells:  # noqa: B007
            best = min(peers, key=lambda peer: peers[peer])
            ratios.append((ours + 1) / (peers[best] + 1))
            if ratios[-1] > WITHIN:
                lost.append(f"  {name}: {ours:.1f} against {peers[best]:.1f}, {best}")
        mean = math.exp(np.log(ratios).mean())
        print(
            f"{setting}: {mean:.2f}, lost {len(lost)} of {len(ratios)}", *lost, sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
