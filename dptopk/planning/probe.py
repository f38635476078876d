"""A private look before the plan of one phase: the counts of a few ranks with box noise, the shapes
of counts that they leave open, and the plan that is best on these.

Sorted counts move in one direction between neighbours, each by at most linf, for any l0 and however
many labels are unknown (ranks beyond the last have count 0). So box noise of ε on them is ε-DP. On
every outcome its loss is at most ε, so whatever is asked afterwards at (ε', δ), chosen by what was
seen, is (ε + ε', δ)-DP together with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk._internal.rounding import decimal, floor_digits, round_down, sum_up
from dptopk.costs import ApproxDP, Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import Box
from dptopk.mechanisms.mechanism import require_add_remove
from dptopk.mechanisms.samplers.random import narrow
from dptopk.planning.mixture import Mixture
from dptopk.planning.open_counts import draws_of_box_noise
from dptopk.planning.protocol import Paying, PaysAll, Reading, Step
from dptopk.planning.single import Single
from dptopk.planning.topk_plan import OnePhase, TopKPlan, joint_charge
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]
# The ranks that are looked at, in multiples of k, beside the largest count.
RANK_FACTORS = (1, 2, 4, 10)
# The share of ε for a look, how many shapes are drawn from what it leaves open, and from how many
# draws of the noise they are taken. The losses with this look are in docs/notes/utility.md; other
# shares and numbers were not kept there.
PROBE_SHARE = 0.035
SHAPES = 48
NOISE_DRAWS = 4000
# Before a look a count c is taken to be as likely as 1/(c + this number · linf); by hand.
FIRST_COMMON_COUNT = 10
# Counts that rise where they should fall, by the deviation of the noise over this number, are taken
# to be less likely by a factor e; by hand.
DISORDER_SHARE = 10
# A shape goes on for this many ranks after those that are looked at: for k = 1 to 102, just beyond
# the floor of designs over a cut histogram (``default_d_bar``).
LOWER_RANKS = 92
# Counts below 1/2 have the logarithm of 1/2.
SMALLEST_COUNT = 0.5
# The part of the data that a look is at, as the records of steps name it.
ABOUT_SORTED_COUNTS = ("sorted counts",)
# Where the largest noisy count is below this many deviations of its noise it may be noise alone.
STDS_OF_A_SEEN_COUNT = 4.0


def ranks(k: int) -> tuple[int, ...]:
    """Return the ranks that are looked at: the first, and RANK_FACTORS times k.

    Raises:
        InvalidParameter: for a k below 1.
    """
    k = validate.count(k=k)
    multiples = [factor * k for factor in RANK_FACTORS]
    return tuple(dict.fromkeys([1, *multiples]))  # for k = 1 the first rank occurs once


def counts_at_ranks(histogram: Histogram, k: int) -> Histogram:
    """Return the sorted counts at the ranks that are looked at, as a histogram with a label for
    each rank; a rank beyond the last label has the count 0.

    Args:
        histogram: the counts of all labels.
        k: how many labels are asked for.

    Raises:
        InvalidParameter: where rows were left out, since a rank may jump where small rows were; for
            neighbours by substitution, between which counts move in both directions; for sums of
            weights; and for a k below 1.
    """
    validate.instance(Histogram, histogram=histogram)
    sensitivity = require_add_remove(histogram.sensitivity)
    if not histogram.complete:
        raise InvalidParameter("look: needs the whole histogram, this one has only the top rows")
    looked = ranks(k)
    top = histogram.counts[histogram.top_rows(looked[-1])]
    counts = [int(top[rank - 1]) if rank <= len(top) else 0 for rank in looked]
    names = list(map(_name_of_rank, looked))
    return Histogram(names, counts, sensitivity=replace(sensitivity, l0=None), domain="public")


def _name_of_rank(rank: int) -> str:
    """Return the label under which the count of a rank is released."""
    return f"rank {rank}"


@dataclass(frozen=True)
class Look:
    """A look for a share of a budget, and how the rest is planned by what it shows.

    Attributes:
        k: how many labels the question asks for.
        budget: the total of the look and the answer: their ε's and δ's add up to it.
        share: the part of ε for the look, in (0, 1).
        optional: whether a plan without a look is taken where an account does not cover both.
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
        self, seen: Release, sensitivity: Sensitivity, planner: partial[OnePhase], usual: OnePhase
    ) -> OnePhase:
        """Return the plan of the least predicted loss on the shapes that a look leaves open: one
        made for these shapes, the usual one, or one made for the shape of ``like=``.

        Where the largest noisy count may be noise alone, no plan is made for the open shapes.

        Args:
            seen: the release of ``counts_at_ranks`` by ``mechanism``.
            sensitivity: of the histogram.
            planner: plan_topk with all arguments but the budget; with ``like=``, the shape that the
                look checks.
            usual: the plan, made without a shape, of the budget that the look leaves.
        """
        like = planner.keywords.get("like")
        counts = dict(zip(seen.labels, np.asarray(seen.counts).tolist(), strict=True))
        noisy = np.array([counts[_name_of_rank(rank)] for rank in ranks(self.k)])
        std = self.mechanism.noise_std(sensitivity, labels=len(noisy))
        all_noise = noisy[0] < STDS_OF_A_SEEN_COUNT * std
        if all_noise and like is None:
            return usual
        length = ranks(self.k)[-1] + LOWER_RANKS
        open_shapes = shapes(noisy, self.k, self.mechanism, sensitivity.linf, length)
        open_shapes = open_shapes.with_usual(usual.mechanisms, self.k, sensitivity, usual.counted)
        plans = [usual]
        if like is not None:
            plans.append(planner(budget=usual.budget, like=like))
        if not all_noise:
            plans.append(planner(budget=usual.budget, like=open_shapes))

        def predicted_loss(plan: OnePhase) -> float:
            """Return the mean loss of a plan on the shapes that the look leaves open."""
            return open_shapes.outcome(plan.mechanisms, self.k, sensitivity, plan.counted).loss

        return min(plans, key=predicted_loss)

    def with_total(self, plan: OnePhase) -> OnePhase:
        """Return a plan for the rest of the budget with the guarantee of the look and the answer
        together, by basic composition.
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

    def added_to_answer(self, answer: Release, look_charge: Charge) -> Release:
        """Return the answer with the charge of the look, and a note of what was looked at and what
        that cost.

        Args:
            answer: the answer of the plan after the look.
            look_charge: what the look cost.
        """
        named = ", ".join(map(str, ranks(self.k)))
        note = (
            f"planned after a look at the counts of the ranks {named} with noise, for {look_charge}"
        )
        total = joint_charge([look_charge, answer.charge])
        notes = "; ".join(filter(None, (answer.note, note)))
        phases = {"look": look_charge, **answer.phases}
        return replace(answer, charge=total, phases=phases, note=notes)


@dataclass(frozen=True, kw_only=True)
class LookedPlan(OnePhase):
    """A look and the plan that it leads to, as one question.

    Whatever plan the look leads to, both together are (ε, δ)-DP: so their charge is known before
    any data is seen. What is predicted before (noise, thresholds) is that of ``usual``, since the
    plan by the look is not known then.

    Attributes:
        look: the look, which comes first.
        planner: plan_topk with all arguments but the budget.
        usual: the plan for what the look leaves of the budget, made without knowing what it shows.
    """

    look: Look
    planner: partial[OnePhase]
    usual: OnePhase

    @classmethod
    def of(cls, look: Look, planner: partial[OnePhase]) -> LookedPlan:
        """Return the plan of a look and of an answer for the rest of its budget.

        Args:
            look: the look, with the budget of both.
            planner: plan_topk with all arguments but the budget.
        """
        usual = planner(budget=look.rest, like=None)
        total = look.with_total(usual)
        shared = {field.name: getattr(total, field.name) for field in fields(OnePhase)}
        return cls(**shared, look=look, planner=planner, usual=usual)

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
        counts_at_ranks(histogram, self.k)  # refuses a histogram with rows left out

    def first(self, data: Histogram) -> Step:
        """Return the step of the look, at the sorted counts of a few ranks, under the sensitivity
        that the plan was made for.

        Raises:
            InvalidParameter: for a histogram that allows one user larger changes, or that
                ``counts_at_ranks`` refuses.
        """
        looked = counts_at_ranks(data.with_sensitivity(self.sensitivity), self.k)
        look = Single.for_histogram(self.look.mechanism, looked, options={})
        return Step(look, looked, ABOUT_SORTED_COUNTS)

    def payable(self, paying: Paying) -> bool:
        """Return whether the look and a plan after it would be paid for, or where the look is
        optional a plan without one.
        """
        sorted_counts = replace(self.sensitivity, l0=None)
        look = Single.of(self.look.mechanism, {}, sorted_counts, len(ranks(self.k)))
        if paying.covers(look, self.usual):
            return True
        if paying.covers(look, self.planner(budget=self._smaller_rest, like=None)):
            return True
        return self.look.optional and paying.covers(self.planner(budget=self.look.budget))

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

        A plan that the account covers for certain is made before the look is paid. Arguments as for
        ``release``.

        Raises:
            InvalidParameter: when the data do not fit the plan; nothing was charged.
            BudgetExceeded: when the account covers no look with a plan after it, and the look is
                not optional; nothing was charged.
        """
        self.check(data)
        account: Paying = paying or PaysAll()
        look_step = self.first(data)
        stored = self._stored_plan_and_look(data, look_step, account)
        if stored is not None:
            next_plan, seen = stored
        else:
            fallback = self._fallback(look_step, account)
            if not account.covers(look_step.plan, fallback):
                if not self.look.optional:
                    raise account.refuse(look_step.charge, fallback.charge)
                without = self.planner(budget=self.look.budget)
                return without.run(data, rng, average=average, paying=account)
            seen = account.answer(look_step, rng)
            next_plan = self.look.plan(seen, self.sensitivity, self.planner, fallback)
            next_plan = next_plan if account.covers(next_plan) else fallback
            # Of the look only the plan matters for what follows.
            narrow(rng, lambda: canonical_json(next_plan.record()))
        answer = account.answer(Step(next_plan, data, average=average), rng)
        return self.look.with_total(next_plan), self.look.added_to_answer(answer, seen.charge)

    @property
    def _smaller_rest(self) -> Budget:
        """Return the budget of the answer where the account does not pay for the usual plan after
        the look: the rest with half of its δ.

        A filter sets half of its δ aside. A look needs none; after it an answer can have at most
        the other half.
        """
        return Budget(self.look.rest.epsilon, self.look.rest.delta / 2)

    def _fallback(self, look_step: Step, account: Paying) -> OnePhase:
        """Return a plan for after the look, made without knowing what it shows: the usual one, if
        the account pays for both, else that of ``_smaller_rest``.

        Args:
            look_step: the step of the look.
            account: the account that pays for the look and the answer.
        """
        if account.covers(look_step.plan, self.usual):
            return self.usual
        return self.planner(budget=self._smaller_rest, like=None)

    def _stored_plan_and_look(
        self, data: Histogram, look_step: Step, account: Paying
    ) -> tuple[OnePhase, Release] | None:
        """Return a plan whose answer is stored, and the stored look by which it was planned: both
        were paid for, and come again free of charge. None if one of them is not stored.

        Args:
            data: what the question is asked of.
            look_step: the step of the look.
            account: the account that has the stored answers.
        """
        seen = account.known(look_step)
        if seen is None:
            return None
        for rest in (self.look.rest, self._smaller_rest):
            if rest == self.look.rest:
                usual = self.usual
            else:
                usual = self.planner(budget=rest, like=None)
            next_plan = self.look.plan(seen, self.sensitivity, self.planner, usual)
            if account.has(Step(next_plan, data)):
                return next_plan, seen
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


