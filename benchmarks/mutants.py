"""Mutation testing: small changes of the code, each of which the nearest tests should notice.

A mutant changes one operator or number in mechanisms, accounting, budgets or ledger: a comparison, an
arithmetic operator, min and max, and and or, a constant, a negation that is dropped. It runs in a
copy of the repository against the quick tests that are nearest to the changed file, first the
eight files that name most of it, then the others of its room, with a limit of time. What was run is written down after each mutant, so a run that was
stopped goes on; the page docs/notes/mutants.md is written from it.

    make measure WHAT=mutants ARGS="--count 400 --seed 1"
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "notes" / "mutants.md"
VERDICTS = ROOT / "benchmarks" / "mutants.json"  # why survivors live, by hand
ROOMS = {"mechanisms": 0.3, "accounting": 0.35, "budgets": 0.15, "ledger": 0.2}
SUPERSEDED = "published"
NEAREST = 8
SECONDS = 90  # of processor time, by each process
OF_ROOM = 4  # times as long for the other tests of a room
WAITS = 20  # times as long on the clock, for a mutant that sleeps

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
INTRODUCTION = """# Mutants

`make measure WHAT=mutants` (benchmarks/mutants.py), seed {seed}: {count} changes of one operator or number each, drawn from four rooms.
Each is run against the {nearest} nearest test files, then against the others of its room, quick tests alone; "too long" is above the limit of processor time, which counts as found, for a suite that does not end is noticed. Survivors are listed with the reason
that was found by reading.

| room | mutants | killed | too long | survived |
|---|---|---|---|---|"""
SURVIVORS = """
| survivor | change | why |
|---|---|---|"""
# What people read: messages and descriptions are not privacy.
UNCHANGED = (ast.Raise, ast.JoinedStr, ast.AnnAssign)
TEXTS = {"__repr__", "__str__", "_repr_html_", "explain"}


@dataclass(frozen=True)
class Mutant:
    """One change: in which file, at which node of its tree, of what kind."""

    file: str
    node: int
    line: int
    kind: str


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed", "survived" or "too long", by the nearest quick tests."""

    mutant: Mutant
    before: str
    after: str
    verdict: str


