"""A private look before the plan: sorted counts at a few ranks with box noise, and the shapes that
they leave open.

Sorted counts move in one direction between neighbours, each by at most linf, for any l0 and however
many labels are unknown (ranks beyond the last have count 0). So box noise of ε on them is ε-DP. On
every outcome its loss is at most ε, so whatever is asked afterwards at (ε', δ), chosen by what was
seen, is (ε + ε', δ)-DP together with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import LookShare
from dptopk._internal.json_text import canonical_json
from dptopk._internal.rounding import decimal, floor_digits, round_down, sum_up
from dptopk.costs import ApproxDP, Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import Box
from dptopk.mechanisms.mechanism import add_remove
from dptopk.mechanisms.samplers.random import narrow
from dptopk.planning.mixture import Mixture
from dptopk.planning.protocol import Paying, PaysAll, Reading, Step
from dptopk.planning.single import Single
from dptopk.planning.topk_plan import OnePhase, TopKPlan, joined
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]
# What is looked at, in multiples of k, beside the largest count.
RANK_FACTORS = (1, 2, 4, 10)
# A look is taken by default if a user may touch this many labels or more, for fewer than this many
# rows a label: else noise on all counts is best anyway; and for at most this many rows.
LEAST_LABELS = 3
MOST_ROWS = 2
MOST_LABELS = 100
# The share of ε for a look, and how many shapes are drawn from what it leaves open.
PROBE_SHARE = 0.035
SHAPES = 48
TRIED = 4000
SMALL = 10
# What of the data a look is at.
SORTED = ("sorted counts",)
# Where the largest noisy count is below this many deviations of its noise nothing was seen.
STDS_SEEN = 4.0


def ranks(k: int, factors: tuple[int, ...] = RANK_FACTORS) -> tuple[int, ...]:
    """Return the ranks that are looked at."""
    return tuple(dict.fromkeys((1, *(fold * validate.count(k=k) for fold in factors))))


def at_ranks(histogram: Histogram, k: int, factors: tuple[int, ...] = RANK_FACTORS) -> Histogram:
    """Return the sorted counts at the ranks that are looked at, as a histogram of their own.

    Raises:
        InvalidParameter: where rows were left out, since a rank may jump where small rows were; for
            neighbours by substitution, between which counts move in both directions.
    """
    validate.instance(Histogram, histogram=histogram)
    sensitivity = add_remove(histogram.sensitivity)
    if not histogram.complete:
        raise InvalidParameter("look: needs the whole histogram, this one has only the top rows")
    looked = ranks(k, factors)
    top = histogram.counts[histogram.top_rows(looked[-1])]
    counts = [int(top[rank - 1]) if rank <= len(top) else 0 for rank in looked]
    names = [f"rank {rank}" for rank in looked]
    return Histogram(names, counts, sensitivity=replace(sensitivity, l0=None), domain="public")


@dataclass(frozen=True)
class Look:
    """A look for a share of a budget, and the plan for the rest.

    Attributes:
        k: of the question.
        budget: of the look and the answer together: ε's and δ's add up to it.
        share: of ε, in (0, 1), for the look.
        optional: whether the answer may do without, where an account does not cover both.
    """

    k: int
    budget: Budget
    share: float = PROBE_SHARE
    optional: bool = False

    def __post_init__(self) -> None:
        validate.assign(
            self,
            k=validate.count(k=self.k),
            share=validate.probability(allow_zero=False, look=self.share),
        )
        if not isinstance(self.budget, Budget) or self.budget.rho is not None:
            raise InvalidParameter("look: needs a budget in ε and δ, not in ρ, and no accuracy")

    @property
    def mechanism(self) -> Box:
        """Return the mechanism that releases the ranks."""
        return Box(epsilon=floor_digits(self.share * self.budget.epsilon))

    @property
    def rest(self) -> Budget:
        """Return the budget left for the answer, by basic composition."""
        exact = decimal(self.budget.epsilon) - decimal(self.mechanism.epsilon)
        return Budget(round_down(exact), self.budget.delta)

    def plan(
        self, seen: Release, sensitivity: Sensitivity, planned: partial[OnePhase], usual: OnePhase
    ) -> OnePhase:
        """Return the plan that does best on what a look leaves open: the plan for it, the usual
        one, or that for a given shape.

        Args:
            seen: the release of ``at_ranks`` by ``mechanism``.
            sensitivity: of the histogram.
            planned: plan_topk with all arguments but the budget; with ``like=``, the shape that the
                look checks.
            usual: the plan, made without a shape, of the budget that the look leaves.
        """
        like = planned.keywords.get("like")
        counts = dict(zip(seen.labels, np.asarray(seen.counts).tolist(), strict=True))
        noisy = np.array([counts[f"rank {rank}"] for rank in ranks(self.k)])
        nothing = noisy[0] < STDS_SEEN * self.mechanism.noise_std(sensitivity, labels=len(noisy))
        if nothing and like is None:
            return usual
        open_ = shapes(noisy, self.k, self.mechanism, sensitivity.linf, ranks(self.k)[-1] + 92)
        open_ = open_.beside(usual.mechanisms, self.k, sensitivity, usual.counted)
        others = [shape for shape in (like, None if nothing else open_) if shape is not None]
        plans = [usual, *(planned(budget=usual.budget, like=shape) for shape in others)]
        return min(
            plans,
            key=lambda plan: open_.outcome(plan.mechanisms, self.k, sensitivity, plan.counted).loss,
        )

    def total(self, plan: OnePhase) -> OnePhase:
        """Return the plan for the rest, with the guarantee of probe and answer together, by basic
        composition.
        """
        spent = self.mechanism.epsilon
        bound = replace(
            plan.bound,
            epsilon=sum_up([spent, plan.bound.epsilon]),
            lower=None,
            certificate=None,
            name=f"{plan.bound.name} after a look",
            source=f"{plan.bound.source}; ε = {spent:g} of it for the look, by addition",
        )
        return replace(plan, budget=self.budget, bound=bound)

    def on(self, answer: Release, looked: Charge) -> Release:
        """Return the answer with a note of what was looked at and what that cost."""
        named = ", ".join(map(str, ranks(self.k)))
        note = f"planned after a look at the counts of the ranks {named} with noise, for {looked}"
        total = joined([looked, answer.charge])
        notes = "; ".join(filter(None, (answer.note, note)))
        return replace(answer, charge=total, phases={"look": looked, **answer.phases}, note=notes)


@dataclass(frozen=True, kw_only=True)
class LookedPlan(OnePhase):
    """A look and the plan by it, as one question; what it predicts is what the plan without the
    look does.

    Whatever plan a look leads to, both together are (ε, δ)-DP: so their charge is known before any
    data is seen.

    Attributes:
        look: what comes first.
        planned: plan_topk with all arguments but the budget.
        usual: the plan for what the look leaves of the budget, made without it.
    """

    look: Look
    planned: partial[OnePhase]
    usual: OnePhase

    @classmethod
    def of(cls, look: Look, planned: partial[OnePhase]) -> LookedPlan:
        """Return a look, and ``planned`` for what it leaves of the budget."""
        usual = planned(budget=look.rest, like=None)
        total = look.total(usual)
        stated = {field.name: getattr(total, field.name) for field in fields(OnePhase)}
        return cls(**stated, look=look, planned=planned, usual=usual)

    @property
    def charge(self) -> Charge:
        """Return the total (ε, δ) as a charge."""
        return Charge({ApproxDP(self.budget.epsilon, self.budget.delta): 1})

    @property
    def text(self) -> str:
        """Return words for the plan; its mechanisms are not known before the look."""
        return "a look then a plan by it"

    @property
    def reading(self) -> Reading:
        """Return that all counts are read: any may be of a rank that is looked at."""
        return Reading(self.sensitivity)

    def error_bar(self) -> float | None:
        """Return the error bar of the plan without the look."""
        return self.usual.error_bar()

    def check(self, histogram: Histogram, /) -> None:
        """Refuse what ``OnePhase.check`` refuses, and a histogram that was cut to its top rows."""
        super().check(histogram)
        at_ranks(histogram, self.k)

    def first(self, data: Histogram) -> Step:
        """Return the look, at the sorted counts of a few ranks."""
        looked = at_ranks(data.with_sensitivity(self.sensitivity), self.k)
        return Step(Single.on(self.look.mechanism, looked, {}), looked, SORTED)

    def payable(self, paying: Paying) -> bool:
        """Return whether the look and a plan after it would be paid for, or a plan without
        a look.
        """
        half = Budget(self.look.rest.epsilon, self.look.rest.delta / 2)
        sorted_counts = replace(self.sensitivity, l0=None)
        look = Single.of(self.look.mechanism, {}, sorted_counts, len(ranks(self.k)))
        if paying.covers(look, self.usual):
            return True
        if paying.covers(look, self.planned(budget=half, like=None)):
            return True
        return self.look.optional and paying.covers(self.planned(budget=self.look.budget))

    def run(
        self,
        data: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,
        paying: Paying | None = None,
    ) -> tuple[TopKPlan, Release]:
        """Return the plan by the look, with the guarantee of both, and the answer, with what each
        of them cost; the look and the plan by it are paid one after the other.

        A plan that the account covers for certain is made before the look is paid.
        """
        self.check(data)
        account: Paying = paying or PaysAll()
        looking = self.first(data)
        # A filter sets half of its δ aside: after a look, which needs none, that half is what a
        # whole answer can have.
        less = Budget(self.look.rest.epsilon, self.look.rest.delta / 2)
        stored = self._stored(data, looking, less, account)
        if stored is not None:
            then, seen = stored
        else:
            before = self._before(looking, less, account)
            if not account.covers(looking.plan, before):
                if not self.look.optional:
                    raise account.refuse(looking.charge, before.charge)
                without = self.planned(budget=self.look.budget)
                return without.run(data, rng, average=average, paying=account)
            seen = account.answer(looking, rng)
            then = self.look.plan(seen, self.sensitivity, self.planned, before)
            then = then if account.covers(then) else before
            narrow(rng, lambda: canonical_json(then.record()))
        answer = account.answer(Step(then, data, average=average), rng)
        return self.look.total(then), self.look.on(answer, seen.charge)

    def _before(self, looking: Step, less: Budget, account: Paying) -> OnePhase:
        """Return the plan, made without what the look shows, that the account pays for after the
        look; where it pays for none, that of the smaller budget ``less``.
        """
        if account.covers(looking.plan, self.usual):
            return self.usual
        return self.planned(budget=less, like=None)

    def _stored(
        self, data: Histogram, looking: Step, less: Budget, account: Paying
    ) -> tuple[OnePhase, Release] | None:
        """Return the plan by a stored look that was answered too, and that look, which both were
        paid for; None if there is none.
        """
        seen = account.known(looking)
        if seen is None:
            return None
        for rest in (self.look.rest, less):
            usual = self.usual if rest == self.look.rest else self.planned(budget=rest, like=None)
            then = self.look.plan(seen, self.sensitivity, self.planned, usual)
            if account.has(Step(then, data)):
                return then, seen
        return None

    def draw(self, data: Histogram, rng: Generator | None, *, average: bool) -> Release:
        """Return the answer of ``run``, at the charge that covers every plan."""
        return replace(self.run(data, rng, average=average)[1], charge=self.charge)

    def release(
        self,
        histogram: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,
        paying: Paying | None = None,
    ) -> Release:
        """Return the answer of ``run``; not paid step by step, at the charge that covers every
        plan.
        """
        if paying is None:
            return self.draw(histogram, rng, average=average)
        return super().release(histogram, rng, average=average, paying=paying)


def with_look(
    look: LookShare, planned: partial[OnePhase], *, whole: bool = True, **total: Any
) -> Callable[[], OnePhase]:
    """Return what plans a question: ``planned``, or a LookedPlan if a look comes first, by public
    facts alone.

    Args:
        look: "auto" for a look where it is worth its cost, a share of ε in (0, 1), or None.
        planned: plan_topk with all arguments but the total.
        whole: whether a look is possible: all rows are at hand, and an account may cover it.
        total: budget=, or accuracy= and delta=.

    Raises:
        InvalidParameter: for a share of ε, where the total is none of ε.
    """
    usual = partial(planned, **total)
    if look is None or (look == "auto" and not whole):
        return usual
    stated = planned.keywords | total
    for name in ("budget", "sensitivity", "domain", "counts"):
        stated.setdefault(name, None)
    k, budget = stated["k"], stated["budget"]
    if look != "auto":
        return partial(LookedPlan.of, Look(k, budget, look), planned)
    if worth_a_look(k, budget, stated["sensitivity"], stated["domain"], stated["counts"]):
        return partial(LookedPlan.of, Look(k, budget, PROBE_SHARE, optional=True), planned)
    return usual


def shapes(
    seen: Array,
    k: int,
    mechanism: Box,
    linf: int,
    length: int,
    factors: tuple[int, ...] = RANK_FACTORS,
    falls: int = 4,
) -> Mixture:
    """Return shapes that the noisy counts at the ranks leave open: noise of the same law is taken
    off again, with fixed seeds.

    Args:
        seen: the noisy counts, shape (ranks,).
        k: as for ``ranks``.
        mechanism: whose noise it is.
        linf: of the sensitivity.
        length: how many ranks a shape has.
        factors: as for ``ranks``.
        falls: between two of the ranks counts fall in one of the first ways of four; in the first
            one by powers.

    Beyond the last rank counts follow the power law between the last two.
    """
    looked = np.array(ranks(k, factors), dtype=np.float64)
    counts = np.log(np.maximum(likely_counts(seen, mechanism, linf, SHAPES, seed=k), 0.5))
    # Between two of the ranks counts fall in one of four ways, in each shape and between each two
    # in one drawn.
    how = np.random.default_rng(k + 2).integers(falls, size=(SHAPES, len(looked)))

    def through(rank: Array) -> Array:
        """Return the counts of these ranks on each shape, shape (SHAPES, ranks)."""
        gap = np.minimum(looked.searchsorted(rank, side="right"), len(looked) - 1) - 1
        first = looked[gap]
        last = looked[gap + 1]
        from_last = rank >= last
        # By powers, by a factor a rank, all at once at the last of them, and all at once after the
        # first.
        power = np.log(rank / first) / np.log(last / first)
        ways = np.array([power, (rank - first) / (last - first), from_last, rank > first])
        way = np.where(from_last, power, ways[how[:, gap], np.arange(len(rank))])
        fall = counts[:, gap + 1] - counts[:, gap]
        rounded: Array = np.rint(np.exp(counts[:, gap] + way * fall))
        return rounded

    return Mixture.of(k, length, through)


def likely_counts(
    seen: Array, mechanism: Box, linf: int, number: int, *, seed: int = 0, finer: int = 1
) -> Array:
    """Return falling counts that noisy ones leave open, shape (number, counts): noise of the same
    law is taken off again, with fixed seeds.

    Args:
        seen: the noisy counts, of values that fall, shape (counts,).
        mechanism: whose noise it is.
        linf: of the sensitivity.
        number: how many.
        seed: of all draws.
        finer: as many times more are drawn, of which quantiles by their first count are taken.
    """
    noises = _noise(mechanism, len(seen), linf, TRIED, np.random.default_rng(seed))
    # Of the noise that may have been drawn, what leaves falling counts that are not negative, or
    # nearly so; of these, since small counts are commoner than large ones, some by the density
    # 1/(count + SMALL).
    true = seen - noises
    spread = noises.std()
    odd = np.maximum(np.diff(true, axis=1), 0.0).sum(axis=1) + np.maximum(-true[:, -1], 0.0)
    weight = -odd / (spread / 10) - np.log(np.maximum(true, 0.0) + SMALL * linf).sum(axis=1)
    race = weight + np.random.default_rng(seed + 1).gumbel(size=TRIED)
    nearest = np.argsort(-race, kind="stable")[: number * finer]
    if finer > 1:
        nearest = nearest[np.argsort(true[nearest, 0], kind="stable")][finer // 2 :: finer]
    return np.array([_falling(seen - noise) for noise in noises[nearest]])


def _noise(mechanism: Box, ranks: int, linf: int, draws: int, rng: np.random.Generator) -> Array:
    """Return draws of box noise on counts, in floats, shape (draws, ranks).

    Args:
        mechanism: whose noise it is.
        ranks: how many counts there are.
        linf: of the sensitivity.
        draws: how many.
        rng: draws the noise.
    """
    side = rng.gamma(ranks + 2, linf / mechanism.epsilon, size=(draws, 1))
    noise: Array = side * (rng.random((draws, ranks)) - rng.random((draws, 1)))
    return noise


def _falling(counts: Array) -> Array:
    """Return the nearest falling counts that are not negative: pools of neighbours that are out of
    order take their mean.
    """
    pools: list[list[float]] = []
    for count in counts.tolist():
        pools.append([count, 1])
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            mean, size = pools.pop()
            before, others = pools.pop()
            pools.append([(mean * size + before * others) / (size + others), size + others])
    falling: Array = np.maximum(
        np.concatenate([np.full(int(size), mean) for mean, size in pools]), 0.0
    )
    return falling


def worth_a_look(
    k: int, budget: Budget | None, sensitivity: Sensitivity, domain: str, counts: str | None
) -> bool:
    """Return whether a probe is worth its cost for most data, by public facts only
    (docs/notes/utility.md).
    """
    if domain != "private" or budget is None or budget.rho is not None:
        return False
    if counts in (None, "none") or k > MOST_LABELS:
        return False
    touched = sensitivity.l0 or math.inf
    return touched >= LEAST_LABELS and k < MOST_ROWS * touched