def shapes(
    seen: Array,
    k: int,
    mechanism: Box,
    linf: int,
    length: int,
) -> Mixture:
    """Return shapes that the noisy counts at the ranks leave open: noise of the same law is taken
    off again, with fixed seeds.

    Between two of the ranks counts fall in one of four ways: as a power of the rank; by the same
    factor from each rank to the next; all at once at the second one; all at once after the first
    one. Beyond the last rank they follow the power law between the last two.

    Args:
        seen: the noisy counts, shape (ranks,).
        k: how many labels are asked for; seeds depend on it.
        mechanism: the mechanism whose noise is on them.
        linf: the most that one user adds to a count.
        length: how many ranks a shape has.
    """
    looked = np.array(ranks(k), dtype=np.float64)
    counts = _falling_counts_after_look(seen, mechanism, linf, seed=k)
    logs = np.log(np.maximum(counts, SMALLEST_COUNT))
    # The number of the way, from 0 to 3, drawn for each shape and each two neighbouring ranks; the
    # counts were drawn with the seeds k and k + 1.
    way_numbers = np.random.default_rng(k + 2).integers(4, size=(SHAPES, len(looked)))
    shapes_of_ranks = partial(_counts_between, looked, logs, way_numbers)
    return Mixture.of(k, length, shapes_of_ranks)


