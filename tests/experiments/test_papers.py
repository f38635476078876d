"""What the experiments find, against the text of the papers and the values read off their
figures.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from dptopk import Charge, CountMLE, KnownGumbel, KnownLaplace
from dptopk.experiments import EXPERIMENTS, cr_figure_6, cr_figure_7, truncated_gaussian, utility

# Statements of papers that are wrong, and for which the report says why.
WRONG_IN_THE_PAPER = {
    ("truncated-gaussian", "σ = 3: Algorithm 2 is δ-approximately zCDP"),
    ("truncated-gaussian", "σ = 10: Algorithm 2 is δ-approximately zCDP"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_the_papers_state_holds(quick, name):
    lines = quick.outcomes[name].comparisons
    assert lines
    differing = {(name, line.quantity) for line in lines if line.agrees is False}
    assert differing == {line for line in WRONG_IN_THE_PAPER if line[0] == name}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_lines_are_words_and_verdicts(quick, name):
    for line in quick.outcomes[name].comparisons:
        assert all(isinstance(text, str) for text in (line.quantity, line.paper, line.ours))
        assert line.agrees in (True, False, None)
        assert type(line.agrees) in (bool, type(None))
        assert "nan" not in line.ours.split()


def test_the_table_of_experiments_is_complete():
    """docs/notes/experiments.md has one row for each experiment, and shows figures that exist."""
    page = Path(__file__).parents[2] / "docs" / "notes" / "experiments.md"
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^\| `([^`]+)`", text, re.MULTILINE) == list(EXPERIMENTS)
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert shown
    assert all(0 < (page.parent / file).stat().st_size < 60_000 for file in shown)


def test_budget_and_noise_of_the_macbeth_figure():
    found = cr_figure_6.calibration()
    assert found["epsilon_global"] == pytest.approx(2.07906, abs=5e-6)
    assert round(found["epsilon_global"], 2) == 2.08
    assert round(found["sigma_zcdp"], 1) == 13.1
    assert found["sigma_analytic"] == pytest.approx(10.7645, abs=5e-5)
    assert found["sigma_analytic"] <= found["sigma_discrete"] < found["sigma_analytic"] * 1.0001


def test_macbeth_counts_of_the_figure():
    counts = cr_figure_6.true_counts()["figure"]
    assert counts["word"].tolist()[:6] == ["the", "and", "to", "of", "i", "a"]
    assert counts["count"].tolist() == [
        649, 545, 383, 338, 331, 239, 236, 211, 205, 203, 200, 185, 161, 153, 146, 137, 137, 126, 123, 122, 120, 117,
        113, 112, 109,
    ]  # fmt: skip


@pytest.mark.slow
def test_noise_without_a_fit_has_the_stated_width():
    """Averaged over 25 words and 40 trials: the standard error of a standard deviation is below 4
    %.
    """
    from dptopk.experiments.experiment import RunSettings, generators

    trials = [cr_figure_6._trial(("figure", rng)) for rng in generators(RunSettings(seed=7), 40)]
    truth = cr_figure_6.true_counts()["figure"]["count"].to_numpy()
    for name, width in ((cr_figure_6.LAPLACE, 2**0.5 / 0.1), (cr_figure_6.PLAIN, 10.7646)):
        spread = np.sqrt(np.mean([(trial[name] - truth) ** 2 for trial in trials]))
        assert spread == pytest.approx(width, rel=0.1)
        assert spread != pytest.approx(width * 1.25, rel=0.1)


@pytest.mark.parametrize("l0", range(1, 11))
def test_thresholds_of_the_figure(l0):
    read_off = cr_figure_7.thresholds_read_off().set_index("Delta").loc[l0]
    assert round(cr_figure_7.published_truncation(l0), 2) == pytest.approx(
        read_off["T_TruncGauss"], abs=0.0051
    )
    assert cr_figure_7.published_laplace_threshold(l0) == pytest.approx(
        read_off["T_UnkLap"], rel=2.5e-3
    )


@pytest.mark.slow
def test_slot_lemma_lowers_the_published_threshold(quick):
    table = quick.table("cr-figure-7")
    saved = 1 - table[cr_figure_7.OUR_LAPLACE] / table[cr_figure_7.LAPLACE]
    assert ((saved > 0.02) & (saved < 0.05)).all()


@pytest.mark.slow
def test_orders_of_three_mechanisms(quick):
    row = quick.table("cr-figure-3").set_index("epsilon_global").loc[0.29:0.31].iloc[0]
    assert row["dp_first"] == pytest.approx(0.413601, abs=5e-7)
    assert row["dp_later"] == pytest.approx(0.409278, abs=5e-7)


@pytest.mark.slow
def test_moment_generating_function_at_two(quick):
    row = quick.table("ddr-figure-2").set_index("lambda").loc[1.99:2.01].iloc[0]
    assert row["General MGF"] == pytest.approx(0.68675, abs=5e-6)
    assert row["Improved DRV10"] == pytest.approx(3.0)
    assert row["DR19"] == pytest.approx(1.5)


# Exact divergences by enumeration of all pairs of two counts
# (docs/notes/truncated-gaussian-violation.md).
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "epsilon", "published", "mended"),
    [
        (3, 1.0, 0.1332, 0.00148),
        (3, 2.0, 0.1332, 0.00148),
        (10, 1.0, 0.0399, 6.37e-7),
        (10, 4.0, 0.0399, 6.37e-7),
    ],
)
def test_violation_of_the_published_truncated_gaussian(quick, sigma, epsilon, published, mended):
    table = quick.table("truncated-gaussian")
    row = table[(table["sigma"] == sigma) & (table["epsilon"] == epsilon)].iloc[0]
    assert row[truncated_gaussian.PUBLISHED] == pytest.approx(published, rel=2e-3)
    assert row[truncated_gaussian.MENDED] == pytest.approx(mended, rel=3e-3)
    assert (
        row[truncated_gaussian.MENDED]
        <= row[truncated_gaussian.CLAIM]
        < row[truncated_gaussian.PUBLISHED]
    )


@pytest.mark.slow
def test_order_of_two_ranges(quick):
    table = quick.table("range-order")
    row = table[(table["small"] == 0.5) & (table["x"] == 0)].iloc[0]
    assert row["rising_lower"] == pytest.approx(0.2598, abs=5e-5)
    assert row["falling_upper"] == pytest.approx(0.2449, abs=5e-5)


@pytest.mark.slow
def test_adaptive_optimum_of_a_hundred(quick):
    table = quick.table("adaptivity")
    row = table[(table["epsilon"] == 0.1) & (table["k"] == 100)].iloc[0]
    assert row["epsilon_batch"] == pytest.approx(2.246, abs=5e-4)
    assert row["epsilon_lower"] > row["epsilon_batch"]
    assert row["epsilon_upper"] < 1.003 * row["epsilon_batch"]


@pytest.mark.slow
@pytest.mark.parametrize("way", list(utility.WAYS)[1::3])  # the quick run covers others
def test_every_way_spends_the_budget(way):
    from dptopk import Sensitivity, compose

    mechanisms = utility.WAYS[way][1]()
    charges = [
        mechanism.charge(Sensitivity(l0=utility.L0), labels=utility.K) for mechanism in mechanisms
    ]
    spent = compose(Charge.join(*charges), delta=utility.BUDGET.delta)
    assert 0.998 <= spent.epsilon <= utility.BUDGET.epsilon


@pytest.mark.parametrize("way", list(utility.WAYS))
def test_every_way_can_be_the_best_of_its_domain(way):
    import pandas as pd

    columns = {"data": "Macbeth", "epsilon": 0.9, "counts": "plain", "l2": 2.0, "recall": 0.5}
    rows = [{**columns, "way": other} for other in utility.WAYS]
    rows += [{**columns, "way": utility.FITTED_WAY, "counts": "fitted"}]
    data = pd.DataFrame(rows)
    data.loc[data["way"] == way, ["l2", "recall"]] = 1.0, 0.9
    domain = {"public": "known", "private": "unknown"}[utility.WAYS[way][0]]
    (line,) = (x for x in utility.compare(data) if x.quantity == f"Macbeth, {domain} domain: best")
    assert line.ours == f"recall 0.90 by {way}; l2 1.0 by {way} (plain)"


def test_answers_with_hardly_any_noise_are_right():
    histogram, rng = utility.histogram_of("10⁴ / r", "public", 1), np.random.default_rng(5)
    for mechanisms in (
        (KnownGumbel(k=5, epsilon=50.0), CountMLE(noise=KnownLaplace(epsilon=50.0))),
        (KnownLaplace(epsilon=50.0),),
    ):
        labels, errors = utility.attempt(mechanisms, histogram, 5, rng)
        assert utility.recall(labels, histogram, 5) == 1.0
        assert set(errors.values()) == {(0.0, 0.0)}
    assert utility.recall((*labels[:2], "other"), histogram, 5) == 0.4


@pytest.mark.slow
def test_noise_shows_as_error():
    """The mean absolute error of 25 counts under 40 draws, against the mean of |discrete Laplace|,
    1/sinh(ε).
    """
    histogram, rng = utility.histogram_of("10⁴ / r", "public", 1), np.random.default_rng(6)
    tries = [utility.attempt((KnownLaplace(epsilon=0.5),), histogram, 25, rng) for _ in range(40)]
    found = np.mean([errors["plain"][0] for _, errors in tries])
    assert found == pytest.approx(1 / np.sinh(0.5), rel=0.12)
    assert found != pytest.approx(1 / np.sinh(0.4), rel=0.12)
