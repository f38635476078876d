"""What a page says of its numbers: the caps that made them smaller, by their names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dptopk import Histogram, KnownLaplace, Sensitivity
from dptopk.cli.page import notes


@pytest.mark.parametrize(
    ("sensitivity", "caps"),
    [
        (Sensitivity(linf=2), "at most 2 at each label"),
        (Sensitivity(linf=3, l0=5), "at most 5 labels, at most 3 at each"),
        (Sensitivity(linf=1, l0=1), "at most 1 label, at most 1 at each"),
        (Sensitivity(linf=3, l1=7), "at most 7 labels, at most 3 at each, and 7 in all"),
    ],
)
def test_every_cap_that_holds_is_named_and_no_other(sensitivity, caps):
    counts = Histogram(["a", "b"], [90, 70], sensitivity=sensitivity, domain="public", capped=True)
    release = KnownLaplace(epsilon=1.0).release(counts, np.random.default_rng(1))
    plan = SimpleNamespace(k=2, sensitivity=sensitivity)  # nothing else is read where no row lacks
    said = " ".join(notes(plan, release, release.display_table(confidence=0.95)))
    assert f"a label's count after each user was limited to {caps}, plus random noise" in said
    assert f"each user was limited to {caps}." in release.note
    assert "any number" not in said
