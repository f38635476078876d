"""Privacy curves: δ as a function of ε and back, as upper bounds, with a root finder that ends on
the safe side.

A bound (see ``bounds.py``) turns a charge into a Curve. Most curves know one direction as a formula
and find the other by ``smallest_where``; curves that come from a lattice or a recursion override
``answer`` and add a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk._internal import validate
from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import EPS, EXACT_SLACK, SLACK, Floats, exp_up
from dptopk._internal.search import bisect_each
from dptopk.accounting.work import Work

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from dptopk.costs import Charge

LARGEST_EPSILON = 500.0  # of a profile: e^ε and its products stay finite
SAMPLES = 201  # points of a trade-off curve that is plotted: steps of 0.005 are smooth to the eye
# Shares of a bracket: how far beside the root of its secant points are tried, and how far from its
# ends at least, because a point at an end would not narrow it. Any shares find the same root.
NUDGE = 1e-3
INSET = 1e-6
LARGEST_ROOT = 1e300  # an ε beyond which no root is looked for
ROOT_WIDTH = 1e-13  # of a bracket of ε, relative: some hundred units of roundoff
# Steps to a root: each tries the middle of its bracket, so that far fewer end at ROOT_WIDTH.
MOST_STEPS = 200
LARGEST_LOG_INVERSE_DELTA = 745.0  # e^-745 is the smallest float
SMALLEST_SURE_DELTA = 1e-300  # what is below may be a δ that underflowed and was moved up


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a bound: δ at ``epsilon`` if given, otherwise ε at ``delta``.

    Attributes:
        delta: the δ at which ε is asked for.
        epsilon: the ε at which δ is asked for, or None.
        rtol: the width of the bracket at which a refining bound may stop.
        work: counts what refinement may take.
        attained: the δ at which a lower bound on ε is asked for; None: ``delta``. The two differ
            where the charge has failure masses, which add up in an upper bound but are attained as
            those of independent events.
        lower: whether a lower bound is wanted.
        interaction: what the analyst may choose who is to attain the lower bound.
    """

    delta: float = 0.0
    epsilon: float | None = None
    rtol: float = 1e-3
    work: Work = field(default_factory=Work)
    attained: float | None = None
    lower: bool = True
    interaction: Interaction = "setwise"

    @property
    def delta_below(self) -> float:
        """Return the δ >= ``delta`` at which a lower bound on ε is asked for."""
        if self.attained is None:
            return self.delta
        return max(self.delta, self.attained)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a bound to a query.

    Attributes:
        value: an upper bound on what was asked.
        lower: a proven lower bound on the optimum, or None where none is known.
        note: what the reader should know; empty if the answer is as close as asked.
    """

    value: float
    lower: float | None = None
    note: str = ""


class Curve:
    """An upper bound on the privacy profile δ(ε) of a composition, vectorised, non-increasing
    in ε.
    """

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return an upper bound on δ for every ε >= 0 of an array of any shape."""
        x = np.asarray(epsilon, dtype=float)
        return self._deltas(x.ravel()).reshape(x.shape)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Return an upper bound on the smallest ε for every δ in [0, 1) of an array of any shape;
        inf where there is none.
        """
        d = np.asarray(delta, dtype=float)
        return self._epsilons(d.ravel()).reshape(d.shape)

    def answer(self, query: Query) -> Answer:
        """Return the answer to one query; curves with a lower bound or a refinement
        override this.
        """
        if query.epsilon is not None:
            return Answer(float(self.delta(query.epsilon)))
        return Answer(float(self.epsilon(query.delta)))

    def answers(self, query: Query, others: Sequence[Query]) -> list[Answer]:  # noqa: ARG002
        """Return the answers to several queries of the same charge.

        By default each is answered by itself. A curve whose answers take long evaluations makes
        those of ``query`` only, and answers all the others from them: as soundly, less closely.

        Args:
            query: one in the middle of them.
            others: the queries to answer.
        """
        return [self.answer(other) for other in others]

    # For one-dimensional arrays; a curve has these two, or ``answer``.

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ for a one-dimensional array, one answer after the other."""
        values = [self.answer(Query(epsilon=x)).value for x in epsilon.tolist()]
        return np.array(values, dtype=float)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε for a one-dimensional array, one answer after the other."""
        values = [self.answer(Query(delta=target)).value for target in delta.tolist()]
        return np.array(values, dtype=float)


@dataclass(frozen=True)
class DeferredCurve(Curve):
    """A curve that is costly to build, and is built when it is first asked.

    Attributes:
        build: makes the curve.
    """

    build: Callable[[], Curve]

    @cached_property
    def curve(self) -> Curve:
        """Return the curve itself, built when this is first called."""
        return self.build()

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ."""
        return self.curve.delta(epsilon)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        return self.curve.epsilon(delta)

    def answer(self, query: Query) -> Answer:
        """Return the answer of the curve itself."""
        return self.curve.answer(query)


