"""Selections beside a training run in dp-accounting: all selections together are one privacy loss
distribution.

Run as ``python examples/with_dp_accounting.py``. A bounded-range cost has no pair of its own; a
group of them has one (docs/notes/setwise.md, Theorem C), and it may be composed with whatever
dp-accounting knows.
"""

from __future__ import annotations

from dp_accounting.pld import privacy_loss_distribution

from dptopk import BoundedRange, Charge
from dptopk.accounting.interop import to_pld

SELECTIONS = Charge({BoundedRange(0.1): 100}, adaptive=True)
DELTA, INTERVAL = 1e-6, 1e-3


def main() -> dict[str, float]:
    """ε of the selections and of a Gaussian release beside them, as groups and as pure DP."""
    other = privacy_loss_distribution.from_gaussian_mechanism(
        4.0, value_discretization_interval=INTERVAL
    )
    found = {}
    for name in ("group", "dp"):
        selections = to_pld(SELECTIONS, interval=INTERVAL, bounded_range=name)
        found[f"selections as {name}"] = selections.get_epsilon_for_delta(DELTA)
        found[f"with the Gaussian as {name}"] = selections.compose(other).get_epsilon_for_delta(
            DELTA
        )
    for name, epsilon in found.items():
        print(f"{name}: ε = {epsilon:.4f} at δ = {DELTA:g}")
    return found


if __name__ == "__main__":
    main()
