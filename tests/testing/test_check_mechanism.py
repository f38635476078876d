"""check_mechanism: ours pass, and twenty liars are caught by the name of what they state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from dptopk import (
    ZCDP,
    Box,
    CanonicalTopK,
    Centred,
    Charge,
    CountMLE,
    Exponential,
    InvalidParameter,
    JointTopK,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    OneShotTopK,
    PartitionSelection,
    PureDP,
    RoutedTopK,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.mechanisms import (
    GaussianCounts,
    SparseGaussian,
    StabilityTopK,
    TruncatedLaplace,
    UnknownBox,
    UnknownCentred,
    WeightedGaussian,
)
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.named import names
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import GaussianNoise
from dptopk.testing import check_mechanism
from dptopk.testing.mismatches import Subject
from dptopk.testing.statement_checks import check_charges, check_scaling

ONE = (Sensitivity(l0=1),)
OURS = [
    KnownGaussian(sigma=3.3),
    Box(epsilon=0.7),
    pytest.param(GaussianCounts(mu=0.3), marks=pytest.mark.study),  # its law takes half a minute
    Centred(noise=KnownGaussian(sigma=7.0)),
    pytest.param(
        Centred(noise=KnownLaplace(epsilon=0.5), centre=Fraction(1, 3)), marks=pytest.mark.study
    ),
    UnknownLaplace(d_bar=10, epsilon=0.5, delta=1e-4),
    UnknownGaussian(d_bar=10, sigma=5.0, delta=1e-4),
    TruncatedGaussian(sigma=5.0, delta=1e-4),
    pytest.param(TruncatedGaussian(sigma=5.0, delta=1e-4, d_bar=10), marks=pytest.mark.study),
    TruncatedLaplace(epsilon=1.0, delta=1e-4),
    SparseGaussian(sigma=6.0, delta=1e-4),
    UnknownBox(d_bar=10, epsilon=1.0, delta=1e-4),
    UnknownCentred(d_bar=10, noise=KnownGaussian(sigma=9.0), delta=1e-4),
    UnknownGumbel(k=3, d_bar=10, epsilon=0.5, delta=1e-4),
    Exponential(epsilon=0.5, utility_range=2.0),
    JointTopK(k=3, epsilon=1.0),
    CanonicalTopK(k=3, epsilon=1.0),
    OneShotTopK(k=3, epsilon=1.0),
    StabilityTopK(k=2, epsilon=1.0, delta=1e-4),
    RoutedTopK(k=2, epsilon=1.0),
    PartitionSelection(epsilon=1.0, delta=1e-4),
    WeightedGaussian(sigma=10.0, delta=1e-4),
    CountMLE(noise=KnownGaussian(sigma=5.0)),
]
IN_ONE_CALL = [KnownLaplace(epsilon=0.8), KnownGumbel(k=2, epsilon=0.8)]


def test_every_mechanism_is_checked_here():
    checked = [
        one if isinstance(one, Mechanism) else one.values[0] for one in (*OURS, *IN_ONE_CALL)
    ]
    # A stream has no release of one histogram.
    assert {type(one).__name__ for one in checked} == set(names()) - {"ContinualTopK"}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", OURS, ids=lambda one: type(one).__name__)
def test_our_mechanisms_state_what_they_do(mechanism):
    """Laws of two noises take seconds to list: under one sensitivity."""
    two_noises = isinstance(mechanism, Centred | GaussianCounts | UnknownCentred | CountMLE)
    check_mechanism(mechanism, draws=300, sensitivities=ONE if two_noises else None).require()


@pytest.mark.parametrize("mechanism", IN_ONE_CALL)
@pytest.mark.slow
def test_one_call_is_enough(mechanism):
    report = check_mechanism(mechanism, draws=150, sensitivities=ONE)
    assert report.holds
    assert str(report).endswith("all statements hold")


def liar(base, **methods):
    return dataclass(frozen=True, kw_only=True)(type(f"Liar{base.__name__}", (base,), methods))


def _wider(self, sensitivity, labels, *, whole):
    stated = KnownLaplace.measurement(self, sensitivity, labels, whole=whole)
    return replace(stated, noise=replace(stated.noise, scale=1.3 * stated.noise.scale))


def _narrower(self, sensitivity, labels, *, whole):
    stated = KnownLaplace.measurement(self, sensitivity, labels, whole=whole)
    return replace(stated, noise=replace(stated.noise, scale=stated.noise.scale / 6))


def _normal(self, sensitivity, labels, *, whole):
    stated = KnownLaplace.measurement(self, sensitivity, labels, whole=whole)
    return Measurement(GaussianNoise(stated.std), labels, whole=whole)


def _one_label(self, sensitivity, labels, *, whole):
    return replace(Box.measurement(self, sensitivity, 1, whole=whole), counted=labels)


def _drawn(factor):
    def draw_noise(self, sensitivity, size, bits):
        noise = KnownLaplace.draw_noise(self, sensitivity, size, bits)
        return noise * 2 if factor > 1 else noise // 2

    return draw_noise


def _simulated(factor):
    def float_noise(self, scene, labels):
        noise = KnownLaplace.float_noise(self, scene, labels)
        return lambda number: factor * noise(number)

    return float_noise


def _early(self, sensitivity, *, probability=0.95):
    return UnknownLaplace.appears_at(self, sensitivity, probability=probability) - 8


def _late(self, sensitivity, *, probability=0.95):
    return 2 * UnknownLaplace.appears_at(self, sensitivity, probability=probability)


def _half_charge(self, sensitivity, *, labels=None):
    return Charge({PureDP(self.epsilon / 2): labels or 1})


def _low(self, sensitivity):
    return TruncatedLaplace.threshold_offset(self, sensitivity) - 2


FLOOR = {"d_bar": 6, "epsilon": 0.5, "delta": 1e-3}
RATE = {"epsilon": 0.5}
LIARS = {
    "twice the noise": (KnownLaplace, RATE, {"draw_noise": _drawn(2)}, "measurement"),
    "half the noise": (KnownLaplace, RATE, {"draw_noise": _drawn(0.5)}, "measurement"),
    "half the noise is charged as all": (KnownLaplace, RATE, {"draw_noise": _drawn(0.5)}, "charge"),
    "a law that is too wide": (KnownLaplace, RATE, {"measurement": _wider}, "measurement"),
    "a law six times too narrow": (KnownLaplace, RATE, {"measurement": _narrower}, "measurement"),
    "intervals too narrow": (KnownLaplace, RATE, {"measurement": _narrower}, "intervals"),
    "another family": (KnownLaplace, RATE, {"measurement": _normal}, "measurement"),
    "the law of one label": (Box, {"epsilon": 1.0}, {"measurement": _one_label}, "intervals"),
    "a deviation of its own": (
        KnownLaplace, RATE, {"noise_std": lambda self, s, labels=None: 0.7}, "noise_std",
    ),
    "a width of its own": (
        KnownLaplace, RATE, {"half_width": lambda self, s, **_: 1}, "half_width",
    ),
    "noise on counts of its own": (
        UnknownLaplace, FLOOR, {"count_noise": lambda self, s, labels=None: 1.0}, "count_noise",
    ),
    "half the noise in plans": (KnownLaplace, RATE, {"float_noise": _simulated(0.5)}, "simulate"),
    "more noise in plans": (KnownLaplace, RATE, {"float_noise": _simulated(1.3)}, "simulate"),
    "the name of its parent": (
        KnownLaplace,
        RATE,
        {"to_dict": lambda self: {"name": "KnownLaplace", "epsilon": self.epsilon}},
        "round trip",
    ),
    "a forgotten parameter": (
        KnownLaplace,
        RATE,
        {"to_dict": lambda self: {"name": "LiarKnownLaplace", "epsilon": 9.0}},
        "round trip",
    ),
    "half of the charge": (KnownLaplace, RATE, {"charge": _half_charge}, "charge"),
    "a check that refuses nothing": (
        KnownLaplace, RATE, {"check": lambda self, histogram, **_: None}, "check",
    ),
    "labels appear later than stated": (UnknownLaplace, FLOOR, {"appears_at": _early}, "appears_at"),
    "labels appear earlier than stated": (UnknownLaplace, FLOOR, {"appears_at": _late}, "appears_at"),
    "half of the swaps": (
        KnownLaplace, RATE, {"swap_chance": lambda self, s, gap: 1e-6}, "swap_chance",
    ),
    "a threshold too low": (
        TruncatedLaplace, {"epsilon": 1.0, "delta": 1e-3}, {"threshold_offset": _low}, "charge",
    ),
    "noise that does not scale": (KnownLaplace, RATE, {"scaled": lambda self, factor: self}, "scaled"),
    "the largest counts themselves": (
        KnownGumbel,
        {"k": 1, "epsilon": 0.5},
        {"rows": lambda self, histogram, bits: np.argsort(-histogram.counts, kind="stable")[:1]},
        "charge",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LIARS)
def test_a_liar_is_caught_by_the_name_of_what_it_states(name):
    base, parameters, methods, statement = LIARS[name]
    report = check_mechanism(liar(base, **methods)(**parameters), draws=600, sensitivities=ONE)
    assert statement in report.names, str(report)
    with pytest.raises(AssertionError, match=statement):
        report.require()


def test_there_are_twenty_liars():
    assert len(LIARS) >= 20


def test_what_is_no_mechanism_or_refuses_everything_is_refused():
    with pytest.raises(InvalidParameter, match="mechanism"):
        check_mechanism("KnownLaplace")
    with pytest.raises(InvalidParameter, match="sensitivities"):
        check_mechanism(WeightedGaussian(sigma=3.0, delta=1e-3), sensitivities=ONE)
    with pytest.raises(InvalidParameter, match="draws"):
        check_mechanism(KnownLaplace(epsilon=1.0), draws=5)


def test_charges_without_a_pure_epsilon_are_not_compared():
    """ε-DP is (ε²/2)-zCDP: this charge of one label is true, and no smaller one is claimed for
    three.
    """

    def charge(self, sensitivity, *, labels=None):
        if sensitivity.l0 == 1:
            return Charge({ZCDP(self.epsilon**2 / 2): 1})
        return KnownLaplace.charge(self, sensitivity, labels=labels)

    def cheaper(self, sensitivity, *, labels=None):
        return Charge({PureDP(self.epsilon / sensitivity.l0): 1})

    def findings(charge):
        mechanism = liar(KnownLaplace, charge=charge)(epsilon=0.8)
        return list(check_charges(Subject(mechanism, ONE[0], draws=100, seed=0)))

    assert not findings(charge)
    (finding,) = findings(cheaper)  # pure ones are compared
    assert "l0 = 3" in finding.stated


@pytest.mark.parametrize(
    "mechanism",
    [KnownGumbel(k=2, epsilon=0.8), PartitionSelection(epsilon=1.0, delta=1e-4)],
    ids=["selections", "coins"],
)
def test_the_charge_of_labels_alone_scales_too(mechanism):
    subject = Subject(mechanism, ONE[0], draws=100, seed=0)
    assert not list(check_scaling(subject))
    unscaled = liar(type(mechanism), scaled=lambda self, factor: self)
    parameters = {name: getattr(mechanism, name) for name in mechanism.to_dict() if name != "name"}
    (finding,) = check_scaling(replace(subject, mechanism=unscaled(**parameters)))
    assert "the charge stays" in finding.seen