def changed(node: ast.AST) -> ast.AST | None:
    """The node after its change; None where this kind of node is left as it is."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        return ast.Compare(node.left, [COMPARED[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return None
        return ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return ast.BoolOp(other, node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Name) and node.id in {"min", "max"}:
        return ast.Name("max" if node.id == "min" else "min", node.ctx)
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return ast.Constant(node.value + 1)
    return None


def nodes(tree: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """The nodes inside functions that compute something, with their numbers in the walk."""
    left_out: set[int] = set()
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, UNCHANGED):
            left_out |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.FunctionDef):
            body = {id(part) for statement in node.body for part in ast.walk(statement)}
            if node.name in TEXTS:
                left_out |= body
            inside |= body
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in inside and id(node) not in left_out:
            yield number, node


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(ROOT))
    return [
        Mutant(name, number, getattr(node, "lineno", 0), type(node).__name__)
        for number, node in nodes(tree)
        if changed(node) is not None
    ]


def drawn(count: int, seed: int) -> list[Mutant]:
    """A sample: from each room its share, in random order."""
    rng = random.Random(seed)
    sample: list[Mutant] = []
    for room, share in ROOMS.items():
        files = sorted((ROOT / "dptopk" / room).rglob("*.py"))
        every = [m for file in files if SUPERSEDED not in file.parts for m in mutants_of(file)]
        sample += rng.sample(every, round(count * share))
    rng.shuffle(sample)
    return sample


class _Change(ast.NodeTransformer):
    """Puts a changed node in the place of another one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the node, or look inside."""
        if node is self.old:
            return ast.copy_location(self.new, self.old)
        return self.generic_visit(node)


def text_of(mutant: Mutant) -> tuple[str, str, str]:
    """The text of the whole file after the change, and the node before and after it."""
    tree = ast.parse((ROOT / mutant.file).read_text(encoding="utf-8"))
    old = list(ast.walk(tree))[mutant.node]
    new = changed(old)
    if new is None:
        raise ValueError(f"{mutant} is no mutant of this version of the file")
    before = ast.unparse(old)
    whole = ast.fix_missing_locations(_Change(old, new).visit(tree))
    return ast.unparse(whole), before, ast.unparse(new)


def nearest(file: str) -> list[str]:
    """The test files that name most of what a file of the package defines."""
    path = Path(file)
    module = ".".join(path.with_suffix("").parts)
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    scores: dict[str, int] = {}
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        text = test.read_text(encoding="utf-8")
        score = 20 * (module in text) + 50 * (test.stem == f"test_{path.stem}")
        score += 4 * (test.parent.relative_to(ROOT / "tests") == path.parent.relative_to("dptopk"))
        score += sum(min(5, len(re.findall(rf"\b{name}\b", text))) for name in names)
        if score:
            scores[str(test.relative_to(ROOT))] = score
    return sorted(scores, key=lambda test: -scores[test])[:NEAREST]


def others_of_room(file: str, near: list[str]) -> list[str]:
    """The other test files of the room that a file of the package is in."""
    room = Path(file).parts[1]
    tests = sorted((ROOT / "tests" / room).rglob("test_*.py"))
    return [
        str(test.relative_to(ROOT)) for test in tests if str(test.relative_to(ROOT)) not in near
    ]


def tried(mutant: Mutant, copy: Path, seconds: float) -> Outcome:
    """Run the quick tests of a mutant, the nearest first, in a copy of the repository."""
    text, before, after = text_of(mutant)
    target = copy / mutant.file
    original = target.read_bytes()
    target.write_text(text, encoding="utf-8")
    near = nearest(mutant.file)
    try:
        verdict = verdict_of(near, copy, seconds)
        if verdict == "survived":
            verdict = verdict_of(others_of_room(mutant.file, near), copy, OF_ROOM * seconds)
    finally:
        target.write_bytes(original)
    return Outcome(mutant, before, after, verdict)


def verdict_of(tests: list[str], copy: Path, seconds: float) -> str:
    """What quick tests say of a copy: "killed", "survived" or "too long"."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    most = math.ceil(seconds)
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            check=False,
            timeout=WAITS * seconds,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1)),
        )
    except subprocess.TimeoutExpired:
        return "too long"
    if done.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
        return "too long"
    return "survived" if done.returncode in {0, 5} else "killed"


def copied(folder: Path) -> Path:
    """A copy of what the repository tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return folder


def run(count: int, seed: int, log: Path, seconds: float) -> list[Outcome]:
    """Try all mutants of a sample that were not tried before."""
    done: dict[Mutant, Outcome] = {}
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            read = json.loads(line)
            mutant = Mutant(**read.pop("mutant"))
            done[mutant] = Outcome(mutant, **read)
    sample = drawn(count, seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        for number, mutant in enumerate(sample, 1):
            if mutant in done:
                continue
            done[mutant] = outcome = tried(mutant, copy, seconds)
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(f"{number}/{count} {outcome.verdict}: {mutant.file}:{mutant.line}", flush=True)
    return [done[mutant] for mutant in sample if mutant in done]


def page(outcomes: list[Outcome], seed: int) -> str:
    """The page: numbers by room, and every survivor with the reason."""
    reasons = json.loads(VERDICTS.read_text(encoding="utf-8")) if VERDICTS.exists() else {}
    rows = []
    for room in ROOMS:
        verdicts = Counter(
            outcome.verdict for outcome in outcomes if f"/{room}/" in outcome.mutant.file
        )
        cells = [verdicts[name] for name in ("killed", "too long", "survived")]
        rows.append(f"| {room} | {sum(cells)} | " + " | ".join(map(str, cells)) + " |")
    lines = [INTRODUCTION.format(seed=seed, count=len(outcomes), nearest=NEAREST), *rows, SURVIVORS]
    for outcome in outcomes:
        if outcome.verdict == "survived":
            place = f"{outcome.mutant.file}:{outcome.mutant.line}"
            change = f"`{outcome.before}` → `{outcome.after}`".replace("|", "\\|")
            lines.append(f"| {place} | {change} | {reasons.get(place, 'not looked at')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the sample, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--log", type=Path, default=None)
    options = parser.parse_args()
    log = options.log or ROOT / "build" / f"mutants-{options.seed}.jsonl"
    outcomes = run(options.count, options.seed, log, options.seconds)
    PAGE.write_text(page(outcomes, options.seed), encoding="utf-8")


if __name__ == "__main__":
    main()
