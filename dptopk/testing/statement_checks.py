"""Checks that compare the statements of a mechanism with each other and with its charge, with few
draws or none.

Each check takes a ``Subject`` and yields a ``Mismatch`` for every statement that is false.
"""

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
from dptopk.mechanisms.counting_mechanism import CountingMechanism
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.thresholds import ThresholdedMechanism
from dptopk.testing.mismatches import (
    CHARGE_STREAM,
    LABELS,
    LARGE_COUNT,
    REFUSAL_STREAM,
    Mismatch,
    Mismatches,
    Subject,
    four_digits,
)

# The methods that follow from ``measurement`` and must not be overridden.
DERIVED = ("noise_std", "half_width", "count_noise", "count_width", "selection_noise", "noise_of")
# The factors by which noise is reduced, in turn, until its law can be listed: with less noise fewer
# outcomes are likely, and with much less the law may be next to certain, or refused.
FACTORS = (8.0, 32.0, 2.0)
# The precision of listed laws, and the most paths for one histogram, so that a check takes seconds.
SLACK = 1e-5
MOST_PATHS = 300


def check_derived_values(subject: Subject) -> Mismatches:
    """Check that the class does not override the deviations and widths that follow from
    ``measurement``.
    """
    for base in (CountingMechanism, ThresholdedMechanism):
        if not isinstance(subject.mechanism, base):
            continue
        for name in DERIVED:
            method = getattr(type(subject.mechanism), name, None)
            base_method = getattr(base, name, None)
            if base_method is not None and method is not base_method:
                yield Mismatch(
                    name, "a value of its own", "it follows from measurement and is final"
                )


def check_round_trips(subject: Subject) -> Mismatches:
    """Check that writing a mechanism as JSON and by pickle, and reading it back, gives an equal
    one.
    """
    mechanism = subject.mechanism
    plain = dict(mechanism.to_dict())
    name = plain.pop("name", None)
    if name != type(mechanism).__name__:
        yield Mismatch("round trip", f"the name {name!r} in to_dict", "it is of another class")
        return
    if name in named.names():
        restored = named.mechanism_of(mechanism.to_dict())
    else:
        restored = type(mechanism).from_dict(plain)
    if restored != mechanism or type(restored) is not type(mechanism):
        yield Mismatch("round trip", str(mechanism), f"to_dict and from_dict give {restored}")
    if name not in named.names():
        return
    pickled = pickle.dumps(mechanism)
    if pickle.loads(pickled) != mechanism:  # noqa: S301
        yield Mismatch("round trip", str(mechanism), "pickle gives another one")


def check_charges(subject: Subject) -> Mismatches:
    """Check that a release costs at most ``charge``, and that the pure ε of ``charge``, if it has
    one, does not fall when a user may touch more labels.
    """
    yield from _check_charges_of_releases(subject)
    if subject.sensitivity.l2 is None:  # sums of weights have other limits on a user
        yield from _check_charge_of_more_labels(subject)


def _check_charges_of_releases(subject: Subject) -> Mismatches:
    """Check that a release costs at most ``charge``, for few and for many labels."""
    for labels in (subject.k, LABELS):
        stated = subject.charge(labels)
        for release in subject.releases(np.full(labels, LARGE_COUNT), CHARGE_STREAM, draws=3):
            if not stated.includes(release.charge):
                yield Mismatch(
                    "charge", f"{stated} for {labels}", f"a release has {release.charge}"
                )
                break


def _check_charge_of_more_labels(subject: Subject) -> Mismatches:
    """Check that the pure ε of ``charge``, if it has one, is not smaller for users of three labels
    than for users of one.
    """
    linf = subject.sensitivity.linf
    narrow = subject.mechanism.charge(Sensitivity(linf, 1), labels=LABELS)
    wide = subject.mechanism.charge(Sensitivity(linf, 3), labels=LABELS)
    narrow_epsilon = _pure_epsilon(narrow)
    wide_epsilon = _pure_epsilon(wide)
    if narrow_epsilon is None or wide_epsilon is None:
        return  # the two charges have no common measure
    is_cheaper = wide_epsilon < narrow_epsilon * (1 - 1e-9)  # by more than rounding
    if is_cheaper and not wide.includes(narrow):
        yield Mismatch("charge", f"{wide} for l0 = 3", f"it is less than {narrow} for l0 = 1")


def _pure_epsilon(charge: Charge) -> float | None:
    """Return the sum of the pure ε of a charge; None where one of its costs has no pure ε."""
    try:
        bound = compose(charge, delta=charge.delta, bound="basic", lower=False)
    except DptopkError:
        return None
    if math.isinf(bound.epsilon):
        return None
    return bound.epsilon


