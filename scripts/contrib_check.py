"""Apply the patches of contrib/ to the packages that PyPI has, and run the tests that they come with.

Usage: python scripts/contrib_check.py [--quick] [FOLDER]. It makes FOLDER (build/contrib) anew and an
environment in it, and asks PyPI for the packages; exit code 0 if all tests pass. --quick runs only the tests
that are new.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRIB = ROOT / "contrib"
ACCOUNTING = "dp-accounting==0.6.0"
PIPELINE = "pipeline-dp==0.3.1"
# What the tests of the two packages need besides the packages.
# dp-accounting 0.6.0 itself fails 56 of its tests from NumPy 2.3 on (float() of an array of one number).
NEEDED = ("pytest", "absl-py", "numpy<2.3", "scipy<1.16", ACCOUNTING, PIPELINE)
NEW_TESTS = "ounded_range or BoundedRange"


def run(*command: str | Path, cwd: Path, path: tuple[Path, ...] = ()) -> None:
    """Run a command, with ``path`` before what is installed; raise if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(entry) for entry in path)}
    subprocess.run([str(word) for word in command], cwd=cwd, env=environment, check=True)  # noqa: S603


def patched(folder: Path, patch: Path) -> Path:
    """Apply a patch to a folder that is no part of a repository; return the folder."""
    run("git", "init", "-q", ".", cwd=folder)
    run("git", "apply", "--verbose", patch.resolve(), cwd=folder)
    return folder


def downloaded(python: Path, package: str, folder: Path, *options: str) -> Path:
    """Download one package without what it needs, and return the folder of what is in it."""
    archives = folder / "archives" / package
    pip = (python, "-m", "pip", "download", "-q", "--no-deps", "-d", archives, *options)
    run(*pip, package, cwd=folder)
    (archive,) = archives.iterdir()
    unpacked = folder / package
    wheel = archive.suffix == ".whl"
    shutil.unpack_archive(archive, unpacked, "zip" if wheel else None)
    if wheel:
        return unpacked
    (inner,) = unpacked.iterdir()
    return inner


def main(folder: Path, *, quick: bool) -> int:
    """Check both patches; return the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    venv.create(folder / "venv", with_pip=True)
    python = folder.resolve() / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", *NEEDED, cwd=folder)
    source = downloaded(python, ACCOUNTING, folder, "--no-binary", ":all:")
    accounting = patched(source, CONTRIB / "dp-accounting" / "bounded-range-event.patch")
    wheel = downloaded(python, PIPELINE, folder)
    pipeline = patched(wheel, CONTRIB / "pipeline-dp" / "exponential-budget.patch")
    # Without this project's settings, which pytest would find above the folder.
    plain = ("-c", os.devnull, "--rootdir", ".")
    tests = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plain)
    chosen = ("-k", NEW_TESTS) if quick else ()
    try:
        run(*tests, *chosen, "dp_accounting", cwd=accounting, path=(accounting.resolve(),))
        new_file = "tests/exponential_budget_test.py"
        run(*tests, new_file, cwd=pipeline, path=(pipeline.resolve(),))
        run(*tests, new_file, cwd=pipeline, path=(pipeline.resolve(), accounting.resolve()))
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    options = sys.argv[1:]
    places = [option for option in options if option != "--quick"]
    target = Path(places[0]) if places else ROOT / "build" / "contrib"
    sys.exit(main(target, quick="--quick" in options))
