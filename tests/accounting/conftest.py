"""Every call of ``compose`` computes its answer: tests of the engine would otherwise see one that
is remembered.
"""

from __future__ import annotations

import pytest

from dptopk.accounting import bounds


@pytest.fixture(autouse=True)
def no_remembered_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_answer_without_clock", bounds._answer_without_clock.__wrapped__)
