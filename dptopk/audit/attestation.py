"""Attestations: the exact laws of a mechanism on all small histograms, or tables of events, with
its charge, in a file that others can check.

The mechanism's own ``release`` is run, once for each path of the discrete choices of its samplers
(mechanisms/samplers/listing.py). The listed masses are lower bounds; the missing mass is 1 minus
their sum. So for all events P(S) - e^ε Q(S) <= Σ max(p - e^ε q, 0) + (missing mass of P), over the
listed masses p and q: an upper bound on δ(ε).
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
from dptopk.audit.adapters import hide_data_in_errors
from dptopk.audit.claims import Claim
from dptopk.audit.event_worlds import EventsWorld
from dptopk.audit.worlds import World
from dptopk.costs import Charge
from dptopk.costs.budget import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms.mechanism import Mechanism, require_add_remove
from dptopk.mechanisms.samplers.exact import exp_units
from dptopk.mechanisms.samplers.listing import Listing, outcomes
from dptopk.mechanisms.samplers.random import LISTING_BITS
from dptopk.release.release import Release

ONE = 1 << LISTING_BITS  # the probability 1, in the units of 2**-LISTING_BITS of a Law
FLOAT_PRECISION = 10**12  # floats of a stated law are taken to be right to 1 part in 10^12
Law = dict[str, int]  # an answer as text -> a lower bound on its probability, in units of 1/ONE
Counts = tuple[int, ...]  # a histogram, or a table of events, as its world lists it
Neighbours = tuple[Counts, Counts]


@dataclass(frozen=True)
class Point:
    """The claimed and the exact δ at one ε.

    Attributes:
        epsilon: the ε.
        claimed: the claimed δ.
        lower: lower bound on the largest exact δ over all neighbouring pairs.
        upper: upper bound on it.
        pair: the pair with the largest upper bound, P first.
    """

    epsilon: float
    claimed: float
    lower: float
    upper: float
    pair: Neighbours

    def row(self) -> str:
        """Return the numbers of this point as a line of a table."""
        bounds = f"{self.lower:>13.6g} {self.upper:>13.6g}"
        return f"{self.epsilon:>10.5g} {self.claimed:>13.6g} {bounds}"


@dataclass(frozen=True)
class Attestation:
    """The laws on a small world, together with the claim.

    Attributes:
        mechanism: the mechanism as text.
        claim: the claim as text.
        world: the histograms, or tables of events, that were enumerated.
        laws: for each of them the answers with lower bounds on their probabilities, in units of
            2**-LISTING_BITS.
        points: δ at each ε of the claim.
        slack: upper bound on the amount by which ``upper`` can exceed the exact δ.
    """

    mechanism: str
    claim: str
    world: World | EventsWorld
    laws: dict[Counts, Law]
    points: tuple[Point, ...]
    slack: float

    @property
    def holds(self) -> bool:
        """Return whether the upper bound on δ is at most the claimed δ plus the slack at every
        point; if not, the claim is wrong.
        """
        return all(point.upper <= point.claimed + self.slack for point in self.points)

    def __str__(self) -> str:
        """Return the points as a table, with a title and the verdict."""
        rows = [point.row() for point in self.points]
        heads = f"{'ε':>10} {'claimed δ':>13} {'exact, from':>13} {'to':>13}"
        title = f"{self.mechanism}, claimed: {self.claim}"
        lines = [title, self.world.size_in_words(), heads, *rows, self._verdict()]
        return "\n".join(lines)

    def _verdict(self) -> str:
        """Return a sentence that says that the claim holds, or where it is refuted."""
        if self.holds:
            slack = f"{self.slack:.2g}"
            pairs = "every pair"
            if self.world.sensitivity.l2 is not None:
                pairs = "every pair that differs by the largest equal weights"
            return f"Holds: δ is at most the claimed one + {slack}, for every event and {pairs}."
        worst = max(self.points, key=lambda point: point.upper - point.claimed)
        p_counts, q_counts = worst.pair
        return f"Refuted at ε = {worst.epsilon:.6g}: {p_counts} and {q_counts} are neighbours."

    def to_dict(self) -> dict[str, Any]:
        """Return all that checker/check_attestation.py reads, as JSON holds it."""
        names = sorted({answer for law in self.laws.values() for answer in law})
        return self.world.fields_of_file() | {
            "dptopk": version("dptopk"),
            "mechanism": self.mechanism,
            "claim": self.claim,
            "points": [
                [point.epsilon, point.claimed, point.lower, point.upper] for point in self.points
            ],
            "slack": self.slack,
            "bits": LISTING_BITS,
            "answers": names,
            "laws": self._numbered_laws(names),
        }

    def _numbered_laws(self, answers: list[str]) -> list[dict[str, Any]]:
        """Return the law of each histogram with its answers replaced by their places in the list
        of all answers.
        """
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
    """A mechanism that can compute its own law."""

    def law(self, counts: Mapping[str, int], /) -> Mapping[Hashable, Fraction | float]:
        """Return the probability of each answer, for a dict label -> count."""


@runtime_checkable
class DrawsAnswers(Protocol):
    """A mechanism, or a plan of one or more phases, that answers from a histogram with the
    randomness that it is given.
    """

    def check(self, histogram: Histogram, /) -> None:
        """Refuse a histogram that does not fit, without drawing."""

    def release(self, histogram: Histogram, rng: Generator | None = None, /) -> Release:
        """Draw one answer."""


def attest(
    mechanism: DrawsAnswers | StatesLaw,
    world: World | EventsWorld,
    *,
    claim: Charge | Budget | None = None,
    slack: float = 1e-9,
    most: int = 200_000,
) -> Attestation:
    """Compute the exact laws of a mechanism on every histogram of a small world, and compare them
    with its claim.

    Args:
        mechanism: a Mechanism or a plan (of ``plan_topk`` or ``plan_two_phases``: all its phases
            are one law), which takes all its randomness from the source that ``release`` is given;
            or any object with a method ``law(counts)`` that returns a dict answer -> probability
            for a dict label -> count. There answers are texts or tuples, Fractions are exact, and
            floats are taken to be right to a relative 1e-12.
        world: the histograms; or an EventsWorld, whose tables are read as the plan needs it.
        claim: the claim to test; None: ``mechanism.charge(sensitivity)``, or the ``charge`` of a
            plan. A Charge is tested at points of the profile that ``compose`` bounds.
        slack: how much the upper bound on δ may exceed the exact δ; paths that are rare enough for
            that are left out.
        most: how many paths may be taken for one histogram.

    Returns:
        An Attestation; ``holds`` says whether the claim is true, ``write`` makes the file.

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
    pairs = _attestable_pairs(mechanism, world)
    if claim is None:
        claim = _stated_charge(mechanism, world)
    claimed = Claim.of(claim)
    highest = math.exp(max(epsilon for epsilon, _ in claimed.points))
    # A mass that is missing of P and of Q changes δ by at most (1 + e^ε) times it.
    delta_per_mass = 1 + Fraction(math.nextafter(highest, math.inf))
    allowed = Fraction(slack) / delta_per_mass
    laws, missing = _laws_of_histograms(mechanism, world, allowed, most)
    points = tuple(
        _bounds_on_exact_delta(epsilon, delta, laws, pairs) for epsilon, delta in claimed.points
    )
    return Attestation(
        mechanism=getattr(mechanism, "text", str(mechanism)),  # the str of a plan has many lines
        claim=claimed.text,
        world=world,
        laws=laws,
        points=points,
        slack=round_up(missing * delta_per_mass),
    )


