"""Certificates hold under an independent checker, and a changed one does not."""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import subprocess
import sys
import zlib
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from dptopk import (
    ZCDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    GaussianDP,
    NotCertified,
    PureDP,
    compose,
)
from dptopk.accounting.curves import Query
from dptopk.accounting.setwise import certificate_values, certificates, product_certificates
from dptopk.accounting.setwise.certificate_factors import Claim
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.price_rounding import RoundingLevels
from dptopk.accounting.setwise.recursion import Rules
from dptopk.accounting.setwise.zcdp_gaussian import (
    LARGEST_RHO,
    concentrated_gaussian,
    zcdp_constant,
)

CHECKER = Path(__file__).parents[3] / "checker" / "check_certificate.py"
KINDS = (
    "12*BR(0.4) + 3*DP(0.2) + 2*DGauss(6, 2) + GDP(0.3) + ZCDP(0.01) + 2*ADP(0.1, 1e-8) + "
    "delta(1e-8)"
)


def check(text, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, str(CHECKER), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def mixed():
    return certificates.certify(Charge.parse(KINDS), delta=1e-6)


@pytest.mark.study
def test_a_charge_of_every_kind_is_certified_near_the_best_bound(mixed, tmp_path):
    """Compose plays ranges and costs of zCDP in one game; a certificate has them in groups."""
    best = compose(Charge.parse(KINDS), delta=1e-6)
    assert best.lower <= mixed.epsilon <= best.epsilon * 1.01
    result = check(mixed.text, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("valid")


@pytest.mark.slow
@pytest.mark.parametrize(
    "charge",
    [
        "25*DP(0.1)",
        "30*BR(0.1)",
        "ZCDP(0.125)",
        pytest.param("9*CDP(0.01, 0.2)", marks=pytest.mark.study),
    ],
)
def test_one_kind_alone(charge, tmp_path):
    """KOV's number, a group of selections, one zCDP cost: as compose has them, to a thousandth; nine
    CDP costs, of which the checker knows the largest mean only, to twelve.
    """
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    above = 1.2e-2 if charge.startswith("9*CDP") else 1e-3
    assert best.epsilon * (1 - 1e-3) <= best.certificate.epsilon <= best.epsilon * (1 + above)
    assert check(best.certificate.text, tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["16*GDP(0.1)", "5*BR(0.05) + 100*GDP(0.1)", "64*DGauss(20, 1)"])
def test_repeated_costs_are_as_tight_as_composed_ones(charge, tmp_path):
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    assert best.lower <= best.certificate.epsilon <= best.epsilon * 1.001
    assert check(best.certificate.text, tmp_path).returncode == 0


def random_charge(rng):
    """Up to six kinds of costs, a few of each."""
    kinds = [
        BoundedRange,
        BoundedRange,
        BoundedRange,
        PureDP,
        GaussianDP,
        lambda size: DiscreteGaussianDP(2 / size, 1),
    ]
    sizes = 10 ** rng.uniform(-2, 0, rng.integers(1, 7))
    return Charge(
        {
            kinds[rng.integers(6)](float(f"{size:.3g}")): int(10 ** rng.uniform(0, 1.1))
            for size in sizes
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        *range(4, 10),
        *(pytest.param(seed, marks=pytest.mark.study) for seed in (*range(4), *range(10, 16))),
    ],
)
def test_a_random_charge_is_certified_as_it_is_composed(seed, tmp_path):
    """Within 1e-3 of compose at most; 1e-5 in all of 200 larger ones."""
    charge = random_charge(np.random.default_rng(seed))
    best = compose(charge, delta=1e-6, certificate=True)
    assert best.lower <= best.certificate.epsilon <= best.epsilon * (1 + 1e-2)
    assert check(best.certificate.text, tmp_path).returncode == 0


def test_stated_values_above_1_are_above_every_chord_of_the_values_before():
    """A step of the recursion says no more than 1, but the checker asks for all chords."""
    N, h = 120, 0.0077
    values = np.where(np.arange(1200) < 540, 1 + 5e-9, 1e-6)
    values[:500] -= np.random.default_rng(1).random(500) * 3e-9
    stated = certificate_values._step_above_checker(values, N, h)
    near_share = np.expm1(np.arange(N + 1) * h - N * h) / math.expm1(-N * h)
    for node in range(len(stated)):
        at_near = node + N - np.arange(N + 1)
        chords = near_share * values[at_near] + (1 - near_share) * values[at_near + N]
        assert stated[node] >= chords.max(), node


@pytest.mark.study
def test_large_ranges_at_a_large_delta_are_certified(tmp_path):
    """Node values next to 1 were below the checker's chords, by dips in the values before."""
    charge = Charge.parse(
        "15*BR(14.9) + 7*GDP(0.327) + 34*ADP(0.00118, 4.54e-06) + GDP(2.2) + BR(4.0)"
    )
    certificate = certificates.certify(charge, delta=0.611)
    answer = check(certificate.text, tmp_path)
    assert answer.returncode == 0, answer.stdout
    assert certificate.epsilon <= compose(charge, delta=0.611).epsilon * (1 + 1e-2)


def test_equal_gaussians_are_certified_as_they_are_composed():
    """Without the file and its checker: repeated factors once cost several times as much."""
    charge = Charge.parse("16*GDP(0.1)")
    assert (
        certificates.certify(charge, delta=1e-6).epsilon
        <= 1.001 * compose(charge, delta=1e-6).epsilon
    )


@pytest.mark.slow
def test_one_cost_more_costs_one_more():
    """251 ranges in groups, where 250 fit one: the groups hold 251, not 500."""
    fewer, more = (
        certificates.certify(Charge({BoundedRange(0.1): n}), delta=1e-6).epsilon for n in (250, 251)
    )
    assert fewer < more < 1.01 * fewer


@pytest.mark.parametrize(
    "text",
    [
        "26*DP(0.1)",
        "25*DP(0.2)",
        "25*DP(0.1) + DP(0.1)",
        "GDP(0.1)",
        "ADP(0.1, 1e-9)",
        "delta(1e-9)",
        "?",
        "delta(-1)",
    ],
)
def test_a_charge_that_states_more_than_the_factors_is_refused(text, tmp_path):
    true = certificates.certify(Charge({PureDP(0.1): 25}), delta=1e-6).text
    assert check(true, tmp_path).returncode == 0
    assert (
        check(change(true, lambda content: content.update(charge=text)), tmp_path).returncode == 1
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [("2*GDP(0.1) + GDP(0.2)", 0), ("2*GDP(0.1) + GDP(0.21)", 1), ("2*GDP(0.1) + GDP(0.2, 9)", 1)],
)
def test_gaussians_of_several_kinds_are_one(text, code, tmp_path):
    true = certificates.certify(Charge.parse("2*GDP(0.1) + GDP(0.2)"), delta=1e-6).text
    assert (
        check(change(true, lambda content: content.update(charge=text)), tmp_path).returncode
        == code
    )


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
@pytest.mark.parametrize("edit", [lower_a_node, more_copies])
def test_a_changed_certificate_is_refused(mixed, edit, tmp_path):
    assert check(change(mixed.text, edit), tmp_path).returncode != 0


@pytest.fixture(scope="module")
def one_range():
    """Equal ranges, a Gaussian and failures: quick to check."""
    charge = Charge.parse("5*BR(0.3) + GDP(0.2) + 4*ADP(0.1, 1e-8)")
    return certificates.certify(charge, delta=1e-6).text


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.update(epsilon=content["epsilon"] * (1 - 1e-4)),
        lambda content: content.update(delta=content["delta"] * (1 - 1e-3)),
        lambda content: content.update(failures=[[1e-7, 20]]),
    ],
    ids=["epsilon", "delta", "failures"],
)
def test_a_changed_claim_is_refused(one_range, edit, tmp_path):
    assert check(one_range, tmp_path).returncode == 0
    assert check(change(one_range, edit), tmp_path).returncode != 0


