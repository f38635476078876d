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
from typing import Any

from dptopk.audit.worlds import Pair

Answer = tuple[tuple[Hashable, Any], ...]
Feature = Callable[[Answer], Hashable]


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
class Finding:
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
        what = {"approx": "δ", "range": "range of losses", "malformed": "malformed answers"}[
            self.kind
        ]
        sure = f"with confidence {self.confidence:.6g} ({self.draws} draws a side)"
        return (
            f"{what} at least {self.measured:.4g}, claimed {self.claimed:.4g}, {sure}\n"
            f"  without the user {self.pair.smaller}, with {self.pair.larger}; P is the law "
            f"{'with' if self.added else 'without'} the user\n  event: {self.event}\n  claim: "
            f"{self.claim}"
        )


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
    for one in labels:
        found |= {
            f"{one!r} less {other!r}": partial(_difference, one, other)
            for other in labels
            if one != other
        }
    return found


def _value(label: Hashable, answer: Answer) -> Hashable:
    return next((value for name, value in answer if name == label), "absent")


def _released(label: Hashable, answer: Answer) -> bool:
    return any(name == label for name, _ in answer)


def _difference(one: Hashable, other: Hashable, answer: Answer) -> Hashable:
    values = dict(answer)
    if isinstance(values.get(one), int | float) and isinstance(values.get(other), int | float):
        return float(values[one] - values[other])
    return "absent"


def best_event(
    choose: tuple[Mapping[Answer, int], Mapping[Answer, int]],
    check: tuple[Mapping[Answer, int], Mapping[Answer, int]],
    epsilon: float,
    delta: float,
) -> tuple[Event, float] | None:
    """The event for which P(S) - e^ε Q(S) exceeds δ by most standard errors; and how many.

    Args:
        choose: counted answers under P and Q, by which the values of each event are chosen.
        check: others, by which it is judged: chance finds among many rare answers do not survive
            them.
        epsilon: of the point of the claim that is tested.
        delta: of that point.
    """
    (p, q), (p_check, q_check) = choose, check
    drawn_p = sum(p_check.values())
    drawn_q = sum(q_check.values())
    factor = math.exp(min(epsilon, 600.0))
    weight = factor * sum(p.values()) / max(sum(q.values()), 1)
    best: tuple[Event, float] | None = None
    for name, feature in features([*p, *q]).items():
        seen_p = tally(p, feature)
        seen_q = tally(q, feature)
        likely = {
            v for v, times in seen_p.items() if times - 2 * math.sqrt(times) > weight * seen_q[v]
        }
        event = Event(name, feature, frozenset(likely | _half_line(seen_p, seen_q, weight)))
        if event.values:
            in_p = event.hits(p_check)
            in_q = event.hits(q_check)
            error = math.sqrt((in_p + 1) / drawn_p**2 + (in_q + 1) * (factor / drawn_q) ** 2)
            score = (in_p / drawn_p - factor * in_q / drawn_q - delta) / error
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
    numbers = sorted(
        {v for v in (*p, *q) if isinstance(v, int | float) and not isinstance(v, bool)}
    )
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

    low = 0.0 if hits == 0 else float(beta.ppf(alpha, hits, draws - hits + 1))
    if hits == draws:
        high = 1.0
    else:
        high = float(beta.ppf(1 - alpha, hits + 1, draws - hits))
    return low, high
