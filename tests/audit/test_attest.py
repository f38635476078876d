"""Attestations: exact laws of the releases themselves, mutants that are refuted, and a checker that
refuses.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dptopk import BoundedRange, Budget, Charge, PureDP, Sensitivity, plan_topk
from dptopk.audit import World, attest
from dptopk.cli.commands import app
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.named import names, parse_mechanism
from dptopk.mechanisms.samplers.listing import outcomes
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law
from dptopk.mechanisms.samplers.random import LISTING_BITS
from dptopk.mechanisms.samplers.uniform_orders import orders_of_uniforms, smallest_in_order

CHECKER = Path(__file__).parents[2] / "checker" / "check_attestation.py"
ONE = Sensitivity(l0=1)


def world(domain, largest=1, sensitivity=ONE, labels=2, near=()):
    return World(sensitivity, labels, largest, domain == "public", near)


def checked(path):
    """The checker's verdict: None, or what it says when it refuses."""
    spec = importlib.util.spec_from_file_location("check_attestation", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return module.main(path)
    except SystemExit as refused:
        return refused.code


# Every mechanism of the package: those whose law can be listed, with a world, and why the others'
# cannot.
LISTED = {
    "KnownLaplace(epsilon=4.0)": "public",
    "KnownGumbel(k=2, epsilon=1.0)": "public",
    "Exponential(epsilon=1.0, utility_range=1.0)": "public",
    "JointTopK(k=1, epsilon=1.0)": "public",
    "CanonicalTopK(k=1, epsilon=1.0)": "public",
    "Box(epsilon=5.0)": "public",
    "OneShotTopK(k=2, epsilon=1.0)": "public",
    "RoutedTopK(k=1, epsilon=1.0)": "public",
    "UnknownGumbel(k=2, d_bar=2, epsilon=1.0, delta=0.01)": "private",
    "UnknownLaplace(d_bar=1, epsilon=4.0, delta=0.01)": "private",
    "TruncatedLaplace(epsilon=4.0, delta=0.01)": "private",
    "PartitionSelection(epsilon=1.0, delta=0.01)": "private",
}
SLOW = {
    "KnownGaussian(sigma=0.6)": "public",
    "GaussianCounts(mu=4.0)": "public",
    "UnknownBox(d_bar=1, epsilon=5.0, delta=0.01)": "private",
    "StabilityTopK(k=1, epsilon=8.0, delta=0.01)": "public",
    "UnknownGaussian(d_bar=1, sigma=0.6, delta=0.01)": "private",
    "TruncatedGaussian(sigma=0.6, delta=0.01, d_bar=1)": "private",
    "SparseGaussian(sigma=0.6, delta=0.01)": "private",
    "Centred(noise=KnownLaplace(epsilon=4.0))": "public",
}
STUDIES = {
    "UnknownCentred(d_bar=1, noise=KnownLaplace(epsilon=4.0), delta=0.01)": "private",
}
REFUSED = {
    "CountMLE(noise=KnownLaplace(epsilon=1.0))": "ranking",
    "WeightedGaussian(sigma=1.0, delta=0.01)": "l2",  # of a world of counts; of weights below
    "KnownLaplace(epsilon=0.0001)": "cannot be listed",  # noise of a large scale
}


def test_every_mechanism_is_in_a_table():
    named = {text.split("(")[0] for text in (*LISTED, *SLOW, *STUDIES, *REFUSED)}
    # A stream has no release of one histogram (test_attest_events.py has its refusal).
    assert named == set(names()) - {"ContinualTopK"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "domain"),
    [
        *LISTED.items(),
        *SLOW.items(),
        *(pytest.param(*item, marks=pytest.mark.study) for item in STUDIES.items()),
    ],
)
def test_charges_hold_on_small_worlds(text, domain, tmp_path):
    found = attest(parse_mechanism(text), world(domain), slack=1e-6)
    assert found.holds
    assert found.slack < 1e-6
    assert all(0 <= point.lower <= point.upper <= point.lower + 3e-6 for point in found.points)
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_cannot_be_listed_is_refused(text, why):
    with pytest.raises(InvalidParameter, match=why):
        attest(parse_mechanism(text), world("public"))
    with pytest.raises(InvalidParameter, match="paths"):
        attest(parse_mechanism("KnownLaplace(epsilon=4.0)"), world("public"), most=20)


