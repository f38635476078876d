"""The assumption about floating point, and the measured constant of the FFT (docs/notes/setwise.md,
"Rounding").
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.fft

from dptopk._internal.rounding import ROUNDOFF
from dptopk.accounting.pld.characteristic_function import FFT_ERROR


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p"])
def test_numpy_is_within_eight_units_in_the_last_place(name: str) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([10 ** rng.uniform(-12, 2, 300), rng.uniform(0, 1, 100)])
    if name in ("exp", "expm1"):
        x = np.concatenate([x, -x])
    values = getattr(np, name)(x)
    with mpmath.workdps(50):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(at))) for at in x]
        worst = max(
            abs((mpmath.mpf(float(value)) - truth) / truth)
            for value, truth in zip(values, exact, strict=True)
            if abs(truth) > 1e-300
        )
    assert worst <= 16 * ROUNDOFF


@pytest.mark.parametrize("n", [2**10, 3**8, 5**5 * 4, 2**16])
@pytest.mark.parametrize("kind", ["bell", "spike", "rough"])
def test_the_transform_is_far_better_than_charged(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    at = np.arange(n)
    values = {
        "bell": np.exp(-(((at - n / 2) / (n / 20)) ** 2)),
        "spike": np.where(at == n // 3, 1.0, 1e-12),
        "rough": rng.exponential(size=n),
    }[kind]
    reference = scipy.fft.rfft(values.astype(np.longdouble))
    error = np.linalg.norm(np.fft.rfft(values) - reference) / np.linalg.norm(reference)
    assert error <= FFT_ERROR / 8 * np.log2(n) * np.finfo(float).eps
