"""plan_topk: from a total (ε, δ) to mechanisms that spend exactly that, decided before any data is seen.

Two designs are compared and the one with less noise is taken:

* ``peel``: k Gumbel selections, then the counts of what was selected (k × ε-BR and min(k, Δ) noisy counts);
* ``threshold``: noise on every count at once, the k largest noisy values kept (Δ noisy counts pay for all of it, so it
  wins when one user touches few labels).

Inside a design one number is free, the zCDP budget ρ: it is split in a stated ratio over the phases, and scaled until
the composition of all phases under the tightest valid bound spends the total ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TYPE_CHECKING, Any

from dptopk import _validate as validate
from dptopk._choices import COUNTS, DOMAINS, METHODS, Counts, Domain, Method
from dptopk.accounting.bounds import Bound, compose
from dptopk.accounting.budget import Budget
from dptopk.accounting.calibration import calibrate
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms import (
    CountMLE,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.mechanisms.base import Measured, Mechanism, Noisy, Thresholded
from dptopk.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["Plan", "plan_topk"]


@dataclass(frozen=True)
class Phase:
    """One step of a plan: its name, its mechanism, and the most it can cost."""

    name: str
    mechanism: Mechanism
    charge: Charge


@dataclass(frozen=True)
class Plan:
    """What will run, what it will cost, and what the user will get; made before any data is seen.

    Attributes:
        k: how many labels are asked for.
        budget: the total (ε, δ) the plan may spend.
        sensitivity, domain: what must hold of the histogram; ``release`` refuses one that does not fit.
        phases: the mechanisms in the order in which they run, each with the most it can cost.
        bound: the composition of all phases at the budget's δ: its epsilon is at most the budget's.
        split: in words, how the budget was divided.
    """

    k: int
    budget: Budget
    sensitivity: Sensitivity
    domain: Domain
    phases: tuple[Phase, ...]
    bound: Bound
    split: str

    @property
    def charge(self) -> Charge:
        """The most that a release of this plan can cost."""
        return _joined(self.phases)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms in the order in which they run."""
        return tuple(phase.mechanism for phase in self.phases)

    def release(self, histogram: Histogram, rng: Generator | None = None) -> Release:
        """Run the plan on a histogram.

        Args:
            histogram: must have the plan's domain, and a sensitivity no larger than the plan's.
            rng: None for cryptographically secure noise; a generator makes the release reproducible, and marked so.

        Returns:
            Release: at most k labels, in the order of their noisy counts (of selection, where there are no counts or
            they were fitted), with the charge that was used: selections not made are not charged.

        Raises:
            InvalidParameter: when the histogram does not fit the plan; nothing was charged.
        """
        self.check(histogram)
        # Noise for the plan's own sensitivity, whatever the histogram's: a finer lattice costs more at some ε.
        histogram = histogram.with_sensitivity(self.sensitivity)
        released: Release | None = None
        notes: list[str] = []
        charges: dict[str, Charge] = {}
        for phase in self.phases:
            earlier = {} if released is None else _after(phase.mechanism, released)
            released = phase.mechanism.release(histogram, rng, **earlier)
            if not phase.charge.includes(released.charge):
                raise ReleaseWithheld(phase.charge, released.charge)
            charges[phase.name] = released.charge
            notes += [released.note] if released.note and released.note not in notes else []
        assert released is not None  # noqa: S101 - a plan has at least one phase
        total = Charge.join(*charges.values())
        total = _adaptive(total, len(charges))
        return replace(released.top(self.k), charge=total, phases=charges, note="; ".join(notes))

    def check(self, histogram: Histogram) -> None:
        """Refuse a histogram that the plan was not made for.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        if validate.instance(Histogram, histogram=histogram).domain != self.domain:
            raise InvalidParameter(f"histogram has a {histogram.domain} domain, the plan is for a {self.domain} one")
        mine, theirs = self.sensitivity, histogram.sensitivity
        if not mine.covers(theirs):
            raise InvalidParameter(f"histogram has the sensitivity {theirs}, the plan is for {mine}")
        self.phases[0].mechanism.check(histogram)

    def explain(self) -> str:
        """The plan in words: phases, noise, thresholds, the split and the total."""
        moved = "any number of labels" if self.sensitivity.l0 is None else f"at most {self.sensitivity.l0} label(s)"
        cap = self.sensitivity.linf
        lines = [f"Top {self.k} of a {self.domain} domain; one user moves {moved}, each count by at most {cap}."]
        for number, phase in enumerate(self.phases, start=1):
            lines += [f"{number}. {phase.name}: {phase.mechanism}", f"   costs at most {phase.charge}"]
            lines += [f"   {line}" for line in _promises(phase.mechanism, self.sensitivity)]
        spent, total = self.bound, self.budget
        lines += [
            f"Split: {self.split}",
            f"Together: ({spent.epsilon:.6g}, {total.delta:g})-DP by {spent.name} ({spent.source})",
            f"Valid in {', '.join(spent.valid_in)}; the budget is ({total.epsilon:g}, {total.delta:g})",
        ]
        return "\n".join(lines)


def _adaptive(charge: Charge, phases: int) -> Charge:
    """The charge of phases that look at one another's answers."""
    adaptive = charge.adaptive or phases > 1
    return Charge(charge.costs, delta=charge.delta, adaptive=adaptive, neighbours=charge.neighbours)


