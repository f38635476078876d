"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

__all__ = ["attach"]


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    The names and their homes are read from the package's own ``if TYPE_CHECKING:`` imports, so that they stand
    once, for type checkers, editors and the interpreter (SPEC 1 of Scientific Python needs them twice).
    """
    module = sys.modules[package]
    source = inspect.getsource(module)
    home_of = dict(_typed_imports(ast.parse(source)))

    def load(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    public = sorted(home_of)
    return load, lambda: public, public


def _typed_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, module) of the imports under ``if TYPE_CHECKING:`` at the top level."""
    for block in tree.body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for statement in block.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    yield from ((name.name, statement.module) for name in statement.names)
