"""Whether "left" is true: the number that a session shows against real questions, over random
histories.

    python -m benchmarks.gauge                # 500 histories (several minutes)
    python -m benchmarks.gauge 50 7           # 50 of them, from seed 7

A history is a budget of some kind (free choice with or without δ, in ρ, declared ranges, registered
costs, segments, a share) and up to six questions: histograms with public or private labels, events,
looks, single mechanisms, streams. After it the largest ε at which the next question of the last
kind is accepted is found by bisection around the number that was shown, each time with a session of
its own on a copy of the account, which is really asked. The number shown must not be above it by
more than rounding, nor below it by more than 1% of the total.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
import pandas as pd

from dptopk import (
    Accountant,
    BoundedRange,
    Budget,
    Charge,
    GaussianDP,
    Histogram,
    PureDP,
    Sensitivity,
    Session,
)
from dptopk.budgets import Account, Filter, Parallel, Shares
from dptopk.datasets import EventCounts, event_counts
from dptopk.errors import BudgetExceeded, DptopkError, IncompatibleCosts, InvalidParameter
from dptopk.planning.gauge import Kind, epsilon_left

HALVINGS = 10  # of the bisection with real questions: 0.1% of the total
ROUNDING = 1e-9
MOST_BELOW = 0.01  # of the total
MOST_QUESTIONS = 6


@dataclass(frozen=True)
class Case:
    """One history: a session, its account, and the kind of its last question.

    Attributes:
        session: after the history.
        account: what it spends from.
        data: what it is about.
        options: of the last question, without its budget.
        delta: of the last question.
        words: what happened.
    """

    session: Session
    account: Account
    data: Histogram
    options: dict[str, object]
    delta: float
    words: str


@cache
def events() -> EventCounts:
    """A table of events, read for two phases."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"user": random.integers(0, 400, 4000), "item": random.zipf(1.5, 4000) % 60}
    )
    return event_counts(table, user="user", item="item", labels_per_user=10)


def data_of(random: Random) -> Histogram:
    """What is asked about."""
    l0 = random.choice((1, 3, None))
    kind = random.choice(("public", "private", "private", "events"))
    if kind == "events":
        return events()
    counts = [900, 700, 500, 300, 200, 100, 50, 20, 10, 5, 2, 1]
    if kind == "public":
        return Histogram(None, counts, sensitivity=Sensitivity(l0=l0))
    names = {f"label {place}": count for place, count in enumerate(counts)}
    return Histogram(names, sensitivity=Sensitivity(l0=l0))


def account_of(random: Random) -> Account:
    """A budget of some kind."""
    epsilon = random.choice((0.3, 1.0, 3.0))
    delta = random.choice((1e-8, 1e-6, 1e-5))
    kind = random.choice(("free",) * 6 + ("pure", "rho", "ranges", "registered", "parts", "share"))
    if kind == "pure":
        return Filter(Budget(epsilon, 0.0))
    if kind == "rho":
        return Filter(Budget(rho=epsilon**2 / 8, delta=delta))
    if kind == "ranges":
        return Filter(Budget(epsilon, delta), method="gaussian")
    if kind == "registered":
        costs = {PureDP(epsilon / 4): 8, BoundedRange(epsilon / 20): 30, GaussianDP(0.05): 4}
        return Accountant(Charge(costs, delta=delta / 2), delta=delta)
    if kind == "parts":
        return Parallel({name: Filter(Budget(epsilon, delta)) for name in ("eu", "us")})
    if kind == "share":
        parts = {name: Filter(Budget(epsilon, delta)) for name in ("ann", "bob")}
        return Shares(parts, 2 * delta).account("ann")
    return Filter(Budget(epsilon, delta))


def copied(account: Account) -> Account:
    """An equal account that shares nothing with this one."""
    if isinstance(account, Filter):
        return account.copy_of_terms()
    if isinstance(account, Parallel):
        return Parallel({name: copied(part) for name, part in account.parts.items()})
    assert isinstance(account, Accountant)
    copy = Accountant(account.registered, account.delta, guarantee=account.guarantee)
    copy.restore(json.loads(json.dumps(account.state())))
    return copy


def session_on(data: Histogram, account: Account) -> Session:
    """A session with a seed of its own."""
    from dptopk.session.session import EventsSession

    kind = EventsSession if isinstance(data, EventCounts) else Session
    return kind(data, budget=account, rng=np.random.default_rng(1))


def options_of(random: Random, data: Histogram) -> dict[str, object]:
    """A question, without its budget."""
    options: dict[str, object] = {"k": random.choice((1, 3, 5))}
    if not isinstance(data, EventCounts):
        options["counts"] = random.choice((None, "auto", "auto", "laplace"))
        options["look"] = random.choice((None, None, "auto", 0.1))
    return options


