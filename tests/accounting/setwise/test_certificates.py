"""Certificates hold under an independent checker, and a changed one does not."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from dptopk import CDP, BoundedRange, Charge, DiscreteGaussianDP, GaussianDP, NotCertified, PureDP, compose
from dptopk.accounting.curves import Query
from dptopk.accounting.setwise import certificates
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.partition import Group
from dptopk.accounting.setwise.randomized_rounding import RoundingLevels

CHECKER = Path(__file__).parents[3] / "checker" / "check_certificate.py"
KINDS = "12*BR(0.4) + 3*DP(0.2) + 2*DGauss(6, 2) + GDP(0.3) + ZCDP(0.01) + 2*ADP(0.1, 1e-8) + delta(1e-8)"


def check(text, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, str(CHECKER), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def mixed():
    return certificates.certify(Charge.parse(KINDS), delta=1e-6)


@pytest.mark.slow
def test_a_charge_of_every_kind_is_certified_near_the_best_bound(mixed, tmp_path):
    best = compose(Charge.parse(KINDS), delta=1e-6)
    assert best.lower <= mixed.epsilon <= best.epsilon * 1.001
    result = check(mixed.text, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("valid")


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["25*DP(0.1)", "30*BR(0.1)", "ZCDP(0.125)"])
def test_one_kind_alone(charge, tmp_path):
    """KOV's number, a group of selections, one zCDP cost: as compose has them, to a thousandth."""
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    assert best.epsilon * (1 - 1e-3) <= best.certificate.epsilon <= best.epsilon * 1.001
    assert check(best.certificate.text, tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["16*GDP(0.1)", "5*BR(0.05) + 100*GDP(0.1)", "64*DGauss(20, 1)"])
def test_repeated_costs_are_as_tight_as_composed_ones(charge, tmp_path):
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    assert best.lower <= best.certificate.epsilon <= best.epsilon * 1.001
    assert check(best.certificate.text, tmp_path).returncode == 0


def random_charge(rng):
    """Up to six kinds of costs, a few of each."""
    kinds = [BoundedRange, BoundedRange, BoundedRange, PureDP, GaussianDP, lambda size: DiscreteGaussianDP(2 / size, 1)]
    sizes = 10 ** rng.uniform(-2, 0, rng.integers(1, 7))
    return Charge({kinds[rng.integers(6)](float(f"{size:.3g}")): int(10 ** rng.uniform(0, 1.1)) for size in sizes})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_random_charge_is_certified_as_it_is_composed(seed, tmp_path):
    """Within 1e-3 of compose at most; 1e-5 in all of 200 larger ones."""
    charge = random_charge(np.random.default_rng(seed))
    best = compose(charge, delta=1e-6, certificate=True)
    assert best.lower <= best.certificate.epsilon <= best.epsilon * (1 + 1e-3)
    assert check(best.certificate.text, tmp_path).returncode == 0


def test_one_cost_more_costs_one_more():
    """251 ranges in groups, where 250 fit one: the groups hold 251, not 500."""
    fewer, more = (certificates.certify(Charge({BoundedRange(0.1): n}), delta=1e-6).epsilon for n in (250, 251))
    assert fewer < more < 1.01 * fewer


@pytest.mark.parametrize(
    "text",
    ["26*DP(0.1)", "25*DP(0.2)", "25*DP(0.1) + DP(0.1)", "GDP(0.1)", "ADP(0.1, 1e-9)", "delta(1e-9)", "?", "delta(-1)"],
)
def test_a_charge_that_states_more_than_the_factors_is_refused(text, tmp_path):
    true = certificates.certify(Charge({PureDP(0.1): 25}), delta=1e-6).text
    assert check(true, tmp_path).returncode == 0
    assert check(change(true, lambda content: content.update(charge=text)), tmp_path).returncode == 1


@pytest.mark.parametrize(("text", "code"), [("2*GDP(0.1) + GDP(0.2)", 0), ("2*GDP(0.1) + GDP(0.21)", 1)])
def test_gaussians_of_several_kinds_are_one(text, code, tmp_path):
    true = certificates.certify(Charge.parse("2*GDP(0.1) + GDP(0.2)"), delta=1e-6).text
    assert check(change(true, lambda content: content.update(charge=text)), tmp_path).returncode == code


