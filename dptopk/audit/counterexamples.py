"""The search for a counterexample: a race of neighbouring pairs, then a test on fresh draws.

New pairs get few draws; the most suspicious pairs get twice as many in every round. The last few
are tested with fresh draws, at confidence 1 - alpha shared between them (Bonferroni), so that the
confidence of a finding does not depend on how long the search was.
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
from dptopk.audit.adapters import hide_data_in_errors
from dptopk.audit.claims import Claim
from dptopk.audit.evidence import (
    Answer,
    Counterexample,
    Event,
    ProbabilityBounds,
    Samples,
    best_event,
    clopper_pearson_bounds,
    exp_within_range,
    features,
    tally,
)
from dptopk.audit.worlds import Counts, Pair, World
from dptopk.costs import Budget, Charge
from dptopk.release.release import Release

# The answer of a mechanism under audit, which may be another library's.
RawAnswer = (
    Release
    | Mapping[Hashable, Hashable]
    | AbstractSet[Hashable]
    | Sequence[Hashable]
    | np.ndarray[tuple[int], np.dtype[np.generic]]
    | Hashable
)
Mechanism = Callable[[Counts], RawAnswer]
FIRST_DRAWS = 800  # draws for a new pair
FIRST_PAIRS = 6  # new pairs in each round
FINALISTS = 3  # pairs that stay in the race
# The most draws for one pair in one round, so that the first suspects do not take all the time.
MOST_DRAWS = 16 * FIRST_DRAWS
# A pair whose best event exceeds the claim by this many standard errors ends the search; choosing
# the best of many events explains about three.
STANDS_OUT = 4.0
DIFFERENCE_ROUNDING = 1e-12  # relative, for a few operations and an exponential or logarithms
SEARCH_SHARE = 0.5  # share of the time for the search; the test has the rest
# Fresh draws that a test takes before it looks at the time again.
TEST_DRAWS = 10 * FIRST_DRAWS


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        finding: the counterexample, or None.
        pairs: how many neighbouring pairs were searched.
        draws: how many answers were drawn.
        seconds: how long the audit took.
    """

    finding: Counterexample | None
    pairs: int
    draws: int
    seconds: float

    def __str__(self) -> str:
        """Return the result in a sentence, followed by the counterexample."""
        effort = f"{self.pairs} pairs of neighbours, {self.draws} draws, {self.seconds:.1f} s"
        if self.finding is None:
            return f"No counterexample found ({effort}). That is not a proof."
        return f"Refuted ({effort}): {self.finding}"


@dataclass(frozen=True)
class _PairAnswers:
    """How often each answer was drawn on the two histograms of a pair.

    Attributes:
        without: on the histogram without the additional user.
        with_user: on the one with that user.
    """

    without: Counter[Answer] = field(default_factory=Counter)
    with_user: Counter[Answer] = field(default_factory=Counter)

    def samples(self, added: bool) -> Samples:
        """Return the answers of P and Q; P is the law with the user if ``added``."""
        if added:
            return Samples(p=self.with_user, q=self.without)
        return Samples(p=self.without, q=self.with_user)


@dataclass(frozen=True)
class _EventBounds:
    """Bounds on the probability of one event.

    Attributes:
        p: its bounds under P.
        q: its bounds under Q.
    """

    p: ProbabilityBounds
    q: ProbabilityBounds


