"""A whole charge as one OpenDP measurement, beside a measurement of OpenDP's own.

Run as ``python examples/with_opendp.py``. OpenDP composes (ε, δ) and ρ, not pairs of laws: it is
told the ε that ``compose`` proves for everything at once, at the δ that the user sets aside for it.
"""

from __future__ import annotations

import opendp.prelude as dp

from dptopk import BoundedRange, Charge, GaussianDP
from dptopk.accounting.interop import to_opendp

SPENT = Charge({BoundedRange(0.1): 100, GaussianDP(0.2): 3}, adaptive=True)


def main() -> tuple[float, float]:
    """(ε, δ) of the charge and of a Laplace count of ε = 0.5 together, as OpenDP adds them up."""
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    measure, distance = to_opendp(SPENT, "approximate", delta=1e-6)
    ours = dp.m.make_user_measurement(
        *space, measure, lambda _: 0, lambda moved: distance if moved else (0.0, 0.0)
    )
    count = dp.c.make_approximate(dp.m.make_laplace(*space, scale=2.0))
    epsilon, delta = dp.c.make_composition([ours, count]).map(1)
    print(f"together: ε = {epsilon:.4f} at δ = {delta:g}")
    return epsilon, delta


if __name__ == "__main__":
    main()
