"""From draws to a certificate: events chosen on one half, tested on fresh draws by Clopper-Pearson
bounds.

An answer is a tuple of (label, value) pairs, value None where none was released. Events are sets of
values of one *feature* of the answer (the labels in order, the value of one label, ...): on the
draws for choosing, take the values seen more often under P than e^ε times under Q. Choosing costs
no confidence, because the test uses fresh draws.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from typing import TypeAlias

from dptopk.audit.worlds import Pair

# A count, True for a label of a set, or any value that another library's mechanism returns.
Value: TypeAlias = Hashable
Answer = tuple[tuple[Hashable, Value], ...]
Feature = Callable[[Answer], Hashable]


LARGEST_EXPONENT = 600.0  # e^709 is the largest float; a count times e^600 still is one
# The quantity that each kind of counterexample bounds.
BOUNDED = {"approx": "δ", "range": "range of losses", "malformed": "malformed answers"}


@dataclass(frozen=True)
class Event:
    """The event that a feature of the answer has one of some values.

    Attributes:
        name: the name of the feature.
        feature: the function from an answer to its value.
        values: the values.
    """

    name: str
    feature: Feature = field(repr=False, compare=False)
    values: frozenset[Hashable]

    def hits(self, answers: Mapping[Answer, int]) -> int:
        """Return how many of the counted answers are in the event."""
        hits = 0
        for answer, times in answers.items():
            if self.feature(answer) in self.values:
                hits += times
        return hits


@dataclass(frozen=True)
class Counterexample:
    """A counterexample to a claim.

    Attributes:
        kind: "approx" (P(S) > e^ε Q(S) + δ), "range" (losses too far apart) or "malformed" (an
            answer that may not be).
        claim: the claim that is refuted.
        pair: the neighbouring histograms.
        added: whether P is the law with the additional user.
        event: the events, in words.
        measured: a lower bound on the quantity that the claim bounds: δ at the claimed ε, or the
            range of the losses.
        claimed: the claimed upper bound on it.
        confidence: the confidence with which ``measured`` is a lower bound.
        draws: how many answers were drawn from each law for the test.
    """

    kind: str
    claim: str
    pair: Pair
    added: bool
    event: str
    measured: float
    claimed: float
    confidence: float
    draws: int

    def __str__(self) -> str:
        """Return the finding, the pair, the event and the claim as four lines."""
        certainty = f"with confidence {self.confidence:.6g} ({self.draws} draws a side)"
        finding = f"{BOUNDED[self.kind]} at least {self.measured:.4g}, claimed {self.claimed:.4g}"
        histograms = f"  without the user {self.pair.smaller}, with {self.pair.larger}"
        side = "with" if self.added else "without"
        lines = [
            f"{finding}, {certainty}",
            f"{histograms}; P is the law {side} the user",
            f"  event: {self.event}",
            f"  claim: {self.claim}",
        ]
        return "\n".join(lines)


def features(answers: Iterable[Answer]) -> dict[str, Feature]:
    """Return the features by which events are formed: name -> function from an answer to a value.

    Args:
        answers: answers, for whose labels there are features.
    """
    labels: set[Hashable] = set()
    for answer in answers:
        labels.update(_labels_of(answer))
    by_name: dict[str, Feature] = {
        "answer": lambda answer: answer,
        "labels in order": _labels_of,
        "set of labels": lambda answer: frozenset(_labels_of(answer)),
        "number of labels": len,
    }
    in_order = sorted(labels, key=repr)
    for label in in_order:
        by_name[f"value of {label!r}"] = partial(_value_of_label, label)
        by_name[f"{label!r} released"] = partial(_is_released, label)
    for first, second in permutations(in_order, 2):
        by_name[f"{first!r} less {second!r}"] = partial(_difference_of_values, first, second)
    return by_name


def _labels_of(answer: Answer) -> tuple[Hashable, ...]:
    """Return the labels of an answer, in its order."""
    return tuple(label for label, _ in answer)


def _value_of_label(label: Hashable, answer: Answer) -> Hashable:
    """Return the value of a label in an answer; "absent" if the label is not released."""
    return next((value for name, value in answer if name == label), "absent")


def _is_released(label: Hashable, answer: Answer) -> bool:
    """Return whether an answer has a label."""
    return any(name == label for name, _ in answer)


def _difference_of_values(first: Hashable, second: Hashable, answer: Answer) -> Hashable:
    """Return the value of one label minus that of another; "absent" if one of them is not a number.

    Args:
        first: the label of the minuend.
        second: the label of the subtrahend.
        answer: the answer, as pairs of a label and a value.
    """
    values = dict(answer)
    minuend = values.get(first)
    subtrahend = values.get(second)
    if isinstance(minuend, int | float) and isinstance(subtrahend, int | float):
        return float(minuend - subtrahend)
    return "absent"


@dataclass(frozen=True)
class Samples:
    """Counted answers under P and Q.

    Attributes:
        p: how often each answer was drawn from P.
        q: how often each answer was drawn from Q.
    """

    p: Counter[Answer]
    q: Counter[Answer]

    def excess(self, event: Event, epsilon: float, delta: float) -> float:
        """Return by how many standard errors the estimate of P(S) - e^ε Q(S) exceeds δ, for the
        event S.

        Args:
            event: S.
            epsilon: ε of the point of the claim.
            delta: δ of that point.
        """
        factor = exp_within_range(epsilon)
        drawn_p = self.p.total()
        drawn_q = self.q.total()
        in_p = event.hits(self.p)
        in_q = event.hits(self.q)
        # Those of Poisson counts; one is added, so that a count of 0 has a variance too.
        variance_p = (in_p + 1) / drawn_p**2
        variance_q = (in_q + 1) * (factor / drawn_q) ** 2
        estimate = in_p / drawn_p - factor * in_q / drawn_q - delta
        return estimate / math.sqrt(variance_p + variance_q)

    def likelier_values(self, feature: Feature, weight: float) -> frozenset[Hashable]:
        """Return the values of a feature of which P is likelier than e^ε times Q, as far as these
        answers show; together they are an event that may contradict the claim.

        They are each value that was drawn from P more often than ``weight`` times as often as from
        Q, by two standard errors of the former, and the numbers of the best half-line.

        Args:
            feature: the feature.
            weight: how many draws from P make up for one draw from Q: e^ε times the ratio of the
                numbers of draws.
        """
        times_p = tally(self.p, feature)
        times_q = tally(self.q, feature)
        likelier_values: set[Hashable] = set()
        for value, times in times_p.items():
            if times - 2 * math.sqrt(times) > weight * times_q[value]:
                likelier_values.add(value)
        return frozenset(likelier_values | _best_half_line(times_p, times_q, weight))


def exp_within_range(epsilon: float) -> float:
    """Return e^ε, or e^600 for larger ε, so that it does not overflow."""
    return math.exp(min(epsilon, LARGEST_EXPONENT))


@dataclass(frozen=True)
class ScoredEvent:
    """An event, and how much it contradicts a claim.

    Attributes:
        event: the event.
        score: by how many standard errors it exceeds the claim.
    """

    event: Event
    score: float


def best_event(choose: Samples, check: Samples, epsilon: float, delta: float) -> ScoredEvent | None:
    """Return the event for which P(S) - e^ε Q(S) exceeds δ by the most standard errors; None if no
    feature suggests an event.

    Args:
        choose: answers by which the values of each event are chosen.
        check: other answers by which events are scored, so that an event that looks good among
            many by chance gets a low score.
        epsilon: ε of the point of the claim that is tested.
        delta: δ of that point.
    """
    drawn_p = choose.p.total()
    drawn_q = max(choose.q.total(), 1)
    # P(S) > e^ε Q(S) in numbers of draws.
    weight = exp_within_range(epsilon) * drawn_p / drawn_q
    best: ScoredEvent | None = None
    for name, feature in features([*choose.p, *choose.q]).items():
        event = Event(name, feature, choose.likelier_values(feature, weight))
        if event.values:
            score = check.excess(event, epsilon, delta)
            if best is None or score > best.score:
                best = ScoredEvent(event, score)
    return best


def tally(answers: Mapping[Answer, int], feature: Feature) -> Counter[Hashable]:
    """Return how often a feature has each of its values among counted answers."""
    times_of: Counter[Hashable] = Counter()
    for answer, times in answers.items():
        times_of[feature(answer)] += times
    return times_of


def _best_half_line(p: Counter[Hashable], q: Counter[Hashable], factor: float) -> set[Hashable]:
    """Return the half-line of numeric values, up to or from a cut on, for which the draws from P
    exceed ``factor`` times those from Q by most; the empty set if they exceed them for none.

    Args:
        p: how often each value was drawn from P.
        q: how often each value was drawn from Q.
        factor: how many draws from P make up for one draw from Q.
    """
    values = {value for value in (*p, *q) if isinstance(value, int | float)}
    # True says that a set has a label; it is no number here.
    numbers = sorted(value for value in values if not isinstance(value, bool))
    largest = 0.0
    half_line: set[Hashable] = set()
    for in_order in (numbers, numbers[::-1]):
        excess = 0.0
        for place, value in enumerate(in_order):
            excess += p[value] - factor * q[value]
            if excess > largest:
                largest = excess
                half_line = set(in_order[: place + 1])
    return half_line


@dataclass(frozen=True)
class ProbabilityBounds:
    """Bounds on the probability of an event.

    Attributes:
        lower: the lower bound, in [0, 1].
        upper: the upper bound, in [0, 1].
    """

    lower: float
    upper: float


def clopper_pearson_bounds(hits: int, draws: int, alpha: float) -> ProbabilityBounds:
    """Return the lower and the upper Clopper-Pearson bound on a probability.

    Args:
        hits: how many of the draws are in the event.
        draws: how many independent draws there are, at least 1.
        alpha: the probability, in (0, 1), with which each of the two bounds may be wrong.
    """
    from scipy.stats import beta

    if hits == 0:
        lower = 0.0
    else:
        lower = float(beta.ppf(alpha, hits, draws - hits + 1))
    if hits == draws:
        upper = 1.0
    else:
        upper = float(beta.ppf(1 - alpha, hits + 1, draws - hits))
    return ProbabilityBounds(lower, upper)