def _counts_between(looked: Array, logs: Array, way_numbers: Array, rank: Array) -> Array:
    """Return the counts of these ranks on each shape, shape (shapes, ranks).

    Args:
        looked: the ranks that were looked at, shape (looks,).
        logs: the logarithms of their counts on each shape, shape (shapes, looks).
        way_numbers: in which of the four ways of ``shapes`` counts fall from a rank looked at to
            the next one, shape (shapes, looks).
        rank: the ranks, shape (ranks,).
    """
    # The index of the rank looked at that comes before a rank, at most the second to last.
    gap = np.minimum(looked.searchsorted(rank, side="right"), len(looked) - 1) - 1
    first = looked[gap]
    last = looked[gap + 1]
    from_last = rank >= last
    # The share of the fall from ``first`` to ``last``, in logarithms, down to a rank. A rank beyond
    # the last one continues the power law, with a share above 1.
    by_power = np.log(rank / first) / np.log(last / first)
    by_factor = (rank - first) / (last - first)
    after_first = rank > first
    ways = np.array([by_power, by_factor, from_last, after_first])
    of_way = ways[way_numbers[:, gap], np.arange(len(rank))]
    share = np.where(from_last, by_power, of_way)
    fall = logs[:, gap + 1] - logs[:, gap]
    rounded: Array = np.rint(np.exp(logs[:, gap] + share * fall))
    return rounded