def case_of(seed: int) -> Case:
    """The history with this seed."""
    random = Random(seed)  # noqa: S311: cases, not noise
    data = data_of(random)
    account = account_of(random)
    session = session_on(data, account)
    total = min(account.epsilon(), 5.0)
    options = options_of(random, data)
    delta = account.delta / random.choice((10, 10, 20, 100))
    words = [f"{type(account).__name__} ({total:.3g}, {account.delta:g}), {type(data).__name__}"]
    for _ in range(random.randint(0, MOST_QUESTIONS)):
        epsilon = total * random.choice((0.003, 0.01, 0.03, 0.1, 0.2, 0.4))
        if random.random() < 0.15:
            _apart(random, account, epsilon)
            words.append("a single cost")
            continue
        options = options_of(random, data)
        delta = account.delta / random.choice((10, 10, 20, 100))
        try:
            session.top_k(budget=Budget(epsilon, delta), **options)  # type: ignore[arg-type]
            words.append(f"{epsilon:.4g}, {delta:g}, {options}")
        except DptopkError as error:
            words.append(f"refused {type(error).__name__} {epsilon:.4g}")
    return Case(session, account, data, options, delta, "; ".join(words))


def _apart(random: Random, account: Account, epsilon: float) -> None:
    """Spend a single cost, or a stream's, without a question."""
    kinds = (PureDP(epsilon / 2), GaussianDP(epsilon / 8), BoundedRange(epsilon / 3))
    try:
        account.spend(Charge({random.choice(kinds): random.choice((1, 1, 3))}))
    except (BudgetExceeded, IncompatibleCosts):
        return


def accepted(case: Case, epsilon: float) -> bool:
    """Whether the question is answered at this ε, by a session on a copy of the account."""
    session = session_on(case.data, copied(case.account))
    try:
        session.top_k(budget=Budget(epsilon, case.delta), **case.options)  # type: ignore[arg-type]
    except (BudgetExceeded, IncompatibleCosts, InvalidParameter):
        return False
    return True


def largest_accepted(
    case: Case, said: float, total: float, holds: Callable[[Case, float], bool] = accepted
) -> float:
    """The largest ε that is accepted, at most 0.1% of the total too small.

    The search begins at the number that was shown. As acceptance is not quite monotone in ε, the
    total is asked too, and half-way to it.
    """
    if holds(case, total):
        return total
    resolution = total * 2.0**-HALVINGS
    middle = (said + total) / 2
    if holds(case, middle):
        return _halved(case, middle, total, resolution, holds)
    if said == 0 or holds(case, said):
        low, high = _beyond(case, said, resolution, holds)
        return _halved(case, low, min(high, total), resolution, holds)
    low, high = _below(case, said, resolution, holds)
    return _halved(case, low, high, resolution, holds)


def _beyond(
    case: Case, accepted_one: float, step: float, holds: Callable[[Case, float], bool]
) -> tuple[float, float]:
    """A bracket above an accepted ε, found in steps that grow."""
    low = accepted_one
    while holds(case, low + step):
        low += step
        step *= 4
    return low, low + step


def _below(
    case: Case, refused_one: float, step: float, holds: Callable[[Case, float], bool]
) -> tuple[float, float]:
    """A bracket below a refused ε, found in steps that grow."""
    high = refused_one
    while high > step and not holds(case, high - step):
        high -= step
        step *= 4
    return max(high - step, 0.0), high


def _halved(
    case: Case,
    low: float,
    high: float,
    resolution: float,
    holds: Callable[[Case, float], bool],
) -> float:
    """The largest ε that is accepted in a bracket, at most ``resolution`` too small."""
    while high - low > resolution * (1 + ROUNDING):
        middle = (low + high) / 2
        if holds(case, middle):
            low = middle
        else:
            high = middle
    return low


def shown(case: Case) -> float:
    """What is said to be left for a question like the last one."""
    from dptopk.question import Question

    counts = case.options.get("counts", "auto")
    stated = {name: value for name, value in case.options.items() if name != "counts"}
    question = Question.of("session", counts="none" if counts is None else counts, **stated)
    kind = Kind(question.with_total(Budget(1.0, case.delta)), case.session._facts())  # noqa: SLF001
    return epsilon_left(case.account, kind)


def difference(seed: int) -> tuple[float, float, float, Case]:
    """What is shown, what is found, and the total, of one history."""
    case = case_of(seed)
    total = min(case.account.epsilon(), 100.0)
    said = shown(case)
    # Private labels without δ: no such question can be planned, and a pure cost is meant.
    askable = not isinstance(case.data, EventCounts) and case.data.domain == "public"
    found = largest_accepted(case, said, total) if case.delta or askable else said
    # Acceptance is not quite monotone in ε: what is shown is right where it is really accepted.
    if said > found and accepted(case, said):
        found = said
    return said, found, total, case


def main() -> None:
    """Print every history where the number is wrong, and a summary."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    off = []
    for seed in range(first, first + number):
        said, found, total, case = difference(seed)
        share = (said - found) / total
        off.append(share)
        resolution = 2.0**-HALVINGS
        if share > resolution + ROUNDING or share < -MOST_BELOW:
            print(f"seed {seed}: shown {said:.6g}, found {found:.6g} of {total:.4g}: {case.words}")
    print(
        f"{number} histories: shown - found from {min(off):+.3%} to {max(off):+.3%} of the total, "
        f"median {sorted(off)[len(off) // 2]:+.3%}"
    )


if __name__ == "__main__":
    main()
