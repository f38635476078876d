"""Sources of random words."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers import random
from dptopk.mechanisms.samplers.random import random_bits


def test_secure_words_differ_and_are_unbiased():
    bits = random_bits()
    assert bits.secure
    first, second = bits.uint64(1 << 12), bits.uint64(1 << 12)
    assert len(set(first) | set(second)) == 1 << 13
    ones = (
        np.unpackbits(np.concatenate((first, second)).view(np.uint8))
        .reshape(-1, 64)
        .sum(axis=0, dtype=np.int64)
    )
    assert np.abs(ones - (1 << 12)).max() < 6 * np.sqrt((1 << 13) / 4)


def test_secure_source_without_openssl(monkeypatch):
    monkeypatch.setitem(sys.modules, "ssl", None)
    random._secure_bytes.cache_clear()
    try:
        assert random._secure_bytes() is os.urandom
        assert random_bits().uint32(5).shape == (5,)
    finally:
        random._secure_bytes.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_its_own_words():
    from ssl import RAND_bytes

    if random._secure_bytes() is not RAND_bytes:
        return  # the operating system's source has no state in the process
    random_bits().uint64(4)
    read, write = os.pipe()
    fork = "import os, ssl; ssl.RAND_bytes(64); p = os.fork();"
    tell = f"os.write({write}, ssl.RAND_bytes(32)); p and os.waitpid(p, 0)"
    actions = [(os.POSIX_SPAWN_DUP2, write, write)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, "-c", fork + tell], os.environ, file_actions=actions
    )
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        words = pipe.read()
    assert len(words) == 64
    assert words[:32] != words[32:]


def test_generator_words_are_reproducible():
    one, two = (random_bits(np.random.default_rng(3)) for _ in range(2))
    assert not one.secure
    for word in (np.uint8, np.uint16, np.uint32, np.uint64):
        drawn = one.words(100, word)
        assert drawn.dtype == word
        assert (drawn == two.words(100, word)).all()
        assert drawn.max() > np.iinfo(word).max * 0.9


@pytest.mark.parametrize("rng", [1, np.random.RandomState(1), "secure"])
def test_seeds_and_legacy_generators_are_refused(rng):
    with pytest.raises(InvalidParameter, match="rng"):
        random_bits(rng)


@pytest.mark.parametrize(
    ("width", "word"), [(0, 8), (3, 8), (8, 8), (9, 16), (17, 32), (33, 64), (62, 64)]
)
def test_low_bits_use_the_smallest_word(scripted, width, word):
    bits = scripted(**{f"u{word}": [2**word - 1, 5]})
    assert bits.low_bits(2, width).tolist() == [2**width - 1, 5 & (2**width - 1)]


def test_below_is_exactly_uniform(scripted):
    # Over all bytes, each of 0..4 is accepted equally often: 5 of the 8 values of three bits.
    words = [*range(256), *([0] * 1000)]
    drawn = scripted(u8=words).below(5, 160)
    assert np.bincount(drawn).tolist() == [32] * 5


@pytest.mark.parametrize("bound", [1, 2, 3, 255, 256, 257, 10**12, 2**62])
def test_below_stays_below(bound):
    drawn = random_bits(np.random.default_rng(1)).below(bound, 2000)
    assert drawn.shape == (2000,)
    assert drawn.min() >= 0
    assert bound * 0.99 - 2 < drawn.max() < bound
    assert random_bits().below(bound, 0).size == 0
