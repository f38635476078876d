"""The search: a race of neighbouring pairs, then one test on fresh draws.

New pairs get few draws; the most suspicious ones so far have theirs doubled in every round. The
last few are tested with draws that nothing was chosen by, at confidence 1 - alpha shared between
them (Bonferroni), so the confidence of a finding does not suffer from the search, however long it
was.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from dptopk._internal import validate
from dptopk.audit.adapters import only_types_of_errors
from dptopk.audit.claims import Claim
from dptopk.audit.evidence import (
    Answer,
    Counterexample,
    Event,
    Samples,
    best_event,
    bounds_of,
    features,
    growth,
    tally,
)
from dptopk.audit.worlds import Counts, Pair, World
from dptopk.costs import Budget, Charge
from dptopk.release.release import Release

# What a mechanism under audit gives for a histogram; it may be another library's.
RawAnswer = (
    Release
    | Mapping[Hashable, Hashable]
    | AbstractSet[Hashable]
    | Sequence[Hashable]
    | np.ndarray[tuple[int], np.dtype[np.generic]]
    | Hashable
)
Mechanism = Callable[[Counts], RawAnswer]
Ends = tuple[float, float]  # of a probability, from below and above
Drawn = tuple[Counter[Answer], Counter[Answer]]  # answers without and with the additional user
FIRST_DRAWS = 800
FIRST_PAIRS = 6
FINALISTS = 3
MOST_DRAWS = (
    16 * FIRST_DRAWS
)  # for one pair in one round; else the first suspects would take all the time
STANDS_OUT = 4.0  # standard errors beyond the claim, after the best of many events was taken
SEARCH_SHARE = 0.5  # of the time; the rest is for the test


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit: the finding, if any, and the effort of the search."""

    finding: Counterexample | None
    pairs: int
    draws: int
    seconds: float

    def __str__(self) -> str:
        looked = f"{self.pairs} pairs of neighbours, {self.draws} draws, {self.seconds:.1f} s"
        if self.finding is None:
            return f"No counterexample found ({looked}). That is not a proof."
        return f"Refuted ({looked}): {self.finding}"


def nothing_drawn() -> Drawn:
    """No answers yet, without and with the additional user."""
    return Counter(), Counter()


@dataclass
class _Suspect:
    """A pair of data sets, draws without and with the additional user, and how these contradict the
    claim.
    """

    pair: Pair
    choose: Drawn = field(default_factory=nothing_drawn)
    check: Drawn = field(default_factory=nothing_drawn)
    score: float = -math.inf
    added: bool = True
    point: tuple[float, float] | None = None  # None: the range of losses
    events: tuple[Event, ...] = ()

    def suspect(
        self, score: float, added: bool, point: tuple[float, float] | None, *events: Event
    ) -> None:
        """Remember the most suspicious events."""
        if score > self.score:
            self.score = score
            self.added = added
            self.point = point
            self.events = events


def audit(
    mechanism: Mechanism,
    claim: Charge | Budget,
    *,
    world: World | None = None,
    seconds: float = 60.0,
    draws: int | None = None,
    alpha: float = 1e-6,
    rng: np.random.Generator | None = None,
) -> AuditReport:
    """Search for a certified counterexample to what is claimed of a mechanism.

    Args:
        mechanism: maps a histogram, a dict label -> count, to one answer: a Release, a dict label
            -> value, a sequence of labels or of (label, value) pairs, or one label. With a method
            ``many(histogram, draws)`` it may give an iterable of answers at once. One whose exact
            law is known is for ``attest``.
        claim: a Charge, or a Budget(ε, δ).
        world: the neighbouring histograms to search, with the sensitivity the claim is made for.
        seconds: time for the whole audit, above 0.
        draws: answers drawn at most, about; with a seeded mechanism and ``rng`` the audit then
            repeats itself exactly.
        alpha: chance, in (0, 1), that a mechanism that keeps its claim is called refuted.
        rng: for the choice of pairs; the mechanism has its own randomness.

    Returns:
        An AuditReport. No finding proves nothing; a finding is a proof at confidence 1 - alpha.

    Raises:
        InvalidParameter: for arguments outside their ranges; for a mechanism that fails, with the
        type of its error.
    """
    world = World() if world is None else world
    validate.positive(seconds=seconds)
    validate.probability(allow_zero=False, alpha=alpha)
    stated = Claim.of(claim)
    rng = np.random.default_rng() if rng is None else rng
    most = math.inf if draws is None else validate.count(draws=draws)
    return _Audit(mechanism, stated, world, rng, alpha, seconds, most).run()


