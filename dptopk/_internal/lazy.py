"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attach(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package, which imports a module
    when one of its names is first asked for (PEP 562).

    Args:
        package: its name.
        names: module -> the names in it that the package shows, such as
            {".costs": "Budget Charge"}; the dot stands for the package. They are those of the
            package's ``if TYPE_CHECKING:`` imports, which type checkers and editors read (SPEC 1 of
            Scientific Python); a test compares the two.
    """
    home_of = {name: home for home, shown in names.items() for name in shown.split()}

    def load(name: str) -> object:
        """Import the module of a name, and return what it stands for."""
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    public = sorted(home_of)
    return load, lambda: public, public