@pytest.mark.slow
def test_a_plan_of_two_phases_is_one_law(tmp_path):
    """Selection and fitted counts together; what a plan for less costs is refuted for it."""
    pairs = Sensitivity(l0=2)
    small = world("public", sensitivity=pairs)
    plan = plan_topk(1, Budget(3.0, 0.05), sensitivity=pairs, domain="public")
    less = plan_topk(1, Budget(2.0, 0.05), sensitivity=pairs, domain="public")
    assert [type(mechanism).__name__ for mechanism in plan.mechanisms] == [
        "OneShotTopK",
        "CountMLE",
    ]
    found = attest(plan, small, slack=1e-5)
    assert found.holds
    # The charge is reached: whoever sees the selection and all counts sees no more.
    assert all(point.lower >= point.claimed * (1 - 1e-6) for point in found.points[:4])
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None
    assert not attest(plan, small, slack=1e-5, claim=less.charge).holds


def test_one_shot_orders_are_those_of_uniform_numbers():
    """Of two the one with the shorter range is first with 1 - e2/(2 e1); of equal ones all orders
    are as likely.
    """
    short, long = Fraction(1, 7), Fraction(1, 2)
    assert orders_of_uniforms([long, short], 1) == {
        (0,): short / (2 * long),
        (1,): 1 - short / (2 * long),
    }
    assert set(orders_of_uniforms([short] * 3, 2).values()) == {Fraction(1, 6)}
    masses = smallest_in_order([3, 0, 1], Fraction(1, 3), 2)
    assert 0 <= (1 << LISTING_BITS) - sum(masses.values()) < 100
    with pytest.raises(InvalidParameter, match="answers cannot be listed"):
        smallest_in_order(range(8), Fraction(1), 7)
    with pytest.raises(InvalidParameter, match="gaps so large"):
        smallest_in_order([0, 200], Fraction(1), 1)


@pytest.mark.slow
def test_one_shot_noise_for_one_selection_is_refuted_for_two():
    """Scale linf/ε instead of k·linf/ε: the claim of ε = 1 fails, that of 2 holds."""
    small = world("public", labels=3)
    assert attest(parse_mechanism("OneShotTopK(k=2, epsilon=1.0)"), small).holds
    mutant = parse_mechanism("OneShotTopK(k=2, epsilon=2.0)")
    assert not attest(mutant, small, claim=Charge({PureDP(1.0): 1})).holds


def test_the_law_of_one_count_is_the_formula():
    """And its curve is that of randomised response: two neighbours, one count, δ(ε) = (e^a -
    e^ε)/(e^a + 1) and 0.
    """
    a, one = 3.0, 1 << LISTING_BITS
    found = attest(parse_mechanism(f"KnownLaplace(epsilon={a})"), world("public", labels=1))
    law = {json.loads(answer)[0][0][1]: mass / one for answer, mass in found.laws[(1,)].items()}
    assert len(law) > 15
    for value, mass in law.items():
        assert mass == pytest.approx(math.tanh(a / 2) * math.exp(-a * abs(value - 1)), rel=1e-12)
    assert found.points[0].upper == pytest.approx(math.tanh(a / 2), rel=1e-8)
    assert [p.epsilon for p in found.points] == sorted(p.epsilon for p in found.points)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("KnownGumbel(k=1, epsilon=0.7)", 0.7),
        ("Exponential(epsilon=0.7, utility_range=2.0)", 0.35),
        ("JointTopK(k=1, epsilon=0.7)", 0.7),  # gaps -2 and 2, at half the rate
        ("CanonicalTopK(k=1, epsilon=0.7)", 0.7),
    ],
)
def test_selections_have_their_formulas(text, rate):
    found = attest(parse_mechanism(text), world("public", 2))
    law = {
        json.loads(answer)[0][0][0]: m / (1 << LISTING_BITS)
        for answer, m in found.laws[(0, 2)].items()
    }
    assert law == pytest.approx(
        {"a": 1 / (1 + math.exp(2 * rate)), "b": 1 / (1 + math.exp(-2 * rate))}, rel=1e-14
    )


