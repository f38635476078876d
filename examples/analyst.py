"""An analyst's session: each question depends on the answers before, and a ledger keeps the
account.

Run as ``python examples/analyst.py FOLDER [--seed N]``; writes ledger.db (anew), session.csv and
session.png.

The data owner registers a set of costs once. The analyst may use them in any order and choose what
to ask next after each answer; the total ε, fixed by the registration, holds whatever the analyst
does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from dptopk import (
    Accountant,
    BoundedRange,
    BudgetExceeded,
    Charge,
    KnownLaplace,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
    UnknownGumbel,
)
from dptopk.datasets import macbeth

SENSITIVITY = Sensitivity(linf=1, l0=1)  # a user is one word of the play
REGISTERED = Charge({BoundedRange(0.1): 60, PureDP(0.2): 10}, delta=1e-6)
DELTA = 1e-5


def questions(session: Session) -> list[dict[str, object]]:
    """Ever longer rankings while new words turn up; after each, the count of the last word
    found.
    """
    log: list[dict[str, object]] = []
    k = 5
    while True:
        try:
            ranking = session.run(UnknownGumbel(k=k, d_bar=100, epsilon=0.1, delta=1e-7))
            log.append(entry("top", k, ranking, session))
            if not len(ranking):
                return log
            count = session.run(KnownLaplace(epsilon=0.2), labels=list(ranking.labels[-1:]))
            log.append(entry("count", 1, count, session))
        except BudgetExceeded as refusal:
            print(f"refused: {refusal}")
            return log
        k = k + 5 if len(ranking) == k else max(k // 2, 1)


def entry(question: str, k: int, release: object, session: Session) -> dict[str, object]:
    left = session.remaining().left
    return {
        "question": question,
        "k": k,
        "rows": len(release),
        "charge": str(release.charge),
        "selections left": left.costs.get(BoundedRange(0.1), 0),
        "counts left": left.costs.get(PureDP(0.2), 0),
    }


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--seed", type=int, default=None, help="reproducible noise: for tests, not for production"
    )
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = None if options.seed is None else np.random.default_rng(options.seed)
    for stale in options.folder.glob("ledger.db*"):
        stale.unlink()

    with Ledger(options.folder / "ledger.db", test=rng is not None) as ledger:
        ledger.create_dataset(
            "play", registered=REGISTERED, delta=DELTA, sensitivity=SENSITIVITY, unit="word"
        )
        histogram = macbeth(sensitivity=SENSITIVITY)
        session = Session(histogram, ledger=ledger, dataset="play", analyst="ann", rng=rng)
        log = pd.DataFrame(questions(session))
        print(log.to_string(index=False))
        print(
            f"spent {ledger.spent('play')}; the chain is {'whole' if ledger.verify() else 'BROKEN'}"
        )
    print(
        f"guaranteed whatever was asked: ε = {Accountant(REGISTERED, DELTA).epsilon():.4g} at δ "
        f"= {DELTA:g}"
    )
    log.to_csv(options.folder / "session.csv", index=False)
    plot(log, options.folder / "session.png")
    return log


def plot(log: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for name in ("selections left", "counts left"):
        axes.step(range(1, len(log) + 1), log[name], where="post", marker="o", label=name)
    axes.set(
        xlabel="question", ylabel="registered costs left", title="An analyst's session", ylim=0
    )
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