@dataclass
class _Suspect:
    """A neighbouring pair in the race, with the events that contradict the claim most.

    Attributes:
        pair: the two histograms.
        choose: the answers by which events are chosen.
        check: other answers, by which the chosen events are scored.
        score: by how many standard errors the best event exceeds the claim.
        added: whether P is the law with the additional user, for these events.
        point: the point (ε, δ) that they contradict; None: the range of losses.
        events: the event, or the two events whose losses are far apart.
    """

    pair: Pair
    choose: _PairAnswers = field(default_factory=_PairAnswers)
    check: _PairAnswers = field(default_factory=_PairAnswers)
    score: float = -math.inf
    added: bool = True
    point: tuple[float, float] | None = None
    events: tuple[Event, ...] = ()

    def replace_if_higher(
        self, score: float, added: bool, point: tuple[float, float] | None, *events: Event
    ) -> None:
        """Replace the events by these if their score is higher.

        Args:
            score: by how many standard errors the events exceed the claim.
            added: whether P is the law of the histogram with the added user.
            point: (ε, δ) of the claim that is exceeded; None: it is the claim on the range of
                losses.
            events: one for a point, two for a range.
        """
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
    """Search for a certified counterexample to the privacy claim of a mechanism.

    Args:
        mechanism: a function from a histogram, a dict label -> count, to one answer: a Release, a
            dict label -> value, a sequence of labels or of (label, value) pairs, or one label. It
            may also have a method ``many(histogram, draws)`` that returns an iterable of answers.
            If the exact law of the mechanism is known, use ``attest``.
        claim: a Charge, or a Budget(ε, δ).
        world: the neighbouring histograms to search, with the sensitivity the claim is made for.
        seconds: time for the whole audit, above 0.
        draws: about how many answers may be drawn; with a seeded mechanism and ``rng`` the audit
            is then reproducible.
        alpha: probability, in (0, 1), that a mechanism which keeps its claim is called refuted.
        rng: a generator for the choice of pairs; the mechanism has its own randomness.

    Returns:
        An AuditReport. A finding refutes the claim at confidence 1 - alpha; no finding proves
        nothing.

    Raises:
        InvalidParameter: for arguments outside their ranges; for a mechanism that raises an error,
            with the type of that error.
    """
    world = World() if world is None else world
    validate.positive(seconds=seconds)
    validate.probability(allow_zero=False, alpha=alpha)
    stated = Claim.of(claim)
    rng = np.random.default_rng() if rng is None else rng
    most = math.inf if draws is None else validate.count(draws=draws)
    return _AuditByDraws(mechanism, stated, world, rng, alpha, seconds, most).run()


def labels_and_values(answer: RawAnswer) -> Answer:
    """Return an answer as (label, value) pairs, value None where there is none: in the order of the
    answer, or by label for a set or dict.
    """
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
        items = list(answer)
        are_pairs = all(isinstance(item, tuple) and len(item) == 2 for item in items)
        if are_pairs and items:
            return tuple(items)
        return tuple((item, None) for item in items)
    return ((answer, None),)


def flaw_in_answer(answer: Answer) -> str:
    """Return what makes an answer malformed, in words; '' for a well-formed one."""
    labels = [label for label, _ in answer]
    if len(set(labels)) < len(labels):
        return "a label is repeated"
    return ""