@pytest.mark.parametrize(
    "law",
    [
        laplace_law(1.5, 1),
        laplace_law(1.0, 2, 3),
        gaussian_law(0.7),
        gaussian_law(2.0, 2),
        # Drawn by blocks, listed number by number.
        laplace_law(1.0, 20),
        laplace_law(1.0, 20, 45),
        gaussian_law(40.0),
    ],
)
def test_listed_noise_has_the_probabilities_of_the_formula(law):
    found = outcomes(lambda bits: int(law.sample(1, bits)[0]), 1 << 40, 3000)
    table = law.pmf(1500)
    for n, mass in found.items():
        assert mass / (1 << LISTING_BITS) == pytest.approx(table[1500 + n], rel=1e-11)
    assert 0 <= (1 << LISTING_BITS) - sum(found.values()) < 1 << 50


def mutant(text, **methods):
    mechanism = parse_mechanism(text)
    cls = type("Mutant" + type(mechanism).__name__, (type(mechanism),), methods)
    return cls(**{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__})


def lower_offset(text, by=1):
    right = parse_mechanism(text)
    return mutant(text, threshold_offset=lambda _, s: right.threshold_offset(s) - by)


def noise_of(text, other):
    wrong = parse_mechanism(other)
    return mutant(text, draw_noise=lambda _, s, size, bits: wrong.draw_noise(s, size, bits))


MUTANTS = {
    "noise of a smaller scale": (
        noise_of("KnownLaplace(epsilon=3.0)", "KnownLaplace(epsilon=3.01)"),
        "public",
    ),
    "a smaller sigma": (
        noise_of("KnownGaussian(sigma=0.7)", "KnownGaussian(sigma=0.695)"),
        "public",
    ),
    "a threshold lower by one": (
        lower_offset("TruncatedLaplace(epsilon=3.0, delta=0.01)"),
        "private",
    ),
    "counts at the threshold are shown (opendp#2922)": (
        mutant("TruncatedLaplace(epsilon=3.0, delta=0.01)", at_threshold=lambda *_: 1 - 2.0**-20),
        "private",
    ),
    "a stop that is no linf above the floor": (
        lower_offset("UnknownGumbel(k=1, d_bar=1, epsilon=1.0, delta=0.01)"),
        "private",
    ),
    "the same noise for all labels": (
        mutant(
            "KnownLaplace(epsilon=3.0)",
            draw_noise=lambda self, s, size, bits: np.repeat(
                type(self).__mro__[1].draw_noise(self, s, 1, bits), size
            ),
        ),
        "public",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if "sigma" in n else n for n in MUTANTS]
)
def test_broken_mechanisms_are_refuted(name, tmp_path):
    mechanism, domain = MUTANTS[name]
    right = type(mechanism).__mro__[1](
        **{n: getattr(mechanism, n) for n in mechanism.__dataclass_fields__}
    )
    small = world(domain, 2, labels=2 if domain == "public" else 1)
    assert attest(right, small, slack=1e-5).holds
    found = attest(mechanism, small, slack=1e-5)
    assert not found.holds
    assert (
        max(point.lower - point.claimed for point in found.points) > 1e-5
    )  # a counterexample, not a missing proof
    assert "Refuted" in str(found)
    found.write(tmp_path / "laws.json")
    assert "claimed" in checked(tmp_path / "laws.json")


def tampered(file, key, change):
    file[key] = change(file[key])
    return file


