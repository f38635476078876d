"""What the wheel and the source archive hold, built offline by the project's own backend; and the
citation.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import dptopk

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
pytest.importorskip("hatchling", reason="the build backend is not installed")


def build(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "dptopk").rglob("*.*")
        if path.suffix != ".pyc"
    }
    assert {"dptopk/py.typed", "dptopk/datasets/data/macbeth.csv"} <= package <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "dptopk",
        f"dptopk-{dptopk.__version__}.dist-info",
    }
    assert not [name for name in names if "/tests/" in name or "/test_" in name or ".pyc" in name]


def test_wheel_states_license_command_and_requirements(wheel):
    archive = zipfile.ZipFile(wheel)
    info = f"dptopk-{dptopk.__version__}.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "dptopk = dptopk.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    for requirement in PROJECT["dependencies"]:
        assert f"Requires-Dist: {requirement}" in metadata


@pytest.mark.slow
def test_wheel_runs_from_a_folder_of_its_own(wheel, tmp_path):
    """Unpacked away from the checkout: the shipped data is found, and a charge is composed."""
    # built a moment ago from this checkout
    zipfile.ZipFile(wheel).extractall(tmp_path)  # noqa: S202
    code = (
        "import dptopk; from dptopk.datasets import macbeth; print(dptopk.__file__); "
        "assert len(macbeth()) > 3000; print(dptopk.compose(dptopk.Charge.parse('25*DP(0.1)'), "
        "delta=1e-6).epsilon)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    where, epsilon = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path)
    assert float(epsilon) == pytest.approx(2.07906, abs=1e-5)  # Cesar-Rogers 2022 print 2.08


@pytest.mark.slow
def test_source_archive_can_be_tested_and_built(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    wanted = {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "Makefile",
        "mkdocs.yml",
    }
    assert wanted <= names
    assert {
        "tests/test_packaging.py",
        "benchmarks/peers.py",
        "docs/index.md",
        "examples/analyst.py",
    } <= names


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert PROJECT["version"] == dptopk.__version__
    assert f"version: {dptopk.__version__}\n" in citation
    assert f"license: {PROJECT['license']}\n" in citation