@pytest.fixture(scope="module")
def together():
    """Two ranges in one group: every multiset that may be left is a state."""
    text = certificates.certify(Charge.parse("6*BR(0.3) + 4*BR(0.2)"), delta=1e-6).text
    (group,) = json.loads(text)["factors"]
    assert len(group["rows"]) == 7 * 5
    return text


@pytest.mark.parametrize("place", [1, 2])
def test_a_grid_of_any_width_is_refused_at_once(together, place, checker, tmp_path, capsys):
    """Where a row begins, or how long it is: 2^70 nodes are not computed first."""
    changed = change(
        together, lambda content: content["factors"][0]["rows"][1].__setitem__(place, 2**70)
    )
    assert "too wide" in refused(checker, changed, tmp_path, capsys)


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
        lambda content: content["factors"][0]["steps"].__setitem__(
            0, content["factors"][0]["steps"][0] - 1
        ),
        lambda content: content["factors"][0]["parts"][0].__setitem__(0, [6, 3]),
        lambda content: content["factors"][0].update(step=content["factors"][0]["step"] * 0.99),
    ],
    ids=["state", "node", "steps", "parts", "grid"],
)
def test_every_state_of_a_group_is_checked(together, edit, tmp_path):
    assert check(change(together, edit), tmp_path).returncode == 1


