"""The exponential mechanism: one label, more likely the higher its utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.gumbel import gumbel_std
from dptopk.mechanisms.mechanism import require_add_remove, require_public
from dptopk.mechanisms.public_selection import PublicSelection
from dptopk.mechanisms.samplers.random import Array, Bits, Ints
from dptopk.mechanisms.samplers.selection import exponential_choice, gumbel_top_k, selection_rate
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, noisy_largest
from dptopk.release.release import Release

Utilities = Sequence[float] | Array
_LARGEST_UTILITY = 2**63 - 1  # of an int64
_LARGEST_BESIDE_FLOATS = 2**53  # integers up to it are floats exactly


@dataclass(frozen=True, kw_only=True)
class Exponential(PublicSelection):
    """One label y, drawn with P(y) ∝ exp(epsilon · u(y) / utility_range).

    Charge: 1 × BoundedRange(epsilon). Neighbours: add or remove one user.

    Args:
        epsilon: ε of the selection.
        utility_range: the most by which the changes of two labels' utilities, caused by one user,
            can differ (not twice the sensitivity of one utility). For counts it is linf, because
            all counts move in one direction.

    Source: Dong-Durfee-Rogers 2020, §2.1 (range instead of twice the sensitivity).

    >>> print(Exponential(epsilon=0.5, utility_range=1.0).charge(Sensitivity()))
    BR(0.5)
    """

    epsilon: float
    utility_range: float
    noise_falls_with = ("epsilon",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return BR(ε), exactly; ``labels`` makes no difference because no counts are released.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and for sums of weights.
        """
        require_add_remove(sensitivity)
        return Charge({BoundedRange(self.epsilon): 1})

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the label with the largest count plus Gumbel noise."""
        noise = inputs.noise("gumbel", self.utility_range / self.epsilon)
        return noisy_largest(replace(inputs, k=1), noise)

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the Gumbel noise on a utility."""
        return gumbel_std(self.utility_range / self.epsilon)

    def check(self, histogram: Histogram, *, utilities: Utilities | None = None) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        # Refuses a private or an incomplete histogram.
        require_public(histogram, type(self).__name__)
        selection_rate(self.epsilon, self.utility_range)  # refuses a rate beyond its range
        if histogram.domain_size == 0:
            raise InvalidParameter("histogram has no labels to choose from")
        self.charge(histogram.sensitivity)  # refuses a sensitivity that is not covered
        if utilities is not None:
            if not histogram.listed:
                raise InvalidParameter(
                    "utilities: every label of the domain must be listed, or be a number"
                )
            _utility_array(utilities, histogram.domain_size)  # refuses what are no utilities
        elif self.utility_range < histogram.sensitivity.linf:
            raise InvalidParameter(
                f"utility_range={self.utility_range} is below linf, by which counts can move"
            )

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        utilities: Utilities | None = None,
    ) -> Release:
        """Draw one label of a public, complete histogram.

        Args:
            histogram: its labels are the choices; its counts are the utilities unless ``utilities``
                are given.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            utilities: integers of 64 bits or floats, shape (domain_size,): one for each label, in
                the order of the rows. The law is exact for these very numbers, none of which is
                rounded; the caller vouches that the range of their changes, with the rounding of
                whatever computed them, is at most ``utility_range``.

        Raises:
            InvalidParameter: for a private, incomplete or empty histogram; when counts are the
                utilities and utility_range is below linf; for utilities of another length or type
                or not finite, and where labels of the domain are neither listed nor numbers; for an
                epsilon / utility_range beyond the range of the sampler.
        """
        return self._checked_release(histogram, rng, utilities=utilities)

    def rows(
        self, histogram: Histogram, bits: Bits, *, utilities: Utilities | None = None
    ) -> Sequence[int] | Ints:
        """Draw the index of one row, by its utility or else by its count.

        Args:
            histogram: a public one, which ``check`` accepts.
            bits: the source of words.
            utilities: as for ``release``.

        Raises:
            InvalidParameter: for what are no utilities of this domain.
        """
        if utilities is not None:
            rate = selection_rate(self.epsilon, self.utility_range)
            scores = _utility_array(utilities, histogram.domain_size)
            return [exponential_choice(scores, rate=rate, bits=bits)]
        drawn = gumbel_top_k(
            histogram.counts,
            1,
            epsilon=self.epsilon,
            linf=self.utility_range,
            bits=bits,
            absent=histogram.absent,
        )
        return drawn.indices


def _utility_array(utilities: Utilities, size: int) -> Array:
    """Return the utilities as an array of their exact values, shape (size,): int64 where all are
    integers, else float64.

    Raises:
        InvalidParameter: for another shape or other types, for values that are not finite, or for
            integers that the array would round; the message never shows a value.
    """
    if hasattr(utilities, "dtype"):
        array = np.asarray(utilities)
    else:  # as objects: beside floats NumPy would round integers
        array = np.array(utilities, dtype=object)
    if array.dtype == object:
        array = _array_of_numbers(array)
    if array.shape != (size,):
        raise InvalidParameter(f"utilities must have one value for each of the {size} labels")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InvalidParameter(
            f"utilities must be integers or floats of at most 64 bits, got {array.dtype}"
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InvalidParameter("utilities must be finite: one is NaN or infinite")
        return array.astype(np.float64)
    if array.size and array.max() > _LARGEST_UTILITY:
        raise InvalidParameter("utilities must fit 64-bit signed integers")
    return array.astype(np.int64)


def _python_number(value: float | np.generic) -> float:
    """Return the Python value of a NumPy scalar, and any other value as it is."""
    if isinstance(value, np.generic):
        number: float = value.item()
        return number
    return value


def _array_of_numbers(array: Array) -> Array:
    """Return an array of Python numbers as int64 or float64, of the same shape, if that rounds
    none of them.

    Raises:
        InvalidParameter: for other objects, or integers that would be rounded.
    """
    values = list(map(_python_number, array.ravel().tolist()))
    kinds = set(map(type, values))
    if not kinds <= {int, float, bool}:
        raise InvalidParameter("utilities must be real numbers, integers or floats")
    if float not in kinds:
        if not all(-_LARGEST_UTILITY <= value <= _LARGEST_UTILITY for value in values):
            raise InvalidParameter("utilities must fit 64-bit signed integers")
        return np.array(values, dtype=np.int64).reshape(array.shape)
    integers = [value for value in values if type(value) is not float]
    if any(abs(value) > _LARGEST_BESIDE_FLOATS for value in integers):
        raise InvalidParameter(
            "utilities: an integer beside floats must be one that a float can hold: at most 2^53"
        )
    return np.array(values, dtype=np.float64).reshape(array.shape)
