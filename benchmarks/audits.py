"""Audits of mechanisms known to be broken, and of ours, into docs/notes/audit-results.md: `make
measure WHAT=audits`.

OpenDP's thresholds release counts that *reach* the threshold and account for those *above* it;
permute-and-flip is not bounded range; the truncated Gaussian of CR 2022, Algorithm 2 compares with
a threshold that carries no noise.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import random
import sys
import time
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from dptopk import (
    BoundedRange,
    Budget,
    CanonicalTopK,
    Centred,
    Charge,
    JointTopK,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    OneShotTopK,
    RoutedTopK,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.audit import World, audit, from_mechanism, from_opendp
from dptopk.mechanisms import StabilityTopK, TruncatedLaplace

ONE = Sensitivity(l0=1)


def opendp_threshold():
    dp.enable_features("contrib", "honest-but-curious")
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i32")),
        dp.l01inf_distance(dp.absolute_distance(T="i32")),
    )
    measurement = dp.m.make_laplace_threshold(*space, scale=1.0, threshold=5)
    epsilon, delta = measurement.map((1, 1, 1))
    return from_opendp(measurement), Budget(epsilon, delta), World()


def permute_and_flip():
    def choose(counts):
        scores = {label: count + random.expovariate(1.0) for label, count in counts.items()}
        return max(scores, key=scores.get)

    return (
        choose,
        Charge({BoundedRange(1.0): 1}),
        World(public=True, sensitivity=Sensitivity(l0=None)),
    )


def published_truncated_gaussian(sigma=3.0, bound=9):
    points = np.arange(-bound, bound + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2)).tolist()

    def release(counts):
        ranked = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
        if not ranked:
            return {}
        (label, top), floor = ranked[0], ranked[1][1] if len(ranked) > 1 else 0
        value = top + random.choices(points.tolist(), weights)[0]
        return {label: value} if value > floor + 1 + bound else {}

    return release, Budget(2.0, 0.0015), World()


def repeated_label():
    def choose(counts):
        return [random.choice(list(counts)) for _ in range(2)] if counts else []

    return choose, Budget(1.0, 1e-6), World()


BROKEN = {
    f"OpenDP {importlib.metadata.version('opendp')} make_laplace_threshold": opendp_threshold,
    "permute-and-flip charged as bounded range": permute_and_flip,
    "CR 2022, Algorithm 2": published_truncated_gaussian,
    "an answer that may repeat a label": repeated_label,
}
CLAIM = (
    "This note supports the claim that `dptopk audit` finds broken mechanisms and finds "
    "nothing in ours."
)
ANY = Sensitivity()
OURS = [  # mechanism, domain, sensitivity
    (KnownGumbel(k=2, epsilon=1), "public", ONE),
    (KnownLaplace(epsilon=1), "public", ONE),
    (KnownGaussian(sigma=2), "public", ONE),
    (Centred(noise=KnownLaplace(epsilon=1)), "public", ANY),
    (Centred(noise=KnownGaussian(sigma=2)), "public", ANY),
    (OneShotTopK(k=2, epsilon=1), "public", ANY),
    (JointTopK(k=2, epsilon=1), "public", ANY),
    (CanonicalTopK(k=2, epsilon=1), "public", ANY),
    (RoutedTopK(k=2, epsilon=1), "public", ANY),
    (RoutedTopK(k=2, epsilon=1, delta=1e-2), "public", ANY),
    (StabilityTopK(k=2, epsilon=1, delta=1e-2), "public", ANY),
    (UnknownGumbel(k=2, d_bar=2, epsilon=1, delta=1e-2), "private", ONE),
    (UnknownLaplace(d_bar=1, epsilon=1, delta=1e-2), "private", ONE),
    (UnknownGaussian(d_bar=1, sigma=2, delta=1e-2), "private", ONE),
    (TruncatedLaplace(epsilon=1, delta=1e-2), "private", ONE),
    (TruncatedGaussian(sigma=2, delta=1e-2), "private", ONE),
    (TruncatedGaussian(sigma=2, delta=1e-2, d_bar=1), "private", ONE),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each broken mechanism")
    parser.add_argument("--ours", type=float, default=60.0, help="seconds for each of ours")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parents[1] / "docs" / "notes" / "audit-results.md",
    )
    arguments = parser.parse_args()
    made = (
        f"Made by `make measure WHAT=audits`: at most {arguments.seconds:g} s for each "
        f"broken mechanism, "
    )
    lines = ["# Audits", "", CLAIM, "", f"{made}{arguments.ours:g} s for each of ours. α = 1e-6."]
    lines += [
        "",
        "| mechanism | claim | found | at least | seconds | draws |",
        "|---|---|---|---|---|---|",
    ]
    jobs = [(name, *make(), arguments.seconds) for name, make in BROKEN.items()]
    for mechanism, domain, sensitivity in OURS:
        world = World(sensitivity=sensitivity, public=domain == "public")
        run = from_mechanism(mechanism, sensitivity, domain=domain)
        charge = mechanism.charge(sensitivity, labels=world.labels)
        jobs.append((f"`{mechanism}`", run, charge, world, arguments.ours))
    for name, run, claim, world, seconds in jobs:
        started = time.monotonic()
        report = audit(run, claim, world=world, seconds=seconds)
        found = report.finding
        what = f"{found.kind}: {found.event}" if found else "nothing"
        size = f"{found.measured:.4g} (claimed {found.claimed:.4g})" if found else ""
        text = (
            f"({claim.epsilon:g}, {claim.delta:.4g})-DP"
            if isinstance(claim, Budget)
            else f"{claim}"
        )
        took = time.monotonic() - started
        lines.append(
            f"| {name} | {text} | {what} | {size} | {took:.0f} | {report.draws} |".replace(
                "\n", " "
            )
        )
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