def test_a_state_is_of_whole_ranges(tmp_path):
    """Nine tenths of a range have no range to play, and two groups of them would be more than one
    range.
    """
    below = np.maximum(1 - np.exp(np.arange(-300, 301) * 0.01), 0) * (1 + 1e-9) + 1e-12
    group = {
        "kind": "BR", "step": 0.01, "steps": [500], "weights": [], "rows": [[[0.9], -300, 601]], "ranges": [[5.0, 1]],
        "values": base64.b64encode(zlib.compress(below.tobytes())).decode(), "parts": [[[0.9], 2]],
        "low": -3000, "high": 3000,
    }  # fmt: skip
    content = {
        "epsilon": 1e-3,
        "delta": 1e-6,
        "bad": 0,
        "failures": [],
        "step": 1e-3,
        "width": 4000,
    }
    result = check(json.dumps(content | {"charge": "BR(5.0)", "factors": [group]}), tmp_path)
    assert (result.returncode, result.stdout) == (1, "")


WEIGHTED = "3*BR(0.3) + 2*BR(0.4) + 4*BR(0.5) + 2*BR(0.6)"


@pytest.fixture(scope="module")
def weighted():
    """Four ranges rounded by coins to two that have weights."""
    levels = RoundingLevels((6, 12), (1, 4))
    group = CostGroup(
        tuple((cost.epsilon, times) for cost, times in Charge.parse(WEIGHTED)),
        steps=12,
        levels=levels,
    )
    curve = SetwiseCurve.of(Charge.parse(WEIGHTED))
    run = curve.proof(Query(delta=1e-6))
    run.__dict__["groups"] = [group]
    charge = Charge.parse(WEIGHTED)
    delta_left = 1e-6 * (1 - 1e-5)
    claim = Claim(charge, charge, 1e-6, delta_left)
    return product_certificates.product_certificate(claim, run, delta_left)


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
    return certificates.certify(
        Charge.parse("25*DP(0.1) + 2*DGauss(6, 2) + GDP(0.3) + 3*ZCDP(0.01)"), delta=1e-6
    ).text


@pytest.mark.slow
def test_the_checker_says_what_it_checked(closed, tmp_path):
    result = check(closed, tmp_path)
    assert result.stdout.startswith("valid: 25 DP 0.1; 2 DGauss 6.0 2; 1 GDP 0.3; 3 ZCDP 0.01 0.0")


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
    ids=[
        "power",
        "no count",
        "epsilon",
        "mu",
        "shift",
        "bad",
        "failure",
        "failures",
        "step",
        "nan",
    ],
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
    assert len(source.splitlines()) <= 1000  # a statement a line, every function explained
    assert "import dptopk" not in source
    assert "from dptopk" not in source


@pytest.mark.parametrize(
    ("charge", "arguments"),
    [
        (Charge({DiscreteLaplaceDP(10.0, 1): 1}), {"delta": 1e-6}),
        (Charge({BoundedRange(0.1): 5}), {"epsilon": 1.0}),
        (Charge({BoundedRange(0.1): 5}, delta=1e-6), {"delta": 5e-7}),
        (Charge({GaussianDP(0.1): 5}, delta=1e-6), {"delta": 1e-6}),
        (Charge({BoundedRange(0.1): 5}), {"delta": 1e-6, "interaction": "filter"}),
    ],
)
def test_what_cannot_be_certified_is_said(charge, arguments):
    with pytest.raises(NotCertified):
        compose(charge, certificate=True, **arguments)


@pytest.mark.parametrize(
    "charge",
    [
        "17*GDP(1e300)",
        "GDP(1) + DGauss(1e-300, 2)",
        "1000000*ZCDP(0.5) + GDP(1) + 1000000000*DGauss(5e-324, 7)",
        "ZCDP(1e-300) + 1000000*ADP(37.5, 1e-16)",
        "1000000*ZCDP(700) + 1000000*DP(1e-12)",
        "ZCDP(1, xi=5e-324) + ZCDP(1, xi=1e300)",
        "1000*DLap(5e-324, 1)",
    ],
)
def test_numbers_beyond_the_range_of_floats_end_in_no_traceback(charge):
    """All were accepted as charges, and ended in an OverflowError or a ValueError."""
    costs = Charge.parse(charge)
    best = compose(costs, delta=0.1)
    assert best.epsilon > 1e3
    try:
        certificate = compose(costs, delta=0.1, certificate=True).certificate
    except NotCertified:
        return
    assert certificate.epsilon > 1e3


