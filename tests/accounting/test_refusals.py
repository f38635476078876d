"""Functions of the families refuse what is no number in range, by name: a NaN must not become a
small ε or δ.
"""

from __future__ import annotations

import inspect
import math

import pytest

from dptopk.accounting.bounded_range import nonadaptive, nonadaptive_with_dp
from dptopk.accounting.f_dp import multi_dp
from dptopk.accounting.gaussian import discrete, pair
from dptopk.accounting.published import (
    cesar_rogers,
    dong_durfee_rogers,
    dwork_rothblum_vadhan,
    murtagh_vadhan,
)
from dptopk.accounting.published.cadir_najib_shkel import approximation, regions, tradeoff
from dptopk.accounting.pure_dp import homogeneous, two_epsilon
from dptopk.accounting.renyi import concentrated, renyi_curves
from dptopk.errors import InvalidParameter

NUMBERS = {
    "epsilon": 0.3, "epsilon1": 0.3, "epsilon2": 0.2, "delta": 1e-3, "at_epsilon": 0.5, "mu": 0.4, "tau": 0.2,
    "rho": 0.02, "xi": 0.01, "type_1": 0.2, "scale": 4.0, "count": 3, "count1": 3, "count2": 2, "ranged": 3, "pure": 2,
}  # fmt: skip
OTHERS = {
    "shift": 1, "first": (0.3, 0.0), "second": (0.15, 0.02), "constraints": [(0.3, 0.0), (0.15, 0.02)],
    "epsilons": [0.1, 0.2], "f": tradeoff.GaussianTradeoff(1.0),
    "rtol": 1e-3,
}  # fmt: skip
MODULES = (
    homogeneous, two_epsilon, nonadaptive, nonadaptive_with_dp, discrete, pair, renyi_curves,
    concentrated, multi_dp, cesar_rogers, dong_durfee_rogers, dwork_rothblum_vadhan, murtagh_vadhan, approximation,
    regions, tradeoff,
)  # fmt: skip
# Parts of the curves, for those who build one, whose arguments were looked at.
PARTS = {
    "gaussian_curve", "gaussian_log_delta", "lattice_law", "closed_form_error", "composition_law", "log_mgf",
}  # fmt: skip


def functions():
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith("_") or name in PARTS:
                continue
            taken = inspect.signature(function).parameters
            if taken.keys() <= NUMBERS.keys() | OTHERS.keys():
                numbers = [parameter for parameter in taken if parameter in NUMBERS]
                yield from (
                    pytest.param(function, number, id=f"{name}-{number}") for number in numbers
                )


CASES = list(functions())


def test_most_functions_are_asked():
    assert len({case.values[0] for case in CASES}) >= 30


@pytest.mark.parametrize(("function", "number"), CASES)
def test_what_is_out_of_range_is_refused(function, number):
    given = {name: (NUMBERS | OTHERS)[name] for name in inspect.signature(function).parameters}
    function(**given)
    for wrong in (math.nan, -0.5):
        with pytest.raises(InvalidParameter, match=number):
            function(**given | {number: wrong})
