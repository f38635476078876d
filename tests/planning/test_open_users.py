"""The users that go with the counts after a look."""

import numpy as np

from dptopk import Box
from dptopk.histogram.event_counts import CELLS
from dptopk.planning.open_counts import likely_counts
from dptopk.planning.open_users import TYPICAL, open_users


def test_every_shape_of_the_counts_has_the_users_that_it_needs():
    """Where noise hides all users, their numbers follow from the counts: five labels of 200 users
    each are 1,000 pairs at least.
    """
    counts = np.tile([200.0, 200.0, 1.0], (24, 1))
    for seed in range(20):
        noisy = np.random.default_rng(seed).laplace(scale=100.0, size=len(CELLS)).round()
        users = open_users(noisy, 100.0, 5, counts)
        assert users.shape == (24, len(CELLS))
        assert (users.sum(axis=1) >= 199.9).all()
        assert (users @ TYPICAL >= 1000).all()


def test_counts_that_nothing_shows_are_those_that_were_likely_before():
    """No limit on what is seen: the less a look shows the smaller are the counts, without a jump;
    and none is above the number of users.
    """
    look = Box(epsilon=0.03)
    seen = [likely_counts(np.full(3, x), look, 24, 3000.0) for x in (-400.0, 0.0, 90.0, 100.0)]
    means = [one[:, 0].mean() for one in seen]
    assert means[0] < means[1] < means[2] < means[3] < 1.3 * means[2]
    for one in seen:
        assert (np.diff(one, axis=1) <= 0).all()
        assert (one[:, 0] <= 3000).all()
    assert (likely_counts(np.full(3, 9000.0), look, 24, 3000.0) <= 3000).all()


def test_the_law_before_the_look_is_that_of_its_draws():
    """Without a look that tells anything the counts are as likely as said: the ratio of the mean to
    rank k has the mean logarithm 1, that of rank k to the last 1.2 in nine tables of ten.
    """
    likely = likely_counts(np.zeros(3), Box(epsilon=1e-9), 2000, 1e5)
    mean, kth, last = np.log(likely).T
    assert abs((mean - kth).mean() - 1.0) < 0.1
    assert abs((kth - last).mean() - (0.9 * 1.2 + 0.1 * 5.0)) < 0.15
    assert abs(np.median(likely[:, 0]) / 990 - 1) < 0.2
