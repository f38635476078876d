"""The shape of the package: light import, one-way imports, public names, no data in errors."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dptopk

PACKAGE = Path(dptopk.__file__).parent
HEAVY = ("pandas", "scipy", "cvxpy", "sqlalchemy", "typer", "rich", "matplotlib", "ibis", "pyarrow", "polars", "duckdb")

# Rooms of the package from the ground up; a module may import only from its own room and those before it.
ROOMS = (
    ("_choices", "_lazy", "_validate", "errors", "costs"),
    ("histogram",),
    ("tails", "intervals", "release"),
    ("accounting",),
    ("mechanisms", "datasets"),
    ("planning",),
    ("session",),
    ("experiments",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names}


def level(module: str) -> int:
    parts = module.split(".")
    if len(parts) == 1:
        return -1  # the lazy package itself
    return LEVEL[parts[1]]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            found.add(node.module)
            if node.module == "dptopk":
                found |= {f"dptopk.{name.name}" for name in node.names if not hasattr(dptopk, name.name)}
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_flow_one_way(path):
    relative = path.relative_to(PACKAGE)
    if relative.parts[0] in {"__init__.py", "__main__.py"}:
        return
    own = level("dptopk." + relative.parts[0].removesuffix(".py"))
    for module in imports(path):
        if module.split(".")[0] == "dptopk":
            assert level(module) <= own, f"{relative} imports {module}"
        if module.split(".")[0] == "matplotlib":
            assert relative.parts[0] in {"experiments", "cli"}, f"{relative} plots"


def test_import_is_light():
    code = "import sys, dptopk; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & set(HEAVY)


def test_every_public_name_loads():
    for name in dptopk.__all__:
        assert getattr(dptopk, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        dptopk.nonsense  # noqa: B018
