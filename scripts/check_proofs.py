"""Compile the Coq files of proofs/ in a copy, and compare what each theorem rests on with what is
known.

Usage: python scripts/check_proofs.py [FOLDER]; exit code 0 if all hold, 2 if Coq is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROOFS = Path(__file__).parent.parent / "proofs"
ORDER = (
    "Game", "Rounds", "Setwise", "Groups", "Cell", "Basic", "Failing", "Pairs", "Charges", "Union", "Pool",
    "Optimum", "Slot", "Countable", "Laplace", "Release", "Worlds", "Supremum", "Recursion",
    "Reals", "Assumptions",
)  # fmt: skip
PACKAGES = (
    "coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra libcoq-mathcomp-algebra-tactics "
    "libcoq-mathcomp-zify libcoq-mathcomp-analysis"
)
CLOSED = "Closed under the global context"
# The axioms of classical logic, on which the suprema of Supremum.v and Recursion.v rest.
CLASSICAL = {
    "boolp.propositional_extensionality",
    "boolp.functional_extensionality_dep",
    "boolp.constructive_indefinite_description",
}
# The axioms of Coq's real numbers, on which Reals.v rests.
REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Epsilon.epsilon_statement",
}
# What each theorem rests on; those that are not here rest on nothing.
RESTS_ON = {
    "V_bounds_every_analyst": CLASSICAL,
    "V_is_reached": CLASSICAL,
    "V_is_a_bound": CLASSICAL,
    "V_is_the_least": CLASSICAL,
    "countable_analysts": CLASSICAL,
    "V_of_pure_costs": CLASSICAL,
    "world_pure_is_V": CLASSICAL,
    "world_failure_is_V": CLASSICAL,
    "world_range_is_V": CLASSICAL,
    "setwise_real": REALS,
}
ASSUMED = re.compile(r"\b(Admitted|admit|Axiom|Parameter|Conjecture)\b")


def theorems(text: str) -> list[str]:
    """Return the names of the theorems whose assumptions a file prints, in order."""
    return re.findall(r"^Print Assumptions (\w+)\.$", text, flags=re.MULTILINE)


def without_comments(text: str) -> str:
    """Return a Coq text without its comments, of which none is nested."""
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)


def answers(printed: str) -> list[set[str]]:
    """Return for each theorem the names of what it assumes, as Coq printed them."""
    found: list[set[str]] = []
    for line in printed.splitlines():
        if line.startswith((CLOSED, "Axioms:")):
            found.append(set())
        elif name := re.match(r"([\w.]+)(?: :|$)", line):
            found[-1].add(name[1])
    return found


def compiled(name: str, folder: Path) -> str:
    """Compile one file and return what it printed."""
    command = ["coqc", "-w", "none", "-R", ".", "dptopk", f"{name}.v"]
    return subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def main(source: Path) -> int:
    """Check a folder of proofs; return the exit code."""
    if shutil.which("coqc") is None:
        sys.stderr.write(f"Coq is missing; on Debian 12: apt-get install {PACKAGES}\n")
        return 2
    with tempfile.TemporaryDirectory() as copied:
        folder = Path(copied)
        for file in source.glob("*.v"):
            shutil.copy(file, folder)
            assumed = ASSUMED.search(without_comments(file.read_text(encoding="utf-8")))
            if assumed:
                sys.stderr.write(f"{file.name}: {assumed[0]}\n")
                return 1
        try:
            printed = [compiled(name, folder) for name in ORDER]
        except subprocess.CalledProcessError as error:
            sys.stderr.write(error.stderr)
            return 1
    names = theorems((source / "Assumptions.v").read_text(encoding="utf-8"))
    for name, assumptions in zip(names, answers(printed[-1]), strict=True):
        known = RESTS_ON.get(name, set())
        if assumptions != known:
            sys.stderr.write(f"{name} assumes {sorted(assumptions)}, not {sorted(known)}\n")
            return 1
        sys.stdout.write(f"{name}: {', '.join(sorted(assumptions)) or 'nothing assumed'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else PROOFS))
