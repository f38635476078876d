"""Published theorems and families for a batch are loaded when a name or a table asks for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dptopk.accounting import registry


def loaded(program: str) -> list[str]:
    """The modules of such families that a fresh process has loaded at its end."""
    ask = "import sys; print(*(m for m in sys.modules if '.published.' in m or '.bounded_range.' in m))"
    command = [sys.executable, "-c", f"{program}\n{ask}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
def test_a_bound_that_can_not_be_best_is_not_loaded() -> None:
    compose = "from dptopk.accounting import compose\ncompose('10*BR(0.1)', delta=1e-6"
    assert loaded(f"{compose}, effort='quick')") == []
    by_name = loaded(f"{compose}, bound='opt_kl')")
    assert by_name == ["dptopk.accounting.published.dong_durfee_rogers"]
    in_batch = loaded(f"{compose}, interaction='batch', effort='quick')")
    assert "dptopk.accounting.bounded_range.nonadaptive" in in_batch
    assert not any("published" in module for module in in_batch)


def test_each_module_registers_the_names_that_are_listed() -> None:
    for module, names in registry.MODULES.items():
        for name in names:
            assert registry.bound_of_name(name).build.__module__ == f"dptopk.accounting.{module}"
    assert set(registry.registered_bounds()) == set(registry.REGISTRY)
    assert [n for n, spec in registry.registered_bounds().items() if spec.published] == [
        name
        for module, names in registry.MODULES.items()
        for name in names
        if module.startswith(registry.PUBLISHED)
    ]