def _attestable_pairs(mechanism: object, world: World | EventsWorld) -> list[Neighbours]:
    """Return the neighbouring pairs of a world on which this mechanism can be attested.

    Raises:
        InvalidParameter: for what has no law of one histogram alone, for a world of other
            neighbours than add_remove, for sums of weights and no Mechanism, and where there are no
            pairs.
    """
    if world.sensitivity.l2 is None:
        require_add_remove(world.sensitivity)
    if not isinstance(mechanism, DrawsAnswers | StatesLaw):
        raise InvalidParameter(
            "mechanism must be a Mechanism or a plan, or have law(counts); what answers day by day "
            "has no law of one histogram"
        )
    if world.sensitivity.l2 is not None and not isinstance(mechanism, Mechanism):
        raise InvalidParameter("l2: sums of weights are attested of a Mechanism alone")
    needed = _required_options(mechanism)
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


def _required_options(mechanism: object) -> list[str]:
    """Return the names of the arguments that a release needs besides a histogram and a source of
    randomness.
    """
    release = getattr(mechanism, "release", None)
    if release is None:
        return []
    parameters = signature(release).parameters.values()
    options = [option for option in parameters if option.kind is Parameter.KEYWORD_ONLY]
    return [option.name for option in options if option.default is Parameter.empty]