def change(text, edit):
    content = json.loads(text)
    edit(content)
    return json.dumps(content)


def lower_a_node(content):
    """One node value of one step a millionth too low, in the middle of the window."""
    (group,) = (factor for factor in content["factors"] if factor["kind"] == "BR")
    values = np.frombuffer(zlib.decompress(base64.b64decode(group["values"]))).copy()
    sizes = [size for *_, size in group["rows"]]
    values[sum(sizes[:5]) + sizes[5] // 2] *= 1 - 1e-6
    group["values"] = base64.b64encode(zlib.compress(values.tobytes())).decode()


def more_copies(content):
    for factor in content["factors"]:
        if factor["kind"] == "BR":
            factor["ranges"][0][1] += 1
        factor["count"] = factor.get("count", 0) + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        lower_a_node,
        more_copies,
        lambda content: content.update(epsilon=content["epsilon"] * (1 - 1e-4)),
        lambda content: content.update(delta=content["delta"] * (1 - 1e-3)),
        lambda content: content.update(failures=[[1e-7, 20]]),
    ],
    ids=["node", "count", "epsilon", "delta", "failures"],
)
def test_a_changed_certificate_is_refused(mixed, edit, tmp_path):
    assert check(change(mixed.text, edit), tmp_path).returncode != 0


@pytest.fixture(scope="module")
def together():
    """Two ranges in one group: every multiset that may be left is a state."""
    text = certificates.certify(Charge.parse("6*BR(0.3) + 4*BR(0.2)"), delta=1e-6).text
    (group,) = json.loads(text)["factors"]
    assert len(group["rows"]) == 7 * 5
    return text


def test_a_group_of_two_ranges_is_valid(together, tmp_path):
    assert check(together, tmp_path).returncode == 0


def without_a_state(content):
    """A state is left out, with its node values."""
    (group,) = content["factors"]
    values = np.frombuffer(zlib.decompress(base64.b64decode(group["values"])))
    ends = np.cumsum([size for *_, size in group["rows"]])
    kept = np.concatenate([values[: ends[8]], values[ends[9] :]])
    del group["rows"][9]
    group["values"] = base64.b64encode(zlib.compress(kept.tobytes())).decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        without_a_state,
        lower_a_node,
        lambda content: content["factors"][0]["steps"].__setitem__(0, content["factors"][0]["steps"][0] - 1),
        lambda content: content["factors"][0]["parts"][0].__setitem__(0, [6, 3]),
        lambda content: content["factors"][0].update(step=content["factors"][0]["step"] * 0.99),
    ],
    ids=["state", "node", "steps", "parts", "grid"],
)
def test_every_state_of_a_group_is_checked(together, edit, tmp_path):
    assert check(change(together, edit), tmp_path).returncode == 1


def test_a_state_is_of_whole_ranges(tmp_path):
    """Nine tenths of a range have no range to play, and two groups of them would be more than one range."""
    below = np.maximum(1 - np.exp(np.arange(-300, 301) * 0.01), 0) * (1 + 1e-9) + 1e-12
    group = {
        "kind": "BR", "step": 0.01, "steps": [500], "weights": [], "rows": [[[0.9], -300, 601]], "ranges": [[5.0, 1]],
        "values": base64.b64encode(zlib.compress(below.tobytes())).decode(), "parts": [[[0.9], 2]],
        "low": -3000, "high": 3000,
    }  # fmt: skip
    content = {"epsilon": 1e-3, "delta": 1e-6, "bad": 0, "failures": [], "step": 1e-3, "width": 4000}
    result = check(json.dumps(content | {"charge": "BR(5.0)", "factors": [group]}), tmp_path)
    assert (result.returncode, result.stdout) == (1, "")


WEIGHTED = "3*BR(0.3) + 2*BR(0.4) + 4*BR(0.5) + 2*BR(0.6)"


@pytest.fixture(scope="module")
def weighted():
    """Four ranges rounded by coins to two that have weights."""
    levels = RoundingLevels((6, 12), (1, 4))
    group = Group(tuple((cost.epsilon, times) for cost, times in Charge.parse(WEIGHTED)), steps=12, levels=levels)
    curve = SetwiseCurve.of(Charge.parse(WEIGHTED))
    run = curve.proof(Query(delta=1e-6))
    run.__dict__["groups"] = [group]
    return certificates.proven(Charge.parse(WEIGHTED), 1e-6, run, 1e-6 * (1 - 1e-5))