def check_listed_law(subject: Subject) -> Mismatches:
    """Compare the charge with the exact law on all neighbouring histograms of a small world, if the
    law can be listed for the mechanism with its noise divided by one of the ``FACTORS``.
    """
    if subject.sensitivity.l2 is not None:
        return
    for factor in FACTORS:
        mechanism = subject.mechanism
        try:
            mechanism = mechanism.scaled(factor)
            world = _small_world(mechanism, subject)
            attestation = attest(mechanism, world, slack=SLACK, most=MOST_PATHS)
        except InvalidParameter:  # the law cannot be listed
            continue
        if not attestation.holds:
            *_, counterexample = str(attestation).splitlines()
            yield Mismatch("charge", attestation.claim, counterexample)
        return


def _small_world(mechanism: Mechanism, subject: Subject) -> World:
    """Return a small world for a mechanism, which are all histograms of a few labels with small
    counts and, if the mechanism has a threshold, counts near it.

    One user makes small moves there, so that the law can be listed.

    Args:
        mechanism: the mechanism, perhaps with its noise divided by a factor.
        subject: the check, which knows the sensitivity and whether labels are private.
    """
    public = not subject.has_private_labels
    offset = None if public else mechanism.threshold_offset(subject.sensitivity)
    near: tuple[int, ...] = ()
    fewest_labels = 2  # with one label a ranking would have one outcome
    if offset is not None:
        near = (offset,)
        fewest_labels = 1  # it passes the threshold or not
    most = min(subject.sensitivity.linf, 2)
    narrow = Sensitivity(linf=most, l0=1)
    labels = min(max(subject.k, fewest_labels), 3)
    return World(narrow, labels=labels, largest=1, public=public, near=near)


def check_scaling(subject: Subject) -> Mismatches:
    """Check that ``scaled(2)``, with noise divided by 2, has another charge, and about half of the
    noise on counts where that has a standard deviation of at least 2.
    """
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    try:
        scaled = mechanism.scaled(2.0)
        charge = scaled.charge(sensitivity, labels=LABELS)
    except InvalidParameter:  # the mechanism does not say how its noise is scaled
        return
    if charge == subject.charge(LABELS):
        yield Mismatch("scaled", "half of the noise", f"the charge stays {charge}")
    try:
        before = mechanism.count_noise(sensitivity, labels=LABELS)
        after = scaled.count_noise(sensitivity, labels=LABELS)
    except InvalidParameter:  # sums of weights, which are never shown as counts
        return
    if before is None or after is None or before < 2:  # less noise on integers is not proportional
        return
    # Half of it, but for noise being on integers and parameters being rounded.
    if not 0.4 * before < after < 0.6 * before:
        change = f"count_noise goes from {four_digits(before)} to {four_digits(after)}"
        yield Mismatch("scaled", "half of the noise", change)


def _refused_histograms(sensitivity: Sensitivity) -> list[Histogram]:
    """Return histograms of which each has to be refused by some mechanisms: private and public
    ones, some that were cut to their top rows, an empty one, and one whose users are replaced.
    """
    of_counts = partial(Histogram, sensitivity=sensitivity)
    replace_one = Sensitivity(sensitivity.linf, sensitivity.l0, "replace_one")
    return [
        of_counts(["a"], [3], domain="private"),
        of_counts(["a"], [3], domain="public"),
        of_counts(["a", "b"], [3, 2], domain="public", complete=False),
        of_counts(["a", "b"], [3, 2], complete=False, limit=2),
        of_counts([], [], domain="public"),
        of_counts(["a", "b"], [3, 2], domain="public", sensitivity=replace_one),
    ]


def check_refusals(subject: Subject) -> Mismatches:
    """Check that ``check`` refuses exactly what ``release`` refuses, without drawing."""
    mechanism = subject.mechanism
    for histogram in _refused_histograms(subject.sensitivity):
        rng = subject.rng(REFUSAL_STREAM)
        before = rng.bit_generator.state
        checked = _error_name(partial(mechanism.check, histogram))
        if rng.bit_generator.state != before:
            yield Mismatch("check", "nothing is drawn", "the generator was used")
        released = _error_name(partial(mechanism.release, histogram, rng))
        if checked != released:
            stated = f"{checked or 'accepts'} {histogram}"
            yield Mismatch("check", stated, released or "is released")


def _error_name(call: Callable[[], object]) -> str:
    """Return the name of the type of the error that a call raises; '' if it raises none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  any error is compared
        return type(error).__name__
    return ""
