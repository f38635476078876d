"""The auditor finds what is known to be broken, unaided, and nothing in what is proven."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from dptopk import BoundedRange, Budget, Charge, KnownLaplace, PureDP, Sensitivity, UnknownLaplace
from dptopk.audit import World, audit, from_mechanism
from dptopk.audit.evidence import clopper_pearson_bounds
from dptopk.errors import InvalidParameter

PUBLIC = World(public=True, sensitivity=Sensitivity(l0=None))


def limited(draws):
    """Limits that do not depend on the machine, and the same pairs each time."""
    return {"seconds": 600.0, "draws": draws, "rng": np.random.default_rng(7)}


class Sampler:
    """A mechanism on arrays: one vectorised call for many draws."""

    def __init__(self, many):
        self.many = lambda counts, draws: many(counts, draws, self.rng)
        self.rng = np.random.default_rng(8)


def permute_and_flip(counts, draws, rng):
    """Exponential noise once, the largest is kept (McKenna-Sheldon 2020), ε = 1."""
    names = np.array(list(counts))
    scores = np.array(list(counts.values())) + rng.exponential(1.0, (draws, len(counts)))
    return names[scores.argmax(axis=1)].tolist()


def exponential_mechanism(counts, draws, rng):
    names = np.array(list(counts))
    scores = np.array(list(counts.values())) + rng.gumbel(0, 1.0, (draws, len(counts)))
    return names[scores.argmax(axis=1)].tolist()


def truncated_gaussian_as_published(counts, draws, rng, sigma=3.0, bound=9):
    """CR 2022, Algorithm 2 with one slot: the threshold follows the second count without noise."""
    points = np.arange(-bound, bound + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2))
    ranked = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    if not ranked:
        return [()] * draws
    (label, top), floor = ranked[0], ranked[1][1] if len(ranked) > 1 else 0
    values = top + rng.choice(points, p=weights / weights.sum(), size=draws)
    return [((label, int(value)),) if value > floor + 1 + bound else () for value in values]


def geometric_threshold(counts, draws, rng, threshold=5):
    """Discrete Laplace counts of scale 1, those that reach the threshold: >= where the proof needs
    >.
    """
    ratio = 1 - math.exp(-1)
    noise = rng.geometric(ratio, (draws, len(counts))) - rng.geometric(ratio, (draws, len(counts)))
    names, totals = list(counts), np.array(list(counts.values()), dtype=int) + noise
    return [
        tuple((n, int(v)) for n, v in zip(names, row, strict=True) if v >= threshold)
        for row in totals
    ]


@pytest.mark.slow
def test_permute_and_flip_is_not_bounded_range():
    found = audit(
        Sampler(permute_and_flip), Charge({BoundedRange(1.0): 1}), world=PUBLIC, **limited(800_000)
    )
    assert found.finding.kind == "range"
    assert 1.0 < found.finding.measured < 2.0
    assert "range of losses" in str(found)


@pytest.mark.slow
def test_it_is_pure_dp_and_the_exponential_mechanism_is_bounded_range():
    kept = audit(
        Sampler(permute_and_flip), Charge({PureDP(1.0): 1}), world=PUBLIC, **limited(60_000)
    )
    assert kept.finding is None
    assert "not a proof" in str(kept)
    claim = Charge({BoundedRange(1.0): 1})
    assert (
        audit(Sampler(exponential_mechanism), claim, world=PUBLIC, **limited(60_000)).finding
        is None
    )


@pytest.mark.slow
def test_the_published_truncated_gaussian_is_found():
    """Claimed 0.0015 at ε = 2; exact enumeration gives 0.133
    (docs/notes/truncated-gaussian-violation.md).
    """
    found = audit(Sampler(truncated_gaussian_as_published), Budget(2.0, 0.0015), **limited(600_000))
    assert 0.0015 < found.finding.measured < 0.1331


@pytest.mark.slow
def test_a_threshold_that_is_not_strict_is_found():
    """P[released] = 0.0134 for one user's only label; a strict threshold has 0.0049."""
    exact = math.exp(-4) / (1 + math.exp(-1))
    found = audit(Sampler(geometric_threshold), Budget(1.0, 0.0049259), **limited(600_000))
    assert 0.0049259 < found.finding.measured < exact


def test_a_repeated_label_is_found():
    found = audit(lambda counts: [*counts][:1] * 2, Budget(10.0, 0.5), **limited(60_000))
    assert found.finding.kind == "malformed"
    assert "repeated" in found.finding.event


OURS = [
    (UnknownLaplace(d_bar=2, epsilon=1, delta=1e-2), "private"),
    (KnownLaplace(epsilon=1), "public"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "domain"), OURS)
def test_nothing_in_ours(mechanism, domain):
    sensitivity = Sensitivity(l0=1)
    world = World(sensitivity=sensitivity, public=domain == "public", labels=2, largest=5)
    run = from_mechanism(mechanism, sensitivity, domain=domain)
    assert audit(run, mechanism.charge(sensitivity), world=world, **limited(8_000)).finding is None


@pytest.mark.slow
def test_half_the_charge_is_refuted():
    sensitivity = Sensitivity(l0=1)
    run = from_mechanism(KnownLaplace(epsilon=2), sensitivity, domain="public")
    world = World(sensitivity=sensitivity, public=True, labels=1, largest=1)
    assert audit(run, Charge({PureDP(1.0): 1}), world=world, **limited(30_000)).finding is not None


def test_clopper_pearson_covers_at_the_stated_level():
    draws, alpha = 40, 0.01
    ends = [clopper_pearson_bounds(hits, draws, alpha) for hits in range(draws + 1)]
    bounds = [(one.lower, one.upper) for one in ends]
    for p in np.linspace(0.01, 0.99, 50):
        mass = binom.pmf(np.arange(draws + 1), draws, p)
        assert sum(m for m, (low, _) in zip(mass, bounds, strict=True) if low > p) <= alpha * (
            1 + 1e-9
        )
        assert sum(m for m, (_, high) in zip(mass, bounds, strict=True) if high < p) <= alpha * (
            1 + 1e-9
        )


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0}, {"seconds": 0.0}])
def test_bad_arguments(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        audit(lambda counts: counts, Budget(1.0, 1e-6), **wrong)
    with pytest.raises(InvalidParameter, match="claim"):
        audit(lambda counts: counts, "1")