def normal(answer: RawAnswer) -> Answer:
    """One answer as (label, value) pairs, in its order; a set or dict of answers by label."""
    if isinstance(answer, Release):
        if answer.counts is None:
            counts = [None] * len(answer.labels)
        else:
            counts = answer.counts.tolist()
        return tuple(zip(answer.labels, counts, strict=True))
    if isinstance(answer, Mapping):
        return tuple(sorted(answer.items(), key=repr))
    if isinstance(answer, set | frozenset):
        return tuple((label, None) for label in sorted(answer, key=repr))
    if isinstance(answer, list | tuple | np.ndarray):
        parts = list(answer)
        pairs = all(isinstance(part, tuple) and len(part) == 2 for part in parts)
        if pairs and parts:
            return tuple(parts)
        return tuple((part, None) for part in parts)
    return ((answer, None),)


def malformed(answer: Answer) -> str:
    """Return what is wrong with an answer that no mechanism may give, or ''."""
    labels = [label for label, _ in answer]
    if len(set(labels)) < len(labels):
        return "a label is repeated"
    return ""


@dataclass
class _Audit:
    """An audit by draws, with the time and draws that it may take, and has taken."""

    mechanism: Mechanism
    claim: Claim
    world: World
    rng: np.random.Generator
    alpha: float
    most_seconds: float
    most_draws: float
    pairs: int = 0
    draws: int = 0
    flaw: Counterexample | None = None
    start: float = field(default_factory=time.monotonic)

    def over(self, share: float) -> bool:
        """Whether this share of the time or of the draws is used up."""
        spent = time.monotonic() - self.start
        late = spent >= share * self.most_seconds
        return late or self.draws >= share * self.most_draws

    def run(self) -> AuditReport:
        """Look, race, test."""
        best: list[_Suspect] = []
        stream = self.world.pairs(self.rng)
        while not self.flaw and not (best and self.over(SEARCH_SHARE)):
            new = [_Suspect(pair) for pair in islice(stream, FIRST_PAIRS)]
            self.pairs += len(new)
            self._look(new, FIRST_DRAWS)
            best = self._keep(best + new)
            for suspect in best:
                self._look([suspect], min(2 * suspect.choose[0].total(), MOST_DRAWS))
            best = self._keep(best)
            if best[0].score > STANDS_OUT:
                break  # on the draws that it was not chosen by
        finding = self.flaw or self._test(best)
        return AuditReport(finding, self.pairs, self.draws, time.monotonic() - self.start)

    def _keep(self, suspects: list[_Suspect]) -> list[_Suspect]:
        return sorted(suspects, key=lambda suspect: -suspect.score)[:FINALISTS]

    def _look(self, suspects: list[_Suspect], draws: int) -> None:
        """Draw on pairs, half to choose events by and half to check them, and score these."""
        for suspect in suspects:
            if self.flaw or (suspect.score > -math.inf and self.over(SEARCH_SHARE)):
                return
            for counted in (suspect.choose, suspect.check):
                self._draw_pair(suspect.pair, max(draws // 2, 1), counted)
            self._score(suspect)

    def _draw_pair(self, pair: Pair, draws: int, counted: Drawn) -> None:
        """Draw on both histograms of a pair, and add to the counted answers."""
        for histogram, seen in zip((pair.smaller, pair.larger), counted, strict=True):
            seen.update(self._draw(histogram, draws, pair))

    def _draw(self, histogram: Counts, draws: int, pair: Pair) -> Counter[Answer]:
        """Counted answers; a malformed one ends the audit."""
        self.draws += draws
        many = getattr(self.mechanism, "many", None)
        answers: Iterable[RawAnswer]
        with only_types_of_errors(self.mechanism):
            if many:
                answers = many(histogram, draws)
            else:
                answers = (self.mechanism(dict(histogram)) for _ in range(draws))
            counted = Counter(normal(answer) for answer in answers)
        for answer in counted:
            wrong = malformed(answer)
            if wrong and self.flaw is None:
                share = counted[answer] / draws
                self.flaw = Counterexample(
                    "malformed", self.claim.text, pair, True, wrong, share, 0.0, 1.0, draws
                )
        return counted

    def _score(self, suspect: _Suspect) -> None:
        """By how many standard errors the best event breaks the claim."""
        suspect.score = -math.inf
        for added in (False, True):
            choose = Samples(*ordered(suspect.choose, added))
            check = Samples(*ordered(suspect.check, added))
            for epsilon, delta in self.claim.points:
                found = best_event(choose, check, epsilon, delta)
                if found:
                    suspect.suspect(found[1], added, (epsilon, delta), found[0])
        if self.claim.loss_range is None:
            events = None
        else:
            events = _far_apart(*ordered(suspect.choose, True))
        if events:
            score = _excess(*ordered(suspect.check, True), events, self.claim.loss_range or 0.0)
            suspect.suspect(score, True, None, *events)

    def _test(self, suspects: list[_Suspect]) -> Counterexample | None:
        """Fresh draws for the most suspicious pairs, in the time that is left."""
        # One that stands out already gets all the time.
        if suspects[0].score > STANDS_OUT:
            suspects = suspects[:1]
        else:
            suspects = [s for s in suspects if s.score > -math.inf]
        alpha = self.alpha / max(len(suspects), 1)
        for number, suspect in enumerate(suspects, 1):
            test_share = (1 - SEARCH_SHARE) * number / len(suspects)
            fresh = nothing_drawn()
            while not self.over(SEARCH_SHARE + test_share):
                self._draw_pair(suspect.pair, FIRST_DRAWS * 10, fresh)
            if fresh[0]:
                finding = self._certificate(suspect, ordered(fresh, suspect.added), alpha)
            else:
                finding = None
            if finding:
                return finding
        return None

    def _certificate(self, suspect: _Suspect, fresh: Drawn, alpha: float) -> Counterexample | None:
        """Clopper-Pearson bounds on all probabilities of the chosen events, at ``alpha``
        together.
        """
        drawn = fresh[0].total()
        ends = _ends_of(suspect, fresh, alpha)
        if suspect.point is None:
            kind, at = "range", ""
            claimed = self.claim.loss_range or 0.0
            measured = _range_of_losses(*ends)
        else:
            epsilon, claimed = suspect.point
            kind, at = "approx", f" at ε = {epsilon:.6g}"
            measured = _failure(*ends[0], epsilon)
        if not measured > claimed:
            return None
        names = " against ".join(describe(event) for event in suspect.events)
        where = (self.claim.text + at, suspect.pair, suspect.added, names)
        return Counterexample(kind, *where, measured, claimed, 1 - self.alpha, drawn)


def _ends_of(suspect: _Suspect, fresh: Drawn, alpha: float) -> list[tuple[Ends, Ends]]:
    """Bounds on P and on Q of each event of the suspect, all of them right but for ``alpha``."""
    drawn = fresh[0].total()
    share = alpha / (2 * len(suspect.events))
    ends: list[tuple[Ends, Ends]] = []
    for event in suspect.events:
        of_p, of_q = (bounds_of(event.hits(law), drawn, share) for law in fresh)
        ends.append((of_p, of_q))
    return ends


def _failure(p: Ends, q: Ends, epsilon: float) -> float:
    """P(S) - e^ε Q(S) from below, by the ends of both probabilities."""
    least = p[0] - growth(epsilon) * q[1]
    return least * (1 - 1e-12)


def _range_of_losses(high: tuple[Ends, Ends], low: tuple[Ends, Ends]) -> float:
    """How far the losses of two events are apart at least, by the ends of P and Q of each."""
    (high_p, high_q), (low_p, low_q) = high, low
    if min(high_p[0], low_q[0]) > 0:
        high_loss = math.log(high_p[0] / high_q[1])
        low_loss = math.log(low_p[1] / low_q[0])
        return high_loss - low_loss
    return -math.inf


def ordered(laws: Drawn, added: bool) -> Drawn:
    """(P, Q): P is the law with the additional user when ``added``."""
    if added:
        return (laws[1], laws[0])
    return laws


def describe(event: Event, most: int = 4) -> str:
    """An event in words; long sets are cut."""
    values = sorted(event.values, key=repr)
    shown = ", ".join(map(repr, values[:most]))
    if len(values) > most:
        shown += f", ... ({len(values)} values)"
    return f"{event.name} in {{{shown}}}"


def _far_apart(p: Counter[Answer], q: Counter[Answer]) -> tuple[Event, Event] | None:
    """The two events whose estimated losses ln P/Q are farthest apart, less two standard errors
    each.
    """
    found: list[tuple[float, float, Event]] = []
    drawn = (p.total(), q.total())
    for name, feature in features([*p, *q]).items():
        in_p = tally(p, feature)
        in_q = tally(q, feature)
        for value in {**in_p, **in_q}:
            loss, error = _loss(in_p[value], in_q[value], *drawn)
            event = Event(name, feature, frozenset([value]))
            found.append((loss - 2 * error, loss + 2 * error, event))
    if not found:
        return None
    highest = max(found, key=lambda each: each[0])
    lowest = min(found, key=lambda each: each[1])
    return highest[2], lowest[2]


def _loss(in_p: int, in_q: int, drawn_p: int, drawn_q: int) -> tuple[float, float]:
    """An estimate of ln P(S)/Q(S), and its standard error."""
    # Half a draw more, so that what was never drawn has a finite loss.
    smoothed_p = in_p + 0.5
    smoothed_q = in_q + 0.5
    ratio = smoothed_p / drawn_p * drawn_q / smoothed_q
    variance = 1 / smoothed_p + 1 / smoothed_q
    return math.log(ratio), math.sqrt(variance)


def _excess(
    p: Counter[Answer], q: Counter[Answer], events: tuple[Event, Event], claimed: float
) -> float:
    """By how many standard errors the losses of two events are farther apart than claimed."""
    drawn = (p.total(), q.total())
    high, high_error = _loss(events[0].hits(p), events[0].hits(q), *drawn)
    low, low_error = _loss(events[1].hits(p), events[1].hits(q), *drawn)
    return (high - low - claimed) / math.hypot(high_error, low_error)