def _stated_charge(mechanism: DrawsAnswers | StatesLaw, world: World | EventsWorld) -> Charge:
    """Return the charge that a mechanism or a plan states for the world's histograms.

    Raises:
        InvalidParameter: for what states none.
    """
    charge = getattr(mechanism, "charge", None)
    if charge is None:
        raise InvalidParameter("claim must be given for what has no method charge(sensitivity)")
    if isinstance(charge, Charge):  # of a plan, which knows its sensitivity
        return charge
    return charge(world.sensitivity, labels=world.labels if world.public else None)


def _laws_of_histograms(
    mechanism: DrawsAnswers | StatesLaw, world: World | EventsWorld, allowed: Fraction, most: int
) -> tuple[dict[Counts, Law], Fraction]:
    """Return the law on every histogram of the world, and the largest mass that one of them is
    missing, which is at most ``allowed`` unless the mechanism states its law itself.

    The rarest path that is followed is made rarer until the mass is small enough.

    Args:
        mechanism: the mechanism or plan, or what states its law.
        world: the world whose histograms are listed.
        allowed: the mass that the law of each histogram may miss, above 0.
        most: how many paths may be taken for one histogram.

    Raises:
        InvalidParameter: where a law cannot be listed, in ``most`` paths or to that mass; for a
            stated law of tables of events.
    """
    if isinstance(mechanism, StatesLaw) and not isinstance(mechanism, Mechanism):
        if not isinstance(world, World):
            raise InvalidParameter("world: law(counts) is of histograms, not of tables of events")
        stated = {counts: _stated_law(mechanism, world, counts) for counts in world.histograms()}
        return stated, _largest_missing(stated)
    histogram_of = world.histogram_reader(mechanism)
    histograms = {counts: histogram_of(counts) for counts in world.histograms()}
    # The probability of the rarest path that is followed: a guess, which is lowered as needed.
    rarest = allowed / 2**10
    while True:
        least = int(rarest * ONE)
        laws: dict[Counts, Law] = {}
        for counts, histogram in histograms.items():
            laws[counts] = _listed_law(mechanism, histogram, least, most)
        missing = _largest_missing(laws)
        if missing <= allowed:
            return laws, missing
        if rarest * ONE < 1:
            raise InvalidParameter("slack is too small: probabilities are listed in 96 bits")
        # Any factor below 1 would do; the guess is that the missing mass falls as ``rarest``.
        rarest *= min(allowed / missing, Fraction(1, 2)) / 4


def _largest_missing(laws: dict[Counts, Law]) -> Fraction:
    """Return the largest probability that one of the laws does not list."""
    return Fraction(max(map(_unlisted_mass, laws.values())), ONE)


def _listed_law(mechanism: DrawsAnswers, histogram: Histogram, least: int, most: int) -> Law:
    """Return the law of a mechanism's answers on one histogram, by running ``release`` on each path
    of its choices.

    Args:
        mechanism: the mechanism or plan.
        histogram: the histogram.
        least: paths with a smaller mass, in units of 2**-LISTING_BITS, are left out.
        most: how many paths may be taken.

    Raises:
        InvalidParameter: for a mechanism that refuses the histogram, raises an error of its own,
            needs more than a histogram and a source, or has more than ``most`` paths.
    """

    def draw(bits: Listing) -> str:
        """Return the answer of a release with this source, as text."""
        return _answer_text(mechanism.release(histogram, bits))  # type: ignore[arg-type]

    with hide_data_in_errors(mechanism):
        try:
            mechanism.check(histogram)
            return outcomes(draw, least, most)
        except (AttributeError, TypeError) as error:
            raise InvalidParameter(
                f"mechanism: it does not run on a histogram and a source alone: {error}"
            ) from error


def _answer_text(release: Release) -> str:
    """Return everything that an analyst sees of an answer as text: rows, charge and note, and a
    hash of all of it.
    """
    shown = release.to_dict()
    rows = [[row["label"], row.get("count")] for row in shown["rows"]]
    # 128 bits of the hash tell all answers of a small world apart.
    return canonical_json([rows, shown["charge"], shown["note"], fingerprint(shown)[:32]])


