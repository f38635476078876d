"""Gaussian and discrete Gaussian composition side by side with dp-accounting: ε at δ = 1e-6, its
width, and the time.

Run: python benchmarks/bench_gaussian.py
"""

import time
from collections.abc import Callable

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp

from dptopk.accounting.bounds import compose
from dptopk.costs import Charge, DiscreteGaussianDP, GaussianDP

DELTA = 1e-6
INTERVAL = 1e-4
CHARGES = [
    Charge({GaussianDP(0.1): 25}),
    Charge({GaussianDP(0.1): 1000, GaussianDP(0.3): 10}),
    Charge({DiscreteGaussianDP(1.0, 1): 10}),
    Charge({DiscreteGaussianDP(13.1, 1): 25}),
    Charge({DiscreteGaussianDP(13.1, 1): 25, GaussianDP(0.5): 1}),
]


def timed(run: Callable[[], object], repetitions: int = 5) -> tuple[object, float]:
    """The result, and the best time in milliseconds."""
    best = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - start)
    return result, 1e3 * best


def by_pld(charge: Charge) -> float:
    total = None
    for cost, times in charge:
        if isinstance(cost, GaussianDP):
            one = pld.from_gaussian_mechanism(1 / cost.mu, value_discretization_interval=INTERVAL)
        else:
            one = pld.from_discrete_gaussian_mechanism(
                cost.scale, sensitivity=cost.shift, value_discretization_interval=INTERVAL
            )
        one = one.self_compose(times)
        total = one if total is None else total.compose(one)
    return total.get_epsilon_for_delta(DELTA)


def by_rdp(charge: Charge) -> float:
    accountant = rdp.RdpAccountant()
    for cost, times in charge:
        noise = 1 / cost.mu if isinstance(cost, GaussianDP) else cost.scale / cost.shift
        accountant.compose(dp_event.GaussianDpEvent(noise), times)
    return accountant.get_epsilon(DELTA)


def main() -> None:
    print(f"{'charge':42} {'method':22} {'epsilon':>12} {'relative width':>15} {'ms':>9}")
    for charge in CHARGES:
        for name in ("gaussian", "renyi"):
            found, ms = timed(lambda: compose(charge, delta=DELTA, bound=name))  # noqa: B023
            width = "" if found.lower is None else f"{1 - found.lower / found.epsilon:.1e}"
            print(
                f"{charge!s:42} {'dptopk ' + name:22} {found.epsilon:12.8f} {width:>15} {ms:9.2f}"
            )
        for name, method in (("dp-accounting PLD", by_pld), ("dp-accounting RDP", by_rdp)):
            epsilon, ms = timed(lambda: method(charge), 1)  # noqa: B023
            print(f"{'':42} {name:22} {epsilon:12.8f} {'':>15} {ms:9.2f}")


if __name__ == "__main__":
    main()
