"""The numbers of docs/paper: how each is computed, and the file that the paper reads them from.

``python scripts/paper_numbers.py write`` computes all and writes docs/paper/numbers.tex; ``check``
computes all and compares. ``tests/test_paper.py`` does so for those that are quick. A bound from
above is printed rounded up, one from below rounded down.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import cache, partial
from itertools import product
from operator import lt, sub
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from dptopk import (
    ZCDP,
    Accountant,
    BoundedRange,
    Budget,
    Charge,
    GaussianDP,
    Sensitivity,
    TruncatedGaussian,
    compose,
)
from dptopk._internal.maxima import gaussian_offset, laplace_offset
from dptopk._internal.tails import (
    gaussian_difference_tail,
    laplace_difference_tail,
    smallest_offset,
)
from dptopk.accounting.calibration import queries_affordable
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.accounting.interop import to_pld
from dptopk.accounting.setwise.bellman_step import lower_step, upper_step
from dptopk.experiments import truncated_gaussian
from dptopk.experiments.adaptivity import row_of_gaps
from dptopk.experiments.range_order import delta_in_order
from dptopk.mechanisms.box import loss_chance
from dptopk.mechanisms.samplers.noise import gaussian_law

DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "paper" / "numbers.tex"
DELTA = 1e-6
SMALL = Decimal("0.001")  # below it a number is printed with a power of ten
ROUNDING = {"upper": ROUND_CEILING, "lower": ROUND_FLOOR, "value": ROUND_HALF_EVEN}
# A certified bracket is as narrow as it is asked to be (0.001); where it lies within that width may
# change.
BRACKET = 1.5e-3


@dataclass(frozen=True)
class Number:
    """One number of the paper.

    Attributes:
        name: what the paper calls it.
        compute: from the package.
        digits: after the decimal point; below 0, that many significant ones.
        kind: "upper", "lower" or "value", which fixes the rounding.
        tolerance: relative, beyond the rounding.
        slow: not for the test suite.
        how: the command or call, for readers.
    """

    name: str
    compute: Callable[[], float]
    digits: int
    how: str
    kind: str = "value"
    tolerance: float = 1e-9
    slow: bool = False

    def text(self) -> str:
        """As printed."""
        exact = Decimal(self.compute())
        places = self.digits if self.digits >= 0 else -self.digits - 1 - exact.adjusted()
        rounded = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUNDING[self.kind])
        return f"{rounded:e}" if 0 < rounded < SMALL else f"{rounded:f}"

    def agrees(self, printed: str) -> bool:
        """Whether what is printed is what is computed, to the rounding and the tolerance."""
        value, unit = (
            self.compute(),
            float(Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))),
        )
        allowed = unit * (0.500001 if self.kind == "value" else 1.000001) + self.tolerance * abs(
            value
        )
        return math.isfinite(value) and abs(float(printed) - value) <= allowed


CHARGES = {
    "br-hundred": "100*BR(0.1)",
    "br-thousand": "1000*BR(0.1)",
    "br-dp": "50*BR(0.1) + 50*DP(0.1)",
    "three": "20*BR(0.1) + 20*BR(0.05) + 5*DP(0.2)",
    "br-gauss": "50*BR(0.1) + GDP(0.5)",
    "wide": "10*BR(0.5) + 5*DP(0.3)",
    "two": "500*BR(0.1) + 500*BR(0.05)",
    "br-zcdp": "200*BR(0.1) + ZCDP(0.07)",
    "kov": "25*DP(0.1)",
}
COLUMNS = {"mgf": "mgf", "zcdp": "setwise_zcdp", "tight": "zcdp_tight", "renyi": "renyi"}
NOT_FOR = {("br-gauss", "mgf"), ("br-zcdp", "mgf"), ("br-zcdp", "pld")}
SLOW = {"br-thousand", "two", "br-zcdp"}
QUERIES = {
    "small": ("BR(0.1)", 1.0),
    "half": ("BR(0.05)", 1.0),
    "medium": ("BR(0.1)", 2.0),
    "large": ("BR(0.1)", 4.0),
}
QUERY_BOUNDS = ("opt_kl", "setwise_zcdp", "mgf", "zcdp_tight", "renyi", "best")


@cache
def composed(text: str, bound: str | None = None) -> object:
    """``compose`` of a charge, once."""
    return (
        compose(Charge.parse(text), delta=DELTA, bound=bound)
        if bound
        else compose(Charge.parse(text), delta=DELTA)
    )


@cache
def gap(k: int) -> dict[str, float]:
    """The adaptive optimum beside the batch one, for k × BR(0.1)."""
    return {
        name: float(value) for name, value in row_of_gaps((0.1, k)).items() if value is not None
    }


def one_direction(adaptive: bool) -> float:
    """Three rounds of P = (.5, .5), Q = (.1, .9) or the swapped pair, at x = 0: fixed or free
    choice of direction.
    """
    pairs = (((0.5, 0.1), (0.5, 0.9)), ((0.1, 0.5), (0.9, 0.5)))

    def value(left: int, p: float, q: float) -> float:
        if not left:
            return max(p - q, 0.0)
        return max(sum(value(left - 1, p * a, q * b) for a, b in pair) for pair in pairs)

    def batch(choice: tuple[int, ...]) -> float:
        outcomes = product(*(pairs[i] for i in choice))
        return sum(
            max(math.prod(o[0] for o in one) - math.prod(o[1] for o in one), 0.0)
            for one in outcomes
        )

    return (
        value(3, 1.0, 1.0)
        if adaptive
        else max(batch(choice) for choice in product((0, 1), repeat=3))
    )


@cache
def violation(sigma: float, delta: float, epsilon: float) -> dict[str, float]:
    """Exact δ of the truncated Gaussian cut at one label, as published and mended, and what CR 2022
    charge.
    """
    mechanism, sensitivity = TruncatedGaussian(sigma=sigma, delta=delta, d_bar=1), Sensitivity(l0=1)
    bound = mechanism.bound(sensitivity)
    noise, at = np.asarray(gaussian_law(sigma, bound).pmf(bound), dtype=float), np.array([epsilon])
    offset = mechanism.threshold_offset(sensitivity)
    return {
        "bound": bound,
        "published": float(
            truncated_gaussian.exact_delta(noise, 1 + bound, noisy_floor=False, epsilons=at)[0]
        ),
        "mended": float(
            truncated_gaussian.exact_delta(noise, offset, noisy_floor=True, epsilons=at)[0]
        ),
        "promised": compose(
            Charge({ZCDP(1 / (2 * sigma**2)): 1}, delta=delta), epsilon=epsilon
        ).delta,
    }


def centred_ratio(k: int) -> float:
    """Standard deviation of a centred count over that of an independent one, equal μ, Δ >= k."""
    return (math.sqrt(k) + 1) / (2 * math.sqrt(k))


def chosen(by_outcome: bool | None) -> float:
    """δ at x = 1 of DP(1), then DP(1.5) (False), 10 × DP(0.51653) (None), or the better for each
    outcome (True).
    """
    first, second = Charge.parse("DP(1.5)"), Charge.parse("10*DP(0.51653)")

    def after(loss: float) -> float:
        one, other = (compose(charge, epsilon=1 - loss).delta for charge in (first, second))
        return max(one, other) if by_outcome else other if by_outcome is None else one

    likely = 1 / (1 + math.exp(-1.0))
    return likely * after(1.0) + (1 - likely) * after(-1.0)


def autodp(costs: dict[str, int]) -> float:
    """ε of its Rényi accountant for exponential mechanisms and pure DP of 0.1 each."""
    from autodp import mechanism_zoo, transformer_zoo

    makers = {
        "exponential": mechanism_zoo.ExponentialMechanism,
        "pure": mechanism_zoo.PureDP_Mechanism,
    }
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        parts = [makers[name](0.1) for name in costs]
        return float(transformer_zoo.Composition()(parts, list(costs.values())).get_approxDP(DELTA))


def _compositions() -> Iterator[Number]:
    for name, text in CHARGES.items():
        slow = name in SLOW
        command = f'dptopk compose "{text}" --delta 1e-6'
        for column, bound in COLUMNS.items():
            if (name, column) not in NOT_FOR:

                def by(text: str = text, bound: str = bound) -> float:
                    return composed(text, bound).epsilon

                yield Number(
                    f"{name}-{column}", by, 4, f"{command} --bound {bound}", "upper", tolerance=1e-6
                )
        if (name, "pld") not in NOT_FOR:

            def pld(text: str = text) -> float:
                return to_pld(Charge.parse(text), bounded_range="dp").get_epsilon_for_delta(DELTA)

            yield Number(
                f"{name}-pld",
                pld,
                4,
                "to_pld(charge, bounded_range='dp')",
                "upper",
                1e-4,
                slow=slow,
            )
        yield Number(
            f"{name}-low", lambda t=text: composed(t).lower, 4, command, "lower", BRACKET, slow
        )
        yield Number(
            f"{name}-best", lambda t=text: composed(t).epsilon, 4, command, "upper", BRACKET, slow
        )


SMALL_COSTS = {
    "h-zcdp": ("100*ZCDP(0.005)", "zcdp_tight"),
    "h-br": ("100000000*BR(0.0001)", "zcdp_tight"),
}


# What the means of concentrated costs cost where they are charged beside the variances, and not.
CONCENTRATED = {
    "cdp-best": ("100*CDP(0.01, 0.1)", "zcdp_gaussian"),
    "cdp-before": ("100*ZCDP(0.005, xi=0.005)", "renyi"),
}


def _small_costs() -> Iterator[Number]:
    """Theorem H: many small costs by one Gaussian."""
    for name, (text, conversion) in SMALL_COSTS.items():
        for column, bound in (
            ("conversion", conversion),
            ("renyi", "renyi"),
            ("best", "zcdp_gaussian"),
        ):

            def by(text: str = text, bound: str = bound) -> float:
                return composed(text, bound).epsilon

            how = f'dptopk compose "{text}" --delta 1e-6 --bound {bound}'
            yield Number(f"{name}-{column}", by, 4, how, "upper")

    for name, (text, bound) in CONCENTRATED.items():

        def by_bound(text: str = text, bound: str = bound) -> float:
            return composed(text, bound).epsilon

        how = f'dptopk compose "{text}" --delta 1e-6 --bound {bound}'
        yield Number(name, by_bound, 4, how, "upper")

    def attained() -> float:
        return float(gaussian_epsilon(1.0, delta=DELTA))

    yield Number("h-zcdp-gauss", attained, 4, "gaussian_epsilon(1, delta=1e-6)", "lower")
    how = 'compose("100000000*BR(0.0001)", delta=1e-6).lower'
    yield Number("h-br-low", lambda: composed("100000000*BR(0.0001)").lower, 4, how, "lower")


def _adaptivity() -> Iterator[Number]:
    for word, k in {
        "four": 4,
        "ten": 10,
        "thirty": 30,
        "hundred": 100,
        "threehundred": 300,
        "thousand": 1000,
    }.items():
        slow, how = k > 30, f"adaptivity.row_of_gaps((0.1, {k}))"
        yield Number(
            f"gap-{word}-batch", lambda k=k: gap(k)["epsilon_batch"], 5, how, "upper", 1e-6, slow
        )
        yield Number(
            f"gap-{word}-low", lambda k=k: gap(k)["epsilon_lower"], 5, how, "lower", 3e-4, slow
        )
        yield Number(
            f"gap-{word}-high", lambda k=k: gap(k)["epsilon_upper"], 5, how, "upper", 3e-4, slow
        )


def _affordable() -> Iterator[Number]:
    for name, (query, budget) in QUERIES.items():
        for bound in QUERY_BOUNDS:

            def count(query: str = query, budget: float = budget, bound: str = bound) -> float:
                return queries_affordable(Charge.parse(query), Budget(budget, DELTA), bound=bound)

            how = f"queries_affordable({query}, Budget({budget}, 1e-6), bound='{bound}')"
            slow = bound == "best" and name in {"half", "large"}
            yield Number(f"afford-{name}-{bound.replace('_', '-')}", count, 0, how, slow=slow)


def _filters() -> Iterator[Number]:
    for name, total, largest in (("two", 2.252, 0.1), ("one", 1.0, 0.05), ("four", 4.0, 0.1)):
        query, budget = Charge({BoundedRange(largest): 1}), Budget(total, DELTA)
        how = f"Accountant.filter(Budget({total}, 1e-6), failure_delta=0.0{{}}).fits(BR({largest}))"

        def accepted(
            query: Charge = query, budget: Budget = budget, ranges: tuple[float, ...] | None = None
        ) -> float:
            return Accountant.filter(budget, failure_delta=0.0, ranges=ranges).fits(query)

        def by_renyi(query: Charge = query, budget: Budget = budget) -> float:
            return Accountant.filter(budget, failure_delta=0.0, method="renyi").fits(query)

        ranges = (largest, largest / 2)
        yield Number(f"filter-{name}-renyi", by_renyi, 0, how.format(', method="renyi"'))
        yield Number(
            f"filter-{name}-prices",
            partial(accepted, ranges=ranges),
            0,
            how.format(f", ranges={ranges}"),
            slow=True,
        )
        yield Number(
            f"filter-{name}-best",
            partial(queries_affordable, query, budget),
            0,
            f"queries_affordable(BR({largest}), Budget({total}, 1e-6))",
            slow=True,
        )


def _orders() -> Iterator[Number]:
    for name, pair, x in (
        ("a", (0.5, 1.0), 0.0),
        ("b", (0.5, 1.0), 0.5),
        ("c", (0.1, 0.2), 0.0),
        ("d", (0.3, 2.0), 1.0),
    ):
        for order, ranges in (("rising", pair), ("falling", pair[::-1])):

            def low(ranges: tuple[float, ...] = ranges, x: float = x) -> float:
                return delta_in_order(list(ranges), x)[0]

            def high(ranges: tuple[float, ...] = ranges, x: float = x) -> float:
                return delta_in_order(list(ranges), x)[1]

            how = f"delta_in_order({list(ranges)}, {x})"
            yield Number(f"order-{name}-{order}-low", low, 4, how, "lower", 1e-6)
            yield Number(f"order-{name}-{order}-high", high, 4, how, "upper", 1e-6)


def _unknown_domains() -> Iterator[Number]:
    places = (("third", 0.3), ("one", 1.0), ("two", 2.0))
    for name, sigma, delta, shown in (
        ("narrow", 3.0, 0.0015, places),
        ("wide", 10.0, 1e-6, places[:2]),
    ):
        how = f"experiments.truncated_gaussian, sigma={sigma}, delta={delta}"
        yield Number(
            f"trunc-{name}-bound", lambda s=sigma, d=delta: violation(s, d, 1.0)["bound"], 0, how
        )
        for place, epsilon in shown:
            for form, kind in (("published", "value"), ("mended", "value"), ("promised", "upper")):

                def found(
                    s: float = sigma, d: float = delta, e: float = epsilon, form: str = form
                ) -> float:
                    return violation(s, d, e)[form]

                yield Number(f"trunc-{name}-{place}-{form}", found, -3, how, kind, 1e-6)
    for word, m in {"one": 1, "five": 5, "twentyfive": 25, "many": 250}.items():
        for law, offset, tail, noise in (
            ("laplace", laplace_offset, laplace_difference_tail, 0.1),
            ("gaussian", gaussian_offset, gaussian_difference_tail, 100.0),
        ):

            def union(m: int = m, tail: Callable = tail, noise: float = noise) -> float:
                return smallest_offset(lambda c: m * tail(noise, c), DELTA, "union")

            def shared(m: int = m, offset: Callable = offset, noise: float = noise) -> float:
                return offset(noise, m, DELTA)

            how = f"{offset.__name__}({noise}, {m}, 1e-6)"
            yield Number(f"offset-{law}-{word}-union", union, 0, how)
            yield Number(f"offset-{law}-{word}-shared", shared, 0, how)


# What was measured, from the pages that `make measure` writes: name, page, row, column of the
# table.
TABLES = {
    "time-select-rank-ours": ("benchmarks", "10⁶ / rank | 1,000,000", 2),
    "time-select-rank-numpy": ("benchmarks", "10⁶ / rank | 1,000,000", 3),
    "time-select-uniform-ours": ("benchmarks", "uniform in 0…999 | 1,000,000", 2),
    "time-select-uniform-opendp": ("benchmarks", "uniform in 0…999 | 1,000,000", 4),
    "time-joint-few-ours": ("whole-answers", "10⁶ / rank | 1,000,000 | 25", 3),
    "time-joint-few-pruned": ("whole-answers", "10⁶ / rank | 1,000,000 | 25", 4),
    "time-joint-many-ours": ("whole-answers", "10⁶ / rank | 1,000,000 | 200", 3),
    "time-joint-many-pruned": ("whole-answers", "10⁶ / rank | 1,000,000 | 200", 4),
    "time-joint-uniform-ours": ("whole-answers", "uniform in 0…999 | 100,000 | 200", 3),
    "time-joint-uniform-pruned": ("whole-answers", "uniform in 0…999 | 100,000 | 200", 4),
    "time-compose-hundred-ours": ("benchmarks", "k × BR(0.1) | 100", 7),
    "time-compose-hundred-opendp": ("benchmarks", "k × BR(0.1) | 100", 9),
    "time-compose-myriad-ours": ("benchmarks", "k × BR(0.1) | 10,000", 7),
    "time-compose-myriad-opendp": ("benchmarks", "k × BR(0.1) | 10,000", 9),
    "utility-look": ("utility", "(1, 10⁻⁶)", 1),
    "utility-look-many": ("utility", "(1, 10⁻⁶)", 2),
    "utility-blind": ("utility", "shapes of reference, **as planned**", 1),
    "utility-possible": ("utility", "the least geometric mean possible", 1),
}
DOMAIN = {
    "best": 2,
    "half": 3,
    "five": 4,
    "twenty": 5,
    "both": 6,
    "all": 7,
}  # columns of docs/notes/domain.md
# The same from sentences: name, page, pattern.
SENTENCES = {
    "domain-ahead": ("domain", r"In (\d+) of 9 cells"),
    "utility-cells": ("utility-table", r"(\d+) of \d+ cells are within"),
    "utility-above": ("utility-table", r"the farthest is \+([\d.]+)%"),
    "utility-below": ("utility-table", r"the mean -([\d.]+)%"),
    "whole-sets": ("whole-answers", r"set l1 — `RoutedTopK`: (\d+) of 40"),
    "whole-order": ("whole-answers", r"ordered l∞ — `RoutedTopK`, ordered: (\d+) of 40"),
}
MILLISECONDS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}


SIZES = {"ten": 10, "twentyfive": 25, "fifty": 50}
# Rows and columns of docs/notes/domain-default.md.
DEFAULT_TABLES = {
    "lines": "lines",
    "days": "plane days",
    "packages": "packages",
    "synsets": "synsets",
    "entries": "entries",
}
# At ε = 1, or at 0.1 for more users.
DEFAULT_SIZES = {
    "few": {"ten": "1, 10", "twentyfive": "1, 25", "fifty": "1, 50"},
    "many": {"twentyfive": "0.1, 25", "hundred": "0.1, 100", "many": "0.1, 250"},
}
FEW = ("lines", "days")
DEFAULT_WAYS = ("shipped", "median", "labels", "best", "half")


def spread_cell(page: str, row: str, column: int, place: int) -> float:
    """The mean, or the deviation beside it, of a cell of a page."""
    (line,) = re.findall(rf"^\| {re.escape(row)} \|.*$", page, re.MULTILINE)
    return float(line.strip("| ").split(" | ")[column].split(" ± ")[place])


def _measured() -> Iterator[Number]:
    def page(name: str) -> str:
        return (DOCS / "notes" / f"{name}.md").read_text(encoding="utf-8")

    def cell(source: str, row: str, column: int) -> float:
        (line,) = re.findall(rf"^\| {re.escape(row)} \|.*$", page(source), re.MULTILINE)
        value, _, unit = line.strip("| ").split(" | ")[column].partition(" ")
        return float(value.replace(",", "")) * MILLISECONDS.get(unit.split(" ")[0], 1.0)

    def sentence(source: str, pattern: str) -> float:
        return float(re.findall(pattern, page(source))[0])

    for name, (source, row, column) in TABLES.items():
        digits = 2 if name.startswith("utility") else -2
        how, rounding = (
            f"docs/notes/{source}.md, {row}",
            0.0 if digits > 0 else 0.05,
        )  # two digits of a time are enough
        yield Number(name, partial(cell, source, row, column), digits, how, tolerance=rounding)
    for users, (word, k), (way, column) in product(
        ("lines", "baskets", "planes"),
        SIZES.items(),
        DOMAIN.items(),
    ):

        def share(row: str = f"{users} | {k}", column: int = column) -> float:
            return 100 * cell("domain", row, column)

        yield Number(
            f"domain-{users}-{word}-{way}",
            share,
            2,
            f"docs/notes/domain.md, {users} | {k}, in per cent",
        )
    for name, (source, pattern) in SENTENCES.items():
        digits = {
            "domain-ahead": 0,
            "utility-cells": 0,
            "whole-sets": 0,
            "whole-order": 0,
        }
        yield Number(
            name, partial(sentence, source, pattern), digits.get(name, 1), f"docs/notes/{source}.md"
        )


def _default() -> Iterator[Number]:
    """The default on events, with spread."""
    page = (DOCS / "notes" / "domain-default.md").read_text(encoding="utf-8")
    for users, row in DEFAULT_TABLES.items():
        (size,) = re.findall(rf"^\| {row} \| (\d+) \| \d+ \| ([\d.]+), ", page, re.MULTILINE)
        how = f"docs/notes/domain-default.md, {row}"
        yield Number(f"default-{users}-users", partial(float, size[0]), 0, how)
        yield Number(f"default-{users}-mean", partial(float, size[1]), 1, how)
    for (users, row), (column, way) in product(
        DEFAULT_TABLES.items(), enumerate(DEFAULT_WAYS, start=2)
    ):
        for word, k in DEFAULT_SIZES["few" if users in FEW else "many"].items():
            how = f"docs/notes/domain-default.md, {row} | {k}"
            for place, end in enumerate(("",) if way == "median" else ("", "-spread")):
                cell_of = partial(spread_cell, page, f"{row} | {k}", column, place)
                yield Number(f"default-{users}-{word}-{way}{end}", cell_of, 2, how)
    yield from _default_beside_peer(page)


def _default_beside_peer(page: str) -> Iterator[Number]:
    """In words: by how much and how often the default's labels are behind the peer's."""

    def means(column: int) -> list[float]:
        return [
            spread_cell(page, f"{row} | {k}", column, 0)
            for users, row in DEFAULT_TABLES.items()
            for k in DEFAULT_SIZES["few" if users in FEW else "many"].values()
        ]

    def places(way: str) -> list[float]:
        return means(2 + DEFAULT_WAYS.index(way))

    def behind() -> float:
        return max(map(sub, places("labels"), places("best")))

    def before_half() -> float:
        return float(sum(map(lt, places("labels"), places("half"))))

    how = "docs/notes/domain-default.md, of the means shown"
    yield Number("default-behind", behind, 2, how)
    yield Number("default-before-half", before_half, 0, how)
    yield Number("default-rows", lambda: float(len(places("half"))), 0, how)


def _four_ranges(ranges: list[int], step: Callable, rounding: float) -> float:
    """The worth at x = 0.625 of ranges of 0.005 n played first to last, as ``step`` bounds one
    step.
    """
    h, reach = 0.005, sum(ranges)
    values = np.maximum(-np.expm1((125 + np.arange(-reach, reach + 1)) * h), 0.0) * (1 + rounding)
    values += max(rounding, 0.0) * 1e-276
    for N in reversed(ranges):
        values = step(values, N, h)
    return float(values[0])


def box_deviation(k: int, epsilon: float) -> float:
    """Standard deviation of a count of k with box noise."""
    n = np.arange(1.0, 60 * (k + 2) / epsilon)
    logs = (k + 1) * np.log(n) - epsilon * n
    weights = np.exp(logs - logs.max())
    return math.sqrt(float(np.sum(weights * (n * n - 1)) / np.sum(weights)) / 6)


def look_excess() -> float:
    """δ, in units of the budget's, of a look and the better of two plans that are each within the
    budget.
    """
    epsilon, look, delta = 1.0, 0.05, 1e-6
    up = 1 / (1 + math.exp(-look))

    def worth(response: float, x: float) -> float:
        return max(math.exp(response) - math.exp(x), 0.0) / (1 + math.exp(response))

    plan = brentq(
        lambda b: up * worth(b, epsilon - look) + (1 - up) * worth(b, epsilon + look) - delta,
        0.9,
        1.0,
    )
    return (up * worth(plan, epsilon - look) + (1 - up) * delta) / delta


def numbers() -> list[Number]:
    """All numbers of the paper, by name."""
    found = [
        *_compositions(),
        *_adaptivity(),
        *_affordable(),
        *_filters(),
        *_orders(),
        *_unknown_domains(),
        *_small_costs(),
    ]
    found += _measured()
    found += _default()
    gauss, one, look = Charge({GaussianDP(0.01): 1}), Budget(1.0, DELTA), "the example of the text"
    small = -math.expm1(-1.0)
    found += [
        Number(
            "filter-gauss-sum",
            lambda: Accountant.filter(one, failure_delta=0.0, method="gaussian").fits(gauss),
            0,
            "Accountant.filter(Budget(1, 1e-6), failure_delta=0.0, "
            "method='gaussian').fits(GDP(0.01))",
        ),
        Number(
            "filter-gauss-best",
            lambda: queries_affordable(gauss, one),
            0,
            "queries_affordable(GDP(0.01), Budget(1, 1e-6))",
        ),
        Number(
            "order-four-sorted",
            lambda: _four_ranges([100, 160, 160, 160], upper_step, 1e-14),
            6,
            "bellman_step.upper_step, steps of 0.005",
            "upper",
        ),
        Number(
            "order-four-swapped",
            lambda: _four_ranges([160, 100, 160, 160], lower_step, -1e-14),
            6,
            "bellman_step.lower_step, steps of 0.005",
            "lower",
        ),
        Number("box-one", lambda: loss_chance(1.0, 2, 1) * small, 3, "box.loss_chance(1, 2, 1)"),
        Number(
            "box-twentyfive",
            lambda: loss_chance(1.0, 26, 13) * small,
            3,
            "box.loss_chance(1, 26, 13)",
        ),
        Number("box-deviation", lambda: box_deviation(25, 1.0), 1, "box_deviation(25, 1)"),
        Number(
            "box-laplace", lambda: math.sqrt(0.5) / math.sinh(1 / 50), 1, "25 counts of DP(1/25)"
        ),
        Number("look-excess", look_excess, 2, look),
    ]
    how, certify = "three rounds, by enumeration", 'dptopk certify "{}*BR(0.1)" --delta 1e-6'
    found += [
        Number("direction-fixed", lambda: one_direction(False), 3, how),
        Number("direction-free", lambda: one_direction(True), 3, how),
        Number("centred-twentyfive", lambda: centred_ratio(25), 2, "centred_ratio(25)"),
        Number("centred-hundred", lambda: centred_ratio(100), 2, "centred_ratio(100)"),
        Number(
            "choice-fixed",
            lambda: max(chosen(False), chosen(None)),
            5,
            "compose(DP(1) + ..., epsilon=1)",
        ),
        Number(
            "choice-free", lambda: chosen(True), 5, "a choice by the outcome of DP(1), at epsilon=1"
        ),
        Number("certified-hundred", _certified, 4, certify.format("100"), "upper", 2e-3, slow=True),
        Number(
            "certified-thousand",
            lambda: _certified("1000*BR(0.1)"),
            4,
            certify.format("1000"),
            "upper",
            2e-3,
            True,
        ),
        Number(
            "autodp-hundred",
            lambda: autodp({"exponential": 100}),
            4,
            "autodp, 100 exponential",
            "upper",
            1e-3,
            True,
        ),
        Number(
            "autodp-dp",
            lambda: autodp({"exponential": 50, "pure": 50}),
            4,
            "autodp, 50 of each",
            "upper",
            1e-3,
            True,
        ),
    ]
    return found


def _certified(text: str = "100*BR(0.1)") -> float:
    return float(compose(Charge.parse(text), delta=DELTA, certificate=True).certificate.epsilon)


def printed() -> dict[str, str]:
    """The numbers by name, from the file that the paper reads."""
    return dict(
        re.findall(
            r"^\\defnum\{([a-z-]+)\}\{([0-9.e-]+)\}", FILE.read_text(encoding="utf-8"), re.MULTILINE
        )
    )


def write() -> None:
    """Compute all and write the file."""
    lines = [f"\\defnum{{{number.name}}}{{{number.text()}}} % {number.how}" for number in numbers()]
    lines.insert(0, "% Written by scripts/paper_numbers.py; how each is computed stands behind it.")
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check() -> list[str]:
    """Names of the numbers that are not what the package computes."""
    at = printed()
    return [number.name for number in numbers() if not number.agrees(at[number.name])]


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    elif wrong := check():
        sys.exit(f"not as computed: {', '.join(wrong)}")