def with_mass(laws, change):
    masses = laws[0]["masses"]
    largest = max(masses, key=lambda answer: int(masses[answer], 16))
    masses[largest] = hex(change(int(masses[largest], 16)))
    return laws


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "change", "why"),
    [
        ("laws", lambda laws: laws[1:], "missing"),
        ("laws", lambda laws: [*laws[1:], laws[1]], "all those"),
        ("laws", lambda laws: with_mass(laws, lambda mass: mass + (1 << 90)), "no law"),
        ("laws", lambda laws: with_mass(laws, lambda mass: mass // 2), "only bounded"),
        ("laws", lambda laws: with_mass(laws, lambda mass: -mass), "no law"),
        ("linf", lambda _: 2, "only bounded"),
        ("l0", lambda _: 2, "only bounded"),
        (
            "points",
            lambda points: [[e, d, low, up * 0.9] for e, d, low, up in points],
            "only bounded",
        ),
        ("points", lambda points: [[e, d * 0.9, low, up] for e, d, low, up in points], "claimed"),
        ("points", lambda _: [], "nothing"),
        ("levels", lambda levels: [*levels, 5], "missing"),
        ("format", lambda _: "other", "format"),
    ],
)
def test_the_checker_refuses_what_was_changed(key, change, why, tmp_path):
    file = attest(parse_mechanism("KnownLaplace(epsilon=4.0)"), world("public", 2)).to_dict()
    path = tmp_path / "laws.json"
    path.write_text(json.dumps(file), encoding="ascii")
    assert checked(path) is None
    path.write_text(json.dumps(tampered(file, key, change)), encoding="ascii")
    assert why in checked(path)


@dataclass(frozen=True)
class Response:
    """Randomised response on the first label's presence: a third party's mechanism with a law of
    its own.
    """

    truth: Fraction

    def law(self, counts):
        seen = counts.get("a", 0) > 0
        return {seen: self.truth, not seen: 1 - self.truth}


@pytest.mark.parametrize(("epsilon", "holds"), [(math.log(3) + 1e-9, True), (1.0, False)])
def test_the_law_of_a_third_party(epsilon, holds):
    claim = Charge({PureDP(epsilon): 1})
    assert attest(Response(Fraction(3, 4)), world("private"), claim=claim).holds is holds
    assert attest(Response(0.75), world("private"), claim=Budget(epsilon, 0.0)).holds is holds
    for wrong in (Fraction(5, 4), Fraction(-1, 4)):
        with pytest.raises(InvalidParameter, match="probabilities"):
            attest(Response(wrong), world("private"), claim=claim)
    with pytest.raises(InvalidParameter, match="must be a Mechanism"):
        attest(object(), world("private"), claim=claim)


class PermuteAndFlip:
    """Two public labels with exponential noise; charged as bounded range it is opendp#2911."""

    def law(self, counts):
        gap = counts["a"] - counts["b"]
        best, other = ("a", "b") if gap >= 0 else ("b", "a")
        return {best: 1 - math.exp(-abs(gap)) / 2, other: math.exp(-abs(gap)) / 2}


def test_permute_and_flip_is_no_bounded_range():
    assert attest(PermuteAndFlip(), world("public"), claim=Charge({PureDP(1.0): 1})).holds
    assert not attest(PermuteAndFlip(), world("public"), claim=Charge({BoundedRange(1.0): 1})).holds


@pytest.mark.parametrize(
    "sensitivity", [Sensitivity(l0=1, l2=3), Sensitivity(l0=1, neighbours="replace_one")]
)
def test_other_neighbours_are_refused(sensitivity):
    with pytest.raises(InvalidParameter, match=r"l2|replace_one"):
        attest(Response(0.75), world("private", sensitivity=sensitivity), claim=Budget(1.0, 0.0))


def weighted(l2, labels=1, largest=8, **changed):
    """Sums of weights, what one user adds to them, and WeightedGaussian near its threshold."""
    sensitivity = Sensitivity(linf=l2, l0=labels, l2=l2)
    mechanism = parse_mechanism("WeightedGaussian(sigma=0.8, delta=0.001)")
    near = (mechanism.threshold_offset(sensitivity),)
    return mechanism, World(sensitivity, labels, largest, near=near)


def test_a_user_of_weights_adds_the_same_to_each_label():
    _, three = weighted(5, labels=3, largest=5)
    moves = {tuple(np.subtract(b, a).tolist()) for a, b in three.neighbours()}
    assert {max(move) for move in moves if np.count_nonzero(move) == 1} == {5}
    assert {move for move in moves if np.count_nonzero(move) == 2} == {
        (3, 3, 0),
        (3, 0, 3),
        (0, 3, 3),
    }
    assert (2, 2, 2) in moves
    assert all(len(set(move) - {0}) == 1 for move in moves)


def test_sums_of_weights_are_attested_and_a_smaller_claim_is_refuted(tmp_path):
    mechanism, world_of_weights = weighted(5)
    found = attest(mechanism, world_of_weights, slack=1e-7)
    assert found.holds
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None
    told = json.loads((tmp_path / "laws.json").read_text())
    told["l2"] = 6  # neighbours that the file does not have
    (tmp_path / "laws.json").write_text(json.dumps(told))
    assert checked(tmp_path / "laws.json").startswith("refused")
    charge = mechanism.charge(world_of_weights.sensitivity)
    assert not attest(mechanism, world_of_weights, claim=Charge(charge.costs, delta=1e-5)).holds


@pytest.mark.slow
def test_sums_of_weights_on_two_labels(tmp_path):
    mechanism, world_of_weights = weighted(2, labels=2, largest=3)
    found = attest(mechanism, world_of_weights, slack=1e-6)
    assert found.holds
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None


def test_randomness_from_elsewhere_is_found():
    elsewhere = np.random.default_rng(1)
    laplace = mutant(
        "KnownLaplace(epsilon=1.0)", draw_noise=lambda *a: elsewhere.integers(0, 1 << 60, a[2])
    )
    with pytest.raises(InvalidParameter, match="all its randomness"):
        attest(laplace, world("public"))


def test_worlds():
    small = World(Sensitivity(linf=2, l0=1), 2, 1, near=(4,))
    assert small.levels() == [0, 1, 2, 3, 4, 5]
    assert len(small.histograms()) == 36
    assert Counter(np.subtract(b, a).sum() for a, b in small.neighbours()) == {1: 60, 2: 48}
    assert small.counts_by_label((0, 3)) == {"b": 3}
    assert len(World(Sensitivity(linf=1, l0=None), 2, 1).neighbours()) == 16


def test_a_listing_takes_every_path_once():
    drawn = outcomes(lambda bits: tuple(bits.below(3, 2).tolist()), 1, 100)
    assert len(drawn) == 9
    assert max(drawn.values()) == min(drawn.values())


def command(*arguments):
    return CliRunner().invoke(app, ["attest", *arguments])


@pytest.mark.slow
def test_the_command(tmp_path):
    out = tmp_path / "laws.json"
    answer = command(
        "KnownLaplace(epsilon=4.0)", "--known-domain", "--near", "3", "--out", str(out)
    )
    assert answer.exit_code == 0
    assert "Holds" in answer.output
    assert checked(out) is None
    refuted = command("KnownLaplace(epsilon=4.0)", "--known-domain", "--claim", "DP(3.9)")
    assert refuted.exit_code == 1
    assert "Refuted" in refuted.output
    for wrong in (
        ["KnownLaplace(4.0)"],
        ["NoMechanism(epsilon=1)"],
        ["KnownLaplace(epsilon=4.0)"],
        ["os.system('')"],
    ):
        assert command(*wrong).exit_code == 2


def test_a_world_without_neighbours_is_refused():
    mechanism, _ = weighted(5)
    empty = World(Sensitivity(linf=5, l0=1, l2=5), 1, 1)
    with pytest.raises(InvalidParameter, match="no two of its histograms"):
        attest(mechanism, empty)
