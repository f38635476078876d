"""plan_topk takes the best design, spends the budget, answers the question the other way round, and
says why.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

from dptopk import Budget, Histogram, InvalidParameter, Sensitivity, cli, plan_topk, planning
from dptopk.accounting.bounds import compose
from dptopk.accounting.renyi.best_coin import best_coin
from dptopk.accounting.setwise import cost_groups, recursion
from dptopk.datasets import macbeth
from dptopk.mechanisms import (
    Centred,
    KnownLaplace,
    SparseGaussian,
    TruncatedLaplace,
    partition_selection,
)
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.unknown_centred import UnknownCentred
from dptopk.planning import best_design, selections
from dptopk.planning.designs import DESIGNS
from dptopk.planning.mixture import Mixture
from dptopk.planning.request import Request
from dptopk.planning.scaling import at_budget
from dptopk.planning.shape import Shape, _averaged_outcome
from dptopk.planning.topk_plan import budget_warnings

BUDGET = Budget(1, 1e-6)
ZIPF = np.rint(1e4 / np.arange(1, 2001))


def _benchmark(name):
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(
        spec
    )  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


MERIT, UTILITY = _benchmark("merit"), _benchmark("utility")
merit = MERIT.merit
# `make measure WHAT=merit` has two hundred.
GRID = [
    ((0.3, 1.0, 4.0)[number % 3], l0, 2 + number % 2, domain, None if number % 4 == 3 else "auto")
    for number, (l0, domain) in enumerate(
        itertools.product((1, 2, 3, 8, 40, None), ("private", "public", "private"))
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "l0", "k", "domain", "counts"), GRID, ids=str)
def test_no_design_that_is_asked_for_by_name_has_a_smaller_merit(epsilon, l0, k, domain, counts):
    assert not MERIT.smaller_merits(Budget(epsilon, 1e-6), Sensitivity(l0=l0), k, domain, counts)


@pytest.mark.slow
@pytest.mark.parametrize(("l0", "domain"), [(1, "private"), (5, "private"), (5, "public")])
def test_the_alternatives_are_all_designs_at_the_same_budget(l0, domain):
    plan = plan_topk(5, Budget(2, 1e-6), sensitivity=Sensitivity(l0=l0), domain=domain)
    table = plan.alternatives
    fitting = {d.name for d in DESIGNS if d.domain == domain and d.noise != "none" and d.additive}
    fitting -= {
        d.name for d in DESIGNS if d.least_labels > l0 or d.coins_then_counts or d.whole is False
    }
    assert set(table["design"]) == fitting
    assert (table["epsilon"] <= 2).all()
    assert (table["epsilon"] >= 0.97 * 2).all()
    assert table["merit"].iloc[1:].is_monotonic_increasing
    assert {"error", "missed", "recall", "rows"} <= set(table)
    assert table["chosen"].tolist() == [True] + [False] * (len(table) - 1)
    assert table["merit"].iloc[0] == pytest.approx(merit(plan), rel=5e-3)
    assert plan.design in plan.explain()
    last = plan_topk(
        5,
        Budget(2, 1e-6),
        sensitivity=Sensitivity(l0=l0),
        domain=domain,
        method=table["design"].iloc[-1],
    )
    assert merit(last) == pytest.approx(table["merit"].iloc[-1], rel=0.02)
    assert f"best of {len(table)} designs" in plan.explain()


@pytest.mark.slow
def test_one_label_per_user_takes_laplace_noise():
    """Three times less noise and half the threshold of Gaussian noise at the same budget."""
    best = plan_topk(25, Budget(2, 1e-6), sensitivity=Sensitivity(l0=1))
    gaussian = plan_topk(25, Budget(2, 1e-6), sensitivity=Sensitivity(l0=1), counts="gaussian")
    assert gaussian.noise_std > 3 * best.noise_std
    assert best.threshold < 0.6 * gaussian.threshold


@pytest.mark.slow
@pytest.mark.parametrize(("k", "low", "high"), [(25, 17.6, 18.6), (100, 32.6, 33.4)])
def test_half_the_noise_where_a_user_may_touch_any_number_of_labels(k, low, high):
    plan = plan_topk(k, BUDGET, domain="public")
    noise = plan.mechanisms[1].noise
    assert isinstance(noise, Centred)
    assert low <= plan.noise_std <= high


@pytest.mark.slow
def test_labels_only_may_use_noise_on_all_counts_and_does_not_show_it():
    """Without it: recall 0.044 of the top 100 of Macbeth."""
    sensitivity = Sensitivity(l0=1)
    plan = plan_topk(100, BUDGET, sensitivity=sensitivity, counts=None)
    assert plan.phases[0].name == "count and select"
    truth = macbeth(sensitivity=sensitivity)
    top = set(truth.labels[truth.top_rows(100)].tolist())
    found = [plan.release(truth, np.random.default_rng(seed)) for seed in range(5)]
    assert all(release.counts is None and "count" not in release.table for release in found)
    assert np.mean([len(top.intersection(release.labels)) / 100 for release in found]) > 0.96
    assert plan.noise_std is None
    assert "not shown" in plan.explain()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"domain": "public"},
        {"sensitivity": Sensitivity(l0=1)},
        {"k": 3, "method": "peel", "counts": "gaussian"},
    ],
)
def test_accuracy_first(options):
    """The ε of an accuracy reaches it, and a smaller ε does not."""
    options = {"k": 25} | options
    plan = plan_topk(accuracy=10, delta=1e-6, **options)
    assert compose(plan.charge, delta=1e-6).epsilon <= plan.budget.epsilon
    again = plan_topk(budget=Budget(0.97 * plan.epsilon, 1e-6), **options)
    assert plan.noise_std < again.noise_std
    last = plan.mechanisms[-1]
    noise = KnownLaplace(epsilon=last.epsilon) if isinstance(last, TruncatedLaplace) else last
    assert noise.count_width(plan.sensitivity, confidence=0.95) <= 10
    assert "±10" in plan.explain()


@pytest.mark.slow
def test_a_shape_moves_the_division_of_the_budget():
    """Well separated counts need little for the selections; flat ones much; the plan never asks for
    data.
    """
    apart = plan_topk(10, BUDGET, domain="public", like=1000 * np.arange(200, 0, -1))
    close = plan_topk(10, BUDGET, domain="public", like=500 - np.arange(200))
    assert apart.noise_std < close.noise_std
    assert apart.outcome.recall > 0.99
    assert apart.outcome.missed <= close.outcome.missed
    assert apart.outcome.error == pytest.approx(apart.noise_std, rel=0.1)  # simulated


@pytest.mark.slow
def test_a_shape_from_public_counts_or_from_a_release():
    histogram = Histogram(None, ZIPF.astype(int), sensitivity=Sensitivity(l0=5))
    plan = plan_topk(10, BUDGET, domain="public", sensitivity=Sensitivity(l0=5), like=histogram)
    again = plan_topk(10, BUDGET, domain="public", sensitivity=Sensitivity(l0=5), like=ZIPF)
    assert plan == again
    answer = plan.release(histogram, np.random.default_rng(1))
    later = plan_topk(10, BUDGET, domain="public", sensitivity=Sensitivity(l0=5), like=answer)
    assert later.outcome.recall > 0.5


@pytest.mark.slow
def test_the_simulated_outcome_is_that_of_releases():
    sensitivity = Sensitivity(l0=5)
    truth = macbeth(sensitivity=sensitivity)
    plan = plan_topk(25, BUDGET, sensitivity=sensitivity, like=truth.counts)
    top = set(truth.labels[truth.top_rows(25)].tolist())
    releases = [plan.release(truth, np.random.default_rng(seed)) for seed in range(40)]
    recall = np.mean([len(top.intersection(release.labels)) / 25 for release in releases])
    squares = [((r.counts - truth.counts[truth.positions(r.labels)]) ** 2).mean() for r in releases]
    assert plan.outcome.recall == pytest.approx(recall, abs=0.03)
    assert plan.outcome.error == pytest.approx(math.sqrt(np.mean(squares)), rel=0.15)
    assert plan.outcome.rows == pytest.approx(
        np.mean([len(release) for release in releases]), abs=0.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["private", "public"])
def test_every_design_does_what_its_simulation_says(domain):
    """The loss of real releases is that of simulated ones, by both their errors; that of twice the
    noise is not.
    """
    sensitivity, k, budget = Sensitivity(l0=16), 8, Budget(2, 1e-6)
    counts = np.rint(3e3 / np.arange(1, 61)).astype(int)
    labels = [f"w{number}" for number in np.random.default_rng(1).permutation(60)]
    truth = Histogram(labels, counts, sensitivity=sensitivity, domain=domain)
    rank, rng = {label: place for place, label in enumerate(labels)}, np.random.default_rng(2)
    shape, told_apart = Shape.of(counts), 0
    asked = {"sensitivity": sensitivity, "domain": domain, "like": counts, "selection_share": 0.5}
    names = plan_topk(k, budget, **asked).alternatives["design"]
    for name in names:
        plan = plan_topk(k, budget, **asked, method=name)
        real = _outcome([plan.release(truth, rng) for _ in range(25)], counts, rank, k)
        for phases, right in ((plan.mechanisms, True), (_noisier(plan.mechanisms), False)):
            seen = shape.outcome(phases, k, sensitivity, True, 256)
            apart = abs(real.loss - seen.loss) > 4.5 * math.hypot(
                real.deviation, seen.deviation, 0.01 * seen.loss
            )
            assert not (apart and right), (name, real, seen)
            told_apart += apart
    assert told_apart > len(names) / 2


def _outcome(releases, counts, rank, k):
    """What releases did, as the simulation says it."""
    found = [np.array([rank[label] for label in release.labels], dtype=int) for release in releases]
    squares = [
        float(((r.counts - counts[ranks]) ** 2).sum())
        for r, ranks in zip(releases, found, strict=True)
    ]
    missed = [max(counts[:k].sum() - counts[ranks].sum(), 0) / k for ranks in found]
    return _averaged_outcome(
        *map(np.array, (squares, [len(r) for r in found], missed, [(r < k).mean() for r in found]))
    )


def _noisier(mechanisms):
    """The same with counts that have twice the noise."""
    *before, last = mechanisms
    if isinstance(last, UnknownCentred):
        own, common = (replace(part, sigma=2 * part.sigma) for part in (last.noise, last.common))
        return (replace(last, noise=own, common=common),)
    counting = last.noise if hasattr(last, "noise") and hasattr(last, "shrink") else last
    parts = (counting.noise, counting.common) if isinstance(counting, Centred) else (counting,)
    wider = [
        replace(part, sigma=2 * part.sigma)
        if hasattr(part, "sigma")
        else replace(part, epsilon=part.epsilon / 2)
        for part in parts
    ]
    made = replace(counting, noise=wider[0], common=wider[1]) if len(wider) > 1 else wider[0]
    return (*before, made if counting is last else replace(last, noise=made))


@pytest.mark.parametrize(
    "like",
    [[10**400], [2.0**62, 1], ["5", "3"], ["a"], np.array(["2020-01-01"], "M8[D]"), [[1]], []],
)
def test_what_is_no_shape(like):
    with pytest.raises(InvalidParameter, match="like must be"):
        plan_topk(1, BUDGET, domain="public", like=like)


@pytest.mark.slow
def test_the_shape_of_a_single_label():
    """All that there is, is asked for: whatever draws it finds it."""
    plan = plan_topk(1, BUDGET, domain="public", like=[5], counts=None)
    assert plan.outcome.recall == 1


@pytest.mark.slow
def test_whole_answers_compete_where_the_shape_is_known():
    """With wide gaps one draw of all labels leaves more for the counts than selections one by one,
    without a δ.
    """
    plan = plan_topk(10, Budget(1.0), domain="public", like=ZIPF)
    table = plan.alternatives.set_index("design")
    assert plan.design.endswith("draw, then counts")
    assert {"canonical draw, then counts", "routed draw, then counts"} <= set(table.index)
    assert table["merit"].iloc[0] < 0.85 * table.loc["Gumbel, then box counts", "merit"]
    truth = Histogram(None, ZIPF.astype(int))
    release = plan.release(truth, np.random.default_rng(3))
    assert release.charge == plan.charge
    assert len(set(range(10)).intersection(release.labels)) >= 9
    unknown = plan_topk(10, Budget(1.0), domain="public")
    assert unknown.design == "one-shot draw, then counts"
    assert "routed draw, then counts" not in set(unknown.alternatives["design"])
    named = plan_topk(10, Budget(1.0), domain="public", method="whole", counts=None)
    assert named.design == "one-shot draw"  # the only one whose noise can be told without the gaps
    labels_only = plan_topk(10, Budget(1.0), domain="public", counts=None)
    assert labels_only.design == "one-shot draw"
    assert labels_only.mechanisms[0].epsilon == 1.0


def test_a_whole_answer_is_simulated_by_its_own_draws():
    shape = np.array([500, 480, 460, 440, 300, 290, 280, 270, 10, 5, *[1] * 50])
    plan = plan_topk(
        6, Budget(1.0), domain="public", like=shape, method="canonical draw", counts=None
    )
    truth = Histogram(None, shape)
    rng = np.random.default_rng(7)
    recall = [
        len(set(range(6)).intersection(plan.release(truth, rng).labels)) / 6 for _ in range(60)
    ]
    assert plan.outcome.recall == pytest.approx(np.mean(recall), abs=0.08)
    with pytest.raises(InvalidParameter, match="fewer than k"):
        plan_topk(
            9, Budget(1.0), domain="public", like=shape[:8], method="canonical draw", counts=None
        )


@pytest.mark.slow
def test_the_chance_of_a_swap_is_that_of_the_noise():
    """Ranks k and 2k of the shape: by brute force over the noise of both."""
    shape = np.array([60, 50, 40, 30, 28, 26, 24, 22])
    sensitivity = Sensitivity(l0=2)
    draws = np.random.default_rng(1)
    for method in (
        "Laplace noise on all counts",
        "Gaussian noise on all counts",
        "Gumbel, then Laplace counts",
    ):
        plan = plan_topk(
            2,
            Budget(0.5, 1e-6),
            domain="public",
            sensitivity=sensitivity,
            like=shape,
            method=method,
        )
        first = plan.mechanisms[0]
        if hasattr(first, "draw_noise"):
            noise = first.draw_noise(sensitivity, 200_000, random_bits(draws)).reshape(2, -1)
        else:
            noise = draws.gumbel(scale=1 / first.epsilon, size=(2, 100_000))
        swaps = (30 + noise[0] >= 50 + noise[1]).mean()
        assert plan.swapped == pytest.approx(swaps, abs=4 * math.sqrt(swaps / 1e5) + 1e-4)
        assert (
            f"Rank 4 is placed before rank 2 with probability {plan.swapped:.2g}" in plan.explain()
        )
        assert plan.alternatives["swapped"].iloc[0] == pytest.approx(plan.swapped, rel=0.05)
    far = plan_topk(2, Budget(0.5, 1e-6), domain="public", sensitivity=sensitivity)
    assert far.swapped < 1e-6
    assert "less than 1e-6" in far.explain()


@pytest.mark.slow
def test_the_best_share_has_the_smallest_merit():
    sensitivity, options = Sensitivity(), {"method": "Gumbel, then centred Gaussian counts"}
    best = plan_topk(5, BUDGET, sensitivity=sensitivity, selection_share="best", **options)
    for share in (0.1, 0.5, 0.9):
        other = plan_topk(5, BUDGET, sensitivity=sensitivity, selection_share=share, **options)
        assert merit(best) < 1.003 * merit(other)


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "l0"), [("public", None), ("private", None), ("private", 8)])
def test_at_half_the_product_of_both_noises_is_smallest(domain, l0):
    """What a peel is planned by: no other share has less noise on counts times less noise on
    selections.
    """

    def product(share):
        plan = plan_topk(
            25,
            BUDGET,
            sensitivity=Sensitivity(l0=l0),
            domain=domain,
            method="Gumbel, then centred Gaussian counts",
            charge_as="bounded_range",
            **share,
        )
        return plan.noise_std / plan.mechanisms[0].epsilon

    planned = product({})
    for share in (0.3, 0.4, 0.6, 0.7):
        assert planned < product({"selection_share": share})


@pytest.mark.slow
def test_the_share_of_the_smallest_merit_in_a_public_domain():
    assert plan_topk(5, BUDGET, domain="public", selection_share="best").noise_std < 8
    shaped = plan_topk(5, BUDGET, domain="public", method="peel", like=ZIPF)
    assert (
        plan_topk(5, BUDGET, domain="public", method="peel", selection_share="best", like=ZIPF)
        == shaped
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "method", "epsilon"),
    [
        ("private", "Gumbel, then centred Gaussian counts", 0.3),
        ("private", "truncated Laplace on all counts", 0.08),
        ("private", "Gaussian noise over a noisy floor", 0.1),
        ("private", "coins for labels, then Gaussian counts", 0.08),
        ("public", "Gumbel, then Laplace counts", 0.08),
        ("public", "canonical draw, then counts", 1.0),
        ("public", "one-shot draw, then counts", 0.3),
        ("public", "routed draw, then counts", 1.0),
    ],
)
def test_what_a_shape_simulates_is_what_releases_do(domain, method, epsilon):
    """On counts where rows are missed and averages are taken: loss and rows within four standard
    errors.
    """
    counts, sensitivity = np.repeat([600, 300, 80, 20], [4, 8, 40, 400]), Sensitivity(l0=2)
    budget = Budget(epsilon, 1e-6)
    plan = plan_topk(10, budget, sensitivity=sensitivity, domain=domain, method=method)
    seen = Shape.of(counts).outcome(plan.mechanisms, 10, sensitivity, counted=True, draws=512)
    trials = UTILITY.Trials(plan, counts, 10)
    trials.run(100)
    assert seen.missed > 0
    assert abs(seen.loss - trials.loss) < 4 * math.hypot(seen.deviation, trials.deviation)
    rows = trials.found[:, 3]
    assert abs(seen.rows - rows.mean()) < 4 * rows.std() / math.sqrt(100) + 0.01
    wrong = (
        replace(plan.mechanisms[0], epsilon=2 * plan.mechanisms[0].epsilon)
        if domain == "public"
        else None
    )
    if wrong is not None:  # and not what selections of twice the ε would do
        other = Shape.of(counts).outcome(
            (wrong, *plan.mechanisms[1:]), 10, sensitivity, counted=True, draws=512
        )
        assert abs(other.loss - trials.loss) > 4 * math.hypot(other.deviation, trials.deviation)


@pytest.mark.slow
def test_a_delta_above_one_over_users_is_told():
    plan = plan_topk(3, BUDGET, sensitivity=Sensitivity(l0=1), users=2_000_000)
    assert "above 1/users" in plan.explain()
    assert not plan_topk(3, BUDGET, sensitivity=Sensitivity(l0=1), users=1000).warnings
    with pytest.raises(InvalidParameter, match="users"):
        plan_topk(3, BUDGET, users=0)


@pytest.mark.slow
def test_absurd_budgets_are_told_and_not_refused():
    plan = plan_topk(3, Budget(1e6, 0.9), sensitivity=Sensitivity(l0=1))
    assert len(plan.warnings) == 2
    assert plan.explain().count("Warning: ") == 2
    assert not plan_topk(3, BUDGET, sensitivity=Sensitivity(l0=1)).warnings
    assert "users" in budget_warnings(1.0, 1e-6, users=10**7)[0]


@pytest.mark.slow
def test_the_same_plan_whatever_the_clock_says(monkeypatch):
    """What is refined is chosen by how much work it is; without a guard no clock is read."""
    plans = []
    for _ in range(2):
        for kept in (cost_groups.equal_ranges_pair, recursion.ladder):
            kept.cache_clear()
        plans.append(plan_topk(60, BUDGET))
        monkeypatch.setattr(time, "monotonic", partial(next, itertools.count(0.0, 1e3)))
    quick, slow = plans
    assert (quick.charge, quick.bound) == (slow.charge, slow.bound)


def test_a_plan_cut_by_the_guard_is_sound_and_says_so():
    plan = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=3), max_seconds=1e-9)
    assert "not reproducible" in plan.bound.note
    assert compose(plan.charge, delta=BUDGET.delta).epsilon <= BUDGET.epsilon * (1 + 1e-9)


@pytest.mark.slow
def test_nothing_that_the_guard_cut_is_remembered():
    """How much clocks gain is asked for once; an answer that was cut would make later plans depend
    on the clock.
    """
    selections._epsilon_ratio.cache_clear()
    for limit, known in ((1e-9, 0), (None, 1)):
        plan_topk(
            100,
            BUDGET,
            sensitivity=Sensitivity(l0=9),
            domain="public",
            method="peel",
            max_seconds=limit,
        )
        assert (selections._epsilon_ratio.cache_info().currsize > 0) == known


@pytest.mark.slow
@pytest.mark.parametrize("labels", [20, 50, 100])
def test_a_plan_looks_for_one_coin(labels, monkeypatch):
    """A coin takes longest of all; the noise on the counts is what is scaled to the budget."""
    found = []
    best_coin.cache_clear()
    monkeypatch.setattr(
        partition_selection, "best_coin", lambda *asked: found.append(asked) or best_coin(*asked)
    )
    name = "coins for labels, then Gaussian counts"
    plan = plan_topk(25, Budget(0.97, 1e-6), sensitivity=Sensitivity(l0=labels), method=name)
    assert len(set(found)) == 1
    assert 0.999 * 0.97 <= plan.epsilon <= 0.97


def test_no_coin_is_looked_for_whose_counts_have_too_much_noise(monkeypatch):
    """Steep counts, twenty labels a user: noise on all counts alone loses far more than others."""
    asked = []
    monkeypatch.setattr(partition_selection, "best_coin", asked.append)
    steep = Mixture.of(5, 150, lambda rank: np.array([1e5 / rank**2, 9e4 / rank**2]))
    plan = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=20), like=steep)
    assert plan.design.startswith("Gumbel")
    assert not asked


_RANKS = np.arange(1, 151)
_STEEP = [1e5 / _RANKS**1.5, 2e5 / (3 + _RANKS) ** 2]
_LOW = [40 * 0.9**_RANKS, np.full(150, 30.0), 300 / _RANKS]


@pytest.mark.parametrize(("l0", "k"), [(1, 4), (4, 12), (None, 5)])
@pytest.mark.parametrize(("counts", "attained"), [(_STEEP, 0.9), (_LOW, 0.0), (_STEEP + _LOW, 0.0)])
@pytest.mark.parametrize("usual", [False, True])
def test_no_loss_is_below_the_least_one_that_the_noise_on_counts_leaves(
    l0, k, counts, attained, usual
):
    """So a division whose least loss is far above the best loss need not be compared."""
    table = np.array(counts)
    mixture = Mixture.of(k, 150, lambda rank: table[:, rank.astype(int) - 1])
    if usual:
        mixture = replace(mixture, usual=np.full(len(table), 20.0))
    request = replace(_asked(k, BUDGET, Sensitivity(l0=l0)), shape=mixture)
    designs = [design for design in DESIGNS if not design.misfit(request)]
    divided = [
        at_budget(request, design, split) for design in designs for split in design.splits(request)
    ]
    ratios = [candidate.least_loss / candidate.loss for candidate in divided]
    assert attained < max(ratios) <= 1 + 1e-9
    # What is left out changes nothing about the best.
    whole = [best_design._ranked_divisions(request, design)[0] for design in designs]
    limit = best_design.ESTIMATE_MARGIN * min(candidate.loss for candidate in whole)
    expected = [(one.design.name, one.split) for one in whole if one.loss <= limit]
    found = best_design._candidates_by_estimate(request, designs)
    assert [(one.design.name, one.split) for one in found] == expected


@pytest.mark.slow
def test_coins_show_labels_that_are_then_counted():
    """Twenty labels a user: earlier than over a threshold; every row has its interval."""
    sensitivity, budget = Sensitivity(l0=20), Budget(4, 1e-6)
    plan = plan_topk(
        25, budget, sensitivity=sensitivity, method="coins for labels, then Gaussian counts"
    )
    sparse = plan_topk(
        25, budget, sensitivity=sensitivity, method="Gaussian noise over a fixed threshold"
    )
    assert plan.appears_at(0.5) < 0.85 * sparse.appears_at(0.5)
    assert plan.noise_std + plan.appears_at(0.5) < 0.95 * (
        sparse.noise_std + sparse.appears_at(0.5)
    )
    assert plan.threshold is None
    assert "coin" in plan.explain()
    counts = np.concatenate([np.arange(300, 1300, 20), np.ones(100, dtype=int)])
    histogram = Histogram([f"w{i:03}" for i in range(len(counts))], counts, sensitivity=sensitivity)
    release = plan.release(histogram, np.random.default_rng(2))
    assert len(release) == 25
    assert (np.diff(release.counts) <= 0).all()
    assert np.mean([counts[int(label[1:])] for label in release.labels]) > 900
    assert len(release.intervals()) == 25
    assert "label order" not in release.note
    assert plan.charge.includes(release.charge)
    empty = Histogram(["a", "b"], [1, 1], sensitivity=sensitivity)
    assert len(plan.release(empty, np.random.default_rng(2))) == 0


@pytest.mark.slow
def test_coins_alone_are_for_those_who_ask_or_know_the_shape():
    """A set is no top k: only where so few labels have counts that all of them are wanted, or by
    name.
    """
    sensitivity, budget = Sensitivity(l0=5), Budget(1, 1e-6)
    assert plan_topk(10, budget, sensitivity=sensitivity, counts=None).design != "coins for labels"
    plan = plan_topk(10, budget, sensitivity=sensitivity, counts=None, method="whole")
    assert plan.design == "coins for labels"
    assert plan.appears_at(0.5) == 38
    few, many = np.array([45.0] * 8 + [2.0] * 40), 3000.0 - 10 * np.arange(200)
    known = plan_topk(10, budget, sensitivity=sensitivity, counts=None, like=few).alternatives
    assert known["design"].tolist().index("coins for labels") <= 3
    assert (
        plan_topk(10, budget, sensitivity=sensitivity, counts=None, like=many).design
        != "coins for labels"
    )
    seen = plan_topk(
        10, budget, sensitivity=sensitivity, counts=None, like=few, method="coins for labels"
    ).outcome
    chance = plan.mechanisms[0].chances(sensitivity).shown[45]
    assert seen.rows == pytest.approx(8 * chance, rel=0.05)
    release = plan.release(
        Histogram([f"w{i}" for i in range(48)], few.astype(int), sensitivity=sensitivity)
    )
    assert release.counts is None
    assert "set" in release.note
    crowded = Histogram([f"w{i:02}" for i in range(48)], [500] * 48, sensitivity=sensitivity)
    cut = plan.release(crowded)
    assert list(cut.labels) == [f"w{i:02}" for i in range(10)]
    assert "48 labels were shown" in cut.note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "clocks", "epsilon", "delta"),
    [(25, 2, 0.3, 1e-3), (300, 100, 0.1, 1e-4), (9, 1, 4.0, 1e-7)],
)
def test_clocks_gain_no_more_than_the_formula_says(k, clocks, epsilon, delta):
    asked = _asked(k, Budget(epsilon, delta), Sensitivity(l0=clocks))
    assert selections._epsilon_ratio(k, clocks, epsilon, delta) <= selections.largest_gain(asked)
    assert selections.largest_gain(replace(asked, charge_as="bounded_range")) == 1


def _asked(k, budget, sensitivity):
    return Request(
        k=k, epsilon=budget.epsilon, delta=budget.delta, accuracy=None, sensitivity=sensitivity, domain="private",
        d_bar=10 * k, whole=True, counts="auto", method="auto", selection_share=None, fit=True, shape=None,
    )  # fmt: skip


@pytest.mark.parametrize("k", [5, 25])
def test_no_clock_is_priced_for_designs_that_it_could_not_make_the_best(k, monkeypatch):
    priced = []
    monkeypatch.setattr(selections, "_epsilon_ratio", lambda *asked: priced.append(asked) or 0.5)
    assert (
        plan_topk(k, BUDGET, sensitivity=Sensitivity(l0=1)).design
        == "truncated Laplace on all counts"
    )
    assert not priced
    plan_topk(300, BUDGET, sensitivity=Sensitivity(l0=2), method="Gumbel selections", counts=None)
    assert priced  # where they might be worth it


def test_the_first_command_is_a_short_way(tmp_path):
    """dptopk topk words.csv --k 5 ...: how many files it enters, and how deep; what imports do is
    left out.
    """
    path, root = tmp_path / "words.csv", str(Path(planning.__file__).parents[1])
    path.write_text(
        "word,count\n" + "".join(f"w{rank},{10**4 // rank}\n" for rank in range(1, 400)),
        encoding="utf-8",
    )
    seen, state = set(), {"depth": 0, "deepest": 0, "importing": 0}

    def profile(frame, event, _):
        name = frame.f_code.co_filename
        step = {"call": 1, "return": -1}.get(event, 0)
        if "importlib" in name or frame.f_code.co_name == "<module>":
            state["importing"] += step
        elif not state["importing"] and name.startswith(root) and step:
            seen.add(name)
            state["depth"] += step
            state["deepest"] = max(state["deepest"], state["depth"])

    options = [
        "--label-col",
        "word",
        "--k",
        "5",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--labels-per-user",
        "1",
    ]
    sys.setprofile(profile)
    try:
        result = CliRunner().invoke(cli.app, ["topk", str(path), *options])
    finally:
        sys.setprofile(None)
    assert result.exit_code == 0, result.output
    assert 20 < len(seen) <= 60
    assert 10 < state["deepest"] <= 23


@pytest.mark.parametrize("l0", [1, 5, 20, 30, None])
def test_labels_alone_may_hide_the_counts_that_choose_them(l0):
    """Hiding is post-processing: what shows labels by their counts, or by coins, fits labels alone
    as well.
    """
    counted = _asked(25, BUDGET, Sensitivity(l0=l0))
    alone = replace(counted, counts="none")
    fits = {
        design.name: not design.misfit(alone) for design in DESIGNS if not design.misfit(counted)
    }
    chosen_by = {
        design.name
        for design in DESIGNS
        if design.method == "threshold" or design.coins_then_counts
    }
    assert all(fits[name] for name in fits.keys() & chosen_by)
    assert not any(
        fits[name] for name in fits.keys() - chosen_by
    )  # the same labels, with less of the budget


@pytest.mark.parametrize(
    ("l0", "counts", "shape", "reason"),
    [
        (8, "auto", True, "for 16 labels a user to 4 k"),
        (8, "none", False, "for 16 labels a user to 4 k"),
        (101, "auto", True, "for 16 labels a user to 4 k"),
        (20, "auto", False, "depends on the shape of the counts"),
        (20, "auto", True, ""),
        (20, "none", False, ""),
    ],
)
def test_coins_are_left_out_for_the_reason_that_holds(l0, counts, shape, reason):
    """By their name they are compared whatever it is; by their kind they are not."""
    design = next(design for design in DESIGNS if design.coins_then_counts)
    known = Shape(np.arange(100.0, 0, -1)) if shape else None
    request = replace(_asked(25, BUDGET, Sensitivity(l0=l0)), counts=counts, shape=known)
    for method in ("auto", design.method):
        misfit = design.misfit(replace(request, method=method))
        assert (reason in misfit) if reason else not misfit
        assert "labels only" not in misfit
    assert not design.misfit(replace(request, method=design.name))


@pytest.mark.slow
def test_coins_whose_counts_are_hidden_order_what_they_show():
    sensitivity, budget = Sensitivity(l0=20), Budget(4, 1e-5)
    plan = plan_topk(1000, budget, sensitivity=sensitivity, counts=None)
    assert plan.design == "coins for labels, then Gaussian counts"
    few = plan_topk(6, budget, sensitivity=sensitivity, counts=None, method=plan.design)
    counts = [9000 - 1000 * rank if rank < 8 else 900 for rank in range(40)]
    release = few.release(
        Histogram([f"w{rank:02}" for rank in range(40)], counts, sensitivity=sensitivity)
    )
    assert (release.counts, release.measured) == (None, None)
    assert list(release.labels) == [f"w{rank:02}" for rank in range(6)]


def test_simulated_noise_is_integer_beside_a_threshold():
    """Counts at the threshold pass where the noise is at least 1: of σ = 2 with probability 0.4, of
    a normal 1/2.
    """
    mechanism, sensitivity = SparseGaussian(sigma=2.0, delta=1e-6), Sensitivity(l0=1)
    shape = Shape.of([mechanism.threshold_offset(sensitivity)] * 200)
    seen = shape.outcome((mechanism,), 200, sensitivity, True, 512)
    assert seen.rows == pytest.approx(200 * norm.sf(0.25), rel=0.01)
