"""How densely the package is written, against the limits of pyproject.toml: part of ``make lint``.

    python scripts/density.py            # the figures, and what is above its limit
    python scripts/density.py --rooms    # the same for each room
    python scripts/density.py --files cli    # the same for each file of a room

Numbers are of syntax nodes, so that no line break changes them. The limits are in
``[tool.dptopk.density]``; they go down when the code has become plainer, never up.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dptopk"
CONTEXTS = (ast.Load, ast.Store, ast.Del)
NESTED = (ast.stmt, ast.excepthandler, ast.match_case)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What is read one element at a time: it is long without being dense.
LISTED = (ast.Import, ast.ImportFrom, ast.ClassDef, *DEFINITIONS)
DEEP, MANY_NAMES, MANY_KEYWORDS = 7, 12, 3


@dataclass
class Figures:
    """What was counted in some files.

    Attributes:
        sizes: nodes of each statement, without the statements inside it.
        depths: how deep its expressions are nested.
        lines: lines with code.
        found: how often each habit occurs.
    """

    sizes: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    lines: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Count another file too."""
        self.sizes += other.sizes
        self.depths += other.depths
        self.lines += other.lines
        self.found += other.found

    def report(self) -> dict[str, float]:
        """The figures that limits are set on, by their names in pyproject.toml."""
        thousands = max(self.lines, 1) / 1000
        ordered = sorted(self.sizes)
        nine_of_ten = ordered[int(0.9 * len(ordered))] if ordered else 0
        deep = sum(depth > DEEP for depth in self.depths)
        return {
            "statement_nodes": nine_of_ten,
            "deep_per_1000_statements": round(1000 * deep / max(len(ordered), 1), 1),
            "tuples_assigned_per_1000_lines": round(self.found["tuple"] / thousands, 1),
            "conditional_expressions_per_1000_lines": round(self.found["if"] / thousands, 1),
            "options_passed_on_per_1000_lines": round(self.found["**"] / thousands, 1),
            "bags_of_options": self.found["bag"],
            "any": self.found["any"],
            "locals_and_vars": self.found["locals"],
            "functions_of_many_names": self.found["names"],
        }


def figures_of(path: Path) -> Figures:
    """What is counted in a file."""
    source = path.read_text(encoding="utf-8")
    figures = Figures()
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        for habit in habits(node):
            figures.found[habit] += 1
        if not isinstance(node, ast.stmt) or is_docstring(node):
            continue
        lines.update(code_lines(node))
        if not is_listed(node):
            size, depth = own_size(node)
            figures.sizes.append(size)
            figures.depths.append(depth)
    figures.lines = len(lines)
    return figures


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a text alone."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def code_lines(node: ast.stmt) -> range:
    """The lines of a statement; of one that holds others, its head."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return range(node.lineno, max(last, node.lineno) + 1)


def is_listed(node: ast.stmt) -> bool:
    """Whether a statement is a list of things, as an import or a call with many keywords is."""
    if isinstance(node, LISTED):
        return True
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call):
        return len(value.keywords) > MANY_KEYWORDS
    return isinstance(value, (ast.Dict, ast.List))


def own_size(statement: ast.stmt) -> tuple[int, int]:
    """Nodes of a statement without those of statements inside it, and the depth of the deepest."""
    size, deepest = 0, 0
    waiting: list[tuple[ast.AST, int]] = [(statement, 0)]
    while waiting:
        node, depth = waiting.pop()
        size += 1
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in parts(node)]
    return size, deepest


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions in a node."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*NESTED, *CONTEXTS)):
            yield child


def habits(node: ast.AST) -> Iterator[str]:
    """The habits that limits are set on, of one node."""
    if isinstance(node, ast.IfExp):
        yield "if"
    elif isinstance(node, ast.Assign):
        several = isinstance(node.value, (ast.Tuple, ast.GeneratorExp))
        if several and any(isinstance(target, ast.Tuple) for target in node.targets):
            yield "tuple"
    elif isinstance(node, ast.Call):
        if any(keyword.arg is None for keyword in node.keywords):
            yield "**"
        if isinstance(node.func, ast.Name) and node.func.id in {"locals", "vars"}:
            yield "locals"
    yield from annotated(node)


def annotated(node: ast.AST) -> Iterator[str]:
    """What the annotations of a node give away, and the names of a function."""
    if isinstance(node, ast.AnnAssign):
        said = ast.unparse(node.annotation)
        if said == "Any":
            yield "any"
        if "dict[str, Any]" in said and node.value is not None:
            yield "bag"
    elif isinstance(node, ast.arg):
        if node.annotation is not None and ast.unparse(node.annotation) == "Any":
            yield "any"
    elif isinstance(node, DEFINITIONS):
        if node.returns is not None and ast.unparse(node.returns) == "Any":
            yield "any"
        if len(own_names(node)) > MANY_NAMES:
            yield "names"


def own_names(function: ast.AST) -> set[str]:
    """The names that a function assigns."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def total(files: Iterable[Path]) -> Figures:
    """The figures of several files together."""
    together = Figures()
    for path in files:
        together.add(figures_of(path))
    return together


def grouped(shown: argparse.Namespace) -> dict[str, list[Path]]:
    """The files, as they are to be shown: all, by room, or one by one."""
    files = sorted(PACKAGE.rglob("*.py"))
    if shown.files:
        inside = PACKAGE / shown.files
        return {str(path.relative_to(PACKAGE)): [path] for path in files if inside in path.parents}
    if not shown.rooms:
        return {"dptopk": files}
    rooms: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        rooms[path.relative_to(PACKAGE).parts[0]].append(path)
    return rooms


def limits() -> dict[str, float]:
    """The limits that pyproject.toml sets."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, float] = settings["tool"]["dptopk"]["density"]
    return found


def main() -> int:
    """Print the figures; 1 where the package is above a limit."""
    parser = argparse.ArgumentParser(description="How densely the package is written.")
    parser.add_argument("--rooms", action="store_true")
    parser.add_argument("--files", metavar="ROOM")
    shown = parser.parse_args()
    for name, files in grouped(shown).items():
        sys.stdout.write(f"{name} {total(files).report()}\n")
    report = total(sorted(PACKAGE.rglob("*.py"))).report()
    above = [name for name, most in limits().items() if report[name] > most]
    for name in above:
        most = limits()[name]
        sys.stdout.write(f"{name} is {report[name]}, above {most}: say it more plainly\n")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