@pytest.fixture(scope="module")
def checker():
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(checker, text, tmp_path, capsys):
    """What the checker, in this process, says of a file that it does not accept."""
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((SystemExit, ArithmeticError, LookupError, TypeError, ValueError)) as reason:
        checker.main(path)
    assert capsys.readouterr().out == ""
    return str(reason.value)


CONCENTRATED = "30*ZCDP(0.002) + 4*ZCDP(0.001, xi=2e-05) + 3*CDP(0.0011, 0.05)"


@pytest.fixture(scope="module")
def small():
    """Small zCDP and CDP costs, which are one Gaussian by Theorem H."""
    text = certificates.certify(Charge.parse(CONCENTRATED), delta=1e-6).text
    (factor,) = json.loads(text)["factors"]
    assert factor["kind"] == "Smoothed"
    return text


@pytest.mark.slow
def test_many_small_costs_are_certified_as_one_gaussian(small, tmp_path):
    best = compose(Charge.parse(CONCENTRATED), delta=1e-6)
    assert best.epsilon < json.loads(small)["epsilon"] < best.epsilon * (1 + 1e-4)
    assert (
        best.epsilon < 0.97 * compose(Charge.parse(CONCENTRATED), delta=1e-6, bound="renyi").epsilon
    )
    result = check(small, tmp_path)
    assert result.stdout.startswith(
        "valid: 4 ZCDP 0.001 2e-05; 30 ZCDP 0.002 0.0; 3 CDP 0.0011 0.05"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("charge", "kinds"),
    [
        ("50*DP(0.1) + 100*ZCDP(0.001)", ["DP", "Smoothed"]),
        (
            "20*BR(0.1) + 100*ZCDP(0.001) + ZCDP(0.02) + ADP(0.1, 1e-9)",
            ["BR", "DP", "Smoothed", "Renyi"],
        ),
        pytest.param("3*BR(0.5) + 2*BR(0.3) + ZCDP(0.1)", ["Renyi"], marks=pytest.mark.study),
        ("2*BR(0.1) + DP(0.3) + ZCDP(0.0005)", ["Renyi"]),
        (
            "18*BR(0.147) + 154*DP(0.6) + 112*CDP(0.0973, 0.242) + DGauss(9, 2)",
            ["BR", "DP", "DGauss", "Smoothed"],
        ),
    ],
)
def test_concentrated_costs_beside_others(charge, kinds, tmp_path):
    """The Gaussian, the conversion of what is larger, or one Rényi curve with the ranges: as
    compose has it, or nearly, where compose plays ranges and costs of zCDP in one game.
    """
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    assert [factor["kind"] for factor in json.loads(best.certificate.text)["factors"]] == kinds
    assert best.epsilon <= best.certificate.epsilon <= best.epsilon * (1 + 5e-3)
    assert check(best.certificate.text, tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, 5, *(pytest.param(seed, marks=pytest.mark.study) for seed in (0, 2, 3, 4, 6, 7))]
)
def test_a_random_charge_with_zcdp_costs_is_certified_as_it_is_composed(seed, tmp_path):
    """Within 0.1%, or 2% where compose plays ranges and costs of zCDP in one game, of which no file
    can be written: the certificate is then that of a Rényi curve.
    """
    rng = np.random.default_rng(1000 + seed)
    rhos = [float(f"{rho:.3g}") for rho in 10 ** rng.uniform(-4, -1, rng.integers(1, 4))]
    charge = Charge.join(
        random_charge(rng), Charge({ZCDP(rho): int(rng.integers(1, 15)) for rho in rhos})
    )
    delta = float(10 ** rng.uniform(-9, -4))
    best = compose(charge, delta=delta, certificate=True)
    difference = 2e-2 if best.name == "optimal_setwise" else 1e-3
    assert best.lower <= best.certificate.epsilon <= best.epsilon * (1 + difference)
    assert check(best.certificate.text, tmp_path).returncode == 0


def cost(column, value):
    """Another number of the first listed cost."""

    def edit(content):
        content["factors"][0]["costs"][0][column] = value

    return edit


def a_gaussian_instead(content):
    variance = 2 * (30 * 0.002 + 4 * 0.00102 + 3 * 0.0011)
    content["factors"] = [{"kind": "GDP", "count": 1, "mu": variance**0.5}]


