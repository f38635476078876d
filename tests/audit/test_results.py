"""docs/notes/audit-results.md: each of ours was audited against what it charges now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dptopk.audit import World

ROOT = Path(__file__).parents[2]
ROWS = dict(
    re.findall(
        r"^\| `(.+?)` \| (.+?) \|",
        (ROOT / "docs" / "notes" / "audit-results.md").read_text("utf-8"),
        re.MULTILINE,
    )
)


def _load():
    spec = importlib.util.spec_from_file_location("audits", ROOT / "benchmarks" / "audits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OURS = _load().OURS


def test_each_of_ours_has_a_row():
    assert len(ROWS) == len(OURS)


@pytest.mark.parametrize(
    ("mechanism", "domain", "sensitivity"), OURS, ids=[type(one[0]).__name__ for one in OURS]
)
def test_the_claim_is_the_charge(mechanism, domain, sensitivity):
    labels = World(sensitivity=sensitivity, public=domain == "public").labels
    assert ROWS[str(mechanism)] == str(mechanism.charge(sensitivity, labels=labels))