@dataclass(frozen=True)
class DeltaCurve(Curve):
    """A curve whose ln δ is known as a function of ε, by a formula; ε at a δ is found by search.

    Args:
        log_delta: upper bound on ln δ, already rounded outward, for a one-dimensional array of ε >=
            0; non-increasing up to rounding.
        epsilon_max: an ε from which on δ = 0 (inf when there is none): the answer for δ = 0.
        exact: True when log_delta is the optimum over all mechanisms with these costs, at an ε
            moved by a relative ``EXACT_SLACK`` at most and to an absolute error far below that;
            then a lower bound is reported too.
    """

    log_delta: Callable[[Floats], Floats]
    epsilon_max: float = np.inf
    exact: bool = False

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ by the formula itself; a positive δ never underflows to 0."""
        log_values = np.where(epsilon >= self.epsilon_max, -np.inf, self.log_delta(epsilon))
        return exp_up(log_values)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε, by the root finder; for a δ of 0, ``epsilon_max``."""
        epsilons = np.full(delta.shape, self.epsilon_max)
        log_delta = np.log(delta[delta > 0])
        log_target = log_delta - SLACK * (1 + np.abs(log_delta))  # rounded down
        epsilons[delta > 0] = smallest_where(self.log_delta, log_target, self.epsilon_max)
        return epsilons

    def answer(self, query: Query) -> Answer:
        """Return the answer; when the curve is exact also a lower bound, by the same formula moved
        inward.
        """
        upper = Curve.answer(self, query)
        if not self.exact:
            return upper
        if query.epsilon is not None:
            # A little further right: near epsilon_max a rounding of ε moves δ by more than a
            # relative EXACT_SLACK.
            inner = float(self.delta(query.epsilon * (1 + EXACT_SLACK)))
            if not inner > SMALLEST_SURE_DELTA:  # a NaN proves nothing either
                inner = 0.0
            return Answer(upper.value, min(inner, upper.value) * (1 - 2 * EXACT_SLACK))
        inner = float(self.epsilon(min(query.delta_below * (1 + EXACT_SLACK), 1.0)))
        return Answer(upper.value, min(inner * (1 - EXACT_SLACK), upper.value))


@dataclass(frozen=True)
class EpsilonCurve(Curve):
    """A curve whose ε is known as a function of ln(1/δ), by a formula; δ at an ε is found by
    search.

    Args:
        epsilon_at: upper bound on ε, already rounded outward, for a one-dimensional array of
            ln(1/δ) > 0; non-decreasing up to rounding.
        epsilon_max: the answer for δ = 0 (inf when there is none).
    """

    epsilon_at: Callable[[Floats], Floats]
    epsilon_max: float = np.inf

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε by the formula itself."""
        answers = np.full(delta.shape, self.epsilon_max)
        positive = delta > 0
        log_inverse = -np.log(delta[positive]) * (1 + SLACK)
        answers[positive] = np.minimum(self._epsilon_at(log_inverse), self.epsilon_max)
        return answers

    def _epsilon_at(self, log_inverse_delta: Floats) -> Floats:
        """Return upper bounds on ε at ln(1/δ), at least 0; NaN becomes inf."""
        values = self.epsilon_at(log_inverse_delta)
        return np.where(np.isnan(values), np.inf, np.maximum(values, 0.0))

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ.

        They come from the largest ln(1/δ) whose ε is at most the one asked for: the end of a
        bisection at which that has been checked.
        """
        ends = np.full(epsilon.shape, LARGEST_LOG_INVERSE_DELTA)
        # 80 halvings of this range end below the rounding of its numbers.
        low, _ = bisect_each(lambda x: self._epsilon_at(x) <= epsilon, 0 * ends, ends, halvings=80)
        return exp_up(np.where(epsilon >= self.epsilon_max, -np.inf, -low * (1 - SLACK)))