def _falling_counts_after_look(seen: Array, mechanism: Box, linf: int, seed: int) -> Array:
    """Return SHAPES sequences of falling counts that may have been those before noise was added,
    shape (SHAPES, counts): noise of the same law is taken off again.

    Of many draws of the noise those are taken that are likely by the counts which they leave
    (``_log_weights``); what still rises in these counts is made to fall.

    Args:
        seen: the noisy counts, of true counts that fall, shape (counts,).
        mechanism: the mechanism whose noise is on them.
        linf: the most that one user adds to a count.
        seed: the seed of the noise; the one after it is that of the choice among the draws.
    """
    noises = draws_of_box_noise(
        mechanism, len(seen), linf, NOISE_DRAWS, np.random.default_rng(seed)
    )
    # Gumbel noise on the logarithms of the weights draws without replacement in proportion to them.
    gumbel = np.random.default_rng(seed + 1).gumbel(size=NOISE_DRAWS)
    race = _log_weights(seen - noises, noises.std(), linf) + gumbel
    drawn = np.argsort(-race, kind="stable")[:SHAPES]
    return np.array([_nearest_falling_counts(seen - noise) for noise in noises[drawn]])


def _log_weights(counts: Array, noise_std: float, linf: int) -> Array:
    """Return the logarithms of weights that say how likely counts are to be the true ones, shape
    (draws,).

    True counts never rise from rank to rank, and are never negative: the weight falls with the sum
    of what they do (DISORDER_SHARE). And it is in proportion to the density of the counts before
    the look (FIRST_COMMON_COUNT).

    Args:
        counts: what is left of the noisy counts without a draw of the noise, shape (draws, counts).
        noise_std: the standard deviation of the noise.
        linf: the most that one user adds to a count.
    """
    rises = np.maximum(np.diff(counts, axis=1), 0.0).sum(axis=1)
    disorder = rises + np.maximum(-counts[:, -1], 0.0)
    log_density = -np.log(np.maximum(counts, 0.0) + FIRST_COMMON_COUNT * linf).sum(axis=1)
    log_weights: Array = -disorder / (noise_std / DISORDER_SHARE) + log_density
    return log_weights


def _nearest_falling_counts(counts: Array) -> Array:
    """Return the nearest counts, by the sum of squares, that fall and are not negative, shape
    (counts,): neighbours that are out of order are pooled and take their mean (isotonic regression
    by pooling adjacent violators).
    """
    means: list[float] = []  # of each pool so far
    sizes: list[int] = []
    for count in counts.tolist():
        mean = count
        size = 1
        while means and means[-1] < mean:
            mean_before = means.pop()
            size_before = sizes.pop()
            together = size + size_before
            mean = (mean * size + mean_before * size_before) / together
            size = together
        means.append(mean)
        sizes.append(size)
    falling: Array = np.maximum(np.repeat(means, sizes), 0.0)
    return falling
