"""The shape of the house: light import, no circle, imports that flow one way, few corridors, faces
that show.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import py_compile
import re
import rlcompleter
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dptopk

PACKAGE = Path(dptopk.__file__).parent
HEAVY = (
    "pandas",
    "scipy",
    "cvxpy",
    "sqlalchemy",
    "typer",
    "rich",
    "matplotlib",
    "ibis",
    "pyarrow",
    "polars",
    "duckdb",
)

# Rooms of the package from the ground up: a module imports from its own room and from floors below
# it.
FLOORS = (
    ("errors",),
    ("_internal",),
    ("costs", "histogram"),
    ("accounting",),
    ("budgets", "release"),
    ("ledger",),
    ("mechanisms", "datasets"),
    ("question",),
    ("planning",),
    ("session",),
    ("experiments", "service", "audit"),
    ("cli", "testing"),
    ("__main__",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Types that the interpreter never imports: of an attribute of BudgetExceeded, of the state that old
# entries are put into, of the mechanism that a stream runs, and of the plan whose way is chosen.
TYPE_ONLY = {
    ("dptopk.errors", "dptopk.costs"),
    ("dptopk.ledger.earlier_formats", "dptopk.ledger.replay"),
    ("dptopk.mechanisms.stream_state", "dptopk.mechanisms.continual"),
    ("dptopk.planning.profile", "dptopk.planning.two_phase"),
}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
# The folders directly below dptopk, each a room with a face.
ROOMS = [
    name for name, path in MODULES.items() if path.name == "__init__.py" and name.count(".") == 1
]


@cache
def imports(path: Path) -> set[str]:
    """Everything that a file imports, anywhere in it: also for types alone, and inside
    functions.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            inner = {f"{node.module}.{name.name}" for name in node.names}
            found |= inner & MODULES.keys() or {node.module}
    return found


@cache
def import_graph() -> dict[str, set[str]]:
    """The modules of the package that each module imports."""
    return {name: imports(path) & MODULES.keys() - {name} for name, path in MODULES.items()}


def arrows(graph: dict[str, set[str]], depth: int, inside: str) -> set[tuple[str, str]]:
    """The arrows between the entries of a folder (depth: of their names), each counted once."""
    ends = {
        (source.split(".")[depth], target.split(".")[depth])
        for source, targets in graph.items()
        for target in targets
        if source.startswith(inside) and target.startswith(inside)
    }
    return {(source, target) for source, target in ends if source != target}


def test_no_circle():
    graph = {
        name: {t for t in targets if (name, t) not in TYPE_ONLY}
        for name, targets in import_graph().items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)
    with pytest.raises(CycleError):  # what is left out is a circle, and would be found
        TopologicalSorter(import_graph()).prepare()


def test_imports_flow_one_way():
    for source, target in sorted(arrows(import_graph(), 1, "dptopk.")):
        if (f"dptopk.{source}", f"dptopk.{target}") not in TYPE_ONLY:
            assert source in FLOOR_OF, f"{source} has no floor"
            assert FLOOR_OF[target] < FLOOR_OF[source], f"{source} imports {target}"


def test_only_the_command_line_knows_the_service():
    known = {
        source.split(".")[1]
        for source, targets in import_graph().items()
        if any("dptopk.service" in t for t in targets)
    }
    assert known <= {"service", "cli"}


@pytest.mark.parametrize("name", MODULES)
def test_who_plots(name):
    if any(module.split(".")[0] == "matplotlib" for module in imports(MODULES[name])):
        rooms = {"experiments", "cli", "service", "release"}
        assert name.split(".")[1] in rooms or name == "dptopk.accounting.curves"


def test_accounting_is_families_with_few_corridors():
    entries = {name.split(".")[2] for name in MODULES if name.startswith("dptopk.accounting.")}
    families = {
        path.name for path in (PACKAGE / "accounting").iterdir() if (path / "__init__.py").is_file()
    }
    assert families == {
        "cost_models",
        "pld",
        "pure_dp",
        "bounded_range",
        "renyi",
        "gaussian",
        "f_dp",
        "setwise",
        "published",
    }
    assert len(entries) <= 20
    corridors = arrows(import_graph(), 2, "dptopk.accounting.")
    # Three files of ``compose`` (bounds, its question and its order) have corridors of their own.
    assert len(corridors) <= 65
    between: dict[str, set[str]] = {
        entry: {target for source, target in corridors if source == entry} for entry in entries
    }
    assert len(list(TopologicalSorter(between).static_order())) == len(
        entries
    )  # the families form no circle either