def _after(mechanism: Mechanism, released: Release) -> dict[str, Any]:
    """How a counting mechanism is told what an earlier phase selected."""
    return {"ranking" if isinstance(mechanism, CountMLE) else "labels": released}


def _promises(mechanism: Mechanism, sensitivity: Sensitivity) -> list[str]:
    """What a phase will deliver, known before any data is seen."""
    lines = []
    if isinstance(mechanism, Noisy):
        std = f"noise on a count has standard deviation {mechanism.noise_std(sensitivity):.4g}"
        if isinstance(mechanism, Measured):
            std += f"; 95% of it is within ±{mechanism.half_width(sensitivity, confidence=0.95)}"
        lines.append(std)
    if isinstance(mechanism, Thresholded):
        floor = "0" if mechanism.d_bar is None else f"the count of rank {mechanism.d_bar + 1}"
        half, sure = (mechanism.appears_at(sensitivity, probability=p) for p in (0.5, 0.95))
        lines += [
            f"threshold: {mechanism.threshold_offset(sensitivity)} above {floor}",
            f"a label appears with probability 1/2 at {half} above {floor}, 0.95 at {sure} above",
        ]
    return lines


# A design turns a zCDP budget ρ into phases; the search in plan_topk finds the ρ that spends the total ε.
Design = Callable[[float], tuple[Phase, ...]]


@dataclass(frozen=True)
class _Request:
    """The validated arguments of plan_topk."""

    k: int
    budget: Budget
    sensitivity: Sensitivity
    domain: Domain
    d_bar: int
    counts: Counts
    selection_share: float
    fit: bool

    @property
    def discovery_delta(self) -> float:
        """Half of the budget's δ pays for the thresholds of an unknown domain."""
        return self.budget.delta / 2

    def peel(self, rho: float) -> tuple[Phase, ...]:
        """Select k labels with ε²/8 each from the share of ρ, then min(k, Δ) counts from the rest."""
        share = self.selection_share if self.counts != "none" else 1.0
        epsilon = _tidy(math.sqrt(8 * share * rho / self.k), ROUND_FLOOR)
        selection: KnownGumbel | UnknownGumbel = (
            KnownGumbel(k=self.k, epsilon=epsilon)
            if self.domain == "public"
            else UnknownGumbel(k=self.k, d_bar=self.d_bar, epsilon=epsilon, delta=self.discovery_delta)
        )
        phases = [Phase("select", selection, selection.charge(self.sensitivity))]
        if self.counts != "none":
            noise = self._noise((1 - share) * rho, self.sensitivity.touched(self.k) or self.k)
            counting = CountMLE(noise=noise) if self.fit else noise
            phases.append(Phase("count", counting, counting.charge(self.sensitivity, labels=self.k)))
        return tuple(phases)

    def threshold(self, rho: float) -> tuple[Phase, ...]:
        """Noise on every count; Δ of them are charged."""
        noise = self._noise(rho, self.sensitivity.l0 or 1)
        if self.domain == "private":
            d_bar, delta = self.d_bar, self.discovery_delta
            noise = (
                UnknownLaplace(epsilon=noise.epsilon, d_bar=d_bar, delta=delta)
                if self.counts == "laplace"
                else UnknownGaussian(sigma=noise.sigma, d_bar=d_bar, delta=delta)
            )
        return (Phase("count and select", noise, noise.charge(self.sensitivity)),)

    def _noise(self, rho: float, copies: int) -> Any:
        if self.counts == "laplace":
            return KnownLaplace(epsilon=_tidy(math.sqrt(2 * rho / copies), ROUND_FLOOR))
        return KnownGaussian(sigma=_tidy(math.sqrt(copies / (2 * rho)), ROUND_CEILING))

    def designs(self, method: Method) -> dict[str, Design]:
        """The designs that may answer this request."""
        one_shot = self.counts != "none" and self.sensitivity.l0 is not None
        if method == "threshold" and not one_shot:
            raise InvalidParameter("method='threshold' needs counts and a finite l0 (labels per user)")
        allowed: dict[str, Design] = {"peel": self.peel}
        if one_shot:
            allowed["threshold"] = self.threshold
        return allowed if method == "auto" else {method: allowed[method]}

    def splits(self, method: str) -> str:
        """The division of the budget in words."""
        parts = []
        if method == "peel" and self.counts != "none":
            parts.append(f"{self.selection_share:.0%} of the zCDP budget for the selections, the rest for the counts")
        if self.domain == "private":
            parts.append(f"δ = {self.discovery_delta:g} for the threshold, the rest for the composition")
        return "; ".join(parts) or "everything for one phase"


