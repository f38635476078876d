"""Sources of random bits: a cryptographically secure one, or a seeded NumPy generator.

The samplers of this package read whole machine words from a `Bits` source and nothing else; their
laws are exact if the words are independent and uniform. Two sources exist:

* ``random_bits(None)``, the default for every release: OpenSSL's generator through `ssl.RAND_bytes`
  of the standard library (AES-256 in counter mode, NIST SP 800-90A, seeded and reseeded by the
  operating system, and anew in a forked process). It is about ten times as fast as `os.urandom`,
  which is used where Python was built without OpenSSL.
* ``random_bits(generator)``: a `numpy.random.Generator`, for tests and experiments. Its output can
  be predicted, so what it releases is not private against anyone who knows or can guess its state.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dptopk.errors import InvalidParameter

Array = np.ndarray[Any, Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rng = np.random.Generator | None
LISTING_BITS = 96  # listed probabilities are in units of 2**-LISTING_BITS
Word = type[np.uint8] | type[np.uint16] | type[np.uint32] | type[np.uint64]
WIDTHS: dict[Word, int] = {np.uint8: 8, np.uint16: 16, np.uint32: 32, np.uint64: 64}


class Bits(ABC):
    """A source of independent uniform words."""

    #: Whether the words are fit for a release that must withstand an adversary.
    secure: bool = False
    #: Whether outcomes are enumerated (listing.py); samplers then call ``choose``, not ``words``.
    listing: bool = False

    def choose(self, masses: Callable[[], Sequence[int]]) -> int:
        """Return the number, from 0, of the outcome of a random choice, in a source that
        enumerates.

        Args:
            masses: returns lower bounds on the probabilities of all outcomes, in units of
                2**-LISTING_BITS.

        Raises:
            NotImplementedError: in every other source; samplers look at ``listing`` first.
        """
        raise NotImplementedError

    def narrow(self, state: Callable[[], Hashable]) -> None:  # noqa: B027
        """Declare that of all that was drawn so far only a state matters to what follows.

        A source that enumerates then continues once for each state, not once for each way to reach
        it; other sources do nothing.

        Args:
            state: returns the state; it is called only by a source that enumerates.
        """

    @abstractmethod
    def words(self, size: int, word: Word) -> Array:
        """Return ``size`` independent uniform words of the unsigned NumPy type ``word``."""

    def uint32(self, size: int) -> npt.NDArray[np.uint32]:
        """Return ``size`` independent uniform 32-bit words."""
        return self.words(size, np.uint32)

    def uint64(self, size: int) -> npt.NDArray[np.uint64]:
        """Return ``size`` independent uniform 64-bit words."""
        return self.words(size, np.uint64)

    def append_bits(self, value: int) -> int:
        """Return ``value``·2**64 plus 64 fresh random bits: the leading bits of a uniform number,
        64 more of which are known.
        """
        return value << 64 | int(self.uint64(1)[0])

    def low_bits(self, size: int, width: int) -> Ints:
        """Return ``size`` uniform integers of ``width`` bits, from 0 to 2**width - 1, int64, shape
        (size,); ``width`` is from 0 to 62.
        """
        word = next(kind for kind, holds in WIDTHS.items() if holds >= width)
        mask = word((1 << width) - 1)
        return (self.words(size, word) & mask).astype(np.int64)

    def below(self, bound: int, size: int) -> Ints:
        """Return ``size`` uniform integers in [0, bound), 1 <= bound <= 2**62, int64, shape
        (size,); exact, by rejection.
        """
        width = (bound - 1).bit_length()
        parts: list[Ints] = []
        missing = size
        while missing > 0:
            # Half as many more than needed, because up to half of them are rejected; what is then
            # missing is drawn in the next round.
            drawn = self.low_bits(missing + missing // 2 + 8, width)
            accepted = drawn[drawn < bound][:missing]
            parts.append(accepted)
            missing -= accepted.size
        if parts:
            return np.concatenate(parts)
        return np.empty(0, np.int64)


class SecureBits(Bits):
    """Words from a cryptographically secure generator (see the module's text)."""

    secure = True

    def words(self, size: int, word: Word) -> Array:
        """Return ``size`` words that nobody can predict."""
        random_bytes = _secure_bytes()
        return np.frombuffer(random_bytes(size * np.dtype(word).itemsize), dtype=word)


class GeneratorBits(Bits):
    """Words from a NumPy generator: reproducible, hence for tests and experiments only."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, size: int, word: Word) -> Array:
        """Return the next ``size`` words of the generator."""
        return self._generator.integers(0, 1 << np.dtype(word).itemsize * 8, size, dtype=word)


@cache
def _secure_bytes() -> Callable[[int], bytes]:
    """Return a function that takes n and returns n cryptographically secure random bytes: OpenSSL's
    generator, or that of the operating system if Python has no OpenSSL.
    """
    try:
        from ssl import RAND_bytes
    except ImportError:
        return os.urandom
    return RAND_bytes


def random_bits(rng: np.random.Generator | Bits | None = None) -> Bits:
    """Return the bit source for ``rng``: None stands for the cryptographically secure one.

    Args:
        rng: a NumPy generator (reproducible; for tests and experiments), a source of bits, or None.

    Raises:
        InvalidParameter: ``rng`` is neither; seeds and legacy ``RandomState`` objects are refused.

    >>> random_bits().secure, random_bits(np.random.default_rng(1)).secure
    (True, False)
    """
    if rng is None:
        return SecureBits()
    if isinstance(rng, Bits):
        return rng
    if isinstance(rng, np.random.Generator):
        return GeneratorBits(rng)
    raise InvalidParameter(
        f"rng must be a numpy.random.Generator or None, got {type(rng).__name__}"
    )


def narrow(rng: np.random.Generator | Bits | None, state: Callable[[], Hashable]) -> None:
    """Declare that of all that was drawn from ``rng`` only a state matters to what follows, as
    ``Bits.narrow``; where ``rng`` is no ``Bits``, do nothing.

    Args:
        rng: the source of randomness.
        state: returns the state; it is called only by a source that enumerates.
    """
    if isinstance(rng, Bits):
        rng.narrow(state)
