import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.pld.binomial import log_binomial_pmf, log_response_pmf


@pytest.mark.parametrize("trials", [1, 2, 5, 16, 17, 100, 10**4, 10**6])
def test_error_is_within_the_stated_bound(trials):
    rng = np.random.default_rng(trials)
    with mp.workdps(60):
        for _ in range(60):
            success = (
                float(rng.uniform(1e-3, 0.999))
                if rng.random() < 0.7
                else float(np.exp(-rng.uniform(5, 40)))
            )
            near = int(rng.binomial(trials, success))
            hits = near if rng.random() < 0.7 else int(rng.integers(0, trials + 1))
            failure = 1 - mp.mpf(success)
            exact = (
                mp.log(mp.binomial(trials, hits))
                + hits * mp.log(success)
                + (trials - hits) * mp.log(failure)
            )
            value = float(log_binomial_pmf(hits, trials, success, float(failure)))
            allowed = 1e-15 * (5 + abs(value) + abs(hits - trials * success))
            assert abs(mp.mpf(value) - exact) < allowed, (hits, success)


def test_small_cases_and_certain_outcomes():
    assert np.exp(log_binomial_pmf([0, 1, 2], 2, 0.5, 0.5)) == pytest.approx(
        [0.25, 0.5, 0.25], rel=1e-15
    )
    assert log_binomial_pmf([0, 1], 1, 0.0, 1.0).tolist() == [0.0, -np.inf]
    assert log_binomial_pmf([0, 1], 1, 1.0, 0.0).tolist() == [-np.inf, 0.0]
    assert log_binomial_pmf([0, 1, 5], 5, -0.0, 1.0).tolist() == [0.0, -np.inf, -np.inf]
    assert float(log_binomial_pmf(0, 0, 0.3, 0.7)) == 0.0


GRID = [
    (k, e)
    for k in (1, 2, 15, 16, 17, 300)
    for e in (1e-6, 0.01, 0.4, 3.0, 30.0, 700.0, 744.0, 2000.0)
]


@pytest.mark.parametrize(("count", "epsilon"), [*GRID, (5000, 0.01), (5000, 0.5), (20_000, 0.1)])
def test_true_answers_at_every_index(count, epsilon):
    """Not at a few of them: an earlier form was off by 2.3 times its stated error at k = 5000, ε =
    0.01, l = 1212.
    """
    values, errors = log_response_pmf(count, epsilon)
    with mp.workdps(60):
        exact = -count * (mp.mpf(epsilon) + mp.log1p(mp.exp(-mp.mpf(epsilon))))
        for hits in range(count + 1):
            if hits:
                exact += mp.log(mp.mpf(count - hits + 1) / hits) + epsilon
            assert abs(exact - values[hits]) <= errors[hits], hits
    part, part_errors = log_response_pmf(count, epsilon, count // 3, count // 2)
    assert (part == values[count // 3 : count // 2 + 1]).all()
    assert (part_errors == errors[count // 3 : count // 2 + 1]).all()
    assert errors.max() < 1e-8
