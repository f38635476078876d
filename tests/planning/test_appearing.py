"""The counts from which a plan says that a label is found are those that its mechanism sees."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dptopk import Budget, Histogram
from dptopk.histogram.event_counts import EventCounts
from dptopk.planning.two_phase import plan_two_phases

MIN_USERS = 20


def plan_of(find, per_label_cap=1):
    budget = Budget(1.0, 1e-6)
    plan = plan_two_phases(
        10, budget, find=find, min_users=MIN_USERS, per_label_cap=per_label_cap, labels_per_user=3
    )
    rank = plan.mechanisms[0].floor_rank
    return plan, (0 if rank is None else rank)


def lead_seen(plan, count, others, number):
    """The lead of one label over as many others of one count, in what the mechanism is given."""
    counts = [count, *[others] * number]
    names = list(map(str, range(len(counts))))
    every = Histogram(names, counts, sensitivity=plan.sensitivity)
    under = Histogram(names, counts, sensitivity=plan.under)
    seen = plan._counts_to_find_on(EventCounts.of_histograms(every, under))
    at = dict(zip(seen.labels, np.asarray(seen.counts).tolist(), strict=True))
    return at.get("0", 0) - at.get("1", 0)


def least_lead(plan, probability):
    return plan.mechanisms[0].appears_at(plan.under, probability=probability)


@pytest.mark.parametrize("per_label_cap", [1, 3])
@pytest.mark.parametrize("find", ["threshold", "coins", "uncapped"])
def test_a_label_of_the_stated_count_is_the_first_that_appears(find, per_label_cap):
    plan, number = plan_of(find, per_label_cap)
    floor = 1000 if number else 0
    for probability in (0.5, 0.95):
        count = floor + plan.appears_at(probability)
        assert lead_seen(plan, count, floor, number) == least_lead(plan, probability)


@pytest.mark.parametrize("find", ["threshold", "coins", "uncapped"])
def test_the_words_state_the_same_counts(find):
    plan, _ = plan_of(find)
    shown = re.search(r"(\d+) for a 50% chance to be shown, (\d+) for 95%", plan.appearing())
    assert list(map(int, shown.groups())) == [plan.appears_at(0.5), plan.appears_at(0.95)]
    preview = plan.preview()
    assert preview.appears_at == plan.appears_at()
    assert preview.appearing == plan.appearing()


def test_a_floor_of_too_few_users_is_named():
    plan, number = plan_of("uncapped")
    words = re.search(r"must lead rank (\d+) \(or (\d+), where that is more\) by", plan.appearing())
    rank, least = map(int, words.groups())
    assert rank == number
    count = least + plan.appears_at()
    for floor in (0, 5, least):
        assert lead_seen(plan, count, floor, number) == least_lead(plan, 0.5)


@pytest.mark.parametrize(("find", "zero_offset"), [("threshold", MIN_USERS - 1), ("uncapped", 0)])
def test_the_threshold_has_what_is_taken_off_where_it_is_a_count(find, zero_offset):
    plan, _ = plan_of(find)
    offset = plan.mechanisms[0].threshold_offset(plan.under)
    assert plan.threshold == offset + zero_offset
