"""The optimal factorisation of running sums, computed in floating point: a candidate that
``factorise`` rounds and charges exactly.

W are the weights of the days in the measurements, A is the lower triangle of ones, whose rows sum
the days up to each day, and A W⁻¹ are the weights of the measurements in the totals. Measurements
with noise of variance 1 give the total of day t the variance (A X⁻¹ Aᵀ)_tt with X = WᵀW. The
program minimises over X the largest or the mean of these, subject to the condition that a user's
squared shifts of the measurements sum to at most 1.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array

# Up to these numbers of days the optimum takes seconds: by eigendecompositions where a user is
# active on one day, by a semidefinite program where on several.
MOST_DAYS_OF_ONE = 1000
MOST_DAYS_OF_SEVERAL = 60
# The fixed point is iterated on this many days first, this often; after each doubling less often.
_COARSEST = 32
_FIRST_ITERATIONS = 100
_FURTHER_ITERATIONS = 6
_SMALLEST_SQUARE = 1e-300  # of a singular value, so that none of them is 0
_RIDGE = 1e-9  # of the mean of the diagonal: makes a matrix positive definite in spite of rounding
# The accuracy and the iterations of the solver; any solution is charged exactly.
_PROGRAM_ACCURACY = 1e-4
_PROGRAM_ITERATIONS = 4000


def is_computable(participation: Participation) -> bool:
    """Return whether ``optimal_strategy`` is offered: where it takes seconds at most."""
    if participation.most == 1:
        return participation.days <= MOST_DAYS_OF_ONE
    return participation.days <= MOST_DAYS_OF_SEVERAL


def optimal_strategy(participation: Participation, error: Error, error_nearby: float) -> Array:
    """Return a strategy W close to the optimum, lower triangular, float64, shape (days, days): the
    weights of the days in the measurements, of which row t is made on day t.

    Args:
        participation: on which days one user may be active.
        error: "max" or "mean", the error to minimise.
        error_nearby: the error of a strategy that is not far from the optimum, by which the
            program for users of several days is scaled.

    Raises:
        InvalidParameter: for more days than can be handled within seconds.
    """
    if not is_computable(participation):
        raise InvalidParameter(
            f"factorisation='optimal' is for {MOST_DAYS_OF_ONE} days at most, "
            f"{MOST_DAYS_OF_SEVERAL} where users have several"
        )
    if participation.most == 1:
        gram = _gram_by_fixed_point(participation, error)
    else:
        gram = _gram_by_program(participation, error, error_nearby)
    days = len(gram)
    gram = gram + _RIDGE * np.trace(gram) / days * np.eye(days)
    # Cholesky factors of the days in reverse order give a factor that is triangular in their order.
    reverse: Array = np.linalg.cholesky(gram[::-1, ::-1])
    return reverse[::-1, ::-1].T


def _gram_by_fixed_point(participation: Participation, error: Error) -> Array:
    """Return X = WᵀW, close to the optimum, for users who are active on one day: its diagonal, a
    user's squared shifts, is 1.

    By duality the least error is the maximum of the nuclear norm (the sum of the singular values)
    of D_p^½ A D_v^½ over probability vectors p, v of days, D_p and D_v the diagonal matrices of
    these; for the mean error p is uniform. With the singular value decomposition U S Vᵀ of that
    matrix, p and v are at the maximum the diagonals of U S Uᵀ and V S Vᵀ divided by tr S, and X =
    D_v^-½ V S Vᵀ D_v^-½ (for the mean: Denisov et al. 2022). This fixed point is iterated for few
    days first; then the number of days is doubled, p and v are interpolated, and iterated a few
    times more.

    Args:
        participation: the number of days, with ``most`` = 1.
        error: "max" or "mean", the error to minimise.
    """
    size = min(participation.days, _COARSEST)
    p = np.full(size, 1 / size)
    v = p
    V = S = np.empty(0)  # for the type checker: set in every iteration
    doublings = (participation.days - 1).bit_length()  # enough to come to all days
    for iterations in [_FIRST_ITERATIONS] + [_FURTHER_ITERATIONS] * doublings:
        p = _interpolated_law(p, size)
        v = _interpolated_law(v, size)
        for _ in range(iterations):
            # The matrix D_p^½ A D_v^½ = U S Vᵀ, and its V and S from its product with its
            # transpose, V S² Vᵀ; S is kept as a vector.
            matrix = np.sqrt(p)[:, None] * np.tri(size) * np.sqrt(v)
            squares, V = np.linalg.eigh(matrix.T @ matrix)
            S = np.sqrt(np.maximum(squares, _SMALLEST_SQUARE))
            v_of_decomposition = v
            v = V**2 @ S / S.sum()
            if error == "max":
                p = (matrix @ V) ** 2 @ (1 / S) / S.sum()  # U = matrix V S⁻¹
        if size == participation.days:
            break
        size = min(2 * size, participation.days)
    return _with_unit_diagonal((V * S) @ V.T, v_of_decomposition)


def _with_unit_diagonal(product: Array, v: Array) -> Array:
    """Return D_v^-½ V S Vᵀ D_v^-½, scaled from both sides to a diagonal of 1.

    Args:
        product: V S Vᵀ, shape (days, days).
        v: the diagonal of D_v, shape (days,).
    """
    gram = product / np.sqrt(np.outer(v, v))
    diagonal = np.diag(gram)
    normalised: Array = gram / np.sqrt(np.outer(diagonal, diagonal))
    return normalised


def _interpolated_law(law: Array, size: int) -> Array:
    """Return a probability vector for ``size`` days that interpolates one for as many days
    or fewer, in logarithms.

    Args:
        law: the probabilities, all positive, shape (days before,).
        size: the number of days.
    """
    old = (np.arange(len(law)) + 0.5) / len(law)
    new = (np.arange(size) + 0.5) / size
    wide = np.exp(np.interp(new, old, np.log(law)))
    return wide / wide.sum()


def _gram_by_program(participation: Participation, error: Error, error_nearby: float) -> Array:
    """Return X = WᵀW, close to the optimum but for a factor, for users who are active on several
    days, by a semidefinite program as in Choquette-Choo et al. 2023.

    The condition ``Participation.energy`` <= 1 is convex in X: the matrix Ĝ above X, which falls
    with the first day and with the distance, is a variable ``above``, on the days on which it is
    summed.

    Args:
        participation: on which days one user may be active; more than one.
        error: "max" or "mean", the error to minimise.
        error_nearby: the error of a strategy that is not far from the optimum; it scales the
            program.
    """
    import cvxpy

    cp: Any = cvxpy  # its types know only a part of it
    days = participation.days
    most = participation.most
    # ``gram`` is most·X, whose energy is at most ``most``. The sums A are scaled by the root of
    # that, and by the error nearby, which makes the objective close to 1: the solver's accuracy is
    # absolute.
    sums = np.tri(days) * np.sqrt(most) / error_nearby
    gram = cp.Variable((days, days), symmetric=True)
    noise = cp.Variable((days, days), symmetric=True)
    # Rows: the number of the first day; columns: the number of steps between the days.
    above = cp.Variable((most, most), nonneg=True)
    pairs, steps = _pairs_of_days(participation)
    constraints = [
        # ``noise`` is at least sums gram⁻¹ sumsᵀ, whose diagonal has the variances of the totals.
        cp.bmat([[noise, sums], [sums.T, gram]]) >> 0,
        # ``above`` is at least each entry, and falls with the first day and with the distance.
        above[steps] >= gram[pairs],
        above[:-1] >= above[1:],
        above[:, :-1] >= above[:, 1:],
        # The energy of a user.
        cp.sum(above[_steps_of_user(most)]) <= most,
    ]
    if error == "max":
        objective = cp.max(cp.diag(noise))
    else:
        objective = cp.trace(noise) / days
    program = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():
        # A warning says that the accuracy is not reached; any solution is charged exactly.
        warnings.simplefilter("ignore")
        program.solve(solver="SCS", eps=_PROGRAM_ACCURACY, max_iters=_PROGRAM_ITERATIONS)
    return np.asarray((gram.value + gram.value.T) / 2)


def _steps_of_user(most: int) -> tuple[Array, Array]:
    """Return, for all pairs of the days of a user who is active as early as possible, where the
    variable ``above`` has them: the number of the first day among the user's days, from 0, and how
    many days of the user later the second one is, shape (most²,) each.
    """
    numbers = np.arange(most)
    first = np.minimum.outer(numbers, numbers)
    between = abs(np.subtract.outer(numbers, numbers))
    return first.ravel(), between.ravel()


def _pairs_of_days(
    participation: Participation,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the pairs of days (i, j), i <= j, on which one user can be active, as indices into X;
    and for each pair the place in the variable ``above`` that bounds it: how many days of a user
    there can be before i, and from i to before j, both cut to at most ``participation.most`` - 1.
    """
    i, j = np.triu_indices(participation.days)
    possible_pairs = (i == j) | (j - i >= participation.apart)
    i = i[possible_pairs]
    j = j[possible_pairs]
    last = participation.most - 1
    first = np.minimum(i // participation.apart, last)
    between = np.minimum((j - i) // participation.apart, last)
    return (i, j), (first, between)
