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

# A count, True for a label of a set, or whatever another library's mechanism gives.
Value: TypeAlias = Hashable
Answer = tuple[tuple[Hashable, Value], ...]
Counted = Mapping[Answer, int]
Feature = Callable[[Answer], Hashable]


# What a kind of counterexample measures.
BOUNDED = {"approx": "δ", "range": "range of losses", "malformed": "malformed answers"}


@dataclass(frozen=True)
class Event:
    """A set of values of a feature of the answer."""

    name: str
    feature: Feature = field(repr=False, compare=False)
    values: frozenset[Hashable]

    def hits(self, answers: Mapping[Answer, int]) -> int:
        """Return how many of the counted answers lie in the event."""
        return sum(
            times for answer, times in answers.items() if self.feature(answer) in self.values
        )


@dataclass(frozen=True)
class Counterexample:
    """A counterexample to a claim.

    Attributes:
        kind: "approx" (P(S) > e^ε Q(S) + δ), "range" (losses too far apart) or "malformed" (an
            answer that may not be).
        claim: the statement refuted.
        pair: the neighbouring histograms.
        added: True when P is the law with the additional user.
        event: the events, in words.
        measured: what the claim bounds, from below: δ at the claimed ε, or the range of the losses.
        claimed: what was claimed of it.
        confidence: that ``measured`` is a lower bound.
        draws: answers drawn for the test on each side.
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
        sure = f"with confidence {self.confidence:.6g} ({self.draws} draws a side)"
        found = f"{BOUNDED[self.kind]} at least {self.measured:.4g}, claimed {self.claimed:.4g}"
        without = f"  without the user {self.pair.smaller}, with {self.pair.larger}"
        side = "with" if self.added else "without"
        lines = [
            f"{found}, {sure}",
            f"{without}; P is the law {side} the user",
            f"  event: {self.event}",
            f"  claim: {self.claim}",
        ]
        return "\n".join(lines)


def features(answers: Iterable[Answer]) -> dict[str, Feature]:
    """The features worth looking at, given some answers."""
    labels = sorted({label for answer in answers for label, _ in answer}, key=repr)
    found: dict[str, Feature] = {
        "answer": lambda answer: answer,
        "labels in order": lambda answer: tuple(label for label, _ in answer),
        "set of labels": lambda answer: frozenset(label for label, _ in answer),
        "number of labels": len,
    }
    for label in labels:
        found[f"value of {label!r}"] = partial(_value, label)
        found[f"{label!r} released"] = partial(_released, label)
    for one, other in permutations(labels, 2):
        found[f"{one!r} less {other!r}"] = partial(_difference, one, other)
    return found


def _value(label: Hashable, answer: Answer) -> Hashable:
    return next((value for name, value in answer if name == label), "absent")


def _released(label: Hashable, answer: Answer) -> bool:
    return any(name == label for name, _ in answer)


def _difference(one: Hashable, other: Hashable, answer: Answer) -> Hashable:
    values = dict(answer)
    first = values.get(one)
    second = values.get(other)
    if isinstance(first, int | float) and isinstance(second, int | float):
        return float(first - second)
    return "absent"


@dataclass(frozen=True)
class Samples:
    """Counted answers under P and Q.

    Attributes:
        p, q: answer -> how often it was drawn.
    """

    p: Counted
    q: Counted

    def excess(self, event: Event, epsilon: float, delta: float) -> float:
        """By how many standard errors P(S) - e^ε Q(S) of an event is estimated to exceed δ."""
        factor = growth(epsilon)
        drawn_p = sum(self.p.values())
        drawn_q = sum(self.q.values())
        in_p = event.hits(self.p)
        in_q = event.hits(self.q)
        variance_p = (in_p + 1) / drawn_p**2
        variance_q = (in_q + 1) * (factor / drawn_q) ** 2
        estimate = in_p / drawn_p - factor * in_q / drawn_q - delta
        return estimate / math.sqrt(variance_p + variance_q)

    def likely(self, feature: Feature, weight: float) -> frozenset[Hashable]:
        """The values of a feature that were seen more often under P than ``weight`` times under Q,
        by two standard errors, or that lie on the best half-line.
        """
        seen_p = tally(self.p, feature)
        seen_q = tally(self.q, feature)
        clear = {
            value
            for value, times in seen_p.items()
            if times - 2 * math.sqrt(times) > weight * seen_q[value]
        }
        return frozenset(clear | _half_line(seen_p, seen_q, weight))


def growth(epsilon: float) -> float:
    """e^ε, and e^600 beyond."""
    return math.exp(min(epsilon, 600.0))


def best_event(
    choose: Samples, check: Samples, epsilon: float, delta: float
) -> tuple[Event, float] | None:
    """The event for which P(S) - e^ε Q(S) exceeds δ by most standard errors; and how many.

    Args:
        choose: answers by which the values of each event are chosen.
        check: others, by which it is judged: chance finds among many rare answers do not survive
            them.
        epsilon: of the point of the claim that is tested.
        delta: of that point.
    """
    drawn_p = sum(choose.p.values())
    drawn_q = max(sum(choose.q.values()), 1)
    weight = growth(epsilon) * drawn_p / drawn_q
    best: tuple[Event, float] | None = None
    for name, feature in features([*choose.p, *choose.q]).items():
        event = Event(name, feature, choose.likely(feature, weight))
        if event.values:
            score = check.excess(event, epsilon, delta)
            if best is None or score > best[1]:
                best = event, score
    return best


def tally(answers: Mapping[Answer, int], feature: Feature) -> Counter[Hashable]:
    """Return how often a feature has each of its values."""
    found: Counter[Hashable] = Counter()
    for answer, times in answers.items():
        found[feature(answer)] += times
    return found


def _half_line(p: Counter[Hashable], q: Counter[Hashable], factor: float) -> set[Hashable]:
    """The values above or below the cut at which P - factor · Q is largest, for numbers; else
    nothing.
    """
    values = {value for value in (*p, *q) if isinstance(value, int | float)}
    numbers = sorted(value for value in values if not isinstance(value, bool))
    best: tuple[float, set[Hashable]] = (0.0, set())
    for ordered in (numbers, numbers[::-1]):
        total = 0.0
        for place, value in enumerate(ordered):
            total += p[value] - factor * q[value]
            if total > best[0]:
                best = total, set(ordered[: place + 1])
    return best[1]


def bounds_of(hits: int, draws: int, alpha: float) -> tuple[float, float]:
    """Clopper-Pearson bounds on a probability, below and above; each is wrong with probability at
    most alpha.
    """
    from scipy.stats import beta

    if hits == 0:
        low = 0.0
    else:
        low = float(beta.ppf(alpha, hits, draws - hits + 1))
    if hits == draws:
        high = 1.0
    else:
        high = float(beta.ppf(1 - alpha, hits + 1, draws - hits))
    return low, high