def test_documents_name_files_that_exist():
    texts = [
        PACKAGE.parent / "README.md",
        PACKAGE.parent / "CONTRIBUTING.md",
        *(PACKAGE.parent / "docs").rglob("*.md"),
    ]
    named = {
        name
        for path in texts
        for name in re.findall(r"`((?:\w+/)+\w+\.py)`", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    for name in named:
        homes = (PACKAGE.parent / name, PACKAGE / name, PACKAGE / "accounting" / name)
        assert any(home.is_file() for home in homes), name


@pytest.mark.slow
def test_what_the_lists_of_additions_name_exists():
    """Every name of code in the architecture's lists is one of the package or of the tests."""
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    lists = text.split("## To add something")[1]
    spans = set(re.findall(r"`([^`\n]+)`", lists))
    plain = {span for span in spans if "/" not in span and not re.search(r"\.(py|js)$", span)}
    named = {word for span in plain for word in re.findall(r"[A-Za-z_]\w+", span)}
    assert len(named) > 80
    unknown = named - {"min_share"}  # the example of an option
    for folder in (PACKAGE, PACKAGE.parent / "tests"):
        for path in folder.rglob("*.[pj][ys]"):
            code = path.read_text(encoding="utf-8") if unknown else ""
            unknown -= {name for name in unknown if name in code}
    assert not unknown


def test_the_architecture_page_shows_the_tree_as_it_is():
    """Every folder has a line, and every file that a line names stands in it."""
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = text.split("## The tree")[1].split("```")[1].splitlines()[1:]
    named: dict[str, set[str]] = {}
    parents: list[str] = []
    for line in tree:
        if found := re.match(r"( *)(\w+)/ ", line):
            parents = [*parents[: len(found[1]) // 2], found[2]]
        named.setdefault("/".join(parents), set()).update(re.findall(r"\w+\.py", line))
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {
        "."
    }
    assert set(named) == {
        folder for folder in folders if not folder.startswith("accounting/published/")
    }
    assert sum(map(len, named.values())) > 60
    for folder, files in named.items():
        assert files <= {path.name for path in (PACKAGE / folder).glob("*.py")}, folder


def test_command_line_is_a_folder_of_small_files():
    assert {"commands", "input", "output"} <= {path.stem for path in (PACKAGE / "cli").glob("*.py")}


def test_import_is_light():
    code = "import sys, dptopk; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(loaded) & set(HEAVY)


def test_dptopk_shows_its_names_and_no_others():
    assert dir(dptopk) == sorted(dptopk.__all__) != []
    for name in dptopk.__all__:
        assert getattr(dptopk, name) is not None
    assert dir(dptopk) == sorted(dptopk.__all__)  # loading a name does not uncover what is private
    with pytest.raises(AttributeError, match="nonsense"):
        dptopk.nonsense  # noqa: B018


def test_the_names_of_dptopk_are_those_that_a_type_checker_reads():
    tree = ast.parse(MODULES["dptopk"].read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        name.name: one.module
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for name in one.names
    }
    (listed,) = [node for node in ast.walk(block) if isinstance(node, ast.Dict)]
    stated = {
        name: importlib.util.resolve_name(home, "dptopk")
        for home, names in ast.literal_eval(listed).items()
        for name in names.split()
    }
    assert stated == typed


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_face_without_logic(room):
    """Nothing but imports, each shown under its own name; two have a table of what is loaded on
    demand.
    """
    body = ast.parse(MODULES[room].read_text(encoding="utf-8")).body[1:]
    if room not in {"dptopk.cli", "dptopk.experiments"}:
        assert all(isinstance(node, ast.ImportFrom) for node in body)
        assert all(name.asname == name.name for node in body for name in node.names)


@pytest.mark.slow
def test_bytecode_alone_is_enough(tmp_path):
    """As in frozen applications: no file of source is there, and every face shows its names."""
    for path in MODULES.values():
        compiled = tmp_path / path.relative_to(PACKAGE.parent).with_suffix(".pyc")
        compiled.parent.mkdir(parents=True, exist_ok=True)
        py_compile.compile(str(path), str(compiled), doraise=True)
    code = (
        "import dptopk; count = sum(getattr(dptopk, name) is not None for name in dptopk.__all__); "
        "print(count, dptopk.__file__, dptopk.Charge.parse('2*DP(0.5)'))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stdout.split() == [
        str(len(dptopk.__all__)),
        str(tmp_path / "dptopk" / "__init__.pyc"),
        "2*DP(0.5)",
    ], shown.stderr


def test_a_type_checker_sees_the_names_of_dptopk_and_no_getattr():
    """A module with a ``__getattr__`` has every name, for a type checker: a misspelt import would
    pass.
    """
    tree = ast.parse(MODULES["dptopk"].read_text(encoding="utf-8"))
    hidden = {
        node
        for block in tree.body
        if isinstance(block, ast.If)
        for other in block.orelse
        for node in ast.walk(other)
    }
    named = [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "__getattr__"
    ]
    assert len(named) == 1
    assert set(named) <= hidden


@pytest.mark.parametrize("room", ["dptopk", *ROOMS])
def test_a_face_never_hides_a_module(room):
    """A function with its module's name would make ``from package import name`` mean whichever was
    loaded last.
    """
    package = importlib.import_module(room)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    shown = {
        name.asname
        for node in ast.walk(ast.parse(MODULES[room].read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert not modules & shown


def test_names_are_completed():
    complete = rlcompleter.Completer({"dptopk": dptopk}).complete
    assert complete("dptopk.plan_t", 0) == "dptopk.plan_topk("
    assert complete("dptopk.accounting.cali", 0) == "dptopk.accounting.calibrate("
