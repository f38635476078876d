"""The public names are typed for whoever uses the package: mypy finds the mistakes in a program,
and no others.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

PROGRAM = """
import dptopk
from dptopk import Budget, Histogram, KnownGumbel, Session, plan_topk
from dptopk.accounting.bounds import table

histogram = Histogram(["a", "b"], [2, 1])
plan = plan_topk(25, Budget(2, 1e-6), domain="private", counts=None)
charge: dptopk.Charge = Session(histogram, budget=Budget(3, 1e-6)).run(plan).charge
dptopk.compose(charge, delta=1e-6, interaction="setwise").epsilon + 1.0

plan_topk("25", Budget(2, 1e-6))  # arg-type
plan_topk(25, Budget(2, 1e-6), domian="public")  # call-arg
plan_topk(25, Budget(2, 1e-6), domain="pubic")  # arg-type
Session(histogram, budget=3)  # arg-type
Session(histogram, budget=Budget(1.0)).run(25)  # arg-type
x: int = Budget(2, 1e-6)  # assignment
dptopk.compose(charge, delta=1e-6, interaction="set-wise")  # arg-type
dptopk.accounting.calibrate(charge, Budget(1.0))  # arg-type
KnownGumbel(k=25)  # call-arg
table(charge, 1e-6)  # call-arg
dptopk.nonsense  # attr-defined
"""
# The types of other packages are not what is tested here: without them mypy takes a third of the
# time.
SETTINGS = """
[mypy]
strict = True
[mypy-numpy.*,pandas.*,scipy.*,sqlalchemy.*,ibis.*,polars.*,pyarrow.*,cvxpy.*]
follow_imports = skip
[mypy-dptopk.*]
follow_imports = silent
"""


@pytest.mark.slow
def test_a_type_checker_finds_the_mistakes_of_a_user(tmp_path):
    program, settings = tmp_path / "user.py", tmp_path / "mypy.ini"
    program.write_text(PROGRAM, encoding="utf-8")
    settings.write_text(SETTINGS, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--cache-dir",
        str(tmp_path),
        str(program),
    ]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path
    ).stdout
    errors = {
        int(line): kind
        for line, kind in re.findall(r"user\.py:(\d+): error: .*\[([a-z-]+)\]", found)
    }
    meant = {
        n: line.split("# ")[1] for n, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line
    }
    assert errors == meant, found