@pytest.mark.parametrize(
    ("reason", "edits"),
    [
        (
            "states more than",
            [cost(1, 0.0009), cost(2, 1e-5), cost(0, "CDP"), cost(-1, 3), a_gaussian_instead],
        ),
        ("states more than", [lambda content: content["factors"][0]["costs"].pop(0)]),
        (
            "outside its range",
            [cost(1, value) for value in ("0.001", -0.001, math.nan, math.inf, None, True, [])],
        ),
        (
            "counts must be",
            [cost(-1, value) for value in (0, -4, 4.0, 3.5, True, "4", math.nan, None)],
        ),
        (
            "costs that are zCDP",
            [
                cost(0, "Clock"),
                lambda content: content["factors"][0].update(costs=[["GDP", 0.1, 4]]),
                lambda content: content["factors"][0].update(costs=[]),
            ],
        ),
        ("not a certificate", [cost(0, "BR"), cost(0, "DP"), cost(0, [])]),
        ("largest rho", [lambda content: content["factors"][0].update(costs=[["ZCDP", 0, 0, 4]])]),
        (
            "only bounded by",
            [cost(-1, 10**30)],
        ),
        (
            "only bounded by",
            [lambda content: content.update(epsilon=content["epsilon"] * (1 - 2e-3))],
        ),
        ("only bounded by", [lambda content: content["factors"][0].update(kind="Renyi")]),
    ],
)
def test_changed_small_costs_are_refused(small, reason, edits, checker, tmp_path, capsys):
    for edit in edits:
        assert reason in refused(checker, change(small, edit), tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stated", ["40*ZCDP(0.0015)", "ZCDP(0.06)", "30*ZCDP(0.001) + 30*ZCDP(0.001)"]
)
def test_costs_are_stated_one_by_one(stated, checker, tmp_path, capsys):
    """As many small costs as a large one adds up to are worth less: sums say nothing."""
    true = certificates.certify(Charge({ZCDP(0.002): 30}), delta=1e-6).text
    changed = change(true, lambda content: content.update(charge=stated))
    assert "states more" in refused(checker, changed, tmp_path, capsys)


@pytest.mark.parametrize("charge", ["2*ZCDP(0.6)", "2*ZCDP(0.3, xi=0.3)"])
@pytest.mark.slow
def test_theorem_h_is_for_small_costs(charge, checker, tmp_path, capsys):
    """Each is refused as a part of a Gaussian, whose ε would be less."""
    true = certificates.certify(Charge.parse(charge), delta=1e-6).text
    changed = change(true, lambda content: content["factors"][0].update(kind="Smoothed"))
    assert "largest rho" in refused(checker, changed, tmp_path, capsys)


def test_another_format_is_refused(checker, tmp_path, capsys):
    true = certificates.certify(Charge({PureDP(0.1): 2}), delta=1e-6).text
    changed = change(true, lambda content: content.update(format=3))
    assert refused(checker, changed, tmp_path, capsys).endswith(
        "a file of format 3; this program reads formats 4 to 6"
    )


@pytest.mark.parametrize(
    "rhos", [{0.5: 1}, {0.01: 2, 0.5: 1}, {1e-4: 1000, 0.003: 40}, {1e-9: 10**6, 1e-7: 3}]
)
def test_the_checker_computes_the_variance_of_theorem_h(checker, rhos, monkeypatch):
    """By quadrature and the plain exponential at forty digits; the float of compose is a little
    above.
    """
    monkeypatch.setattr(checker, "gaussian", lambda mu: mu)
    mu = checker.smoothed({"costs": [["ZCDP", rho, 0, count] for rho, count in rhos.items()]})
    assert max(rhos) <= LARGEST_RHO
    with mpmath.workdps(40):
        rho = mpmath.mpf(max(rhos))

        def variance(k, logarithm):
            s = rho + rho * k / 10
            b = 1 + rho / 4 + rho**2 / s
            kappa = rho / 8 + rho * (2 * rho / s) / 6
            beta = (mpmath.exp(kappa) - 1) * mpmath.exp(rho / 4 * (b + (2 * rho / s) * b**2 / 4))
            r = (1 + beta) * rho
            twice = 2 * (1 + beta) * sum(mpmath.mpf(one) * count for one, count in rhos.items())
            return s + twice + r / 2 * (logarithm(s, twice) + r / s + r**2 / (3 * s**2))

        def area(s, twice):
            ends = [0, *(s * 4**k for k in range(20) if s * 4**k < twice), twice]
            return mpmath.quad(lambda u: 1 / (s + u), ends)

        best = min(range(71), key=lambda k: variance(k, lambda s, twice: mpmath.log(1 + twice / s)))
        mine = mpmath.mpf((mu**2).mid().str(40, radius=False))
        assert abs(mine / variance(best, area) - 1) < 1e-20
        assert mine <= concentrated_gaussian(rhos) <= mine * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0])
