"""With a growing budget every way gives the true top k, on real tables whose heavy users have other
labels than light ones.

The tables are made from what every machine has: characters and the words of their Unicode names,
and modules of the standard library and the words in them. No default and no look may choose labels
by weighted or capped counts: without any noise these rank the labels of light users first.
"""

import re
import unicodedata
from math import isqrt
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from dptopk import Budget, Histogram, Sensitivity, Session
from dptopk._internal.choices import Finder
from dptopk.datasets import EventCounts
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT, finding_sensitivity
from dptopk.planning import plan, plan_two_phases
from dptopk.planning.profile import SELECTING_BESIDE_CAPPED_COUNTS, finding_sensitivity_of
from dptopk.planning.ways import Way, calibrate_way
from dptopk.question import Events, Facts, Question

pytestmark = pytest.mark.slow
DELTA = 1e-6
RANKS = (5, 25, 60)
CAP = 400  # under a narrower one some of the top k of modules have no user, and no way finds them


def characters():
    """Characters and the words of their names."""
    named = ((code, unicodedata.name(chr(code), "")) for code in range(0x3000))
    return [(code, word) for code, name in named for word in name.split()]


def modules():
    """Modules of the standard library and the words in them, from ten to thousands each."""
    files = sorted(Path(re.__file__).parent.parent.glob("*.py"))
    words = ((path.name, re.findall(r"\w{2,}", path.read_text("utf-8"))) for path in files)
    # The order of a set would differ from run to run, and with it what a cap takes off.
    return [(name, word) for name, found in words for word in sorted(set(found))]