@dataclass(frozen=True)
class _RootBrackets:
    """For each target an interval in which a falling function has its root, with the function's
    values.

    Attributes:
        low: shape (n,), the left ends.
        at_low: the values there.
        high: the right ends.
        at_high: the values there.
    """

    low: Floats
    at_low: Floats
    high: Floats
    at_high: Floats

    def with_larger_ends(
        self, excess: Callable[[Floats], Floats], grow: NDArray[np.bool_], largest: float
    ) -> _RootBrackets:
        """Return the intervals; those selected by ``grow`` begin at their old end, and end at four
        times it or at ``largest``.

        Args:
            excess: the function, for one point an interval.
            grow: shape (n,), which intervals have no root yet.
            largest: the largest end that is tried.
        """
        high = np.where(grow, np.minimum(self.high * 4, largest), self.high)
        return _RootBrackets(
            low=np.where(grow, self.high, self.low),
            at_low=np.where(grow, self.at_high, self.at_low),
            high=high,
            at_high=excess(high),
        )

    def probes(self) -> Floats:
        """Return three points in every interval, shape (3, n): one a little before the secant's
        root and one a little after it, between which the root usually is, and the middle.
        """
        width = self.high - self.low
        middle = self.low + width / 2
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            secant = self.low + width * (self.at_low / (self.at_low - self.at_high))
        in_bracket = np.isfinite(secant) & (secant > self.low) & (secant < self.high)
        centre = np.where(in_bracket, secant, middle)
        around = np.stack([centre - width * NUDGE, centre + width * NUDGE, middle])
        return np.clip(around, self.low + width * INSET, self.high - width * INSET)

    def cut_at(
        self, points: Floats, at_points: Floats, unfinished: NDArray[np.bool_]
    ) -> _RootBrackets:
        """Return the intervals with the unfinished ones cut at points inside, one after the other,
        so that the values at ``high`` stay <= 0.

        Args:
            points: shape (points, n).
            at_points: the values there.
            unfinished: which intervals are cut.
        """
        brackets = self
        for point, value in zip(points, at_points, strict=True):
            is_cut = unfinished & (brackets.low < point) & (point < brackets.high)
            move_high = is_cut & (value <= 0)
            move_low = is_cut & ~move_high
            brackets = _RootBrackets(
                low=np.where(move_low, point, brackets.low),
                at_low=np.where(move_low, value, brackets.at_low),
                high=np.where(move_high, point, brackets.high),
                at_high=np.where(move_high, value, brackets.at_high),
            )
        return brackets


def _log_excess(
    log_delta: Callable[[Floats], Floats], log_target: Floats, epsilon_max: float, x: Floats
) -> Floats:
    """Return by how much ln δ is above its target at each ε, shape of ``x``; a NaN counts as far
    above.

    Args:
        log_delta: as for ``smallest_where``.
        log_target: shape (n,), logarithms of δ's.
        epsilon_max: an ε from which on δ = 0.
        x: the ε's, shape (n,) or (points, n).
    """
    target_is_0 = log_target == -np.inf  # only a δ of 0 is not above it
    values = log_delta(x.ravel()).reshape(x.shape) - np.where(target_is_0, 0.0, log_target)
    values = np.where(target_is_0 & (values > -np.inf), np.inf, values)
    values = np.where(x >= epsilon_max, -np.inf, values)
    return np.where(np.isnan(values), np.inf, values)


def smallest_where(
    log_delta: Callable[[Floats], Floats], log_target: Floats, epsilon_max: float
) -> Floats:
    """Return the smallest ε found with log_delta(ε) <= log_target, for each target, to a relative
    1e-13.

    A bracket [low, high] is cut around the root of its secant and in its middle; ``high`` has
    always been evaluated and found to satisfy the inequality: what is returned is checked, not
    extrapolated. It is inf where there is no such ε below 1e300.

    Args:
        log_delta: ln δ, falling in ε, for a one-dimensional array.
        log_target: shape (n,), logarithms of δ's.
        epsilon_max: an ε from which on δ = 0.
    """
    target = np.asarray(log_target, dtype=float)
    excess = partial(_log_excess, log_delta, target, epsilon_max)
    low = np.zeros(target.shape)
    high = np.full(target.shape, min(1.0, epsilon_max))
    brackets = _RootBrackets(low, excess(low), high, excess(high))
    grow = (brackets.at_high > 0) & (brackets.high < LARGEST_ROOT)
    while grow.any():
        brackets = brackets.with_larger_ends(excess, grow, epsilon_max)
        grow = (brackets.at_high > 0) & (brackets.high < LARGEST_ROOT)
    # A bracket that grew begins at an end where the inequality did not hold: these begin at ε = 0.
    holds_at_0 = brackets.at_low <= 0
    impossible = brackets.at_high > 0
    for _ in range(MOST_STEPS):
        wide = brackets.high - brackets.low > ROOT_WIDTH * brackets.high
        unfinished = ~holds_at_0 & ~impossible & wide
        if not unfinished.any():
            break
        points = brackets.probes()
        brackets = brackets.cut_at(points, excess(points), unfinished)
    return np.where(impossible, np.inf, np.where(holds_at_0, 0.0, brackets.high))


