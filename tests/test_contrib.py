"""The patches of contrib/: what they compute is at or above dptopk's optimum and next to it, they hold what
their pages say, and new files have their project's header. `make contrib-check` runs their own tests.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from dptopk import BoundedRange, Charge, compose

CONTRIB = Path(__file__).parent.parent / "contrib"
PATCHES = sorted(CONTRIB.glob("*/*.patch"))
PAGES = [patch.parent / "README.md" for patch in PATCHES]


def added(patch):
    """The lines that a patch adds, as one text."""
    lines = patch.read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")
    )


@pytest.fixture(scope="module")
def hockey_stick():
    """The recursion of the patch for dp-accounting, taken from its text."""
    text = added(CONTRIB / "dp-accounting" / "bounded-range-event.patch")
    start = text.index("def _bounded_range_hockey_stick")
    end = text.index("def from_bounded_range_mechanism")
    names = {"np": np, "math": math, "Tuple": tuple}
    exec(text[start:end], names)  # noqa: S102
    return names["_bounded_range_hockey_stick"]


@pytest.mark.parametrize(
    ("epsilon", "count"),
    [
        pytest.param(0.1, 100, marks=pytest.mark.slow),
        (0.5, 3),
        pytest.param(2.0, 2, marks=pytest.mark.slow),
    ],
)
def test_the_recursion_for_dp_accounting_is_above_the_optimum_and_next_to_it(
    hockey_stick, epsilon, count
):
    steps = max(20, math.ceil(epsilon / 0.01))
    log_u, values = hockey_stick(epsilon, count, steps)
    charge = Charge({BoundedRange(epsilon): count}, adaptive=True)
    for share in (0.1, 0.3):
        level = share * count * epsilon if count < 10 else share * 2
        upper = float(np.interp(math.exp(level), np.exp(log_u), values))
        bound = compose(charge, epsilon=level)
        assert bound.lower is not None
        assert bound.lower <= upper * (1 + 1e-9)
        assert upper <= bound.delta * 1.005


def test_the_patches_hold_what_their_pages_say():
    assert len(PATCHES) == 2
    assert all(page.is_file() for page in PAGES)
    accounting, pipeline = (added(patch) for patch in PATCHES)
    for name in ("class BoundedRangeDpEvent", "def from_bounded_range_mechanism"):
        assert name in accounting
    assert "EXPONENTIAL = 'Exponential'" in pipeline
    overview = (CONTRIB / "README.md").read_text(encoding="utf-8")
    for patch in PATCHES:
        assert patch.name in overview


def test_new_files_have_the_header_of_their_project():
    for patch in PATCHES:
        text = patch.read_text(encoding="utf-8")
        for new in re.findall(
            r"^new file mode.*?(?=^diff --git|\Z)", text, re.MULTILINE | re.DOTALL
        ):
            assert "Licensed under the Apache License, Version 2.0" in new
