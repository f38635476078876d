"""Attestations: the exact laws of a mechanism on all small histograms, or tables of events, with
its charge, in a file that others can check.

The mechanism's own ``release`` is run, once for each path of the discrete choices of its samplers
(mechanisms/samplers/listing.py). Masses are lower bounds; what they lack to 1 is bounded by
``rest``. So for all events P(S) - e^ε Q(S) <= Σ max(p - e^ε q, 0) + rest, over the listed masses p
and q: an upper end of δ(ε).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from numpy.random import Generator

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk._internal.rounding import round_up
from dptopk.audit.adapters import only_types_of_errors
from dptopk.audit.claims import Claim
from dptopk.audit.event_worlds import EventsWorld
from dptopk.audit.worlds import World
from dptopk.costs import Charge
from dptopk.costs.budget import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms.mechanism import Mechanism, add_remove
from dptopk.mechanisms.samplers.exact import exp_units
from dptopk.mechanisms.samplers.listing import Listing, outcomes
from dptopk.mechanisms.samplers.random import LISTING_BITS
from dptopk.release.release import Release

ONE = 1 << LISTING_BITS
Law = dict[str, int]
Counts = tuple[int, ...]
Neighbours = tuple[Counts, Counts]


@dataclass(frozen=True)
class Point:
    """δ at one ε: what is claimed, and between what ends the largest over all neighbours lies, for
    the worst pair.
    """

    epsilon: float
    claimed: float
    lower: float
    upper: float
    pair: Neighbours

    def row(self) -> str:
        """A line of a table."""
        ends = f"{self.lower:>13.6g} {self.upper:>13.6g}"
        return f"{self.epsilon:>10.5g} {self.claimed:>13.6g} {ends}"


@dataclass(frozen=True)
class Attestation:
    """The laws on a small world, together with the claim.

    Attributes:
        mechanism, claim: as a reader knows them.
        world: all histograms, or tables of events, that were looked at.
        laws: for each of them the answers and lower bounds of their probabilities, in units of
            2**-LISTING_BITS.
        points: of the curve, for the points of the claim.
        slack: bounds by how much ``upper`` can exceed the exact δ.
    """

    mechanism: str
    claim: str
    world: World | EventsWorld
    laws: dict[Counts, Law]
    points: tuple[Point, ...]
    slack: float

    @property
    def holds(self) -> bool:
        """Whether δ(ε) is at most the claimed one plus the slack at every point; else the claim is
        wrong.
        """
        return all(point.upper <= point.claimed + self.slack for point in self.points)

    def __str__(self) -> str:
        """The curve as lines of text."""
        rows = [point.row() for point in self.points]
        title = f"{'ε':>10} {'claimed δ':>13} {'exact, from':>13} {'to':>13}"
        head = f"{self.mechanism}, claimed: {self.claim}"
        lines = [head, self.world.size(), title, *rows, self._verdict()]
        return "\n".join(lines)

    def _verdict(self) -> str:
        """The last line: that the claim holds, or where it is refuted."""
        if self.holds:
            slack = f"{self.slack:.2g}"
            return f"Holds: δ is at most the claimed one + {slack}, for every event and every pair."
        worst = max(self.points, key=lambda point: point.upper - point.claimed)
        one, other = worst.pair
        return f"Refuted at ε = {worst.epsilon:.6g}: {one} and {other} are neighbours."

    def to_dict(self) -> dict[str, Any]:
        """All that checker/check_attestation.py reads."""
        names = sorted({answer for law in self.laws.values() for answer in law})
        return self.world.stated() | {
            "dptopk": version("dptopk"),
            "mechanism": self.mechanism,
            "claim": self.claim,
            "points": [[p.epsilon, p.claimed, p.lower, p.upper] for p in self.points],
            "slack": self.slack,
            "bits": LISTING_BITS,
            "answers": names,
            "laws": self._numbered_laws(names),
        }

    def _numbered_laws(self, answers: list[str]) -> list[dict[str, Any]]:
        """The law of each histogram, by the places of the answers in the list."""
        number = {answer: str(place) for place, answer in enumerate(answers)}
        laws = []
        for counts, law in self.laws.items():
            masses = {number[answer]: hex(mass) for answer, mass in law.items()}
            laws.append({"counts": counts, "masses": masses})
        return laws

    def write(self, path: str | Path) -> None:
        """Write the file that the checker reads."""
        Path(path).write_text(canonical_json(self.to_dict()) + "\n", encoding="ascii")


@runtime_checkable
class StatesLaw(Protocol):
    """What knows its own law: a dict answer -> probability for a dict label -> count."""

    def law(self, counts: Mapping[str, int], /) -> Mapping[Hashable, Fraction | float]:
        """The probability of each answer."""


@runtime_checkable
class DrawsAnswers(Protocol):
    """What answers from a histogram with the randomness that it is given: a mechanism, or a plan
    of one or more phases.
    """

    def check(self, histogram: Histogram, /) -> None:
        """Refuse what does not fit, without drawing."""

    def release(self, histogram: Histogram, rng: Generator | None = None, /) -> Release:
        """One answer."""


def attest(
    mechanism: DrawsAnswers | StatesLaw,
    world: World | EventsWorld,
    *,
    claim: Charge | Budget | None = None,
    slack: float = 1e-9,
    most: int = 200_000,
) -> Attestation:
    """The exact laws of a mechanism on every histogram of a small world, together with what it
    claims.

    Args:
        mechanism: a Mechanism or a plan (of ``plan_topk`` or ``plan_two_phases``: all its phases
            are one law),
            which takes all its randomness from the source that ``release`` is given; or anything
            with ``law(counts)``, a dict answer -> probability for a dict label
            -> count, where the answers are text or tuples: Fractions are exact, floats taken as
            right to a relative 1e-12.
        world: the histograms; or an EventsWorld, whose tables are read as the plan needs it.
        claim: None: ``mechanism.charge(sensitivity)``, or the ``charge`` of a plan. Of a Charge,
            points of the profile that ``compose`` bounds.
        slack: by how much the upper end of δ may exceed it; paths that are rare enough for that are
            left out.
        most: paths for one histogram.

    Returns:
        An Attestation; ``holds`` says whether the claim does, ``write`` makes the file.

    Raises:
        InvalidParameter: where laws cannot be listed: OneShotTopK on many labels, mechanisms that
            need more than a histogram, more than ``most`` paths, as where noise is wide.

    >>> from dptopk import KnownLaplace
    >>> world = World(labels=1, largest=1, public=True)
    >>> attest(KnownLaplace(epsilon=3.0), world).holds
    True
    """
    slack = validate.probability(allow_zero=False, slack=slack)
    most = validate.count(most=most)
    pairs = _neighbours(mechanism, world)
    claimed = Claim.of(_stated_charge(mechanism, world) if claim is None else claim)
    highest = math.exp(max(epsilon for epsilon, _ in claimed.points))
    growth = 1 + Fraction(math.nextafter(highest, math.inf))
    laws, rest = _laws(mechanism, world, Fraction(slack) / growth, most)
    points = tuple(_point(epsilon, delta, laws, pairs) for epsilon, delta in claimed.points)
    name = getattr(mechanism, "text", str(mechanism))  # a plan explains itself in many lines
    return Attestation(name, claimed.text, world, laws, points, round_up(rest * growth))


def _neighbours(mechanism: object, world: World | EventsWorld) -> list[Neighbours]:
    """The pairs of a world on which this mechanism can be attested.

    Raises:
        InvalidParameter: where there are none.
    """
    if world.sensitivity.l2 is None:
        add_remove(world.sensitivity)
    if not isinstance(mechanism, DrawsAnswers | StatesLaw):
        raise InvalidParameter(
            "mechanism must be a Mechanism or a plan, or have law(counts); what answers day by day "
            "has no law of one histogram"
        )
    if world.sensitivity.l2 is not None and not isinstance(mechanism, Mechanism):
        raise InvalidParameter("l2: sums of weights are attested of a Mechanism alone")
    needed = _needed(mechanism)
    if needed:
        raise InvalidParameter(
            f"mechanism: {type(mechanism).__name__} needs {', '.join(needed)}= besides a "
            "histogram, an answer of another mechanism: attest a plan of both"
        )
    pairs = world.neighbours()
    if not pairs:
        raise InvalidParameter(
            "world: no two of its histograms are neighbours; take a larger ``largest``, or counts "
            "``near`` what one user adds"
        )
    return pairs


def _needed(mechanism: object) -> list[str]:
    """The names of what a release needs besides a histogram and a source."""
    release = getattr(mechanism, "release", None)
    if release is None:
        return []
    options = signature(release).parameters.values()
    stated = [option for option in options if option.kind is Parameter.KEYWORD_ONLY]
    return [option.name for option in stated if option.default is Parameter.empty]


def _stated_charge(mechanism: DrawsAnswers | StatesLaw, world: World | EventsWorld) -> Charge:
    charge = getattr(mechanism, "charge", None)
    if charge is None:
        raise InvalidParameter("claim must be given for what has no method charge(sensitivity)")
    if isinstance(charge, Charge):  # of a plan, which knows its sensitivity
        return charge
    return charge(world.sensitivity, labels=world.labels if world.public else None)


def _laws(
    mechanism: DrawsAnswers | StatesLaw, world: World | EventsWorld, rest: Fraction, most: int
) -> tuple[dict[Counts, Law], Fraction]:
    """Laws that list all but the mass ``rest`` of every histogram, or nearly; and the largest mass
    not listed.
    """
    if isinstance(mechanism, StatesLaw) and not isinstance(mechanism, Mechanism):
        if not isinstance(world, World):
            raise InvalidParameter("world: law(counts) is of histograms, not of tables of events")
        stated = {counts: _law_of(mechanism, world, counts) for counts in world.histograms()}
        return stated, _unlisted(stated)
    read = world.reader(mechanism)
    histograms = {counts: read(counts) for counts in world.histograms()}
    rarest = rest / 2**10
    while True:
        least = int(rarest * ONE)
        laws = {
            counts: _listed(mechanism, histogram, least, most)
            for counts, histogram in histograms.items()
        }
        found = _unlisted(laws)
        if found <= rest:
            return laws, found
        if rarest * ONE < 1:
            raise InvalidParameter("slack is too small: probabilities are listed in 96 bits")
        rarest *= min(rest / found, Fraction(1, 2)) / 4


def _unlisted(laws: dict[Counts, Law]) -> Fraction:
    """The largest mass that a law does not list."""
    return Fraction(max(map(_rest, laws.values())), ONE)


def _listed(mechanism: DrawsAnswers, histogram: Histogram, least: int, most: int) -> Law:
    def draw(bits: Listing) -> str:
        return _text(mechanism.release(histogram, bits))  # type: ignore[arg-type]

    with only_types_of_errors(mechanism):
        try:
            mechanism.check(histogram)
            return outcomes(draw, least, most)
        except (AttributeError, TypeError) as error:
            raise InvalidParameter(
                f"mechanism: it does not run on a histogram and a source alone: {error}"
            ) from error


def _text(release: Release) -> str:
    """All that an analyst sees of an answer, what does not fit a line as a hash."""
    shown = release.to_dict()
    rows = [[row["label"], row.get("count")] for row in shown["rows"]]
    return canonical_json([rows, shown["charge"], shown["note"], fingerprint(shown)[:32]])


def _law_of(mechanism: StatesLaw, world: World, counts: Counts) -> Law:
    with only_types_of_errors(mechanism):
        law = mechanism.law(world.named(counts))
    masses = {repr(answer): _in_units(mass) for answer, mass in law.items()}
    repeated = len(masses) != len(law)
    negative = any(mass < 0 for mass in masses.values())
    if repeated or negative or sum(masses.values()) > ONE:
        raise InvalidParameter(
            "mechanism: its law is not one of different answers with probabilities that sum to 1"
        )
    return masses


def _in_units(mass: Fraction | float) -> int:
    """A stated probability in units of 1/ONE, rounded down; a float, which may have been rounded
    up, is first lowered by a relative 1e-12.
    """
    exact = isinstance(mass, Fraction | int)
    unit = ONE if exact else ONE - ONE // 10**12
    return int(Fraction(mass) * unit)


def _point(epsilon: float, delta: float, laws: dict[Counts, Law], pairs: list[Neighbours]) -> Point:
    """The largest ends over all pairs, in both orders."""
    low, high = _growth_ends(epsilon)
    lower, upper = 0, -1
    worst = pairs[0]
    for pair in (*pairs, *(pair[::-1] for pair in pairs)):
        P, Q = (laws[counts] for counts in pair)
        least = _excess(P, Q, high) - high * _rest(Q)
        lower = max(lower, least)
        most = _excess(P, Q, low) + _rest(P) * ONE
        if most > upper:
            upper, worst = most, pair
    rounded_down = 0.0 - round_up(-Fraction(lower, ONE**2))
    return Point(epsilon, delta, rounded_down, round_up(Fraction(upper, ONE**2)), worst)


def _growth_ends(epsilon: float) -> tuple[int, int]:
    """Whole numbers below and above e^ε, times ONE.

    Raises:
        InvalidParameter: for an ε whose e^-ε is not above 0 in these units.
    """
    x = Fraction(epsilon)
    bits = 4 * LISTING_BITS
    (unit,) = exp_units([x.numerator], x.denominator, bits)  # 2^bits e^-ε, within 1
    if unit <= ONE:
        raise InvalidParameter(f"epsilon={epsilon:g} is too large to be attested")
    scaled = 1 << bits + LISTING_BITS
    return scaled // (unit + 1), scaled // (unit - 1) + 1


def _rest(law: Law) -> int:
    """What a law does not list."""
    return ONE - sum(law.values())


def _excess(p: Law, q: Law, growth: int) -> int:
    """Σ max(p - growth q, 0) over the answers, in units of 1/ONE²."""
    gains = (mass * ONE - growth * q.get(answer, 0) for answer, mass in p.items())
    return sum(gain for gain in gains if gain > 0)
