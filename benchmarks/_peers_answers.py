"""Whole answers without δ beside the published mechanisms: an excerpt of
docs/notes/whole-answers.md.
"""

from __future__ import annotations

import _peers
import numpy as np
import whole_answers

K = 100
MECHANISMS = ("JOINT", "canonical", "PF peel", "EM peel", "`RoutedTopK`")


def section(smoke: bool) -> str:
    draws = whole_answers.PEERS_PURE | whole_answers.OURS_PURE
    rows = []
    for name, counts in whole_answers.shapes().items():
        medians = []
        for mechanism in MECHANISMS:
            rng = np.random.default_rng(11)
            runs = range(2 if smoke else 20)
            chosen = [
                whole_answers.errors(counts, K, draws[mechanism](counts, K, rng))[0] for _ in runs
            ]
            medians.append(f"{np.median(chosen):,.0f}")
        rows.append([name, *medians])
        if smoke and len(rows) == 2:
            break
    return _peers.table(["counts", *MECHANISMS], rows)
