"""The best factorisation of running sums, found in floats: a candidate that ``factorise`` rounds
and charges exactly.

Wanted is X = WᵀW of the least error, the largest or mean (A X⁻¹ Aᵀ)_tt, where a user's squared
shifts sum to at most 1.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array

# For users of one day the fixed point takes a few decompositions of matrices of this many days;
# else a program does.
LARGEST_ALONE = 1000
LARGEST_SEVERAL = 60
_COARSEST = 32


def possible(participation: Participation) -> bool:
    """Whether the optimum can be computed within seconds."""
    return participation.days <= (LARGEST_ALONE if participation.most == 1 else LARGEST_SEVERAL)


def optimum(participation: Participation, error: Error, near: float) -> Array:
    """W, lower triangular, close to the optimum; ``near``: the error of one that is not far from
    it.

    Raises:
        InvalidParameter: for more days than that can be done for.
    """
    if not possible(participation):
        raise InvalidParameter(
            f"factorisation='optimal' is for {LARGEST_ALONE} days at most, {LARGEST_SEVERAL} "
            f"where users have several"
        )
    alone = participation.most == 1
    if alone:
        gram = _fixed_point(participation, error)
    else:
        gram = _program(participation, error, near)
    days = len(gram)
    gram = gram + 1e-9 * np.trace(gram) / days * np.eye(days)
    # The factor of the days in reverse is upper triangular in their order.
    reverse: Array = np.linalg.cholesky(gram[::-1, ::-1])
    return reverse[::-1, ::-1].T


def _fixed_point(participation: Participation, error: Error) -> Array:
    """Users of one day: diag X = 1. By duality the least error is max ‖D_p^½ A D_v^½‖_* over laws
    p, v of days.

    (The mean: p uniform.) With the singular value decomposition U S Vᵀ of that matrix, p and v are
    at the maximum the diagonals of U S Uᵀ and V S Vᵀ over tr S, and X = D_v^-½ V S Vᵀ D_v^-½ (for
    the mean: Denisov et al. 2022). Iterated for few days; each doubling of the days interpolates,
    and iterates a little more.
    """
    size = min(participation.days, _COARSEST)
    rows = columns = np.full(size, 1 / size)
    right = roots = np.empty(0)
    for repeat in [100] + [6] * (participation.days - 1).bit_length():
        rows = _stretched(rows, size)
        columns = _stretched(columns, size)
        for _ in range(repeat):
            by_rows = np.sqrt(rows)[:, None] * np.tri(size)
            scaled = by_rows * np.sqrt(columns)
            squares, right = np.linalg.eigh(scaled.T @ scaled)
            roots = np.sqrt(np.maximum(squares, 1e-300))
            before = columns
            columns = right**2 @ roots / roots.sum()
            if error == "max":
                rows = (scaled @ right) ** 2 @ (1 / roots) / roots.sum()
        if size == participation.days:
            break
        size = min(2 * size, participation.days)
    return _normalised((right * roots) @ right.T, before)


def _normalised(product: Array, columns: Array) -> Array:
    """D_v^-½ V S Vᵀ D_v^-½, with a diagonal of 1."""
    gram = product / np.sqrt(np.outer(columns, columns))
    diagonal = np.diag(gram)
    normalised: Array = gram / np.sqrt(np.outer(diagonal, diagonal))
    return normalised


def _stretched(law: Array, size: int) -> Array:
    """Return a law for n days with the same shape."""
    old = (np.arange(len(law)) + 0.5) / len(law)
    new = (np.arange(size) + 0.5) / size
    wide = np.exp(np.interp(new, old, np.log(law)))
    return wide / wide.sum()


def _program(participation: Participation, error: Error, near: float) -> Array:
    """Users of several days: a semidefinite program, as in Choquette-Choo et al. 2023, with an
    energy of at most 1.

    ``Participation.energy`` is convex in X: the matrix Ĝ above X, which falls with the first day
    and the distance, is a variable, on the days on which it is added up.
    """
    import cvxpy

    cp: Any = cvxpy
    days = participation.days
    most = participation.most
    # Scaled such that the objective is near 1: the solver's accuracy is absolute.
    sums = np.tri(days) * np.sqrt(most) / near
    gram = cp.Variable((days, days), symmetric=True)
    noise = cp.Variable((days, days), symmetric=True)
    # Number of the first day × number of steps between.
    above = cp.Variable((most, most), nonneg=True)
    pairs, steps = _pairs_of_days(participation)
    constraints = [
        cp.bmat([[noise, sums], [sums.T, gram]]) >> 0,
        above[steps] >= gram[pairs],
        above[:-1] >= above[1:],
        above[:, :-1] >= above[:, 1:],
        cp.sum(above[_steps_of_user(most)]) <= most,
    ]
    if error == "max":
        objective = cp.max(cp.diag(noise))
    else:
        objective = cp.trace(noise) / days
    program = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():
        # Of an accuracy below the asked one: the charge is that of what is found.
        warnings.simplefilter("ignore")
        program.solve(solver="SCS", eps=1e-4, max_iters=4000)
    return np.asarray((gram.value + gram.value.T) / 2)


def _steps_of_user(most: int) -> tuple[Array, Array]:
    """For each pair of days of a user of ``most`` days the number of the first day, and of the
    steps between.
    """
    user = np.arange(most)
    return np.minimum.outer(user, user).ravel(), abs(np.subtract.outer(user, user)).ravel()


def _pairs_of_days(
    participation: Participation,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The pairs of days that one user can have, in order; and for each the number of the first day
    and the number of steps between, both at most the last one.
    """
    i, j = np.triu_indices(participation.days)
    can_be = (i == j) | (j - i >= participation.apart)
    i = i[can_be]
    j = j[can_be]
    last = participation.most - 1
    first = np.minimum(i // participation.apart, last)
    between = np.minimum((j - i) // participation.apart, last)
    return (i, j), (first, between)
