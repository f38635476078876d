"""docs/theorems.md names functions, bounds, tests and figures that exist, and every bound is in
it.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from dptopk.accounting import bounds, registry
from dptopk.experiments import EXPERIMENTS
from dptopk.mechanisms.named import names

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "theorems.md").read_text(encoding="utf-8")
HOMES = ("dptopk.accounting", "dptopk.mechanisms", "dptopk")


def rows(header: str) -> list[list[str]]:
    """Cells of all rows of the tables whose header line starts with ``header``."""
    found = []
    for part in re.split(r"\n(?=## )", TEXT):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        if lines and lines[0].startswith(header):
            found += [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return found


STATEMENTS = rows("| statement")


def exists(name: str, before: str) -> str | None:
    """The module in which a dotted or plain name is found; ``before`` is the module of the name in
    front of it.
    """
    path = name.split("(", maxsplit=1)[0]
    candidates = [f"{home}.{path}" for home in HOMES] + ([f"{before}.{path}"] if before else [])
    for candidate in candidates:
        parts = candidate.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                value = import_module(".".join(parts[:cut]))
            except ImportError:
                continue
            try:
                for part in parts[cut:]:
                    value = getattr(value, part)
            except AttributeError:
                break
            return ".".join(parts[:cut])
    return None


def test_there_are_statements():
    assert len(STATEMENTS) > 50
    assert all(len(cells) == 4 for cells in STATEMENTS)


@pytest.mark.parametrize("cells", STATEMENTS, ids=lambda cells: cells[0][:60])
def test_what_a_row_names_exists(cells):
    _, functions, tests, figures = cells
    module = ""
    for kind, name in re.findall(r"(bound )?`([^`]+)`", functions):
        if kind:
            assert name in bounds.names(), name
        elif name not in bounds.INTERACTIONS:
            found = exists(name, module)
            assert found is not None, name
            module = found
    folder, last = "", ""
    for name in re.findall(r"`([^`]+)`", tests):
        file, _, function = name.partition("::")
        file = file or last
        path = ROOT / (file if "/" in file else f"{folder}/{file}")
        assert path.is_file(), name
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), name
        folder, last = str(path.parent.relative_to(ROOT)), file
    for name in re.findall(r"`([^`]+)`", figures):
        assert name in EXPERIMENTS, name


def test_the_table_of_bounds_is_the_registry():
    table = {cells[0].strip("`"): cells[1:] for cells in rows("| bound")}
    assert tuple(table) == bounds.names()
    for name, (valid, source) in table.items():
        spec = registry.bound_of_name(name)
        assert source == spec.source
        if isinstance(spec.valid_through, str):
            assert valid == f"`{spec.valid_through}`"


def test_every_bound_has_a_statement():
    named = {name for cells in STATEMENTS for name in re.findall(r"bound `([^`]+)`", cells[1])}
    assert named == set(bounds.names())


def used_in(path: Path) -> set[str]:
    """The names that a file uses: not those that it only imports or mentions."""
    return {
        node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name)
    }


def missing(mechanism: str, statements: list[list[str]], table: str) -> list[str]:
    """What a mechanism still lacks: a test in tests/proofs, a statement that names that test, a row
    of its charge.
    """
    proofs = {
        path.name
        for path in (ROOT / "tests" / "proofs").glob("test_*.py")
        if mechanism in used_in(path)
    }
    cells = [row for row in statements if f"`mechanisms.{mechanism}`" in row[1]]
    # A file is named with its folder, or by itself after another one of the same folder.
    named = {
        name
        for row in cells
        for name in re.findall(r"(test_\w+\.py)", row[2])
        if "tests/proofs/" in row[2]
    }
    return [
        *([] if proofs else ["a test in tests/proofs"]),
        *([] if cells else ["a statement in docs/theorems.md"]),
        *(
            []
            if not cells or proofs & named
            else ["a statement in docs/theorems.md that names its proof test"]
        ),
        *(
            []
            if re.search(rf"^\| `{mechanism}\(", table, re.MULTILINE)
            else ["a row in docs/notes/mechanisms.md"]
        ),
    ]


MECHANISMS = (ROOT / "docs" / "notes" / "mechanisms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mechanism", names())
def test_every_mechanism_has_a_proof_a_statement_and_a_charge(mechanism):
    assert missing(mechanism, STATEMENTS, MECHANISMS) == []


def test_a_mechanism_without_them_would_be_found():
    assert len(missing("KnownClipped", STATEMENTS, MECHANISMS)) == 3
    other = [["a claim", "`mechanisms.KnownLaplace`", "`tests/mechanisms/test_counting.py`", ""]]
    assert missing("KnownLaplace", other, "") == [
        "a statement in docs/theorems.md that names its proof test",
        "a row in docs/notes/mechanisms.md",
    ]


def test_a_wrong_name_would_be_found():
    assert (
        exists("pure_dp.homogeneous.optimal_dp_delta", "")
        == "dptopk.accounting.pure_dp.homogeneous"
    )
    assert exists("pure_dp.homogeneous.no_such_function", "") is None
    assert exists("no_such_module.f", "") is None