@pytest.mark.parametrize("order", [0.01, 1.0, 50.0])
def test_the_checker_knows_the_moments_of_a_range(checker, epsilon, order):
    """No law with two losses ε apart has a larger one, and one of them attains it."""
    moment = mpmath.mpf(
        checker.MOMENTS["BR"](checker.ball(order), checker.ball(epsilon))
        .mid()
        .str(45, radius=False)
    )
    with mpmath.workdps(60):
        e, t = mpmath.mpf(epsilon), mpmath.mpf(order)

        def of(top):
            p = mpmath.expm1(e - top) / (mpmath.exp(e - top) - mpmath.exp(-top))
            return mpmath.log(p * mpmath.exp(t * top) + (1 - p) * mpmath.exp(t * (top - e)))

        values = [of(e * k / 128) for k in range(1, 128)]
        assert moment * (1 - mpmath.mpf(10) ** -3) < max(values) <= moment


@pytest.mark.parametrize("order", [0.25, 1.0, 50.0])
@pytest.mark.parametrize("charge", ["DP(0.001)", "DP(2.0)", "DGauss(1.5, 2)"])
def test_the_checker_knows_the_moments_of_pairs(checker, charge, order):
    """Of randomised response exactly, of a discrete Gaussian from above: where the tilted law is
    one, exactly.
    """
    (cost,) = Charge.parse(charge).costs
    numbers = [checker.ball(getattr(cost, name)) for name in certificates.LISTED[type(cost)]]
    with mpmath.workdps(60):
        moment = mpmath.mpf(
            checker.MOMENTS[cost.symbol](checker.ball(order), *numbers).mid().str(45, radius=False)
        )
        if cost.symbol == "DP":
            e = mpmath.mpf(cost.epsilon)
            law = [(mpmath.exp(e), e), (mpmath.mpf(1), -e)]
        else:
            s, a = mpmath.mpf(cost.scale), cost.shift
            law = [
                (mpmath.exp(-(z**2) / (2 * s**2)), (2 * z * a + a**2) / (2 * s**2))
                for z in range(-200, 200)
            ]
        true = mpmath.log(mpmath.fsum(p * mpmath.exp(order * loss) for p, loss in law))
        true -= mpmath.log(mpmath.fsum(p for p, _ in law))
        assert true * (1 - mpmath.mpf(10) ** -30) <= moment
        if cost.symbol == "DP" or order >= 1:
            assert moment <= true * (1 + mpmath.mpf(10) ** -30)


def test_a_gaussian_has_the_moments_of_its_zcdp(checker):
    assert checker.MOMENTS["GDP"](3, 0.5) == checker.MOMENTS["ZCDP"](3, 0.125, 0.0)


@pytest.mark.parametrize(
    ("charge", "moment", "rho"),
    [("ZCDP(0.25, xi=0.5)", 4.5, 0.75), ("CDP(0.5, 2.0)", 19.5, 2.0), ("CDP(3.0, 2.0)", 24, 2)],
)
def test_the_checker_converts_concentrated_costs(checker, charge, moment, rho):
    """ln E e^{3L} of each, a ρ such that it is ρ-zCDP, and the δ of several at some ε, as the
    package has it.
    """
    (cost,) = Charge.parse(charge).costs
    numbers = [getattr(cost, name) for name in certificates.LISTED[type(cost)]]
    assert checker.MOMENTS[cost.symbol](3, *numbers) == moment
    assert checker.RHO[cost.symbol](*numbers) == rho
    profile = checker.renyi(
        {"costs": [[cost.symbol, *numbers, 2], ["BR", 0.5, 3], ["ZCDP", 0.01, 0.0, 1]]}
    )
    together = Charge({cost: 2, BoundedRange(0.5): 3, ZCDP(0.01): 1})
    for x in (2.0, 8.0, 30.0):
        best = compose(together, epsilon=x, bound="renyi").delta
        delta = float(profile(x))
        assert best * (1 - 1e-9) <= delta <= best * (1 + 1e-6)
        assert float(profile(-x)) == pytest.approx(1 - math.exp(-x) * (1 - delta), abs=1e-14)