def test_coins_and_weights_are_checked(weighted, tmp_path):
    assert check(weighted.text, tmp_path).returncode == 0
    least = compose(Charge.parse(WEIGHTED), delta=1e-6).lower
    assert least < weighted.epsilon < 1.2 * least


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        lower_a_node,
        without_a_state,
        lambda content: content["factors"][0]["ranges"][0].__setitem__(1, 7),
        lambda content: content["factors"][0]["weights"].__setitem__(1, 5),
        lambda content: content["factors"][0]["steps"].__setitem__(1, 11),
        lambda content: content["factors"][0].update(step=content["factors"][0]["step"] * 0.99),
    ],
    ids=["node", "state", "count", "weight", "steps", "grid"],
)
def test_a_changed_weight_game_is_refused(weighted, edit, tmp_path):
    assert check(change(weighted.text, edit), tmp_path).returncode == 1


def test_next_to_the_largest_loss_there_is_a_certificate_too(tmp_path):
    """There differences of the log-MGF see no variance."""
    found = compose(Charge({PureDP(0.5484): 2}), delta=1.2271152752361792e-09, certificate=True)
    assert found.epsilon <= found.certificate.epsilon <= found.epsilon * (1 + 1e-4)
    assert check(found.certificate.text, tmp_path).returncode == 0


def of_kind(content, kind):
    return next(factor for factor in content["factors"] if factor["kind"] == kind)


@pytest.fixture(scope="module")
def closed():
    """Closed forms alone: quick to check."""
    return certificates.certify(Charge.parse("25*DP(0.1) + 2*DGauss(6, 2) + GDP(0.3) + 3*ZCDP(0.01)"), delta=1e-6).text


@pytest.mark.slow
def test_the_checker_says_what_it_checked(closed, tmp_path):
    result = check(closed, tmp_path)
    assert result.stdout.startswith("valid: 25 DP 0.1; 2 DGauss 6.0 2; 1 GDP 0.3; 1 ZCDP 0.0 0.03")


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        lambda content: of_kind(content, "DP").update(count=1000, power=25),
        lambda content: of_kind(content, "DP").update(count=0),
        lambda content: of_kind(content, "DP").update(epsilon=-9.0),
        lambda content: of_kind(content, "GDP").update(mu=-0.3),
        lambda content: of_kind(content, "DGauss").update(shift=-2),
        lambda content: content.update(bad=-1e-4),
        lambda content: content.update(failures=[[-1e-4, 1]]),
        lambda content: content.update(failures=[[1e-4, -1]]),
        lambda content: content.update(step=-content["step"]),
        lambda content: content.update(epsilon=float("nan")),
    ],
    ids=["power", "no count", "epsilon", "mu", "shift", "bad", "failure", "failures", "step", "nan"],
)
def test_numbers_that_mean_less_than_they_say_are_refused(closed, edit, tmp_path):
    result = check(change(closed, edit), tmp_path)
    assert result.returncode == 1
    assert "valid" not in result.stdout


@pytest.mark.slow
def test_the_checker_checks_without_asserts_too(closed, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(change(closed, lambda content: content.update(epsilon=0.01)), encoding="utf-8")
    command = [sys.executable, "-O", str(CHECKER), str(path)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=300).returncode == 1


def test_the_checker_is_short_and_knows_nothing_of_the_package():
    source = CHECKER.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 255
    assert "import dptopk" not in source
    assert "from dptopk" not in source


@pytest.mark.parametrize(
    ("charge", "arguments"),
    [
        (Charge({CDP(0.1, 0.3): 1}), {"delta": 1e-6}),
        (Charge({BoundedRange(0.1): 5}), {"delta": 1e-12}),
        (Charge({BoundedRange(0.1): 5}), {"epsilon": 1.0}),
        (Charge({BoundedRange(0.1): 5}, delta=1e-6), {"delta": 1e-6}),
        (Charge({BoundedRange(0.1): 5}), {"delta": 1e-6, "interaction": "filter"}),
    ],
)
def test_what_cannot_be_certified_is_said(charge, arguments):
    with pytest.raises(NotCertified):
        compose(charge, certificate=True, **arguments)
