"""A source of random words that plays a script, so that every branch of a sampler can be forced."""

from __future__ import annotations

import numpy as np
import pytest

from dptopk.mechanisms.samplers.random import Bits


class ScriptedBits(Bits):
    """Plays words, one script for each word size in bits; runs dry with an error."""

    def __init__(self, **scripts):
        self.scripts = {int(name.removeprefix("u")): list(words) for name, words in scripts.items()}

    def words(self, size, word):
        width = np.dtype(word).itemsize * 8
        script = self.scripts.get(width, [])
        played, self.scripts[width] = script[:size], script[size:]
        if len(played) < size:
            raise LookupError(f"the script has no more {width}-bit words")
        return np.array(played, dtype=word)

    @property
    def left(self):
        return sum(map(len, self.scripts.values()))


@pytest.fixture
def scripted():
    """The class of scripted bit sources: scripted(u32=[...], u64=[...])."""
    return ScriptedBits
