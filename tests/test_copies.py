"""Whatever is given to a user, or crosses a process, pickles and copies; what holds a budget
refuses in words. Every public name of every room is walked.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest

import dptopk
from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    DptopkError,
    Histogram,
    InvalidParameter,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
    audit,
    budgets,
    calibrate,
    compose,
    costs,
    datasets,
    experiments,
    mechanisms,
    plan_continual,
    plan_topk,
    planning,
    session,
)
from dptopk.accounting import bounds, calibration, interop
from dptopk.errors import NotApplicable, ReleaseWithheld

ROOMS = (
    "dptopk",
    "dptopk.accounting",
    "dptopk.audit",
    "dptopk.budgets",
    "dptopk.costs",
    "dptopk.datasets",
    "dptopk.errors",
    "dptopk.experiments",
    "dptopk.histogram",
    "dptopk.ledger",
    "dptopk.mechanisms",
    "dptopk.planning",
    "dptopk.release",
    "dptopk.service",
    "dptopk.session",
)
ONE = Sensitivity(l0=1)
BUDGET = Budget(1.0, 1e-6)
COUNTS = Histogram(
    {f"label {i}": 1000 // (i + 1) for i in range(60)}, sensitivity=Sensitivity(l0=3)
)
PUBLIC = Histogram([f"label {i}" for i in range(8)], [90, 80, 70, 60, 9, 8, 7, 6], domain="public")
EVENTS = pd.DataFrame({"user": np.arange(400) // 4, "item": np.arange(400) % 7})
COST_TYPES = {
    costs.PureDP: (0.1,),
    costs.BoundedRange: (0.1,),
    costs.CDP: (0.1, 0.2),
    costs.ZCDP: (0.1,),
    costs.GaussianDP: (0.3,),
    costs.DiscreteGaussianDP: (3.0, 1),
    costs.DiscreteLaplaceDP: (3.0, 1),
    costs.ApproxDP: (0.1, 1e-9),
    costs.MultiDP: (((0.5, 0.1), (1.0, 0.0)),),
    costs.ExponentialClockDP: (0.1,),
    costs.LaplaceDP: (3.0, 1.0),
    costs.LabelCoinsDP: (2.0, 0.1, 0.3, 3),
    costs.SparseGaussianDP: (3.0, 1, 20, 3),
}
GAUSSIAN = mechanisms.KnownGaussian(sigma=3.0)
MECHANISMS = [
    (mechanisms.KnownGumbel(k=3, epsilon=0.5), PUBLIC),
    (mechanisms.KnownLaplace(epsilon=0.5), PUBLIC),
    (GAUSSIAN, PUBLIC),
    (mechanisms.Exponential(epsilon=0.5, utility_range=1), PUBLIC),
    (mechanisms.UnknownGumbel(k=3, d_bar=20, epsilon=0.5, delta=1e-6), COUNTS),
    (mechanisms.UnknownLaplace(d_bar=20, epsilon=0.5, delta=1e-6), COUNTS),
    (mechanisms.UnknownGaussian(d_bar=20, sigma=3.0, delta=1e-6), COUNTS),
    (mechanisms.UnknownBox(d_bar=20, epsilon=0.5, delta=1e-6), COUNTS),
    (mechanisms.UnknownCentred(d_bar=20, noise=GAUSSIAN, delta=1e-6), COUNTS),
    (mechanisms.TruncatedGaussian(sigma=3.0, delta=1e-6), COUNTS),
    (mechanisms.TruncatedLaplace(epsilon=0.5, delta=1e-6), COUNTS),
    (mechanisms.SparseGaussian(sigma=3.0, delta=1e-6), COUNTS),
    (mechanisms.Centred(noise=GAUSSIAN), PUBLIC),
    (mechanisms.Box(epsilon=0.5), PUBLIC),
    (mechanisms.GaussianCounts(mu=0.3), PUBLIC),
    (mechanisms.JointTopK(k=3, epsilon=0.5), PUBLIC),
    (mechanisms.CanonicalTopK(k=3, epsilon=0.5), PUBLIC),
    (mechanisms.OneShotTopK(k=3, epsilon=0.5), PUBLIC),
    (mechanisms.RoutedTopK(k=3, epsilon=0.5), PUBLIC),
    (mechanisms.StabilityTopK(k=3, epsilon=0.5, delta=1e-6), PUBLIC),
    (mechanisms.PartitionSelection(epsilon=0.5, delta=1e-6), COUNTS),
]
# Mechanisms whose release takes more than a histogram.
ALONE = [
    mechanisms.CountMLE(noise=GAUSSIAN),
    mechanisms.ContinualTopK(k=3, days=7, sigma=30.0, delta=1e-9),
    mechanisms.WeightedGaussian(sigma=3.0, delta=1e-6),
]
PLAN = plan_topk(3, BUDGET, sensitivity=COUNTS.sensitivity)
QUERY = Charge({costs.BoundedRange(0.1): 3})
WORLD = audit.World(sensitivity=ONE, labels=2, largest=3, public=True)
LIAR = mechanisms.KnownLaplace(epsilon=6.0)


def _filter() -> Accountant:
    account = Accountant.filter(BUDGET)
    account.spend(QUERY)
    return account


def _session() -> Session:
    opened = Session(COUNTS, budget=BUDGET, rng=np.random.default_rng(1))
    opened.top_k(3, budget=Budget(0.3, 1e-7), look=None)
    return opened


def _refused() -> BudgetExceeded:
    with pytest.raises(BudgetExceeded) as refusal:
        _session().top_k(3, budget=Budget(2.0, 1e-6), look=None)
    return refusal.value


# The result of each public function, and one of each public class.
RESULTS = {
    "compose": lambda: compose(QUERY, delta=1e-6),
    "compose, certified": lambda: compose(QUERY, delta=1e-6, certificate=True),
    "calibrate": lambda: calibrate(lambda x: Charge({PureDP(x): 3}), Budget(1.0, 1e-6)),
    "queries_affordable": lambda: calibration.queries_affordable(QUERY, BUDGET),
    "gaussian_mu": lambda: calibration.gaussian_mu(epsilon=1.0, delta=1e-6),
    "table": lambda: bounds.table(QUERY, delta=1e-6),
    "to_dp_event": lambda: interop.to_dp_event(Charge({PureDP(0.1): 3})),
    "plan_topk": lambda: PLAN,
    "plan_continual": lambda: plan_continual(3, 7, BUDGET, sensitivity=ONE),
    "plan_two_phases": lambda: planning.plan_two_phases(3, BUDGET),
    "default_d_bar": lambda: planning.default_d_bar(3),
    "divide": lambda: planning.divide([planning.BudgetItem(name="a", k=3)], 1.0, 1e-6),
    "BudgetItem": lambda: planning.BudgetItem(name="a", k=3),
    "Phase": lambda: planning.plan_two_phases(3, BUDGET).phases,
    "Sensitivity": lambda: ONE,
    "Budget": lambda: Budget(rho=0.5, delta=1e-6),
    "Charge": lambda: QUERY,
    "Histogram": lambda: COUNTS,
    "a release": lambda: PLAN.release(COUNTS, rng=np.random.default_rng(1)),
    "a session's release": lambda: _session().top_k(3, budget=Budget(0.1, 1e-7), look=None),
    "a looked release": lambda: Session(COUNTS, budget=BUDGET).top_k(3, budget=BUDGET, look=0.1),
    "Session.remaining": lambda: _session().remaining(),
    "Session.report": lambda: _session().report(),
    "Accountant.spent": lambda: _filter().spent(),
    "Accountant.table": lambda: Accountant(QUERY, 1e-6).table(),
    "Accountant.remaining": lambda: _filter().remaining(),
    "segments_charge": lambda: budgets.segments_charge([QUERY, QUERY], segments_per_user=1),
    "events_histogram": lambda: datasets.events_histogram(
        EVENTS, user="user", item="item", labels_per_user=2
    ),
    "event_counts": lambda: datasets.event_counts(
        EVENTS, user="user", item="item", labels_per_user=2
    ),
    "users_by_labels": lambda: datasets.users_by_labels(EVENTS, user="user", item="item"),
    "segment_histograms": lambda: datasets.segment_histograms(
        EVENTS.assign(region=EVENTS.user % 2),
        user="user",
        item="item",
        segment="region",
        segments=[0, 1],
        labels_per_user=2,
    ),
    "clipping_loss": lambda: datasets.clipping_loss(
        mechanisms.KnownLaplace(epsilon=1.0).release(RESULTS["users_by_labels"]()), 2
    ),
    "Bounds": lambda: datasets.Bounds(labels_per_user=2),
    "macbeth": lambda: datasets.macbeth(sensitivity=ONE),
    "macbeth_counts": datasets.macbeth_counts,
    "Calendar": lambda: session.Calendar(first_day="2026-01-01"),
    "attest": lambda: audit.attest(mechanisms.KnownLaplace(epsilon=4.0), WORLD),
    "audit": lambda: audit.audit(
        audit.from_mechanism(LIAR, ONE, domain="public"), Budget(0.01), world=WORLD, draws=10000
    ),
    "Counterexample": lambda: RESULTS["audit"]().finding,
    "Claim": lambda: audit.Claim(((0.2, 0.0),), None, "0.2-DP"),
    "World": lambda: WORLD,
    "EventsWorld": lambda: audit.EventsWorld(sensitivity=ONE, users=2, labels=2),
    "an experiment": lambda: experiments.load("ddr-figure-1").name,
    **{f"cost {kind.__name__}": (lambda k=kind, a=a: k(*a)) for kind, a in COST_TYPES.items()},
    **{f"mechanism {m!r}": (lambda m=m: m) for m, _ in MECHANISMS},
    **{f"mechanism {m!r}": (lambda m=m: m) for m in ALONE},
    **{f"release of {m!r}": (lambda m=m, h=h: m.release(h)) for m, h in MECHANISMS},
}


@functools.cache
def _result(name: str) -> object:
    """The result of a name in RESULTS, computed once."""
    return RESULTS[name]()


ERRORS = {
    DptopkError: DptopkError("words"),
    InvalidParameter: InvalidParameter("k: words", parameter="k"),
    dptopk.IncompatibleCosts: dptopk.IncompatibleCosts("words"),
    dptopk.NotCertified: dptopk.NotCertified("words"),
    dptopk.LedgerError: dptopk.LedgerError("words"),
    NotApplicable: NotApplicable("words"),
    ReleaseWithheld: ReleaseWithheld(QUERY, QUERY),
}


def _same(one: object, other: object) -> bool:
    """Two results say the same: by their equality, or where tables are inside by their JSON."""
    if type(one) is not type(other):
        return False
    if isinstance(one, pd.DataFrame):
        return bool(one.equals(other))
    if hasattr(one, "to_dict"):
        return json.dumps(one.to_dict(), default=str) == json.dumps(other.to_dict(), default=str)
    if isinstance(one, Exception):
        return str(one) == str(other) and vars(one) == vars(other)
    return one == other or repr(one) == repr(other)


def _copies(result: object) -> list[object]:
    pickled = [
        pickle.loads(pickle.dumps(result, protocol))  # noqa: S301
        for protocol in (2, pickle.HIGHEST_PROTOCOL)
    ]
    return [*pickled, copy.copy(result), copy.deepcopy(result)]


# More than 0.2 s, most of it imports.
SLOW = {"attest", "audit", "Counterexample", "to_dp_event", "divide", "events_histogram"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in RESULTS],
)
def test_results_pickle_and_copy(name):
    result = _result(name)
    assert result is not None
    assert all(_same(result, other) for other in _copies(result))


@pytest.mark.parametrize("error", [*ERRORS.values()], ids=lambda error: type(error).__name__)
def test_errors_pickle_and_copy(error):
    assert all(_same(error, other) for other in _copies(error))


def test_a_refusal_pickles_and_copies():
    refusal = _refused()
    assert all(_same(refusal, other) for other in _copies(refusal))


def test_an_affordable_number_keeps_what_is_proven_of_it():
    number = calibration.queries_affordable(QUERY, BUDGET)
    for other in _copies(number):
        assert (int(other), other.at_most, other.proven) == (
            int(number),
            number.at_most,
            number.proven,
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Accountant(Charge({PureDP(0.1): 3}), 1e-6),
        lambda _: _filter(),
        lambda _: _session(),
        lambda folder: Ledger(folder / "ledger.db"),
    ],
)
def test_what_holds_a_budget_stays(make, tmp_path):
    held = make(tmp_path)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidParameter, match="cannot be"):
            way(held)


def _affordable() -> object:
    return calibration.queries_affordable(QUERY, BUDGET)


@pytest.mark.slow
def test_results_cross_a_process():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_affordable).result().proven == _affordable().proven
        assert pool.submit(_result, "compose").result() == RESULTS["compose"]()


# Public classes that hold a budget, a connection or a file, or are only interfaces, and why.
STAY = {
    "Plan": "abstract: the base of all plans; several of them above",
    "TopKPlan": "abstract: the base of plans of a top k",
    "TextFile": "a path and how it is read",
    "Cost": "a union of types; each of them above",
    "Receipt": "of a ledger; tested above",
    "Accountant": "holds a budget; tested above",
    "Account": "abstract: the base of Accountant and Filter",
    "Filter": "holds a budget; tested above",
    "Parallel": "holds budgets",
    "Shares": "holds budgets",
    "Summary": "a view of an account",
    "Session": "holds a budget; tested above",
    "StreamSession": "holds a budget",
    "Ledger": "holds a file; tested above",
    "Client": "holds a connection",
    "EventsStore": "holds a connection",
    "DuckDB": "holds a connection",
    "Spark": "holds a connection",
    "Backend": "an interface",
    "Truth": "of made-up events: NumPy arrays",
    "Catalog": "read from its file by each process",
    "DatasetSpec": "read from its file by each process",
}


def test_a_receipt_of_a_ledger_pickles_and_copies(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", budget=BUDGET, sensitivity=ONE, unit="user", version="1")
    receipt = ledger.charge("d", "a", Charge({PureDP(0.1): 1}))
    assert all(_same(receipt, other) for other in _copies(receipt))


@pytest.mark.slow
def test_every_public_class_is_walked():
    examples = [_result(name) for name in RESULTS]
    walked = {type(each).__name__ for each in examples}
    walked |= {type(part).__name__ for each in examples if type(each) is tuple for part in each}
    walked |= {kind.__name__ for kind in ERRORS} | set(STAY) | {"BudgetExceeded"}
    missing = set()
    for room in ROOMS:
        face = importlib.import_module(room)
        for name in getattr(face, "__all__", dir(face)):
            kind = getattr(face, name)
            if inspect.isclass(kind) and kind.__module__.startswith("dptopk"):
                missing |= {f"{room}.{name}"} - {f"{room}.{each}" for each in walked}
    assert not missing, f"public classes without an example here: {sorted(missing)}"