@pytest.mark.parametrize("mu", [1e-3, 1.0, 25.0])
def test_the_checker_knows_a_gaussian_to_forty_digits(checker, mu):
    """At losses of hundreds too, where e^x times a small tail is what counts."""
    profile = checker.gaussian(checker.ball(mu))
    for deviations in (-3, 0, 5):
        x = mu * mu / 2 + deviations * mu
        found = profile(x)
        with mpmath.workdps(300):
            m, y = mpmath.mpf(mu), mpmath.mpf(x)
            true = mpmath.ncdf(m / 2 - y / m) - mpmath.exp(y) * mpmath.ncdf(-m / 2 - y / m)
            assert abs(mpmath.mpf(found.str(60, radius=False)) / true - 1) < mpmath.mpf(10) ** -40
            assert found.rel_accuracy_bits() > 133


@pytest.mark.parametrize("rho", [1e-13, 1e-9, 1e-3, 50.0])
def test_the_checker_finds_the_order_of_the_smallest_costs(checker, rho):
    """Of three zCDP costs: the smaller, the higher the order."""
    charge = Charge({ZCDP(rho): 3})
    best = compose(charge, delta=1e-6, bound="renyi")
    assert float(checker.renyi({"costs": [["ZCDP", rho, 0.0, 3]]})(best.epsilon)) < 1e-6 * (
        1 + 1e-6
    )


def no_height(content):
    """A factor twice, without ends of a lattice."""
    content["factors"].append(content["factors"][0])


RENYI_BESIDE_RANGES = (
    "9*ZCDP(0.00187, xi=0.0132) + 74*BR(0.0237) + 6*ZCDP(2.07e-05, xi=0.0561) "
    "+ 8*BR(0.144) + 79*GDP(0.164)"
)


def test_node_values_decrease():
    """Where they rose by rounding, the next step of a low one was below the chord over it, and the
    checker refused 15*BR(14.9) + BR(4.0) beside other costs: "a node value is below the step".
    """
    rules = Rules.of({14.9: 5}, 1937, upper=True, reach=8.0)
    states = [(left,) for left in range(6)]
    windows = rules.windows(np.array(states))
    _, rows = certificate_values._stated_values(rules, states, windows, ())
    assert all(np.all(np.diff(row.values) <= 0) for row in rows.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("charge", "delta"),
    [
        # more losses than the checker lists: "a law too wide"
        (f"{10**9}*DP(0.5) + 17*GDP(745) + 17*GDP(37.5)", 0.999999999999999),
        (RENYI_BESIDE_RANGES, 2.54e-10),  # "delta is only bounded by"
    ],
)
def test_files_that_the_checker_refused_are_valid(charge, delta, checker, tmp_path, capsys):
    best = compose(Charge.parse(charge), delta=delta, certificate=True)
    best.certificate.write(tmp_path / "certificate.json")
    checker.main(tmp_path / "certificate.json")
    assert capsys.readouterr().out.startswith("valid: ")
    assert best.epsilon <= best.certificate.epsilon <= best.epsilon * (1 + 1e-3)


@pytest.mark.parametrize(
    ("charge", "delta"),
    [
        ("10*CDP(0.0001, 1e-9)", 1e-6),
        ("20*BR(0.1)", 0.5),
        ("5*DP(0.1)", 0.2),
        ("GDP(0.5)", 0.5),
        ("2*BR(0.1) + GDP(0.01)", 0.5),
        ("2*BR(40.0)", 1e-6),
        ("3*BR(100.0)", 1e-6),
        ("BR(0.0106) + BR(0.437) + 35*BR(3.71)", 0.027),
        ("10*DP(0.1)", 0.0),
        ("20*BR(0.1)", 1e-300),
        ("4*DP(0.377) + DGauss(1.78, 4)", 1.8e-239),
        ("2*GDP(1.0) + ADP(0.1, 1e-302)", 1e-300),
        ("BR(4.61) + ADP(0.0, 1.3e-14) + DGauss(626.0, 1) + ZCDP(2.8e-05)", 1.6e-7),
        pytest.param(  # losses of the lower end are no floats
            "DP(0.215) + 3*BR(26.4) + 62*DGauss(0.141, 3) + CDP(0.00381, 9.4e-05)",
            5.72e-11,
            marks=pytest.mark.slow,
        ),
        (f"{10**18}*BR(1e-9)", 1e-6),
        # Zero times infinity in the checker, with a warning.
        ("ZCDP(0.303) + ZCDP(0.00571) + 73*GDP(0.0673)", 8.54e-7),
        ("3*ADP(0.1, 1e-9) + 20000*DP(0.001)", 1e-6),
    ],
)
def test_odd_charges_have_certificates_that_hold(charge, delta, checker, tmp_path, capsys):
    """No answer of 0, no tiny and no huge cost ends in a crash, in gigabytes or in a file that the
    checker refuses. Below a δ of 1e-11 the certificate is of one curve of everything.
    """
    best = compose(Charge.parse(charge), delta=delta, certificate=True, effort="quick")
    path = tmp_path / "certificate.json"
    best.certificate.write(path)
    checker.main(path)
    assert capsys.readouterr().out.startswith("valid: ")
    above = 2e-2 if 0 < delta < 1e-11 else 1e-3
    assert (best.lower or 0.0) <= best.certificate.epsilon <= best.epsilon * (1 + above)


