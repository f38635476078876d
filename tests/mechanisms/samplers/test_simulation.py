"""Draws for predictions."""

from types import SimpleNamespace

import numpy as np

from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, largest_above


def test_each_block_has_its_own_coins_at_the_threshold():
    """All blocks had the coins of the first: more draws made a prediction no more exact."""
    inputs = SimpleNamespace(counts=np.array([5.0]), k=1)
    draw = largest_above(inputs, lambda number: np.zeros((BLOCK_DRAWS, 2)), None, 5, 0.5)
    shown = [draw(number)[0][:, 0] >= 0 for number in range(20)]
    assert len({block.tobytes() for block in shown}) == len(shown)
    assert abs(np.mean(shown) - 0.5) < 0.06