@dataclass
class _AuditByDraws:
    """The state of an audit by draws.

    Attributes:
        mechanism: the mechanism under audit.
        claim: the claim to refute.
        world: the neighbouring histograms to search.
        rng: the generator for the choice of pairs.
        alpha: the error probability of a finding.
        most_seconds: the time that the audit may take.
        most_draws: the number of answers that it may draw.
        pairs: the number of pairs searched so far.
        draws: the number of answers drawn so far.
        flaw: a malformed answer that was drawn, or None.
        start: when the audit began, by the monotonic clock.
    """

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

    def is_used_up(self, share: float) -> bool:
        """Return whether this share of the time or of the draws that the audit may take, a number
        from 0 to 1, is used up.
        """
        spent = time.monotonic() - self.start
        late = spent >= share * self.most_seconds
        return late or self.draws >= share * self.most_draws

    def run(self) -> AuditReport:
        """Search, then test the most suspicious pairs on fresh draws; return the report."""
        best: list[_Suspect] = []
        stream = self.world.pairs(self.rng)
        # However late it is, there is one round.
        while not self.flaw and not (best and self.is_used_up(SEARCH_SHARE)):
            new = [_Suspect(pair) for pair in islice(stream, FIRST_PAIRS)]
            self.pairs += len(new)
            self._draw_and_score(new, FIRST_DRAWS)
            best = most_suspicious_pairs(best + new)
            for suspect in best:
                draws_so_far = suspect.choose.without.total()
                self._draw_and_score([suspect], min(2 * draws_so_far, MOST_DRAWS))
            best = most_suspicious_pairs(best)
            if best[0].score > STANDS_OUT:
                break
        finding = self.flaw or self._first_certified_finding(best)
        return AuditReport(finding, self.pairs, self.draws, time.monotonic() - self.start)

    def _draw_and_score(self, suspects: list[_Suspect], draws: int) -> None:
        """Draw answers for each pair, half of them to choose events and half to check these, and
        score the pair; stop early when the time for the search is over, but not before a pair that
        has no score yet.
        """
        for suspect in suspects:
            if self.flaw or (suspect.score > -math.inf and self.is_used_up(SEARCH_SHARE)):
                return
            for answers in (suspect.choose, suspect.check):
                self._draw_pair(suspect.pair, max(draws // 2, 1), answers)
            self._store_best_events(suspect)

    def _draw_pair(self, pair: Pair, draws: int, answers: _PairAnswers) -> None:
        """Draw on both histograms of a pair, and add the answers to ``answers``.

        Args:
            pair: the histograms.
            draws: how many answers are drawn on each.
            answers: how often each answer came so far; its counters are changed.
        """
        answers.without.update(self._draw_answers(pair.smaller, draws, pair))
        answers.with_user.update(self._draw_answers(pair.larger, draws, pair))

    def _draw_answers(self, histogram: Counts, draws: int, pair: Pair) -> Counter[Answer]:
        """Draw answers on a histogram of a pair and return how often each came; a malformed answer
        is remembered as a flaw, which ends the audit.

        Args:
            histogram: one of the pair.
            draws: how many answers are drawn.
            pair: both histograms, which the finding of a flaw names.
        """
        self.draws += draws
        many = getattr(self.mechanism, "many", None)
        answers: Iterable[RawAnswer]
        with hide_data_in_errors(self.mechanism):
            if many:
                answers = many(histogram, draws)
            else:
                answers = (self.mechanism(dict(histogram)) for _ in range(draws))
            counted = Counter(labels_and_values(answer) for answer in answers)
        for answer in counted:
            reason = flaw_in_answer(answer)
            if reason and self.flaw is None:
                self.flaw = Counterexample(
                    kind="malformed",
                    claim=self.claim.text,
                    pair=pair,
                    added=True,
                    event=reason,
                    measured=counted[answer] / draws,
                    claimed=0.0,
                    confidence=1.0,
                    draws=draws,
                )
        return counted

    def _store_best_events(self, suspect: _Suspect) -> None:
        """Find the events that exceed the claim by the most standard errors, and store them and
        their score in the suspect.
        """
        suspect.score = -math.inf  # that of fewer draws does not count any more
        for added in (False, True):
            choose = suspect.choose.samples(added)
            check = suspect.check.samples(added)
            for epsilon, delta in self.claim.points:
                best = best_event(choose, check, epsilon, delta)
                if best is not None:
                    point = (epsilon, delta)
                    suspect.replace_if_higher(best.score, added, point, best.event)
        if self.claim.loss_range is None:
            return
        # The range of losses is the same in both directions.
        events = _events_of_extreme_losses(suspect.choose.samples(added=True))
        if events is not None:
            check = suspect.check.samples(added=True)
            score = _excess_in_errors(check, events, self.claim.loss_range)
            suspect.replace_if_higher(score, True, None, *events)

    def _first_certified_finding(self, suspects: list[_Suspect]) -> Counterexample | None:
        """Test the most suspicious pairs on fresh draws, in the remaining time; return the first
        certified counterexample, or None.
        """
        # A pair that stands out gets all the time; a pair without a score has no event to test.
        if suspects[0].score > STANDS_OUT:
            suspects = suspects[:1]
        else:
            suspects = [suspect for suspect in suspects if suspect.score > -math.inf]
        alpha = self.alpha / max(len(suspects), 1)
        for number, suspect in enumerate(suspects, 1):
            # The time for tests is divided evenly; this share ends with the pair of this number.
            test_share = (1 - SEARCH_SHARE) * number / len(suspects)
            fresh = _PairAnswers()
            while not self.is_used_up(SEARCH_SHARE + test_share):
                self._draw_pair(suspect.pair, TEST_DRAWS, fresh)
            if not fresh.without:  # no time was left
                continue
            finding = self._certificate(suspect, fresh.samples(suspect.added), alpha)
            if finding is not None:
                return finding
        return None

    def _certificate(
        self, suspect: _Suspect, fresh: Samples, alpha: float
    ) -> Counterexample | None:
        """Return the counterexample that the chosen events are, if Clopper-Pearson bounds on their
        probabilities prove it; else None.

        Args:
            suspect: the pair and its events.
            fresh: fresh draws from P and from Q.
            alpha: probability with which any of these bounds may be wrong, a part of that of the
                whole test, ``self.alpha``.
        """
        bounds = _bounds_of_events(suspect.events, fresh, alpha)
        claim = self.claim.text
        if suspect.point is None:  # the events are two, of the higher and of the lower loss
            kind = "range"
            assert self.claim.loss_range is not None  # noqa: S101 - else a suspect has a point
            claimed = self.claim.loss_range
            high_event, low_event = bounds
            measured = _lower_bound_on_loss_range(high_event, low_event)
        else:
            kind = "approx"
            epsilon, claimed = suspect.point
            claim += f" at ε = {epsilon:.6g}"
            (only_event,) = bounds
            measured = _lower_bound_on_delta(only_event, epsilon)
        if not measured > claimed:
            return None
        return Counterexample(
            kind=kind,
            claim=claim,
            pair=suspect.pair,
            added=suspect.added,
            event=" against ".join(event_in_words(event) for event in suspect.events),
            measured=measured,
            claimed=claimed,
            confidence=1 - self.alpha,
            draws=fresh.p.total(),
        )


def most_suspicious_pairs(suspects: list[_Suspect]) -> list[_Suspect]:
    """Return the FINALISTS pairs with the highest scores, the highest first."""
    return sorted(suspects, key=lambda suspect: -suspect.score)[:FINALISTS]


def _bounds_of_events(events: Sequence[Event], fresh: Samples, alpha: float) -> list[_EventBounds]:
    """Return bounds on P and on Q of each event.

    Args:
        events: the events, at least one.
        fresh: fresh draws from P and from Q, as many from each.
        alpha: the probability with which any of the bounds may be wrong; each has an even share.
    """
    draws = fresh.p.total()
    share = alpha / (2 * len(events))
    return [
        _EventBounds(
            p=clopper_pearson_bounds(event.hits(fresh.p), draws, share),
            q=clopper_pearson_bounds(event.hits(fresh.q), draws, share),
        )
        for event in events
    ]


def _lower_bound_on_delta(event: _EventBounds, epsilon: float) -> float:
    """Return a lower bound on P(S) - e^ε Q(S) of an event S, where both lie within the event's
    bounds.
    """
    difference = event.p.lower - exp_within_range(epsilon) * event.q.upper
    # Where the terms nearly cancel, both are at most 1 and rounded by 1e-16, which is far less than
    # the bounds are wide for any number of draws. A difference below 0 refutes nothing.
    return difference * (1 - DIFFERENCE_ROUNDING)


def _lower_bound_on_loss_range(high: _EventBounds, low: _EventBounds) -> float:
    """Return a lower bound on the difference between the losses ln P/Q of two events; -inf if
    there is none.

    Args:
        high: the event of the higher loss.
        low: the event of the lower loss.
    """
    if min(high.p.lower, low.q.lower) > 0:
        high_loss = math.log(high.p.lower / high.q.upper)
        low_loss = math.log(low.p.upper / low.q.lower)
        # Quotients and logarithms are rounded by less than this: a logarithm is off by a relative
        # error of its quotient, absolutely, and by a relative one of its own.
        rounding = DIFFERENCE_ROUNDING * (1 + abs(high_loss) + abs(low_loss))
        return high_loss - low_loss - rounding
    return -math.inf


def event_in_words(event: Event, most: int = 4) -> str:
    """Return an event in words, with at most this many of its values."""
    values = sorted(event.values, key=repr)
    shown = ", ".join(map(repr, values[:most]))
    if len(values) > most:
        shown += f", ... ({len(values)} values)"
    return f"{event.name} in {{{shown}}}"


@dataclass(frozen=True)
class _LossEstimate:
    """An estimate of the loss ln P(S)/Q(S) of an event S.

    Attributes:
        value: the estimate.
        error: its standard error.
    """

    value: float
    error: float

    @property
    def cautious_lower(self) -> float:
        """Return the estimate less two standard errors."""
        return self.value - 2 * self.error

    @property
    def cautious_upper(self) -> float:
        """Return the estimate plus two standard errors."""
        return self.value + 2 * self.error


def _events_of_extreme_losses(answers: Samples) -> tuple[Event, Event] | None:
    """Return the events with the highest and the lowest estimated loss ln P/Q, as far as they are
    certain: less two standard errors for the highest, plus two for the lowest; None if nothing was
    drawn.
    """
    estimates: list[tuple[Event, _LossEstimate]] = []
    draws_p = answers.p.total()
    draws_q = answers.q.total()
    for name, feature in features([*answers.p, *answers.q]).items():
        in_p = tally(answers.p, feature)
        in_q = tally(answers.q, feature)
        for value in {**in_p, **in_q}:
            event = Event(name, feature, frozenset([value]))
            estimate = _estimated_loss(in_p[value], in_q[value], draws_p, draws_q)
            estimates.append((event, estimate))
    if not estimates:
        return None
    highest, _ = max(estimates, key=lambda item: item[1].cautious_lower)
    lowest, _ = min(estimates, key=lambda item: item[1].cautious_upper)
    return highest, lowest


def _estimated_loss(in_p: int, in_q: int, draws_p: int, draws_q: int) -> _LossEstimate:
    """Return an estimate of ln P(S)/Q(S) with its standard error.

    Args:
        in_p: how many of the draws from P are in S.
        in_q: how many of the draws from Q are in S.
        draws_p: how many draws from P there are.
        draws_q: how many draws from Q there are.
    """
    # Half a draw is added, so that the loss of an event that was never drawn is finite.
    smoothed_p = in_p + 0.5
    smoothed_q = in_q + 0.5
    ratio = smoothed_p / draws_p * draws_q / smoothed_q
    variance = 1 / smoothed_p + 1 / smoothed_q
    return _LossEstimate(math.log(ratio), math.sqrt(variance))


def _excess_in_errors(answers: Samples, events: tuple[Event, Event], claimed: float) -> float:
    """Return by how many standard errors the losses of two events are farther apart than claimed.

    Args:
        answers: the answers drawn from P and from Q.
        events: the event of the higher and that of the lower loss.
        claimed: the claimed range of losses.
    """

    def estimated_loss(event: Event) -> _LossEstimate:
        """Return the estimated loss of an event."""
        in_p = event.hits(answers.p)
        in_q = event.hits(answers.q)
        return _estimated_loss(in_p, in_q, answers.p.total(), answers.q.total())

    high_event, low_event = events
    high = estimated_loss(high_event)
    low = estimated_loss(low_event)
    return (high.value - low.value - claimed) / math.hypot(high.error, low.error)
