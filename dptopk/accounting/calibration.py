"""Calibration: the most that can be done within a budget, ending on the safe side.

Every answer has been checked: ``compose`` of what it stands for stays within the budget. The
searches start from a bound that costs little (Rényi, or plain sums where δ is 0), because the best
one may take a tenth of a second or more; upper bounds are all that they ask for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, Effort, Interaction
from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.accounting.registry import Bound
from dptopk.accounting.work import late, within
from dptopk.costs import Budget, Charge, Cost, charge_of
from dptopk.errors import IncompatibleCosts, InvalidParameter

MakeCharge = Callable[[float], Charge]
_CHEAP_BOUNDS = ("renyi", "basic")
# The numbers below decide how long a search takes; what it returns is checked in any case.
COARSE_RTOL = 0.01  # the accuracy of a rough bracket
# How many larger numbers of queries are tried, before it is unknown whether they are affordable.
TRIED_BEYOND = 8
MOST_RATIO_STEPS = 6  # steps by the ratio to the cheap bound before the search gives that up
FINER_FOR_CHEAP = 20  # the factor by which the cheap bound's search is closer than rtol
CLOSE_GUESS = 0.05  # the ε of a guessed number of queries may be below the budget by this share
FIRST_TRIED = 1e-3  # a small scale, at which it is tried whether a bound takes a charge
# The range in which a scale is searched for: no budget of use ends outside.
SMALLEST_SCALE = 1e-12
LARGEST_SCALE = 1e12
MOST_STEPS = 200  # of a search for a scale: far more than a bisection of that range takes
LARGEST_STRIDE = 16.0  # the most by which a scale outside the known bracket is multiplied
MOST_COUNTS_TRIED = 1000  # of a search for a number of queries: far more than bisection takes


def calibrate(
    make_charge: MakeCharge,
    budget: Budget,
    *,
    interaction: Interaction = "setwise",
    bound: str = "best",
    rtol: float = 1e-3,
    effort: Effort = "normal",
    max_seconds: float | None = None,
    start: float | None = None,
) -> float:
    """Return the largest x > 0 found for which make_charge(x) stays within a budget.

    Args:
        make_charge: the charge as a function of a scale x in (0, inf); must cost more as x grows.
        budget: the total (ε, δ).
        interaction: as for ``compose``.
        bound: as for ``compose``.
        rtol: the search stops when the ε used is within this share of the budget, or x is known to
            a tenth of it.
        effort: of each evaluation of ``compose``; more effort never gives a smaller x.
        max_seconds: a guard for the whole search: what was found by then is sound, but not
            reproducible.
        start: an x from which on to search by the best bound at once: one within some per cent of
            the answer saves most of the work. None: a bound that costs little finds it.

    Returns:
        x, checked: compose(make_charge(x), delta=budget.delta) is at most budget.epsilon.

    Raises:
        InvalidParameter: when even the smallest scale tried (1e-12) costs more than the budget; on
            arguments outside their ranges.
        IncompatibleCosts: when the named bound does not take the charges, or is not valid for the
            interaction.

    >>> from dptopk.costs import PureDP
    >>> round(calibrate(lambda x: Charge({PureDP(x): 25}), Budget(2.07906, 1e-6)), 3)
    0.1
    """
    validate.positive(rtol=rtol)
    validate.instance(Budget, budget=budget)
    validate.member(EFFORTS, effort=effort)
    scaled = _ScaledCharge(make_charge, budget, interaction, rtol)
    largest = 0.0
    smallest_tried = math.inf
    with within(max_seconds):
        cheap = _cheap_bound(scaled.epsilon) if bound == "best" and start is None else None
        for stage in EFFORTS[: EFFORTS.index(effort) + 1]:
            scaled.effort = stage
            epsilon = scaled.epsilon_by(bound)
            if cheap:
                epsilon_by_cheap = scaled.epsilon_by(cheap)
                found = _largest_by_ratio(epsilon, epsilon_by_cheap, budget.epsilon, rtol, largest)
            else:
                first = largest or start or 1.0
                found = _largest_fitting(epsilon, budget.epsilon, first, rtol)
            largest = max(largest, found.largest)
            smallest_tried = min(smallest_tried, found.smallest_tried)
            # An answer without a note is as close as asked: more work changes nothing.
            if largest and not scaled.notes[largest]:
                break
    if not largest:
        raise InvalidParameter(
            f"budget {budget} is too small: at scale {smallest_tried:.3g} such a charge costs more"
        )
    return largest


@dataclass
class _ScaledCharge:
    """The ε of a charge as a function of its scale, as ``compose`` finds it.

    Attributes:
        make_charge: the charge of a scale.
        budget: its δ is that of every question.
        interaction: as for ``compose``.
        rtol: as for ``compose``.
        effort: of the next evaluations.
        notes: the note of the last answer at each scale that was asked for.
    """

    make_charge: MakeCharge
    budget: Budget
    interaction: Interaction
    rtol: float
    effort: Effort = "quick"
    notes: dict[float, str] = field(default_factory=dict)

    def epsilon(self, x: float, bound: str) -> float:
        """Return an upper bound on the ε of the charge of scale x, by the bound with this name, and
        keep the note of the answer.
        """
        answer = compose(
            self.make_charge(x),
            delta=self.budget.delta,
            interaction=self.interaction,
            bound=bound,
            rtol=self.rtol,
            effort=self.effort,
            lower=False,
        )
        self.notes[x] = answer.note
        return answer.epsilon

    def epsilon_by(self, bound: str) -> Callable[[float], float]:
        """Return ``epsilon`` as a function of the scale alone."""
        return lambda x: self.epsilon(x, bound)


class _FoundScale(NamedTuple):
    """What a search for the largest scale within a budget found.

    Attributes:
        largest: the largest scale that was seen to fit, 0 if none was.
        smallest_tried: the smallest scale that was tried.
    """

    largest: float
    smallest_tried: float


def _largest_by_ratio(
    epsilon: Callable[[float], float],
    cheap: Callable[[float], float],
    target: float,
    rtol: float,
    start: float,
) -> _FoundScale:
    """Search for the largest x with epsilon(x) <= target, with the help of a bound that costs
    little and is larger by nearly a constant factor.

    The x at which the cheap bound reaches the target times the ratio of both bounds, as last seen,
    is tried next: two or three steps suffice. Where MOST_RATIO_STEPS do not, ``epsilon`` itself is
    searched from there.

    Args:
        epsilon: ε by the best bound, as a function of x.
        cheap: ε by the cheap bound.
        target: the ε of the budget.
        rtol: as for ``calibrate``.
        start: an x to begin with, 0 if none is known.
    """
    x = start or 1.0
    low = 0.0
    high = math.inf
    smallest_tried = math.inf
    # The ratio of the cheap bound to the best one, which is near the target at a known ``start``.
    factor = cheap(start) / target if start else 1.0
    for _ in range(MOST_RATIO_STEPS):
        found = _largest_fitting(cheap, target * factor, x, rtol / FINER_FOR_CHEAP)
        x = found.largest
        smallest_tried = min(smallest_tried, found.smallest_tried)
        # Nothing fits, or x lies outside of the bracket, or time is over.
        if not x or not low < x < high or (low and late()):
            break
        value = epsilon(x)
        if value <= target:
            low = x
            if value >= target * (1 - rtol):
                return _FoundScale(low, smallest_tried)
        else:
            high = x
        if value > 0 and math.isfinite(value):
            # Half a tolerance below the target, so that what is found next fits.
            factor *= target / value * (1 - rtol / 2)
        else:  # the ratio is not known, and x may be far too large
            factor *= 0.5
    found = _largest_fitting(epsilon, target, low or x or 1.0, rtol)
    return _FoundScale(max(found.largest, low), min(smallest_tried, found.smallest_tried))


def _cheap_bound(epsilon: Callable[[float, str], float]) -> str | None:
    """Return the name of a bound that costs little, takes these charges, and is finite for a small
    one; None where there is none.

    Args:
        epsilon: maps a scale and the name of a bound to the ε of the charge of that scale.
    """
    for name in _CHEAP_BOUNDS:
        try:
            if math.isfinite(epsilon(FIRST_TRIED, name)):
                return name
        except IncompatibleCosts:
            continue
    return None


def _largest_fitting(
    epsilon: Callable[[float], float], target: float, start: float, rtol: float
) -> _FoundScale:
    """Search for the largest x with epsilon(x) <= target, by secant steps on logarithms inside a
    bracket.

    Args:
        epsilon: ε as a function of x, rising.
        target: the ε of the budget.
        start: the first x.
        rtol: as for ``calibrate``.
    """
    known = _ScaleBracket()
    x = start
    for step in range(MOST_STEPS):
        value = epsilon(x)
        if value <= target:
            known = replace(known, low=x, at_low=value)
            if value >= target * (1 - rtol):
                break
        else:
            known = replace(known, high=x, at_high=value)
        known_closely = known.high <= known.low * (1 + rtol / 10)
        out_of_range = known.high < SMALLEST_SCALE or known.low > LARGEST_SCALE
        if known_closely or out_of_range or (known.low and late()):
            break
        x = known.next_scale(target, step)
    return _FoundScale(known.low, min(x, known.high))


@dataclass(frozen=True)
class _ScaleBracket:
    """The scales between which the largest one that fits lies.

    Attributes:
        low: the largest x known to fit, or 0.
        at_low: ε there.
        high: the smallest x known not to fit, or inf.
        at_high: ε there.
    """

    low: float = 0.0
    at_low: float = math.nan
    high: float = math.inf
    at_high: float = math.nan

    def next_scale(self, target: float, step: int) -> float:
        """Return the scale x to try next: ε is interpolated or extrapolated as a power of x, to a
        point just below the target.

        Outside the bracket, the least stride doubles with every ``step``: beside costs that take
        nearly all of the budget, ε hardly depends on x. It begins at 5e-4 upwards and 1e-3
        downwards, below which a step would tell little; strides decide how many steps the search
        takes, not what fits.

        Args:
            target: the ε of the budget.
            step: the number of steps so far.
        """
        if self.low and self.high < math.inf:
            return self._inner_scale(target)
        if self.low:  # ε is close to linear in x when x is small, and grows faster later
            if self.at_low > 0:
                ratio = max(target / self.at_low, 1 + 5e-4 * 2.0**step)
                return self.low * min(ratio, LARGEST_STRIDE)
            return self.low * LARGEST_STRIDE
        ratio = min(target / self.at_high, 1 / (1 + 1e-3 * 2.0**step))
        return self.high * max(ratio, 1 / LARGEST_STRIDE)

    def _inner_scale(self, target: float) -> float:
        """Return a scale between both ends at which ε should be just below the target."""
        share = 0.5
        if self.at_low > 0 and math.isfinite(self.at_high):
            # A little to the left of where the target is met: the answer must fit.
            log_rise = math.log(self.at_high / self.at_low)
            share = (math.log(target) - math.log(self.at_low)) / log_rise - 1e-4
        # Away from the ends, which are known: else a poor guess hardly narrows the bracket.
        inner = min(max(share, 0.02), 0.98)
        return math.exp(math.log(self.low) + inner * math.log(self.high / self.low))


def queries_affordable(
    query: Charge | Cost | str | Iterable[Charge | Cost | str],
    budget: Budget,
    *,
    interaction: Interaction = "setwise",
    bound: str = "best",
    rtol: float = 1e-3,
    effort: Effort = "normal",
    max_seconds: float | None = None,
    most: int = 10**9,
) -> Affordable:
    """Return the number n of queries with one charge that a budget affords: n fit and n + 1 are not
    seen to, or n is ``most``.

    Both are checked: by a rough bracket on one side of the budget, or by bounds to about ``rtol``.

    Args:
        query: what one query costs: a Charge, a cost, its text, or a list of these.
        budget: the total (ε, δ).
        interaction: as for ``compose``.
        bound: as for ``compose``.
        rtol: the relative width of the brackets by which a number of queries is compared with the
            budget.
        effort: of each evaluation of ``compose``.
        max_seconds: a guard for the whole search: what was found by then is sound, but not
            reproducible.
        most: the largest number that is considered, at least 1.

    Returns:
        n, an int; its ``proven`` says whether no larger number fits, and its ``at_most`` up to
        which number the truth may lie.

    Raises:
        InvalidParameter: on an unknown bound name, an empty query, or arguments outside their
            ranges.
        IncompatibleCosts: when the named bound does not take the query's costs, or is not valid for
            the interaction.

    >>> from dptopk.costs import BoundedRange
    >>> queries_affordable(Charge({BoundedRange(0.1): 1}), Budget(1.0, 1e-6), bound="opt_kl")
    13
    """
    validate.instance(Budget, budget=budget)
    validate.member(EFFORTS, effort=effort)
    most = validate.count(most=most)
    query = charge_of(query)
    if not query:
        raise InvalidParameter("query must be a charge that is not empty")

    queries = _EqualQueries(query, budget.delta, interaction, effort)
    with within(max_seconds):
        start = 1
        cheap = None
        if bound == "best":
            cheap = _cheap_bound(lambda _, name: queries.bound(1, name, rtol).epsilon)
        if cheap:  # the count that a cheap bound affords is close, and costs little to find
            epsilon_by_cheap = queries.epsilon_by(cheap, rtol)
            guess = _largest_count(epsilon_by_cheap, budget, 1, most, close=CLOSE_GUESS)
            start = max(guess, 1)
        costs = _QueryCosts(queries, bound, budget.epsilon, rtol)
        affordable = _largest_count(costs.epsilon, budget, start, most)
        return Affordable(affordable, _largest_not_excluded(costs.lower, budget, affordable, most))


@dataclass(frozen=True)
class _EqualQueries:
    """Composes any number of queries of one charge.

    Attributes:
        query: the charge of one query.
        delta: δ of every question.
        interaction: as for ``compose``.
        effort: as for ``compose``.
    """

    query: Charge
    delta: float
    interaction: Interaction
    effort: Effort

    def bound(
        self, n: int, name: str, accuracy: float, *, rough: bool = False, lower: bool = False
    ) -> Bound:
        """Return the answer of a bound for n queries.

        Args:
            n: the number of queries.
            name: of the bound.
            accuracy: the relative width of its bracket.
            rough: whether it takes the work of a quick answer only.
            lower: whether a lower bound is wanted too.
        """
        if self.query.delta * n >= 1:  # the queries' own bad events leave no guarantee
            return Bound(math.inf, self.delta, math.inf, "none", "", ())
        return compose(
            self.query.times(n),
            delta=self.delta,
            interaction=self.interaction,
            bound=name,
            rtol=accuracy,
            effort="quick" if rough else self.effort,
            lower=lower,
        )

    def epsilon_by(self, name: str, accuracy: float) -> Callable[[int], float]:
        """Return the function that maps a number of queries to the ε of a bound."""
        return lambda n: self.bound(n, name, accuracy).epsilon


class Affordable(int):
    """A number of queries that is within a budget.

    Attributes:
        at_most: lower bounds prove that more than this many are not, up to the largest number that
            was considered; None where nothing is proven.
    """

    at_most: int | None

    def __new__(cls, n: int, at_most: int | None) -> Affordable:
        """Return the number n, with what is known of larger ones."""
        number = super().__new__(cls, n)
        number.at_most = at_most
        return number

    def __reduce__(self) -> tuple[type[Affordable], tuple[int, int | None]]:
        """Return what a copy is made from: pickle and copy would call ``__new__`` with n alone."""
        return Affordable, (int(self), self.at_most)

    @property
    def proven(self) -> bool:
        """Return whether no larger number is within the budget."""
        return self.at_most == self


def _largest_not_excluded(
    lower: Callable[[int], float | None], budget: Budget, affordable: int, most: int
) -> int | None:
    """Return an n for which it is proven that more than n queries, and at most ``most``, cost more
    than the budget; None where none is found.

    A lower bound above the budget proves it for its own number of queries and all larger ones.

    Args:
        lower: a lower bound on the ε of n queries, None where none is known.
        budget: the total (ε, δ).
        affordable: a number of queries that fits.
        most: the largest number that is considered.
    """
    n = affordable + 1
    for step in range(TRIED_BEYOND):
        if n > most or late():
            break
        at_n = lower(n)
        if at_n is None:
            return None
        if at_n > budget.epsilon:
            return n - 1
        # ε grows at least about as the root of n, and faster where it is large.
        if at_n:
            # A little beyond, and further each time: the bound must come to be above the budget.
            ratio = (budget.epsilon / at_n) ** 2
            n = max(n + 1, math.ceil(n * ratio * (1 + 1e-4 * 2**step)))
        else:  # a bound of 0 says nothing of where that is
            n = 16 * n
    if n > most:
        return most
    return None


class _QueryCosts:
    """The ε of n queries, computed only as exactly as needed to compare it with a budget.

    A rough bracket on one side of the budget settles the comparison. Once a rough bracket has
    contained the budget, all answers are accurate from then on: the n's that remain to be tried
    cost about the same.

    Args:
        queries: composes them.
        bound: as for ``queries_affordable``.
        budget_epsilon: the ε of the budget.
        rtol: as for ``queries_affordable``.
    """

    def __init__(
        self, queries: _EqualQueries, bound: str, budget_epsilon: float, rtol: float
    ) -> None:
        """Start with rough brackets where the best bound is asked for accurately."""
        self.queries = queries
        self.bound = bound
        self.budget_epsilon = budget_epsilon
        self.rtol = rtol
        self.rough = bound == "best" and rtol < COARSE_RTOL
        self.excluded: dict[int, float] = {}  # lower bounds on ε, above the budget, by n

    def epsilon(self, n: int) -> float:
        """Return about the ε of n queries: an accurate upper bound, or where a rough bracket
        settles the comparison an estimate of it on the same side of the budget.
        """
        if self.rough:
            answer = self.queries.bound(n, self.bound, COARSE_RTOL, rough=True, lower=True)
            # About what an accurate answer would be.
            if answer.lower is None:
                estimate = math.inf
            else:
                estimate = answer.lower * (1 + self.rtol)
            if answer.epsilon <= self.budget_epsilon:
                return min(answer.epsilon, estimate)
            if answer.lower is not None and answer.lower > self.budget_epsilon:
                self.excluded[n] = answer.lower
                return min(answer.epsilon, estimate)
            self.rough = False
        return self.queries.bound(n, self.bound, self.rtol).epsilon

    def lower(self, n: int) -> float | None:
        """Return a lower bound on the ε of n queries, None where none is known; it is accurate,
        unless a rough one above the budget was seen before.
        """
        if n in self.excluded:
            return self.excluded[n]
        return self.queries.bound(n, self.bound, self.rtol, lower=True).lower


def _size_of_epsilon(epsilon: float, delta: float) -> float:
    """Return a quantity that grows about as the number of queries whose ε at δ this is: μ² of the
    Gaussian with the same (ε, δ), or ε itself where δ is 0.
    """
    if delta:
        return gaussian_mu(epsilon=epsilon, delta=delta) ** 2
    return epsilon


class _TriedCount(NamedTuple):
    """A number of queries that was tried.

    Attributes:
        n: the number.
        size: of their ε, a quantity that grows about as n.
    """

    n: int
    size: float


def _guessed_count(tried: _TriedCount, before: _TriedCount | None, aim: float) -> int:
    """Return about the n whose size is ``aim``.

    The size grows about as n. Where the last two values say otherwise their exponent is taken, cut
    so that one poor pair of values cannot send the guess far off.

    Args:
        tried: the last number that was tried.
        before: the one before it; None: there is none.
        aim: the size that is looked for.
    """
    power = 1.0
    if before is not None and before.size != tried.size:
        power = math.log(tried.size / before.size) / math.log(tried.n / before.n)
        power = min(max(power, 0.5), 3.0)
    # The guess is at most a factor of 1000 away.
    ratio = min(max(aim / tried.size, 1e-3), 1e3)
    return math.floor(tried.n * ratio ** (1 / power))


def _largest_count(
    epsilon_of: Callable[[int], float], budget: Budget, start: int, most: int, *, close: float = 0.0
) -> int:
    """Return the n with epsilon_of(n) <= budget.epsilon < epsilon_of(n + 1), 0 where none fits, or
    ``most``; or one whose ε is below the budget's by a share of at most ``close``.

    No n is tried twice. The next one is guessed from what others cost: the μ² of the Gaussian with
    the same (ε, δ) grows about as n, or as the power of n that the last two show.

    Args:
        epsilon_of: ε of n queries, rising in n.
        budget: the total (ε, δ).
        start: the first n.
        most: the largest n that is considered.
        close: the share of the budget's ε by which that of the answer may be below it; 0 looks for
            the exact n.
    """
    low = 0
    high = most + 1
    n = min(start, most)
    aim = _size_of_epsilon(budget.epsilon, budget.delta)
    before: _TriedCount | None = None
    for step in range(MOST_COUNTS_TRIED):
        value = epsilon_of(n)
        if value <= budget.epsilon:
            low = n
        else:
            high = n
        if high - low <= 1 or budget.epsilon * (1 - close) <= value < budget.epsilon:
            break
        if 0 < value < math.inf:
            tried = _TriedCount(n, _size_of_epsilon(value, budget.delta))
            guess = _guessed_count(tried, before, aim)
            before = tried
        else:  # an ε of 0 or inf says nothing of how it grows
            guess = 16 * n if value == 0 else n // 2
        if step % 4 == 3 and high <= most:  # every fourth one bisects, should guesses be poor
            guess = (low + high) // 2
        n = min(max(guess, low + 1), high - 1)
    return low
