"""The loss of what a strategy plays first, as atoms from below, for expectations of the value of what it plays last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Gaussian, Grid, LossComponent
from dptopk.accounting.pld.pairs import Pairs
from dptopk.accounting.setwise import tuning


@dataclass(frozen=True, slots=True)
class Atoms:
    """A loss distribution as atoms, losses and masses moved down.

    What the atoms carry too much takes at most e^{log_error - order·x} away from δ(x).
    """

    losses: Floats
    masses: Floats
    log_error: float = -math.inf
    order: float = 1.0

    @classmethod
    def of(cls, parts: Sequence[LossComponent], grid: Grid, log_chernoff: float, merge: float) -> Atoms:
        """The product of pairs on a grid from below, where the value to come is V(x) <= e^{log_chernoff - grid.tilt·x}.

        Atoms less than about ``merge`` apart are then merged.

        A tilted mass a, wherever it is, is worth at most a e^{K - θl} V(x - l) <= a e^{K + log_chernoff - θx}.
        """
        pairs = [pair for part in parts for pair in part.pairs(grid)]
        # In logarithms: a million copies of a wide pair have a number of sums that takes long to write down.
        log_sums = math.fsum(len(pair.losses) * pair.count * math.log(pair.losses.shape[1]) for pair in pairs)
        few = log_sums <= math.log(max(tuning.LISTED, 0.5)) + 1e-9
        if few and not any(isinstance(part, Gaussian) for part in parts):
            return cls._listed(pairs, grid, log_chernoff)
        law = product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)
        log_masses = law.log_masses
        kept = law.masses > 0
        masses = np.exp(log_masses[kept] - law.log_error - 64 * ROUNDOFF)
        log_error = math.log(law.error) + law.log_scale + log_chernoff + law.log_error + 1e-9
        return cls(*_merged(law.losses[kept] - law.shift, masses, merge), log_error, law.tilt)

    @classmethod
    def _listed(cls, pairs: Sequence[Pairs], grid: Grid, log_chernoff: float) -> Atoms:
        """All sums of losses of a few small pairs, off any grid."""
        losses, log_masses = np.zeros(1), np.zeros(1)
        loss_error, log_error, missing, scale = 0.0, 0.0, 0.0, log_chernoff
        for pair in pairs:
            for row, row_masses in zip(pair.losses, pair.log_masses, strict=True):
                for _ in range(pair.count):
                    losses, log_masses = np.add.outer(losses, row).ravel(), np.add.outer(log_masses, row_masses).ravel()
            rounds = pair.count * len(pair.losses)
            loss_error += rounds * (pair.loss_error + 4 * ROUNDOFF * float(np.abs(losses).max()))
            log_error += rounds * (float(np.max(pair.log_error)) + 4 * ROUNDOFF * (1 + float(np.abs(log_masses).max())))
            missing += rounds * pair.error
            scale += pair.log_mgf(grid.tilt)
        masses = np.exp(log_masses - log_error - 64 * ROUNDOFF)
        error = math.log(missing) + scale + log_error + 1e-9 if missing else -math.inf
        return cls(losses - loss_error, masses, error, grid.tilt)

    def error(self, x: Floats) -> Floats:
        """Bound on what the atoms leave out."""
        with np.errstate(over="ignore"):
            bounds: Floats = np.exp(self.log_error - self.order * x)
        return bounds


def _merged(losses: Floats, masses: Floats, width: float) -> tuple[Floats, Floats]:
    """Neighbouring outcomes merged into one: post-processing, hence a lower bound, off to second order only.

    The merged outcome has mass Σ p under P and Σ p e^{-l} under Q.
    """
    starts = np.flatnonzero(np.diff(np.floor(losses / width), prepend=-np.inf))
    first = losses[starts]
    within = losses - np.repeat(first, np.diff(starts, append=len(losses)))
    total = np.add.reduceat(masses, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = -np.log(np.add.reduceat(masses * np.exp(-within), starts) / total)
    rounding = 8 * ROUNDOFF * (2 + np.diff(starts, append=len(losses)) + np.abs(first))
    return first + np.where(total > 0, np.maximum(shift, 0.0), 0.0) - rounding, total * (1 - rounding)
