"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attach(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: its name.
        names: of each module, ".module" if it is in the package, the names that the package shows,
            with blanks between. They are those of the package's ``if TYPE_CHECKING:`` imports,
            which type checkers and editors read (SPEC 1 of Scientific Python); a test compares the
            two.
    """
    home_of = {name: home for home, listed in names.items() for name in listed.split()}

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
