"""Composition of discrete Gaussian mechanisms: the law of the sum of the noises, on its lattice.

The loss of one mechanism with noise x ~ N_Z(0, s²) moved by a is a (a - 2x) / (2s²); so the loss of
k of them depends on the noises through their sum z only, a (ka - 2z) / (2s²), and the composition
is a lattice law with the masses of the k-fold convolution. Three ways to those masses, each with a
proven error:

*Closed form.* Convolve a law proportional to e^{-z²/(2js²)} with one more N_Z(0, s²): completing
the square leaves Σ_x e^{-(x-c)²/(2v)} with v = s² j/(j+1), which by Poisson summation is sqrt(2πv)
(1 + η) with
|η| <= 2 Σ_{n>=1} e^{-2π² v n²}, whatever c is. So after k - 1 convolutions the law is N_Z(0,
ks²) up to a factor
within ∏ (1 ± η_j), twice because of the normalisation.

*Convolution.* Where s is so small that these factors matter: direct convolution of exactly rounded
masses.

*Continuous form.* Where the lattice has too many points to list: δ(ε) = Σ f(z) over lattice points
beyond the point y0 where the loss is ε, with f = q - e^ε q_A a difference of two Gaussian
densities. f(y0) = 0, so by Euler-Maclaurin the sum is ∫f - B_2(θ) f'(y0) / 2 with an error of at
most max|B_3|/6 times the total variation of f''.

The proofs are in docs/notes/discrete-gaussian.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats
from dptopk._internal.search import bisect, bracket
from dptopk.accounting.curves import Answer, Curve, DeferredCurve, DeltaCurve, Query, smallest_where
from dptopk.accounting.gaussian.pair import gaussian_log_delta, gaussian_mu
from dptopk.accounting.pld.laws import LEAST_MASS, IntegerLaw, convolution_power
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.errors import InvalidParameter

# Up to this error in ln mass the closed form replaces the convolution.
_CLOSED_FORM_ERROR = 1e-11
# A law is listed up to this many standard deviations on either side: Q(38) < 3e-316.
_WIDTH = 38.0
_TAIL = 1e-313
# Largest standard deviations, in lattice steps, that are listed and that are convolved.
LISTED = 30_000.0
_CONVOLVED = 300.0
_EXPLICIT = 64  # factors of the closed form whose errors are summed one by one; later ones are less
_LARGEST_CONTINUOUS_ERROR = 1e-3  # in ln mass, of a law that is bounded without being listed
_LARGEST_MU = 1e100  # of the product's pair: squares of it are no overflow
# Above this μ the rounding allowance of the continuous pair is no longer small.
_LARGEST_MU_FROM_BELOW = 1000
# Of sums of logarithms of at most a few hundred, and of ln δ of the continuous pair from below.
_LOG_SUM_ERROR = 1e-13
_PAIR_ERROR_BELOW = 1e-10
_SUM_ERROR = 1e-12  # relative, of a sum of positive terms, far above its rounding
_EXPONENT_ERROR = 1e-15  # relative, above the roundings of an exponent
_ROOT_ERROR = 1e-12  # relative, of an ε that was found from below


@dataclass(frozen=True, slots=True)
class LatticeLaw:
    """The loss law of a composition, on a lattice.

    Attributes:
        losses: ascending.
        log_masses: the logarithm of each probability under P.
        log_error: a bound on the error of each logarithm.
        tail: at most the mass that is left out.
    """

    losses: Floats
    log_masses: Floats
    log_error: Floats
    tail: float


def closed_form_error(scale: float, count: int) -> float:
    """Return a bound on the distance of the logarithms of the k-fold convolution of N_Z(0, s²) and
    of a Gaussian on the lattice.

    That Gaussian is e^{-z²/2ks²} / sqrt(2πk s²), whose normalisation is wrong by one more factor 1
    + η.

    Args:
        scale: s.
        count: k.
    """
    explicit = np.arange(1, min(count, _EXPLICIT))
    errors = _poisson_error(scale * scale * explicit / (explicit + 1))
    total = math.fsum(-np.log1p(-errors))
    if count > _EXPLICIT:  # η_j falls with j
        share = (_EXPLICIT - 1) / _EXPLICIT
        last = float(_poisson_error(np.array([scale * scale * share]))[0])
        total -= (count - _EXPLICIT) * math.log1p(-last)
    of_sum = float(_poisson_error(np.array([scale * scale * count]))[0])
    return 2 * total * (1 + _SUM_ERROR) + of_sum


def _poisson_error(v: Floats) -> Floats:
    """Return an upper bound on |η| of the module docstring, 2 Σ_{n>=1} e^{-2π² v n²}, for each v;
    by a geometric series, and at most 1 - 1e-9 (where it says nothing).
    """
    with np.errstate(under="ignore"):
        first = np.exp(-2 * math.pi**2 * v * (1 - _EXPONENT_ERROR))
    # Of neighbouring terms the quotient is at most that of the first two, first³; 1 cannot divide.
    return np.minimum(2 * first / np.maximum(1 - first**3, 1e-300), 1 - 1e-9)


def lattice_law(scale: float, shift: int, count: int) -> LatticeLaw:
    """Return the loss law of ``count`` discrete Gaussians of one scale and shift.

    Args:
        scale: of each noise.
        shift: the integer by which each is moved.
        count: how many there are.

    Raises:
        InvalidParameter: when scale * sqrt(count) is so large that the law has too many points to
            list.
    """
    width = scale * math.sqrt(count)
    if width > LISTED:
        raise InvalidParameter(
            f"scale * sqrt(count) must be at most {LISTED} to list the law, got {width}"
        )
    error = closed_form_error(scale, count)
    if error <= _CLOSED_FORM_ERROR:
        noise = _sum_by_closed_form(width, error)
    else:
        noise = _sum_by_convolution(scale, count)
    # The loss falls with the noise: both are reversed.
    losses = shift * (count * shift - 2 * noise.points[::-1]) / (2 * scale * scale)
    return LatticeLaw(losses, noise.log_masses[::-1], noise.log_error[::-1], noise.tail)


@dataclass(frozen=True, slots=True)
class _NoiseSum:
    """The law of a sum of noises.

    Attributes:
        points: the integers that are listed, rising, as floats.
        log_masses: the logarithm of the probability of each.
        log_error: a bound on the error of each logarithm.
        tail: at most the mass of all other integers.
    """

    points: Floats
    log_masses: Floats
    log_error: Floats
    tail: float


def _sum_by_closed_form(width: float, error: float) -> _NoiseSum:
    """Return the law of a sum of noises as that of one Gaussian on the integers.

    Args:
        width: the standard deviation of the sum.
        error: a bound on the error of the logarithms by ``closed_form_error``.
    """
    z = np.arange(-math.ceil(_WIDTH * width), math.ceil(_WIDTH * width) + 1, dtype=float)
    log_masses = -((z / width) ** 2) / 2 - math.log(width) - 0.5 * math.log(2 * math.pi)
    # Six operations, on numbers no larger than the logarithm of the mass, about.
    log_error = error + EPS * (6 * np.abs(log_masses) + 4)
    return _NoiseSum(z, log_masses, log_error, _TAIL)


def _sum_by_convolution(scale: float, count: int) -> _NoiseSum:
    """Return the law of a sum of noises by convolution, with repeated squaring.

    Args:
        scale: of each noise.
        count: the number of noises.

    Raises:
        InvalidParameter: for a sum that is too wide to convolve.
    """
    if scale * math.sqrt(count) > _CONVOLVED:
        raise InvalidParameter(
            f"scale * sqrt(count) must be at most {_CONVOLVED} to convolve so small a scale"
        )
    total = convolution_power(_exact_masses(scale), count)
    log_masses = np.log(total.masses)  # a symmetric law that falls on either side: no 0 inside
    log_error = total.error + 2 * EPS * (1 - log_masses)
    return _NoiseSum(total.places(), log_masses, log_error, total.lost)


def _exact_masses(scale: float) -> IntegerLaw:
    """Return the law N_Z(0, s²), s = ``scale``, with masses that are correct to an ulp."""
    with localcontext() as context:
        context.prec = 50  # digits, three times those of a float
        twice_variance = 2 * Decimal(scale) * Decimal(scale)
        half = int(_WIDTH * scale) + 2
        weights = [(-Decimal(x * x) / twice_variance).exp() for x in range(half + 1)]
        total = weights[0] + 2 * sum(weights[1:])
        masses = np.array([float(weight / total) for weight in weights])
    masses = masses[masses >= LEAST_MASS]
    # Left out on each side: fewer than ``half`` + 1 masses below LEAST_MASS, and all beyond
    # ``half``, which are less than 1e-312 together (_WIDTH).
    symmetric_masses = np.concatenate([masses[:0:-1], masses])
    return IntegerLaw(symmetric_masses, 1 - len(masses), EPS, 2.1 * LEAST_MASS * (half + 1))


def discrete_gaussian_curve(
    scale: float, shift: int, count: int, *, listed: float = LISTED
) -> Curve:
    """Return the privacy curve of ``count`` discrete Gaussians of one scale and shift; exact, with
    a lower bound.

    Args:
        scale: s > 0 in exp(-x²/2s²).
        shift: the largest move, an integer >= 1.
        count: number of mechanisms, >= 1.
        listed: the largest standard deviation whose law is listed point by point; a wider one is
            bounded.

    Returns:
        The curve; where the law is listed, it is listed when the curve is first asked.

    Raises:
        InvalidParameter: when scale is below about 1.6 and scale * sqrt(count) above 300, or when
            shift * sqrt(count) / scale is above 1e100.
    """
    width = scale * math.sqrt(count)
    if shift * math.sqrt(count) / scale > _LARGEST_MU:
        raise InvalidParameter("scale is too small for so large a shift")
    if width <= listed:
        if width > _CONVOLVED and closed_form_error(scale, count) > _CLOSED_FORM_ERROR:
            raise InvalidParameter(
                f"scale must be at least 1.6 for {count} mechanisms, got {scale}"
            )
        return DeferredCurve(lambda: listed_curve(lattice_law(scale, shift, count)))
    extra = closed_form_error(scale, count)
    if extra > _LARGEST_CONTINUOUS_ERROR:
        raise InvalidParameter(f"scale is too small for {count} mechanisms, got {scale}")
    return _ContinuousCurve(width, shift * math.sqrt(count) / scale, extra)


def listed_curve(law: LatticeLaw) -> LossCurve:
    """Return the exact privacy curve of a law, upper and lower."""
    # A loss takes five operations, each of which rounds by EPS of the largest one at most.
    loss_error = 8 * EPS * float(np.abs(law.losses).max())
    return LossCurve(
        law.losses,
        law.log_masses,
        log_error=law.log_error,
        loss_error=loss_error,
        tail=law.tail,
        epsilon_max=math.inf,
        exact=True,
    )


@dataclass(frozen=True)
class _ContinuousCurve(Curve):
    """δ of N_Z(0, width²) against itself moved by mu * width: the δ of continuous Gaussians with a
    correction.

    Attributes:
        width: the standard deviation in lattice steps.
        mu: the move in standard deviations.
        log_error: a bound on the error of the logarithms of the lattice masses.
    """

    width: float
    mu: float
    log_error: float

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ."""
        return DeltaCurve(self.log_upper).delta(epsilon)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        return DeltaCurve(self.log_upper).epsilon(delta)

    def answer(self, query: Query) -> Answer:
        """Return the upper bound on the answer and, where the correction allows one, the lower
        bound.
        """
        upper = Curve.answer(self, query)
        if self.mu > _LARGEST_MU_FROM_BELOW:
            return upper
        if query.epsilon is not None:
            log_lower = float(self.log_lower(np.array([query.epsilon]))[0])
            return Answer(upper.value, math.exp(log_lower))
        if query.delta_below <= 0:  # δ is 0 at no ε: inf is the answer itself
            return Answer(upper.value, upper.value)
        # ln δ, rounded up: at a larger δ the ε that is found is smaller.
        log_delta = math.log(query.delta_below)
        target = np.array([log_delta * (1 - _LOG_SUM_ERROR) + _LOG_SUM_ERROR])
        inner = float(smallest_where(self.log_lower, target, np.inf)[0])
        return Answer(upper.value, min(inner * (1 - _ROOT_ERROR), upper.value))

    def log_upper(self, epsilon: Floats) -> Floats:
        """Return an upper bound on ln δ at each ε."""
        log_slope, log_variation = self._log_corrections(epsilon)
        # μ was computed by a root, a product and a quotient.
        log_continuous = gaussian_log_delta(self.mu * (1 + 2 * EPS), epsilon=epsilon)
        # -B_2(θ)/2 is at most 1/24 and at least -1/12, times f'(y0) > 0.
        with_slope = np.logaddexp(log_continuous, log_slope + math.log(1 / 24))
        log_delta = np.logaddexp(with_slope, log_variation) + self.log_error + _LOG_SUM_ERROR
        return np.minimum(log_delta, 0.0)

    def log_lower(self, epsilon: Floats) -> Floats:
        """Return a lower bound on ln δ at each ε."""
        log_slope, log_variation = self._log_corrections(epsilon)
        # μ is moved down by more than its rounding.
        rounded_up = gaussian_log_delta(self.mu * (1 - 4 * EPS), epsilon=epsilon)
        log_continuous = rounded_up - _PAIR_ERROR_BELOW
        # -B_2(θ)/2 is at least -1/12; the share of δ that both corrections can take off.
        log_share = np.logaddexp(log_slope + math.log(1 / 12), log_variation) - log_continuous
        share = np.exp(np.minimum(log_share, 0.0))
        with np.errstate(divide="ignore"):
            return log_continuous + np.log1p(-share) - self.log_error - _LOG_SUM_ERROR

    def _log_corrections(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """Return the logarithms of the two corrections of the continuous form (module docstring),
        at each ε: of f'(y0), and of max|B_3|/6 times the total variation of f'' from y0 on.

        The variation of the second derivative φ'' from a on is at most φ(a+) (a+² + 3.8), a+ =
        max(a, 0); that of the moved density the same at b = a + mu >= 0, weighted so that the two
        densities agree at y0.
        """
        with np.errstate(over="ignore"):
            ratio = np.minimum(epsilon / self.mu, 1e100)  # as in gaussian_log_delta
        a = ratio - self.mu / 2
        b = ratio + self.mu / 2
        log_phi = -a * a / 2 - 0.5 * math.log(2 * math.pi)
        right = np.maximum(a, 0.0)
        log_right = -right * right / 2 - 0.5 * math.log(2 * math.pi)
        # On the whole line φ'' varies by 2 (1 + 4 e^{-3/2}) φ(0) < 3.8 φ(0).
        log_after = log_phi + np.log(b * b + 3.8)
        log_variation = np.logaddexp(log_right + np.log(right * right + 3.8), log_after)
        log_slope = log_phi + math.log(self.mu) - 2 * math.log(self.width)
        # |B_3|/3! is at most √3/216 < 0.0081.
        log_remainder = log_variation + math.log(0.0081) - 3 * math.log(self.width)
        return log_slope, log_remainder


def discrete_gaussian_delta(
    scale: float, shift: int = 1, count: int = 1, *, epsilon: ArrayLike
) -> Floats:
    """Return δ(ε) of ``count`` discrete Gaussian mechanisms; exact to its stated error and rounded
    up.

    Args:
        scale: s > 0, absolute.
        shift: the largest move of one value, an integer >= 1.
        count: number of mechanisms, >= 1.
        epsilon: >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a scale too small for the shift or
            the count.

    >>> float(discrete_gaussian_delta(2.0, epsilon=1.0).round(6))
    0.007249
    """
    return _validated_curve(scale, shift, count).delta(validate.nonnegatives(epsilon=epsilon))


def discrete_gaussian_epsilon(
    scale: float, shift: int = 1, count: int = 1, *, delta: ArrayLike
) -> Floats:
    """Return the smallest ε for ``count`` discrete Gaussian mechanisms; exact to its stated error
    and rounded up.

    Args:
        scale: s > 0, absolute.
        shift: the largest move of one value, an integer >= 1.
        count: number of mechanisms, >= 1.
        delta: in [0, 1), any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a scale too small for the shift or
            the count.
    """
    return _validated_curve(scale, shift, count).epsilon(validate.probabilities(delta=delta))


def discrete_gaussian_scale(
    *, epsilon: float, delta: float, shift: int = 1, count: int = 1
) -> float:
    """Return the smallest scale found for which ``count`` discrete Gaussians are (ε, δ)-DP
    together; checked, rounded up.

    Args:
        epsilon: >= 0.
        delta: in (0, 1).
        shift: the largest move of one value, an integer >= 1.
        count: number of mechanisms, >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges, or when the scale would have to be
            below about 1.6 for thousands of mechanisms.

    >>> round(discrete_gaussian_scale(epsilon=2.07906, delta=1e-6, count=25), 4)
    10.7646
    """
    shift = validate.count(shift=shift)
    count = validate.count(count=count)
    continuous = shift * math.sqrt(count) / gaussian_mu(epsilon=epsilon, delta=delta)

    def too_small(scale: float) -> bool:
        """Return whether this scale does not give (ε, δ)-DP, or is not seen to (NaN)."""
        return not discrete_gaussian_curve(scale, shift, count).delta(epsilon) <= delta

    # The discrete scale is close to that of continuous noise, from which the search goes out. The
    # answer is a ``high``, which was tried; a ``low`` of 1e-3 of the start or less need not be. 30
    # halvings of a factor of 1.01 leave a relative 1e-11.
    low, high = bracket(too_small, continuous, 1.01, least=1e-3 * continuous)
    _, large_enough = bisect(too_small, low, high, halvings=30, geometric=True)
    return large_enough


def _validated_curve(scale: float, shift: int, count: int) -> Curve:
    """Return the curve of validated parameters.

    Args:
        scale: s > 0, absolute.
        shift: the largest move of one value, an integer >= 1.
        count: number of mechanisms, >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges, and as ``discrete_gaussian_curve``.
    """
    return discrete_gaussian_curve(
        validate.positive(scale=scale), validate.count(shift=shift), validate.count(count=count)
    )