@dataclass(frozen=True)
class Profile:
    """Bounds on the privacy profile of a charge.

    Attributes:
        charge: the costs.
        epsilons: shape (n,), as asked, or upper bounds on ε at ``deltas``.
        deltas: shape (n,), upper bounds on δ at ``epsilons``, or as asked.
        lower: shape (n,), proven lower bounds on what was computed; NaN where none is known.
        computed: "delta" or "epsilon".
        interaction: the interaction model.
    """

    charge: Charge
    epsilons: Floats
    deltas: Floats
    lower: Floats
    computed: Literal["delta", "epsilon"]
    interaction: Interaction

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.epsilons)

    def to_pandas(self) -> pd.DataFrame:
        """Return the points as a data frame with the columns epsilon, delta, and lower: the lower
        bound on the one that was computed.
        """
        import pandas as pd

        return pd.DataFrame({"epsilon": self.epsilons, "delta": self.deltas, "lower": self.lower})

    def tradeoff(self, alpha: ArrayLike) -> Floats:
        """Return a lower bound on the least type II error of a test at type I errors ``alpha`` in
        [0, 1].

        It is max(0, 1 - δ - e^ε α, e^{-ε} (1 - δ - α)) over all points (Dong-Roth-Su 2022,
        Proposition 2.12).
        """
        errors = np.asarray(alpha, dtype=float)[..., None]
        finite = np.isfinite(self.epsilons)
        # Both lines cancel where they meet 0. At most five roundings, of at most EPS of 1 - δ or
        # of e^ε α each, are before the maximum: 1 - δ is lowered and e^ε raised by as much.
        one_minus_delta = (1 - self.deltas[finite]) * (1 - 4 * EPS)
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.exp(self.epsilons[finite]) * (1 + 4 * EPS)
            lost = np.where(errors > 0, factor * errors, 0.0)  # e^ε may be inf
        steep = one_minus_delta - lost
        flat = (one_minus_delta - errors) / factor
        values: Floats = np.maximum(np.maximum(steep, flat), 0.0).max(axis=-1, initial=0.0)
        return values

    def plot(
        self, axes: Axes | None = None, *, kind: Literal["profile", "tradeoff"] = "profile"
    ) -> Axes:
        """Plot δ over ε with the lower ends, or the trade-off curve; needs matplotlib.

        Args:
            axes: matplotlib axes to draw on; None: new ones.
            kind: "profile" or "tradeoff".

        Returns:
            The axes.

        Raises:
            InvalidParameter: for another kind.
        """
        import matplotlib.pyplot as plt

        validate.member(("profile", "tradeoff"), kind=kind)
        if axes is None:
            _, axes = plt.subplots()
        if kind == "tradeoff":
            self._plot_tradeoff(axes)
        else:
            self._plot_profile(axes)
        axes.legend()
        return axes

    def _plot_tradeoff(self, axes: Axes) -> None:
        """Plot the least type II error over the type I error."""
        alpha = np.linspace(0.0, 1.0, SAMPLES)
        axes.plot(alpha, 1 - alpha, linestyle=":", color="gray", label="no information")
        axes.plot(alpha, self.tradeoff(alpha), label="least type II error, at least")
        axes.set_xlabel("type I error")
        axes.set_ylabel("type II error")

    def _plot_profile(self, axes: Axes) -> None:
        """Plot δ over ε, with the lower ends where they are known."""
        axes.plot(self.epsilons, self.deltas, label="upper bound")
        known = np.isfinite(self.lower)
        if self.computed == "delta":
            axes.plot(self.epsilons[known], self.lower[known], ls="--", label="lower bound")
        else:
            axes.plot(self.lower[known], self.deltas[known], ls="--", label="lower bound")
        axes.set_yscale("log")
        axes.set_xlabel("ε")
        axes.set_ylabel("δ")
