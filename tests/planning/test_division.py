"""The budget tool: within the total, better than an even split, locks hold, and what it exports is
what it costs.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from dptopk import Accountant, Centred, Charge, CountMLE, KnownGaussian, Sensitivity, compose
from dptopk.cli import app
from dptopk.errors import InvalidParameter
from dptopk.mechanisms import SparseGaussian
from dptopk.planning.division import BudgetItem, _ConvexProgram, divide, queries_of

COUNTS = {"kind": "counts", "labels_per_user": 1}
PLAN = (
    BudgetItem(name="daily", k=4, times=30, **COUNTS),
    BudgetItem(name="once", k=4, weight=20, **COUNTS),
    BudgetItem(name="parts", k=4, weight=5, segments=3, segments_per_user=1, **COUNTS),
)


@pytest.fixture(scope="module")
def divided():
    return divide(PLAN, 1.0, 1e-6)


@pytest.mark.slow
def test_the_program_finds_the_closed_form():
    """Without bounds ρ_i is proportional to (w_i c_i)^(2/3): Lagrange."""
    prices, worth = np.array([0.5, 2.0, 1.0]), np.array([3.0, 1.0, 7.0])
    program = _ConvexProgram(prices, worth, np.zeros(3), np.zeros(3))
    scales = np.array(program.scales(0.8))
    spent = prices * scales**2
    expected = (worth * np.sqrt(prices)) ** (2 / 3)
    assert spent.sum() == pytest.approx(0.8)
    assert spent / spent.sum() == pytest.approx(expected / expected.sum(), rel=1e-4)


@pytest.mark.slow
def test_a_division_stays_within_the_total_and_beats_an_even_split(divided):
    assert 0.98 <= divided.epsilon <= 1.0
    assert compose(divided.charge, delta=1e-6).epsilon <= 1.0
    assert divided.weighted_error < 0.95 * divided.even_error
    assert math.fsum(part.share for part in divided.parts) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_the_registration_pays_for_the_schedule(divided):
    accountant = Accountant(Charge.parse(str(divided.charge)), delta=1e-6)
    for line in divided.schedule(30):
        part = next(part for part in divided.parts if part.query.name == line["query"])
        mechanism = part.mechanisms[0]
        accountant.spend(mechanism.charge(part.query.sensitivity, labels=part.query.k))
    assert not accountant.remaining().costs
    assert [line["day"] for line in divided.schedule(30) if line["query"] == "daily"] == list(
        range(1, 31)
    )


@pytest.mark.slow
def test_segments_of_one_user_each_compose_in_parallel(divided):
    alone = divide((PLAN[2],), 1.0, 1e-6).parts[0]
    single = divide((BudgetItem(name="one", k=4, **COUNTS),), 1.0, 1e-6).parts[0]
    assert alone.error == single.error


@pytest.mark.slow
def test_a_lock_holds_and_the_others_give_way(divided):
    free = divided.parts[1].error
    tight = math.floor(0.8 * free)
    locked = divide(
        (PLAN[0], BudgetItem(name="once", k=4, locked=tight, **COUNTS), PLAN[2]), 1.0, 1e-6
    )
    assert locked.parts[1].error == tight
    assert locked.parts[0].error > divided.parts[0].error
    wanted = divide((BudgetItem(name="once", k=4, accuracy=9, **COUNTS), PLAN[2]), 1.0, 1e-6)
    assert wanted.parts[0].error <= 9 < wanted.parts[1].error
    with pytest.raises(InvalidParameter, match="more than the total"):
        divide((PLAN[0], BudgetItem(name="once", k=4, accuracy=1, **COUNTS)), 1.0, 1e-6)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"name": "a", "size": 3}, "unknown size"),
        ({"name": "a", "accuracy": 3, "locked": 3}, "not both"),
        ({"name": "a", "kind": "median"}, "kind"),
        ({"name": "a", "weight": -1}, "weight"),
    ],
)
def test_refusals(row, told):
    with pytest.raises(InvalidParameter, match=told):
        queries_of([row])
    with pytest.raises(InvalidParameter, match="twice"):
        queries_of([{"name": "a"}, {"name": "a"}])


@pytest.mark.slow
def test_thresholds_that_are_part_of_a_charge_leave_room_for_the_others():
    """SparseGaussian has its threshold's δ inside its charge, centred counts have two laws to
    scale.
    """
    few = divide((BudgetItem(name="few", k=4, labels_per_user=5, times=2),), 1.0, 1e-6)
    (mechanism,) = few.parts[0].mechanisms
    assert isinstance(mechanism, SparseGaussian)
    assert 0.98 <= compose(few.charge, delta=1e-6).epsilon <= 1.0
    assert (
        few.charge
        == mechanism.charge(few.parts[0].query.sensitivity).times(2)
        == Charge.parse(str(few.charge))
    )
    halved = CountMLE(
        noise=Centred(noise=KnownGaussian(sigma=20.0), common=KnownGaussian(sigma=10.0))
    ).scaled(2.0)
    assert str(halved.charge(Sensitivity(), labels=9)) == "DGauss(5.0, 1) + 9*DGauss(10.0, 1)"


@pytest.mark.slow
def test_on_the_command_line(tmp_path):
    plan = tmp_path / "plan.toml"
    query = '[[query]]\nname = "q"\nkind = "counts"\nk = 2\nlabels_per_user = 1\ntimes = 2\n'
    plan.write_text("epsilon = 1.0\ndelta = 1e-6\n" + query, encoding="utf-8")
    out = tmp_path / "costs.txt"
    files = ["--registration", str(out), "--schedule", str(tmp_path / "s.csv"), "--days", "10"]
    result = CliRunner().invoke(app, ["budget", str(plan), "--format", "json", *files])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert Charge.parse(out.read_text(encoding="utf-8").strip()) == Charge.parse(made["registered"])
    assert len((tmp_path / "s.csv").read_text(encoding="utf-8").splitlines()) == 3
    assert "even split" in CliRunner().invoke(app, ["budget", str(plan)]).output
    plan.write_text("epsilon = 1.0\n", encoding="utf-8")
    assert CliRunner().invoke(app, ["budget", str(plan)]).exit_code == 2


@pytest.mark.parametrize("total", [(1e5, 1e-6), (1e-8, 0.5), (1e160, 1e-6), (1e-300, 1e-300)])
def test_a_total_that_leaves_nothing_to_divide_is_refused(total: tuple[float, float]) -> None:
    """Noise of 0, a charge of 0, and a ρ that no float holds."""
    queries = [BudgetItem(name="words", k=3), BudgetItem(name="pages", k=5)]
    with pytest.raises(InvalidParameter):
        divide(queries, *total, effort="quick")