@pytest.mark.parametrize(
    "edit",
    [
        no_height,
        lambda content: content.pop("factors"),
        lambda content: content.update(factors=7),
        lambda content: content.update(factors=[[]]),
        lambda content: content.update(charge=None),
        lambda content: content.update(step="a"),
        lambda content: content.update(step=0),
        lambda content: content.update(width=2**60),
        lambda content: content.update(failures=[[1e-9]]),
        lambda content: content["factors"][0].update(kind="None"),
        lambda content: content["factors"][0].update(costs={}),
        lambda content: content["factors"][0]["costs"][0].append(3),
    ],
)
def test_a_file_that_is_no_certificate_is_refused_in_words(small, edit, checker, tmp_path, capsys):
    path = tmp_path / "certificate.json"
    path.write_text(change(small, edit), encoding="utf-8")
    with pytest.raises(SystemExit, match="refused"):
        checker.main(path)
    assert capsys.readouterr().out == ""


def test_what_is_no_json_is_refused_in_words(checker, tmp_path):
    path = tmp_path / "certificate.json"
    for text in ("", "[]", "{", "null", '{"format": 5}', "[" * 100_000):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit, match="refused"):
            checker.main(path)
    with pytest.raises(SystemExit, match="refused"):
        checker.main(tmp_path / "nothing.json")


def test_a_sum_of_epsilons_is_of_pure_costs(small, checker, tmp_path, capsys):
    changed = change(small, lambda content: content["factors"][0].update(kind="Basic"))
    assert "of pure costs" in refused(checker, changed, tmp_path, capsys)
    true = certificates.certify(Charge.parse("3*DP(0.1) + BR(0.2)"), delta=0.0).text
    assert json.loads(true)["epsilon"] == pytest.approx(0.5, rel=1e-15)
    less = change(true, lambda content: content.update(epsilon=0.4999))
    assert "only bounded by" in refused(checker, less, tmp_path, capsys)


def test_theorem_h_is_certified_for_ranges_and_gaussians(checker, tmp_path, capsys):
    """The checker's constants of the classes are those of the package; a smaller ε is refused."""
    charge = Charge.parse("4000*BR(0.05) + 3000*DP(0.02) + 5*DGauss(30.0, 1) + 3*GDP(0.1)")
    best = compose(charge, delta=1e-6, bound="zcdp_gaussian")
    text = certificates.certify(charge, delta=1e-6, aim=best.epsilon).text
    (factor,) = json.loads(text)["factors"]
    assert factor["kind"] == "Smoothed"
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="utf-8")
    checker.main(path)
    assert capsys.readouterr().out.startswith("valid: ")
    less = change(text, lambda content: content.update(epsilon=best.epsilon * (1 - 1e-5)))
    assert "only bounded by" in refused(checker, less, tmp_path, capsys)
    for cost in (*charge.costs, ZCDP(0.01)):
        if not isinstance(cost, GaussianDP):
            values = [Fraction(getattr(cost, field.name)) for field in fields(cost)]
            mine = float(checker.RHO[cost.symbol](*values))
            assert zcdp_constant(cost) == pytest.approx(mine, rel=1e-11)


def test_a_law_too_wide_to_be_listed_is_refused_at_once(checker, tmp_path, capsys):
    """A mutated scale asked for 64 thousand million masses."""
    true = certificates.certify(Charge({DiscreteGaussianDP(3.0, 1): 2}), delta=1e-6).text
    for name, value in (("scale", 2**31), ("width", 2**40)):
        edit = lambda content, one={name: value}: content["factors"][0].update(one)  # noqa: E731
        assert "too wide" in refused(checker, change(true, edit), tmp_path, capsys)
