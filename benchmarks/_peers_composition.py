"""ε of k costs at δ = 1e-6: dptopk, dp-accounting, OpenDP, autodp."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import _peers
import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.accounting.interop import to_pld
from dptopk.costs import BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import IncompatibleCosts

DELTA = 1e-6
# seconds; where ten times as many would take a peer longer it is not asked (dptopk has a deadline)
PATIENCE = 40.0


def by_dptopk(charge: Charge) -> tuple[float, str]:
    found = compose(charge, delta=DELTA)
    width = "–" if found.lower is None else f"{(found.epsilon - found.lower) / found.epsilon:.0e}"
    return found.epsilon, width


def by_dp_accounting(charge: Charge) -> tuple[float, str]:
    return to_pld(charge, bounded_range="dp").get_epsilon_for_delta(DELTA), ""


def by_opendp(charge: Charge) -> tuple[float, str]:
    """Its own composition of measurements whose maps are ε²/8, ε²/2 and μ²/2, and its own
    conversion.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)

    def one(cost: Cost) -> dp.Measurement:
        if isinstance(cost, PureDP):
            pure = dp.m.make_user_measurement(
                *space, dp.max_divergence(), lambda _: 0, lambda d: d * cost.epsilon
            )
            return dp.c.make_pureDP_to_zCDP(pure)
        rho = cost.epsilon**2 / 8 if isinstance(cost, BoundedRange) else cost.mu**2 / 2
        return dp.m.make_user_measurement(
            *space, dp.zero_concentrated_divergence(), lambda _: 0, lambda _: rho
        )

    parts = [measurement for cost, times in charge for measurement in [one(cost)] * times]
    return dp.c.make_zCDP_to_approxDP(dp.c.make_composition(parts)).map(1).epsilon(DELTA), ""


def by_autodp(charge: Charge) -> tuple[float, str]:
    from autodp import mechanism_zoo, transformer_zoo

    makers = {
        PureDP: lambda cost: mechanism_zoo.PureDP_Mechanism(cost.epsilon),
        BoundedRange: lambda cost: mechanism_zoo.ExponentialMechanism(cost.epsilon),
        GaussianDP: lambda cost: mechanism_zoo.ExactGaussianMechanism(1 / cost.mu),
    }
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mechanisms = [makers[type(cost)](cost) for cost in charge.costs]
        composed = transformer_zoo.Composition()(mechanisms, list(charge.costs.values()))
        return float(composed.get_approxDP(DELTA)), ""


TOOLS: dict[str, tuple[str | None, Callable[[Charge], tuple[float, str]]]] = {
    "dptopk": (None, by_dptopk),
    "dp-accounting": ("dp-accounting", by_dp_accounting),
    "OpenDP": ("opendp", by_opendp),
    "autodp": ("autodp", by_autodp),
}


def cases(smoke: bool) -> dict[str, list[Charge]]:
    sizes = (100,) if smoke else (100, 1000, 10_000)
    many = () if smoke else (100_000,)
    different = np.random.default_rng(0).uniform(0.05, 0.15, 10_000).tolist()
    return {
        "k × DP(0.1)": [Charge({PureDP(0.1): k}) for k in sizes],
        "k × BR(0.1)": [Charge({BoundedRange(0.1): k}) for k in (*sizes, *many)],
        "k × GDP(0.1)": [Charge({GaussianDP(0.1): k}) for k in sizes],
        "k different DP(0.05…0.15)": [
            Charge(dict.fromkeys(map(PureDP, different[:k]), 1)) for k in sizes
        ],
        "k different GDP(0.05…0.15)": [
            Charge(dict.fromkeys(map(GaussianDP, different[:k]), 1)) for k in sizes[:2]
        ],
        "k/2 BR(0.1), k/4 DP(0.1), k/4 GDP(0.1)": [
            Charge({BoundedRange(0.1): k // 2, PureDP(0.1): k // 4, GaussianDP(0.1): k // 4})
            for k in sizes
        ],
    }


def section(smoke: bool) -> str:
    tools = {
        name: run
        for name, (peer, run) in TOOLS.items()
        if peer is None or _peers.missing(peer) is None
    }
    header = [
        "costs",
        "k",
        *(f"{name}: ε" for name in tools),
        "certified to",
        *(f"{name}: time" for name in tools),
    ]
    rows, last = [], dict.fromkeys(tools, 0.0)
    for title, charges in cases(smoke).items():
        last = dict.fromkeys(tools, 0.0)
        for charge in charges:
            epsilons, times, width = [], [], ""
            for name, run in tools.items():
                epsilon, spent, certified = measure(
                    run, charge, 0.0 if name == "dptopk" else last[name]
                )
                growth = f" (×{spent / last[name]:.2g})" if spent and last[name] else ""
                last[name] = spent or PATIENCE
                width = certified or width
                epsilons.append(epsilon)
                times.append(_peers.seconds(spent) + growth)
            rows.append([title, f"{charge.count:,}", *epsilons, width, *times])
    return _peers.table(header, rows)


def measure(
    run: Callable[[Charge], tuple[float, str]], charge: Charge, before: float
) -> tuple[str, float | None, str]:
    """ε, seconds and certified width; seconds are None where the library refuses or would take too
    long.
    """
    if before * 10 > PATIENCE:
        return "not run", None, ""
    kept: list[tuple[float, str]] = []
    try:
        spent = _peers.median_seconds(lambda: kept.append(run(charge)), 3)
    except (IncompatibleCosts, KeyError):
        return "refused", None, ""
    except Exception as error:  # noqa: BLE001
        return f"fails ({type(error).__name__})", None, ""
    epsilon, width = kept[-1]
    return f"{epsilon:.5g}", spent, width