def _stated_law(mechanism: StatesLaw, world: World, counts: Counts) -> Law:
    """Return the law that a mechanism states for one histogram.

    Args:
        mechanism: one that states its law.
        world: the world of the histogram.
        counts: the counts of the histogram, of the labels a, b, ...

    Raises:
        InvalidParameter: when it is not a law: negative, above 1, or with answers of one text.
    """
    with hide_data_in_errors(mechanism):
        law = mechanism.law(world.counts_by_label(counts))
    masses = {repr(answer): _in_units(mass) for answer, mass in law.items()}
    repeated = len(masses) != len(law)
    negative = any(mass < 0 for mass in masses.values())
    if repeated or negative or sum(masses.values()) > ONE:
        raise InvalidParameter(
            "mechanism: its law is not one of different answers with probabilities that sum to 1"
        )
    return masses


def _in_units(mass: Fraction | float) -> int:
    """Return a stated probability in units of 1/ONE, rounded down; a float, which may have been
    rounded up, is lowered by a relative 1e-12 before.
    """
    exact = isinstance(mass, Fraction | int)
    unit = ONE if exact else ONE - ONE // FLOAT_PRECISION
    return int(Fraction(mass) * unit)


def _bounds_on_exact_delta(
    epsilon: float, delta: float, laws: dict[Counts, Law], pairs: list[Neighbours]
) -> Point:
    """Return bounds on the largest exact δ at ``epsilon``, over all pairs in both orders.

    Args:
        epsilon: the ε.
        delta: the claimed δ.
        laws: the listed law of each histogram.
        pairs: the neighbouring histograms.
    """
    least_growth, most_growth = _exp_bounds(epsilon)
    # In units of 1/ONE².
    lower = 0
    upper = -1  # below what any pair has
    worst = pairs[0]
    for pair in _both_orders(pairs):
        p_law, q_law = (laws[counts] for counts in pair)
        # The listed masses are lower bounds. The event of the answers that gain has at least the
        # listed mass under P, and at most the listed mass and all that is unlisted under Q.
        certain_gain = _excess_mass(p_law, q_law, most_growth)
        lower = max(lower, certain_gain - most_growth * _unlisted_mass(q_law))
        upper_of_pair = _excess_mass(p_law, q_law, least_growth) + _unlisted_mass(p_law) * ONE
        if upper_of_pair > upper:
            upper = upper_of_pair
            worst = pair
    rounded_down = 0.0 - round_up(-Fraction(lower, ONE**2))  # the difference is never -0.0
    return Point(epsilon, delta, rounded_down, round_up(Fraction(upper, ONE**2)), worst)


def _both_orders(pairs: list[Neighbours]) -> list[Neighbours]:
    """Return all pairs, then all pairs in the other order."""
    return pairs + [(with_user, without) for without, with_user in pairs]


def _exp_bounds(epsilon: float) -> tuple[int, int]:
    """Return two integers between which ONE·e^ε lies, the lower one first.

    Raises:
        InvalidParameter: for an ε above about 199.6.
    """
    x = Fraction(epsilon)
    bits = 4 * LISTING_BITS
    (unit,) = exp_units([x.numerator], x.denominator, bits)  # 2^bits e^-ε, within 1
    # The unit is to have as many digits as the masses: e^-ε is above 2^-288.
    if unit <= ONE:
        raise InvalidParameter(f"epsilon={epsilon:g} is too large to be attested")
    # ONE·e^ε = ONE·2^bits / (2^bits e^-ε), whose denominator is within 1 of the unit.
    scaled = 1 << bits + LISTING_BITS
    return scaled // (unit + 1), scaled // (unit - 1) + 1


def _unlisted_mass(law: Law) -> int:
    """Return the probability that a law does not list, in units of 1/ONE."""
    return ONE - sum(law.values())


def _excess_mass(p_law: Law, q_law: Law, growth: int) -> int:
    """Return Σ max(p - e^ε q, 0) over the listed answers, in units of 1/ONE².

    Args:
        p_law: the law P as listed, in units of 1/ONE.
        q_law: the law Q as listed.
        growth: an upper bound on ONE·e^ε, which makes the sum a lower bound, or a lower bound on
            it, which makes the sum an upper bound.
    """
    gains = (mass * ONE - growth * q_law.get(answer, 0) for answer, mass in p_law.items())
    return sum(gain for gain in gains if gain > 0)
