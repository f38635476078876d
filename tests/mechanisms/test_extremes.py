"""Extreme parameters: every mechanism answers with a finite charge, or refuses by name; never a
warning or a NaN.
"""

import math
from dataclasses import fields

import numpy as np
import pytest

from dptopk import (
    Exponential,
    Histogram,
    InvalidParameter,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    PartitionSelection,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.mechanisms import SparseGaussian, TruncatedLaplace

MAKERS = {
    "KnownGumbel": lambda x: KnownGumbel(k=1, epsilon=x),
    "KnownLaplace": lambda x: KnownLaplace(epsilon=x),
    "KnownGaussian": lambda x: KnownGaussian(sigma=x),
    "Exponential": lambda x: Exponential(epsilon=x, utility_range=2.0**40),
    "UnknownGumbel": lambda x: UnknownGumbel(k=1, d_bar=1, epsilon=x, delta=1e-6),
    "UnknownLaplace": lambda x: UnknownLaplace(d_bar=1, epsilon=x, delta=1e-6),
    "UnknownGaussian": lambda x: UnknownGaussian(d_bar=1, sigma=x, delta=1e-6),
    "TruncatedGaussian": lambda x: TruncatedGaussian(sigma=x, delta=1e-6),
    "TruncatedLaplace": lambda x: TruncatedLaplace(epsilon=x, delta=1e-6),
    "SparseGaussian": lambda x: SparseGaussian(sigma=x, delta=1e-6),
    "PartitionSelection": lambda x: PartitionSelection(epsilon=x, delta=1e-6),
    "TruncatedGaussian, cut": lambda x: TruncatedGaussian(d_bar=1, sigma=x, delta=1e-6),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("linf", [1, 2**40])
def test_release_or_refusal(name, linf):
    mechanisms = [MAKERS[name](x) for x in (5e-324, 1e-160, 1e-12, 0.05, 1e10, 1e14, 1e300)]
    domain = "public" if name.startswith(("Known", "Exp")) else "private"
    histogram = Histogram(
        ["a", "b"], [2**62 - 1, 5], domain=domain, sensitivity=Sensitivity(linf=linf, l0=1)
    )
    answered, refusals = 0, []
    for mechanism in mechanisms:
        try:
            release = mechanism.release(histogram, np.random.default_rng(0))
        except InvalidParameter as refusal:
            refusals.append(str(refusal))
            continue
        answered += 1
        assert release.charge.count >= 1
        for cost in release.charge.costs:
            assert all(math.isfinite(getattr(cost, field.name)) for field in fields(cost))
        if hasattr(mechanism, "noise_std"):
            assert math.isfinite(mechanism.noise_std(histogram.sensitivity))
            if hasattr(mechanism, "half_width"):
                assert mechanism.half_width(histogram.sensitivity) >= 0
        if release.counts is not None:
            assert release.counts.dtype == np.int64
    assert answered >= 2
    assert all(
        any(parameter in text for parameter in ("epsilon", "sigma", "delta", "scale"))
        for text in refusals
    )


def test_a_domain_whose_names_do_not_fit_into_memory_is_refused_at_once():
    named = Histogram(
        ["a"],
        [5],
        sensitivity=Sensitivity(l0=1),
        domain="public",
        domain_size=10**8,
        absent_label=str,
    )
    with pytest.raises(InvalidParameter, match="too large to count every label"):
        KnownLaplace(epsilon=1.0).release(named)
    assert len(KnownLaplace(epsilon=1.0).release(named, labels=["a"])) == 1
