"""Every way a randomised function can go, with its probability."""

from __future__ import annotations

import numpy as np


def paths(run):
    """Yield run(choose) and its probability for every outcome of its choices; choose(weights)
    returns an index.
    """
    pending = [()]
    while pending:
        prefix, taken, mass = pending.pop(), [], [1.0]

        def choose(weights, prefix=prefix, taken=taken, mass=mass):
            law = np.asarray(weights, dtype=float) / np.sum(weights)
            options = np.flatnonzero(law).tolist()
            if len(taken) < len(prefix):
                pick = prefix[len(taken)]
            else:
                pick = options[0]
                pending.extend((*taken, other) for other in options[1:])
            taken.append(pick)
            mass[0] *= law[pick]
            return pick

        yield run(choose), mass[0]


def law_of(run):
    """The law of a randomised function as a dictionary."""
    law = {}
    for outcome, mass in paths(run):
        law[outcome] = law.get(outcome, 0.0) + mass
    return law