def _tidy(value: float, rounding: str) -> float:
    """The value to six digits, rounded to the side that costs less: numbers that people can read and repeat."""
    return float(Context(prec=6, rounding=rounding).create_decimal(value))


def _spread(phases: tuple[Phase, ...], sensitivity: Sensitivity) -> float:
    """How much noise decides which labels are chosen: the figure of merit between designs; less is better."""
    mechanism = phases[0].mechanism
    if isinstance(mechanism, Thresholded):
        return float(mechanism.threshold_offset(sensitivity))
    if isinstance(mechanism, Noisy):
        return float(mechanism.noise_std(sensitivity))
    assert isinstance(mechanism, KnownGumbel)  # noqa: S101 - the one mechanism of a design that is neither
    return math.pi / math.sqrt(6) * sensitivity.linf / mechanism.epsilon  # standard deviation of Gumbel noise


def plan_topk(
    k: int,
    budget: Budget,
    *,
    sensitivity: Sensitivity = Sensitivity(),  # noqa: B008 - immutable
    domain: Domain = "private",
    d_bar: int | None = None,
    counts: Counts | None = "gaussian",
    method: Method = "auto",
    selection_share: float = 0.5,
    fit: bool = False,
    max_seconds: float = 1.0,
) -> Plan:
    """The mechanisms that answer "what are the top k, and how many of each?" for exactly a total (ε, δ).

    Args:
        k: how many labels, at least 1.
        budget: the total. δ = 0 is possible in a public domain without Gaussian noise.
        sensitivity: what one user can move; a finite l0 makes counts cheaper.
        domain: "private" (labels come from the data) or "public" (the label set is known to all).
        d_bar: private domain only: how many of the largest counts may take part; must not depend on the data.
            Default: 10 k, at least 100.
        counts: "gaussian", "laplace", or None (or "none") for labels only.
        method: "peel" (select, then count), "threshold" (noise on all counts, keep the k largest), or "auto" for the
            one whose selections carry less noise.
        selection_share: in (0, 1): the share of the zCDP budget that a peel spends on its selections.
        fit: fit the counts of a peel to the order of selection (CountMLE), rows in that order. It helps where that
            order is surely right, and makes counts worse where it is not (docs/utility.md); by default the counts
            stay as they were drawn, and order the rows.
        max_seconds: for each evaluation of the composition; more of it helps for k in the hundreds and above, where
            the optimal bound takes longer than this to refine and a plan may otherwise spend a few percent less.

    Returns:
        Plan: its composition under the tightest valid bound is at most budget.epsilon at budget.delta (an upper bound),
        and close to it.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that no parameter can meet.
    """
    request = _request(k, budget, sensitivity, domain, d_bar, counts, selection_share, bool(fit))
    validate.member(METHODS, method=method)
    designs = request.designs(method)
    scales = {name: calibrate(_charge_of(design), budget, max_seconds=max_seconds) for name, design in designs.items()}
    name = min(designs, key=lambda name: _spread(designs[name](scales[name]), sensitivity))
    while True:
        phases = designs[name](scales[name])
        bound = compose(_joined(phases), delta=budget.delta, max_seconds=max(10.0, max_seconds))
        if bound.epsilon <= budget.epsilon:
            return Plan(request.k, budget, sensitivity, domain, phases, bound, request.splits(name))
        scales[name] *= 0.99  # a refinement that had less time than in the search


def _charge_of(design: Design) -> Callable[[float], Charge]:
    return lambda rho: _joined(design(rho))


def _joined(phases: tuple[Phase, ...]) -> Charge:
    return _adaptive(Charge.join(*(phase.charge for phase in phases)), len(phases))


def _request(
    k: int,
    budget: Budget,
    sensitivity: Sensitivity,
    domain: Domain,
    d_bar: int | None,
    counts: Counts | None,
    selection_share: float,
    fit: bool,
) -> _Request:
    k = validate.count(k=k)
    validate.instance(Budget, budget=budget)
    validate.instance(Sensitivity, sensitivity=sensitivity)
    validate.member(DOMAINS, domain=domain)
    chosen = validate.member(COUNTS, counts="none" if counts is None else counts)
    share = validate.probability(allow_zero=False, selection_share=selection_share)
    if domain == "public" and d_bar is not None:
        raise InvalidParameter("d_bar is for private domains: in a public one every label takes part")
    if domain == "private" and budget.delta == 0:
        raise InvalidParameter("budget.delta must be above 0: hiding which labels exist costs some δ")
    if chosen == "gaussian" and budget.delta == 0:
        raise InvalidParameter("budget.delta must be above 0 for counts='gaussian'; use counts='laplace'")
    d_bar = max(10 * k, 100) if d_bar is None else validate.count(at_least=k, d_bar=d_bar)
    return _Request(k, budget, sensitivity, domain, d_bar, chosen, share, fit)
