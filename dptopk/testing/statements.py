"""Statements of a mechanism beside each other, and beside what it costs: no draws, or a few."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.audit.attestation import attest
from dptopk.audit.worlds import World
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import named
from dptopk.mechanisms.mechanism import CountingMechanism, Mechanism
from dptopk.mechanisms.thresholds import ThresholdedMechanism
from dptopk.testing.mismatches import LABELS, LARGE, Mismatch, Mismatches, Subject, shortly

# What follows from a measurement, and is no statement of its own.
DERIVED = ("noise_std", "half_width", "count_noise", "count_width", "selection_noise", "noise_of")
# Factors by which noise is made small enough to list its law, and the worlds that are listed.
FACTORS = (8.0, 32.0, 2.0)
SLACK = 1e-5
MOST_PATHS = 300


def derived(subject: Subject) -> Mismatches:
    """Deviations and widths follow from ``measurement``: no class states them again."""
    for base in (CountingMechanism, ThresholdedMechanism):
        if not isinstance(subject.mechanism, base):
            continue
        for name in DERIVED:
            own = getattr(type(subject.mechanism), name, None)
            ours = getattr(base, name, None)
            if ours is not None and own is not ours:
                yield Mismatch(
                    name, "a value of its own", "it follows from measurement and is final"
                )


def round_trips(subject: Subject) -> Mismatches:
    """By JSON, by pickle and by its text a mechanism comes back as it was."""
    mechanism = subject.mechanism
    plain = dict(mechanism.to_dict())
    name = plain.pop("name", None)
    if name != type(mechanism).__name__:
        yield Mismatch("round trip", f"the name {name!r} in to_dict", "it is of another class")
        return
    if name in named.names():
        again = named.mechanism_of(mechanism.to_dict())
    else:
        again = type(mechanism).from_dict(plain)
    if again != mechanism or type(again) is not type(mechanism):
        yield Mismatch("round trip", str(mechanism), f"to_dict and from_dict give {again}")
    if name not in named.names():
        return
    pickled = pickle.dumps(mechanism)
    if pickle.loads(pickled) != mechanism:  # noqa: S301
        yield Mismatch("round trip", str(mechanism), "pickle gives another one")


def charges(subject: Subject) -> Mismatches:
    """A release costs at most ``charge``, which grows with the sensitivity."""
    for labels in (subject.k, LABELS):
        stated = subject.charge(labels)
        for release in subject.releases(np.full(labels, LARGE), 1, draws=3):
            if not stated.includes(release.charge):
                yield Mismatch(
                    "charge", f"{stated} for {labels}", f"a release has {release.charge}"
                )
                break
    if subject.sensitivity.l2 is not None:
        return
    linf = subject.sensitivity.linf
    less = subject.mechanism.charge(Sensitivity(linf, 1), labels=LABELS)
    more = subject.mechanism.charge(Sensitivity(linf, 3), labels=LABELS)
    cheaper = _pure(more) < _pure(less) * (1 - 1e-9)
    if cheaper and not more.includes(less):
        yield Mismatch("charge", f"{more} for l0 = 3", f"it is less than {less} for l0 = 1")


def _pure(charge: Charge) -> float:
    """The ε of a pure charge; inf for others, which are not compared."""
    try:
        bound = compose(charge, delta=charge.delta, bound="basic", lower=False)
    except DptopkError:
        return math.inf
    return bound.epsilon


def listed(subject: Subject) -> Mismatches:
    """The exact law on all neighbouring histograms of a small world, beside the charge."""
    if subject.sensitivity.l2 is not None:
        return
    for factor in FACTORS:
        mechanism = subject.mechanism
        try:
            mechanism = mechanism.scaled(factor)
            found = attest(mechanism, _world(mechanism, subject), slack=SLACK, most=MOST_PATHS)
        except InvalidParameter:  # of a law that is not listed
            continue
        if not found.holds:
            *_, counterexample = str(found).splitlines()
            yield Mismatch("charge", found.claim, counterexample)
        return


def _world(mechanism: Mechanism, subject: Subject) -> World:
    public = not subject.private
    offset = None if public else mechanism.threshold_offset(subject.sensitivity)
    near = () if offset is None else (offset,)
    most = min(subject.sensitivity.linf, 2)
    narrow = Sensitivity(linf=most, l0=1)
    labels = max(subject.k, 1 if near else 2)
    return World(narrow, labels=min(labels, 3), largest=1, public=public, near=near)


def scaling(subject: Subject) -> Mismatches:
    """``scaled(2)`` has half of the noise, and does not cost less."""
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    try:
        louder = mechanism.scaled(2.0)
        before = mechanism.count_noise(sensitivity, labels=LABELS)
        after = louder.count_noise(sensitivity, labels=LABELS)
    except InvalidParameter:
        return
    if before is None or after is None or before < 2:
        return
    if not 0.4 * before < after < 0.6 * before:
        seen = f"count_noise goes from {shortly(before)} to {shortly(after)}"
        yield Mismatch("scaled", "half of the noise", seen)
    if subject.charge(LABELS) == louder.charge(sensitivity, labels=LABELS):
        yield Mismatch("scaled", "half of the noise", f"the charge stays {subject.charge(LABELS)}")


def _misfits(sensitivity: Sensitivity) -> list[Histogram]:
    """Histograms that one mechanism or the other has to refuse."""
    of_counts = partial(Histogram, sensitivity=sensitivity)
    replaced = Sensitivity(sensitivity.linf, sensitivity.l0, "replace_one")
    return [
        of_counts(["a"], [3], domain="private"),
        of_counts(["a"], [3], domain="public"),
        of_counts(["a", "b"], [3, 2], domain="public", complete=False),
        of_counts(["a", "b"], [3, 2], complete=False, limit=2),
        of_counts([], [], domain="public"),
        of_counts(["a", "b"], [3, 2], domain="public", sensitivity=replaced),
    ]


def refusals(subject: Subject) -> Mismatches:
    """``check`` refuses what ``release`` refuses, without drawing."""
    mechanism = subject.mechanism
    for histogram in _misfits(subject.sensitivity):
        rng = subject.rng(2)
        before = rng.bit_generator.state
        checked = _refusal(partial(mechanism.check, histogram))
        if rng.bit_generator.state != before:
            yield Mismatch("check", "nothing is drawn", "the generator was used")
        released = _refusal(partial(mechanism.release, histogram, rng))
        if checked != released:
            stated = f"{checked or 'accepts'} {histogram}"
            yield Mismatch("check", stated, released or "is released")


def _refusal(call: Callable[[], object]) -> str:
    """The type of the error that a call raises; nothing where it raises none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  any error is compared
        return type(error).__name__
    return ""
