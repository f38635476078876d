"""The names, signatures and defaults that callers outside the project rely on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import dptopk
from dptopk import (
    ZCDP,
    Accountant,
    ApproxDP,
    Bound,
    BoundedRange,
    Budget,
    Charge,
    CountMLE,
    Histogram,
    KnownGaussian,
    KnownLaplace,
    Ledger,
    MultiDP,
    Plan,
    PureDP,
    Release,
    Sensitivity,
    Session,
    compose,
    plan_topk,
)
from dptopk.accounting import bounds
from dptopk.datasets import events_histogram
from dptopk.mechanisms.named import names

TOP = """
    Histogram Sensitivity Budget Charge Session Ledger Client Accountant Plan Release Bound
    PureDP ApproxDP BoundedRange CDP ZCDP GaussianDP DiscreteGaussianDP DiscreteLaplaceDP MultiDP
    KnownGumbel KnownLaplace KnownGaussian Exponential UnknownGumbel UnknownLaplace UnknownGaussian TruncatedGaussian
    CountMLE Centred Box JointTopK CanonicalTopK OneShotTopK RoutedTopK PartitionSelection
    compose plan_topk plan_continual calibrate top_k
    DptopkError InvalidParameter IncompatibleCosts BudgetExceeded NotCertified LedgerError
