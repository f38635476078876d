"""The default on events beside the best published way to find labels, with spread: writes
docs/notes/domain-default.md.

    make measure WHAT=domain_default ARGS="--text macbeth.txt"

Data and peer as in benchmarks/domain.py. Here is what a user gets who chooses nothing:
``Session.from_events(table, user=, item=, budget=).top_k(k)``, labels with counts and error bars.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.domain import BUDGET, SHARES, SIZES, Users, all_users, weighted_then_peel
from dptopk import Session

PAGE = Path(__file__).parents[1] / "docs" / "notes" / "domain-default.md"
Missed = dict[str, np.ndarray]

TEXT = """# The default on events, with spread

This note supports the claim of how the default compares with the best published way to find labels. Made by
`make measure WHAT=domain_default ARGS="{arguments}"` at (1, 10⁻⁶), labels unknown, {runs} runs. Users are {sizes}.

A number is the per cent of the true top k's counts that an answer misses: mean ± standard deviation of one answer. *Default* is
`Session.from_events(table, user=, item=, budget=).top_k(k)` with nothing chosen: labels *with* counts and error bars. The peer (Dick, Joseph and Raman 2026, written anew, see
[domain](domain.md)) returns labels alone, and the best of four shares of its budget is known to nobody beforehand.

{table}
"""


def measure(users: Users, k: int, runs: int) -> Missed:
    """The per cent of the top k's counts that each answer misses, by way."""
    truth = Counter(word for words in users for word in words)
    best = sum(count for _, count in truth.most_common(k))
    rows = [(user, word) for user, words in enumerate(users) for word in words]
    events = pd.DataFrame(rows, columns=["user", "item"])
    answers: dict[str, list[list[str]]] = {}
    for run in range(runs):
        rng = np.random.default_rng([k, len(users), run, 1])
        session = Session.from_events(events, user="user", item="item", budget=BUDGET, rng=rng)
        answers.setdefault("default", []).append(list(session.top_k(k).labels))
        for share in SHARES:
            peer = weighted_then_peel(users, k, share, rng)
            answers.setdefault(f"weighted, {share}", []).append(peer)
    return {
        way: np.array([100 * (1 - sum(truth[word] for word in answer) / best) for answer in given])
        for way, given in answers.items()
    }


def row(name: str, k: int, missed: Missed) -> str:
    """A row of the page."""
    peers = [missed[f"weighted, {share}"] for share in SHARES]
    columns = [missed["default"], min(peers, key=np.mean), missed["weighted, 0.5"]]
    cells = [f"{one.mean():.2f} ± {one.std(ddof=1):.2f}" for one in columns]
    return f"| {name} | {k} | {' | '.join(cells)} |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--baskets", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    data = all_users(given.text, given.baskets)
    rows = [
        "| users | k | default, with counts | peer, best of four shares | peer, half for each |",
        "|---|---|---|---|---|",
        *(
            row(name, k, measure(users, k, given.runs))
            for name, users in data.items()
            for k in SIZES
        ),
    ]
    sizes = ", ".join(f"{len(users)} {name}" for name, users in data.items())
    arguments = f"--text {given.text.name}"
    if given.baskets:
        arguments += f" --baskets {given.baskets.name}"
    page = TEXT.format(arguments=arguments, runs=given.runs, sizes=sizes, table="\n".join(rows))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