def histograms(pairs, cap, *, weights):
    """All events with a profile of users, and those under a cap, as an engine reads them."""
    table = pd.DataFrame(pairs, columns=["user", "item"]).drop_duplicates()
    table = table.sample(frac=1.0, random_state=3)
    place = table.groupby("user").cumcount()
    degrees = table.groupby("user").size()
    true = table["item"].value_counts().sort_index()
    labels = true.index.to_list()
    kept = table[place < cap]
    labels_of = kept.groupby("user")["item"].transform("size")
    added = labels_of.map(lambda d: isqrt(WEIGHT**2 // d) if weights else 1)
    capped = added.groupby(kept["item"]).sum().reindex(true.index, fill_value=0)
    under = finding_sensitivity(cap, 1, weights=weights)
    users = np.histogram(degrees, [*(cell + 1 for cell in CELLS), np.inf])[0]
    narrow = {
        few: table["item"][place < few].value_counts().reindex(true.index, fill_value=0).to_numpy()
        for few in NARROW
    }
    everything = Histogram(labels, true.to_numpy())
    return EventCounts.of_histograms(
        everything,
        everything.with_counts(capped.to_numpy(), under),
        Histogram(list(CELLS), users, sensitivity=Sensitivity(l0=1), domain="public"),
        narrow,
    )


@pytest.fixture(scope="module", params=[characters, modules], ids=lambda made: made.__name__)
def tables(request):
    pairs = request.param()
    return {
        True: histograms(pairs, 100, weights=True),
        False: histograms(pairs, CAP, weights=False),
    }


def missed(answer, histogram, k):
    """How much of the true counts of the top k the answer misses, for each row."""
    top = np.sort(histogram.counts)[::-1][:k]
    shown = histogram.count_of(list(answer.labels))
    return (top.sum() - shown.sum()) / k


def of_question(k, epsilon, **fields):
    """What plan(question, facts) chooses for events."""
    weights = fields.pop("weights", True)
    cap = "auto" if weights else CAP
    profile = fields.pop("profile", True)
    events = Events(labels_per_user=cap, profile=profile, weights=weights)
    question = Question(k=k, epsilon=epsilon, delta=DELTA, **fields)
    return plan(question, Facts(sensitivity=Sensitivity(), events=events))


CHOICES = {
    "default": {},
    "labels alone": {"counts": "none"},
    "gaussian": {"counts": "gaussian"},
    "without a look": {"look": None},
    "no weights": {"weights": False, "profile": False},
    "uncapped": {"find": "uncapped", "profile": False},
}


@pytest.mark.parametrize(
    ("epsilon", "name"),
    [
        *((epsilon, name) for epsilon in (100.0, 1000.0) for name in CHOICES),
        *((epsilon, "default") for epsilon in (300.0, 500.0, 700.0)),
    ],
)
def test_every_choice_gives_the_true_top_k(tables, epsilon, name):
    fields = dict(CHOICES[name])
    both = tables[fields.get("weights", True)]
    for k in RANKS:
        made = of_question(k, epsilon, **fields)
        answer = made.release(both, np.random.default_rng(k))
        assert len(answer) == k
        lost = missed(answer, both, k)
        largest = np.sort(both.counts)[::-1][:k]
        assert lost < (0.5 if epsilon == 1000 else 0.02 * largest.mean())


@pytest.mark.parametrize("find", get_args(Finder))
def test_every_way_by_name_gives_the_true_top_k(tables, find):
    weights = find == "weights"
    both = tables[weights]
    for k in RANKS:
        cap = 100 if weights else CAP
        made = plan_two_phases(k, Budget(1000.0, DELTA), find=find, labels_per_user=cap)
        answer = made.release(both, np.random.default_rng(k))
        assert missed(answer, both, k) < 0.5


@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_selections_helped_by_capped_counts_give_the_true_top_k(tables, epsilon):
    """With the least of the budget that the menu has for selections, so with the most help."""
    both = tables[False]
    way = Way("threshold", 1.0, min(SELECTING_BESIDE_CAPPED_COUNTS), "capped", CAP)
    budget = Budget(epsilon, DELTA)
    for k in RANKS:
        usual = plan_two_phases(k, budget, labels_per_user=CAP, find="uncapped")
        scaled = calibrate_way(way, k, budget, finding_sensitivity_of(way), Sensitivity())
        answer = usual.in_way(scaled).release(both, np.random.default_rng(k))
        assert len(answer) == k
        largest = np.sort(both.counts)[::-1][:k]
        assert missed(answer, both, k) < (0.5 if epsilon == 1000 else 0.02 * largest.mean())


def test_labels_that_are_equal_and_differ_in_type_are_told_apart():
    """1, 1.0 and True are three labels; the selection of one showed the largest capped count of
    all.
    """
    labels = [1, 1.0, True]
    under = finding_sensitivity(CAP, 1, weights=False)
    both = EventCounts.of_histograms(
        Histogram(labels, [5000, 100, 200]), Histogram(labels, [90, 100, 100], sensitivity=under)
    )
    way = Way("threshold", 1.0, max(SELECTING_BESIDE_CAPPED_COUNTS), "capped", CAP)
    budget = Budget(100.0, DELTA)
    usual = plan_two_phases(1, budget, labels_per_user=CAP, find="uncapped")
    scaled = calibrate_way(way, 1, budget, under, Sensitivity())
    (label,) = usual.in_way(scaled).release(both, np.random.default_rng(1)).labels
    assert (label, type(label)) == (1, int)


def test_weights_alone_would_not(tables):
    """The tables can see the fault: the k labels with the largest sums are not the top k."""
    both = tables[True]
    for k in RANKS[1:]:
        first = both.under_cap.labels[both.under_cap.top_rows(k)]
        top = np.sort(both.counts)[::-1][:k]
        assert top.mean() - both.count_of(list(first)).mean() > 0.5


@pytest.mark.parametrize(
    ("epsilon", "seeds"),
    [(100.0, (7, 8, 9)), (300.0, (7,)), (500.0, (7,)), (700.0, (7,)), (1000.0, (7,))],
)
def test_few_users_with_hundreds_of_labels_of_their_own_do_not_hide_the_top_k(epsilon, seeds):
    """A cap takes three users off the ten largest counts, so that 500 others are larger under it.

    The look at users sees next to nothing of three: a way that shows the largest capped counts was
    taken there, and none of the ten was in the answer of seed 8 at ε = 100. The look at ranks sees
    nothing of rank 401: a floor there, as high as rank 11, hid all labels at ε = 300 to 700.
    """
    top = [(f"light {place}-{one}", f"top {place}") for place in range(10) for one in range(12)]
    others = [
        (f"other {place}-{one}", f"other {place}") for place in range(500) for one in range(13)
    ]
    shared = [f"top {place}" for place in range(10)]
    heavy = [
        (f"heavy {one}", label)
        for one in range(3)
        for label in [*shared, *(f"rare {one}-{place}" for place in range(300))]
    ]
    table = pd.DataFrame([*top, *others, *heavy], columns=["user", "item"])
    budget = Budget(epsilon, DELTA)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        session = Session.from_events(table, user="user", item="item", budget=budget, rng=rng)
        answer = session.top_k(10)
        assert len(set(answer.labels) & set(shared)) >= 9