"""  # all that stands at the top
MECHANISMS = {
    "KnownGumbel": ("k", "epsilon", "charge_as"),
    "KnownLaplace": ("epsilon",),
    "KnownGaussian": ("sigma",),
    "JointTopK": ("k", "epsilon"),
    "CanonicalTopK": ("k", "epsilon"),
    "OneShotTopK": ("k", "epsilon"),
    "StabilityTopK": ("k", "epsilon", "delta"),
    "RoutedTopK": ("k", "epsilon", "delta", "ordered"),
    "Exponential": ("epsilon", "utility_range"),
    "UnknownGumbel": ("k", "d_bar", "epsilon", "delta", "charge_as"),
    "UnknownLaplace": ("d_bar", "epsilon", "delta"),
    "UnknownGaussian": ("d_bar", "sigma", "delta"),
    "TruncatedGaussian": ("sigma", "delta", "d_bar"),
    "TruncatedLaplace": ("epsilon", "delta"),
    "SparseGaussian": ("sigma", "delta"),
    "WeightedGaussian": ("sigma", "delta"),
    "PartitionSelection": ("epsilon", "delta"),
    "GaussianCounts": ("mu",),
    "CountMLE": ("noise", "shrink"),
    "Centred": ("noise", "common", "centre"),
    "Box": ("epsilon",),
    "UnknownBox": ("d_bar", "epsilon", "delta"),
    "UnknownCentred": ("d_bar", "noise", "delta", "common", "centre"),
}
BOUNDS = {
    "basic", "advanced", "optimal_dp", "optimal_dp_exact", "optimal_dp_approx", "two_epsilon", "multi_dp",
    "br_nonadaptive", "br_dp_nonadaptive", "dr19", "opt_kl", "mgf", "renyi", "setwise_cdp", "setwise_zcdp",
    "zcdp_tight", "zcdp_gaussian", "gaussian", "optimal_setwise",
}  # fmt: skip
REQUIRED = inspect.Parameter.empty
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


# function -> positional names, and keyword-only names with their defaults
SIGNATURES: list[tuple[Any, list[str], dict[str, Any]]] = [
    (Charge, ["costs"], {"delta": 0.0, "adaptive": False, "neighbours": "add_remove"}),
    (
        Histogram,
        ["labels", "counts"],
        {
            "sensitivity": Sensitivity(),
            "domain": "private",
            "domain_size": None,
            "absent_label": None,
            "complete": True,
        },
    ),
    (Histogram.from_pandas, ["df"], {"label": REQUIRED, "count": REQUIRED}),
    (Sensitivity, ["linf", "l0", "neighbours", "l2", "l1"], {}),
    (ZCDP, ["rho"], {"xi": 0.0}),
    (
        compose,
        ["charge"],
        {
            "delta": None,
            "epsilon": None,
            "interaction": "setwise",
            "bound": "best",
            "rtol": 1e-3,
            "effort": "normal",
            "max_seconds": None,
        },
    ),
    (bounds.table, ["charge"], {"delta": None, "epsilon": None}),
    (Accountant, ["registered", "delta"], {}),
    (Accountant.spend, ["charge"], {}),
    (Accountant.refund, ["charge"], {}),
    (Accountant.filter, ["budget"], {}),
    (plan_topk, ["k", "budget"], {"domain": "private", "d_bar": None, "counts": "auto"}),
    (Plan.release, ["histogram", "rng"], {}),
    (Ledger, ["url"], {}),
    (Ledger.create_dataset, ["name"], {"registered": None, "budget": None, "delta": None}),
    (Ledger.spent, ["name"], {}),
    (Ledger.verify, [], {}),
    (Session, ["histogram"], {"budget": None, "ledger": None, "dataset": None, "analyst": None, "rng": None}),
    (Session.run, ["mechanism"], {}),
    (Session.top_k, ["k"], {"budget": None, "counts": "auto"}),
    (Session.remaining, [], {}),
    (Session.report, [], {}),
    (
        events_histogram,
        ["table"],
        {"user": REQUIRED, "item": REQUIRED, "labels_per_user": REQUIRED, "per_label_cap": 1, "top": None},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "positional", "keywords"),
    SIGNATURES,
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_signature(function: Any, positional: list[str], keywords: dict[str, Any]) -> None:
    found = parameters(function)
    assert [name for name, p in found.items() if p.kind == p.POSITIONAL_OR_KEYWORD] == positional
    for name, default in keywords.items():
        assert found[name].kind == KEYWORD
        if default is not REQUIRED:
            assert found[name].default == default


def test_every_mechanism_has_its_parameters_here() -> None:
    # A stream has no release of one histogram.
    assert MECHANISMS.keys() == set(names()) - {"ContinualTopK"}


@pytest.mark.parametrize(("name", "fields"), MECHANISMS.items())
def test_mechanisms_are_frozen_keyword_only_dataclasses(name: str, fields: tuple[str, ...]) -> None:
    mechanism = getattr(dptopk.mechanisms, name)
    found = parameters(mechanism)
    assert tuple(found) == fields
    assert {p.kind for p in found.values()} == {KEYWORD}
    assert mechanism.__dataclass_params__.frozen
    charge = parameters(mechanism.charge)
    assert list(charge) == ["sensitivity", "labels"]
    assert charge["labels"].kind == KEYWORD
    assert charge["labels"].default is None
    release = parameters(mechanism.release)
    assert list(release)[:2] == ["histogram", "rng"]
    assert release["rng"].default is None
    extra = {"CountMLE": ["ranking"], "KnownLaplace": ["labels"], "KnownGaussian": ["labels"]}
    for keyword in extra.get(name, []):
        assert release[keyword].kind == KEYWORD


@pytest.mark.parametrize(
    "attribute", ["table", "charge", "mechanism", "to_dict", "to_polars", "to_arrow"]
)
def test_release_has(attribute: str) -> None:
    release = CountMLE(noise=KnownGaussian(sigma=1.0)).release(
        Histogram(None, [5, 3]), ranking=[0, 1]
    )
    assert isinstance(release, Release)
    assert hasattr(release, attribute)


@pytest.mark.parametrize(("owner", "names"), [
    (Accountant, ["spend", "refund", "epsilon", "remaining", "table", "filter"]),
    (Plan, ["charge", "mechanisms", "release", "explain"]),
    (Ledger, ["create_dataset", "spent", "verify"]),
    (Session, ["run", "top_k", "remaining", "report"]),
])  # fmt: skip
def test_methods(owner: type, names: list[str]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == []


def test_the_top_shows_these_names_and_no_others() -> None:
    assert {name for name in dir(dptopk) if not name.startswith("_")} == set(TOP.split())


def test_bound_names_and_columns() -> None:
    rows = bounds.table(Charge({BoundedRange(0.1): 3}), delta=1e-6)
    assert set(rows["name"]) >= BOUNDS
    wanted = {
        "name",
        "source",
        "epsilon",
        "delta",
        "lower",
        "batch",
        "ordered",
        "setwise",
        "filter",
        "applies",
        "why not",
    }
    assert wanted <= set(rows.columns)
    assert {"epsilon", "delta", "lower", "name", "source", "valid_in", "note"} <= set(
        Bound.__dataclass_fields__
    )


def test_error_types() -> None:
    from dptopk.errors import (
        BudgetExceeded,
        IncompatibleCosts,
        InvalidParameter,
        LedgerError,
        NotCertified,
    )

    assert issubclass(InvalidParameter, ValueError)
    error = BudgetExceeded(Charge({PureDP(1.0): 1}), Charge())
    assert (error.requested, error.remaining) == (Charge({PureDP(1.0): 1}), Charge())
    assert all(
        issubclass(kind, dptopk.DptopkError)
        for kind in (IncompatibleCosts, LedgerError, NotCertified)
    )


def test_charge_text_round_trips() -> None:
    charge = Charge.parse("25*BR(0.1) + 2*DP(0.3) + ZCDP(0.07)")
    assert charge == Charge({BoundedRange(0.1): 25, PureDP(0.3): 2, ZCDP(0.07): 1})
    rich = Charge(
        {
            MultiDP(constraints=((1.0, 0.0), (0.5, 1e-3))): 2,
            ApproxDP(0.5, 1e-9): 3,
            ZCDP(1.0, xi=0.1): 1,
        },
        delta=1e-7,
        adaptive=True,
        neighbours="replace_one",
    )
    for each in (charge, rich, Charge()):
        assert Charge.parse(str(each)) == each
    assert charge.costs[BoundedRange(0.1)] == 25
    assert charge.delta == 0.0


def test_join_refuses_different_neighbours() -> None:
    one, other = Charge({PureDP(1.0): 1}), Charge({PureDP(1.0): 1}, neighbours="replace_one")
    with pytest.raises(dptopk.IncompatibleCosts, match="neighbours"):
        Charge.join(one, other)
    assert Charge.join(one, one).costs == {PureDP(1.0): 2}
    with pytest.raises(TypeError):
        PureDP(1.0) + PureDP(1.0)  # type: ignore[operator]
    with pytest.raises(dptopk.InvalidParameter, match="charges"):
        Charge.join(one, 3)  # type: ignore[arg-type]


def test_budget_and_count_mle_noise() -> None:
    assert (Budget(1, 1e-6).epsilon, Budget(epsilon=1, delta=1e-6).delta) == (1.0, 1e-6)
    assert CountMLE(noise=KnownLaplace(epsilon=1.0)).noise.epsilon == 1.0
