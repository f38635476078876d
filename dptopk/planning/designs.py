"""The designs that a plan compares: ways to spend a zCDP budget ρ on a top-k answer.

A design turns (request, split, ρ) into mechanisms: what is asked for, how ρ and δ are divided
between selections, counts and a threshold, and how much ρ there is. The parameters of the
mechanisms follow from ρ by the plain formulas below (ε²/8 for a selection, 1/(2σ²) for Gaussian and
ε²/2 for Laplace noise on a count), which only fix the proportions: the search scales ρ until the
composition of all phases under the tightest valid bound spends the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal

from dptopk._internal.choices import DOMAINS, METHODS, Domain
from dptopk._internal.rounding import ceil_digits, floor_digits
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.costs import MultiDP
from dptopk.mechanisms import (
    Box,
    Centred,
    CountMLE,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    PartitionSelection,
    SparseGaussian,
    TruncatedLaplace,
    UnknownBox,
    UnknownCentred,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.mechanisms.box import box_cost
from dptopk.mechanisms.centred import best_centre
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.named import OTHER_DESIGNS
from dptopk.mechanisms.unknown_centred import slots_and_floor
from dptopk.planning.mixture import Mixture
from dptopk.planning.request import Request, Split, pure_epsilon
from dptopk.planning.selections import charge_of_selections
from dptopk.planning.shape import Shape
from dptopk.planning.whole_answers import (
    DRAWS,
    DRAWS_BEFORE_COUNTS,
    BuildDraw,
    CountNoise,
    draw_and_counts,
)

Mechanisms = tuple[Mechanism, ...]
# A function that builds the mechanisms of a design from the request, the division of the budget,
# and the ρ of all mechanisms together.
Build = Callable[[Request, Split, float], Mechanisms]
NoiseName = Literal["gaussian", "laplace", "box", "any", "none"]
# Shares of the zCDP budget for selections, tried where the shape of the counts is known. They are
# closer where little is left for the counts, or for the selections; chosen by hand, since the best
# of them is refined by ``Split.neighbours``.
SELECTION_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
# The share where it is not known: the product of both noises is least there.
EVEN_SHARE = 0.5
# The shares of δ for a threshold where the shape is known, and the one where it is not; all of δ
# where the rest is pure and needs none. Chosen by hand: a threshold and a composition depend on
# their δ by about the root of its logarithm.
THRESHOLD_SHARES: tuple[float, ...] = (0.1, 0.5, 0.9)
THRESHOLD_SHARE = 0.5
# From this many labels per user on, selections and noisy floors are compared: below, noise on all
# counts costs less.
SEVERAL = 3
# Coins that show labels before these are counted (docs/notes/partition-selection.md): their share
# of the zCDP budget, where the loss is least and changes little, so that it is not searched, and
# their share of δ, chosen by hand, since the noise on the counts needs little of δ.
COIN_SHARE = 0.66
COIN_DELTA = 0.9
# The coins are compared from this number of labels per user on, since below it noise on all counts
# costs less, up to this multiple of k, since beyond it noise on k counts does.
COIN_LABELS = 16
MOST_LABELS_TIMES_K = 4
# Up to this k draws of whole answers are compared after a look: for 20 labels that takes 9 s.
MOST_K_AFTER_LOOK = 48
# The coins do not change with ρ. Where they would take all of it, the counts get this share of it
# nevertheless, so that there is something to scale: the search changes ρ until both are within the
# total. Chosen by hand.
LEAST_COUNT_SHARE = 0.05
# The ε of box noise of a mean loss is a fixed point: each step at least halves the error of ln ε,
# since the mean loss grows as a power of ε from 1 to 2. A plan scales it, so it need not be exact.
BOX_STEPS = 4


@dataclass(frozen=True)
class Design:
    """One way to answer: a kind of mechanisms, and when it is compared with others.

    Attributes:
        name: the design in words, by which a request can ask for it.
        method: its kind: "peel" (select, then count what was selected), "threshold" (noise on all
            counts at once) or "whole" (the labels are drawn at once, then perhaps counted; of a
            private domain all that coins show).
        noise: the noise on the counts, "gaussian", "laplace" or "box"; "any": whichever is best;
            "none" where the design releases labels only.
        domain: "private" or "public", the domain of the labels that it is for.
        build: the function from a request, a split and ρ to the mechanisms.
        whole: True: it needs the whole histogram; False: it is compared only where the histogram is
            cut to its largest counts, or where its name or its kind is asked for; None: it is
            compared in both cases.
        threshold_is_charged: True: that a label of one user alone may be shown is part of the cost
            of the noise, so that both have all of δ; False: it has a part of δ, which is added to
            the δ of the composition.
        additive: True: labels are ordered by counts with independent noise of one law, so that how
            they are mixed up can be predicted without the gaps between all counts.
        floor_multiple: over a noisy floor, how many times k labels take part; None: as many as
            the request's d_bar, or no floor.
        least_labels: the least l0 (labels that one user touches) at which the design is compared
            although neither its name, nor its kind, nor its noise is asked for.
        coins_then_counts: True: coins show labels, which are then counted. It is compared where the
            counts are hidden, where a shape is given, and where its name is asked for.
    """

    name: str
    method: Literal["peel", "threshold", "whole"]
    noise: NoiseName
    domain: Domain
    build: Build
    whole: bool | None = None
    threshold_is_charged: bool = False
    additive: bool = True
    floor_multiple: int | None = None
    least_labels: int = 1
    coins_then_counts: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to unpickle it: by name, since functions that build mechanisms do not
        pickle.
        """
        return _design_of_name, (self.name, self.domain)

    @property
    def pure(self) -> bool:
        """Return whether the design's costs compose without a δ."""
        return self.noise != "gaussian" and not self.threshold_is_charged

    def composition_delta(self, request: Request, split: Split) -> float:
        """Return the δ that is left for the composition of the costs: all of it where the cost of
        the threshold is one of them.

        Args:
            request: the question with its total δ.
            split: the share of δ that the threshold has.
        """
        if self.threshold_is_charged:
            return request.delta
        return request.delta * (1 - split.threshold)

    def misfit(self, request: Request) -> str:
        """Return the first reason, in words, why the design does not answer the request, or is not
        compared for it; "" if it is compared.
        """
        return next(self._misfits(request), "")

    def _misfits(self, request: Request) -> Iterator[str]:
        """Yield the reasons, in words, for which the design is left out; nothing if it is not."""
        yield from self._misfits_of_data_and_total(request)
        yield from self._misfits_of_counts(request)
        yield from self._misfits_of_few_labels(request)
        yield from self._misfits_of_coins(request)
        yield from self._misfits_of_gaps(request)

    def _is_named(self, request: Request) -> bool:
        """Return whether the request names the design, or its kind."""
        return request.method in (self.method, self.name)

    def _misfits_of_data_and_total(self, request: Request) -> Iterator[str]:
        """Yield the reasons, by the data, the total and the method, for which the design is left
        out.
        """
        noise_on_all_counts = self.method == "threshold" and self.floor_multiple is None
        # Where the noise is on all counts that one user changes, there must be a limit on these.
        needs_l0 = noise_on_all_counts or self.threshold_is_charged
        is_named = self._is_named(request)
        labels_over_floor = (self.floor_multiple or 0) * request.k
        if self.domain != request.domain:
            yield f"for a {self.domain} domain"
        if request.method != "auto" and not is_named:
            yield f"method={self.method!r}"
        if needs_l0 and request.sensitivity.l0 is None:
            yield "needs a limit on the labels of one user"
        if labels_over_floor > request.d_bar:
            yield f"needs the {labels_over_floor} largest counts (d_bar)"
        if self.whole is True and not request.whole:
            yield "needs the whole histogram (d_bar=None)"
        if self.whole is False and request.whole and not is_named:
            yield "for a histogram that is cut"
        if request.delta == 0 and not self.pure:
            yield "needs a delta above 0"

    def _misfits_of_counts(self, request: Request) -> Iterator[str]:
        """Yield the reasons, by what is to be shown and by the shape, for which the design is left
        out.
        """
        labels_only = self.noise == "none"
        # The others have noise on counts for nothing else than to show them.
        selects_by_noise = self.method == "threshold" or labels_only or self.coins_then_counts
        draws_k_public_labels = self.method == "whole" and self.domain == "public"
        if labels_only and request.counted:
            yield "releases labels only"
        if not (selects_by_noise or request.counted):
            yield "pays for counts"
        if self.noise != "any" and request.counts not in ("auto", "none", self.noise):
            yield f"counts={self.noise!r}"
        if request.counts == "gaussian" and request.delta == 0:
            yield "counts='gaussian' needs a delta above 0"
        shape = request.shape
        if draws_k_public_labels and isinstance(shape, Shape) and len(shape.counts) < request.k:
            yield "the shape has fewer than k labels"
        # A look leaves many shapes open, and a draw is simulated on each of them.
        if draws_k_public_labels and isinstance(shape, Mixture) and request.k > MOST_K_AFTER_LOOK:
            yield f"for at most {MOST_K_AFTER_LOOK} labels after a look: its simulation is slow"

    def _misfits_of_few_labels(self, request: Request) -> Iterator[str]:
        """Yield a reason where one user touches too few labels for the design to be compared;
        nothing where its name, its kind or its noise is asked for.
        """
        if self._is_named(request) or request.counts == self.noise:
            return
        l0 = request.sensitivity.l0
        if l0 is not None and l0 < self.least_labels:
            yield f"for {self.least_labels} labels a user or more"

    def _misfits_of_coins(self, request: Request) -> Iterator[str]:
        """Yield the reasons for which coins that come before counts are not compared; nothing for
        other designs, and where the name of this one is asked for.
        """
        if not self.coins_then_counts or request.method == self.name:
            return
        l0 = request.sensitivity.l0
        if l0 is None or not COIN_LABELS <= l0 <= MOST_LABELS_TIMES_K * request.k:
            yield f"for {COIN_LABELS} labels a user to {MOST_LABELS_TIMES_K} k"
        if request.counted and request.shape is None:
            yield (
                "how well it does depends on the shape of the counts: give like=, leave the counts "
                "out, or give its name"
            )

    def _misfits_of_gaps(self, request: Request) -> Iterator[str]:
        """Yield a reason where the result of the design depends on gaps between counts that nobody
        knows; nothing where its name or its kind is asked for.
        """
        knows_enough = self.additive or request.shape is not None
        if not (knows_enough or self._is_named(request)):
            yield (
                "how well it does depends on the gaps between the counts: give like=, or its name"
            )

    def splits(self, request: Request) -> list[Split]:
        """Return the divisions of the budget that are compared."""
        return [
            Split(share, threshold)
            for share in self._selection_shares(request)
            for threshold in self._threshold_shares(request)
        ]

    def _selection_shares(self, request: Request) -> tuple[float, ...]:
        """Return the shares of ρ for selections that are compared; 1 where nothing is counted
        afterwards.
        """
        if self.method == "threshold" or self.noise == "none":
            return (1.0,)
        if isinstance(request.selection_share, float):
            return (request.selection_share,)
        if self.coins_then_counts:
            return (COIN_SHARE,)
        # The best share of a peel depends on the shape of the counts.
        nothing_known = request.shape is None and request.selection_share is None
        if nothing_known and self.method != "whole":
            return (EVEN_SHARE,)
        return SELECTION_SHARES

    def _threshold_shares(self, request: Request) -> tuple[float, ...]:
        """Return the shares of δ for the threshold that are compared; 0 where labels are public, 1
        where threshold and noise have all of δ together.
        """
        if self.threshold_is_charged:
            return (1.0,)
        if self.domain != "private":
            return (0.0,)
        if isinstance(request.shape, Shape):
            shares = THRESHOLD_SHARES
        else:
            shares = (THRESHOLD_SHARE,)
        # Beside box noise selections are worth a δ: their plain sum would lower the threshold for
        # much more noise.
        if self.pure and self.noise != "box":
            return (*shares, 1.0)
        return shares


def _laplace_at_cost(rho: float, copies: int) -> KnownLaplace:
    """Return Laplace noise with the cost ρ in all, by the sum of ε²/2 over the counts that one user
    changes, of which there are ``copies``.
    """
    return KnownLaplace(epsilon=pure_epsilon(rho / copies))


def _gaussian_at_cost(rho: float, copies: int) -> KnownGaussian:
    """Return Gaussian noise with the cost ρ in all, by the sum of 1/(2σ²) over the counts that one
    user changes, of which there are ``copies``.
    """
    return KnownGaussian(sigma=ceil_digits(math.sqrt(copies / (2 * rho))))


def _laplace_counts(request: Request, rho: float) -> KnownLaplace:
    """Return Laplace noise on the k counts of a request at the cost ρ."""
    return _laplace_at_cost(rho, request.touched)


def _gaussian_counts(request: Request, rho: float) -> KnownGaussian:
    """Return Gaussian noise on the k counts of a request at the cost ρ."""
    return _gaussian_at_cost(rho, request.touched)


def _centred_gaussian_counts(request: Request, rho: float) -> Centred:
    """Return centred Gaussian noise on the k counts of a request at the cost ρ."""
    return _centred_gaussian(rho, _best_shifts(request.k, request.touched))


@dataclass(frozen=True)
class _CentredShifts:
    """How far one user shifts the noises of centred noise (``mechanisms.Centred``): the noise Z of
    each count, and the noise Y that all counts share.

    Attributes:
        centre: a/b, in lowest terms: the share of what one user moves that Y takes up.
        own: A, the sum of the squared shifts of all Z, in units of (linf/b)².
        common: B, the squared shift of Y, in the same units.
    """

    centre: Fraction
    own: int
    common: int


def _centred_gaussian(rho: float, shifts: _CentredShifts) -> Centred:
    """Return centred Gaussian noise at the cost ρ of all counts together, with the least noise on a
    count.

    The cost is 2ρ = μ² = A/σ_Z² + B/σ_Y²; the variance of a count, σ_Z² + σ_Y², is least where
    σ_Z²/σ_Y² = sqrt(A/B) (docs/notes/centred.md).
    """
    # Put into the formula for μ²: 2ρ = (A + sqrt(AB))/σ_Z², and σ_Y = σ_Z (B/A)^(1/4).
    mu_squared_times_variance = shifts.own + math.sqrt(shifts.own * shifts.common)
    sigma = ceil_digits(math.sqrt(mu_squared_times_variance / (2 * rho)))
    common = KnownGaussian(sigma=ceil_digits(sigma * (shifts.common / shifts.own) ** 0.25))
    return Centred(noise=KnownGaussian(sigma=sigma), common=common, centre=shifts.centre)


def _box_counts(request: Request, rho: float) -> Box:
    """Return box noise on the k counts of a request with a mean privacy loss of ρ, which is the
    mean loss of a Gaussian of this ρ too.

    The mean loss is ε t, where t is the δ of the noise's cost at ε = 0. The cost is a MultiDP of
    the pairs (ε, 0) and (0, t); for counts of private labels it is ε-DP, with t = tanh(ε/2). The ε
    is found to a few per cent, since a plan scales it. Without a δ the noise is one ε-DP mechanism,
    of the ε that Laplace noise of cost ρ on k counts has in all.
    """
    if not request.delta:
        return Box(epsilon=pure_epsilon(rho * request.k))
    # Box noise on one count has the ε-DP cost, as that on counts of private labels.
    counts = request.k if request.domain == "public" else 1
    epsilon = math.sqrt(2 * rho)
    for _ in range(BOX_STEPS):
        cost = box_cost(epsilon, counts, request.touched)
        if isinstance(cost, MultiDP):
            delta_at_zero = cost.constraints[1][1]  # the second constraint is (0, t)
        else:
            delta_at_zero = math.tanh(epsilon / 2)
        # The mean loss εt grows about as ε².
        epsilon *= math.sqrt(rho / (epsilon * delta_at_zero))
    return Box(epsilon=floor_digits(epsilon))


def _box_counts_after_draw(request: Request, rho: float) -> Box:
    """Return box noise of the cost ρ in all on the k counts of an answer that was drawn as a whole.

    Without a δ the draw and the counts are one ε-DP mechanism each, and this one has the ε of ρ;
    with a δ it is as ``_box_counts`` returns it.
    """
    if not request.delta:
        return Box(epsilon=pure_epsilon(rho))
    return _box_counts(request, rho)


def _best_shifts(labels: int, touched: int) -> _CentredShifts:
    """Return the best centre a/b of centred noise, with the shifts that it leads to.

    In units of linf/b, the Z of a count that the user moves shifts by b - a, that of each other
    count by a, and Y by a.

    Args:
        labels: how many counts have the noise.
        touched: how many of them one user moves.
    """
    centre = best_centre(labels, touched)
    a = centre.numerator
    b = centre.denominator
    own = touched * (b - a) ** 2 + (labels - touched) * a**2
    return _CentredShifts(centre, own=own, common=a**2)


def _selections_at_cost(request: Request, split: Split, rho: float) -> KnownGumbel | UnknownGumbel:
    """Return k selections that cost ρ together, at ε²/8 each; charged as clocks, where these cost
    less, their ε is larger by a factor at about the same cost (``charge_of_selections``).

    Args:
        request: what is asked for.
        split: which part of δ the threshold of private labels has.
        rho: ρ of the selections.
    """
    charged = charge_of_selections(request, split)
    epsilon = floor_digits(math.sqrt(8 * rho / request.k) * charged.gain)
    if request.domain == "public":
        return KnownGumbel(k=request.k, epsilon=epsilon, charge_as=charged.charge_as)
    delta = _threshold_delta(request, split)
    return UnknownGumbel(
        k=request.k, d_bar=request.d_bar, epsilon=epsilon, delta=delta, charge_as=charged.charge_as
    )


def _selections_then(counts: Callable[[Request, float], Any]) -> Build:
    """Return a function that builds selections, with their share of ρ, and then counts with noise
    from the rest.

    Args:
        counts: the function that returns the noise on counts for a request and the ρ of the counts.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the selections and the counts, fitted to the order of selection where the request
        asks for that.
        """
        noise = counts(request, (1 - split.selection) * rho)
        counting = CountMLE(noise=noise) if request.fit else noise
        return _selections_at_cost(request, split, split.selection * rho), counting

    return build


def _selections_then_box(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return selections, and then box noise on the counts of what they selected.

    With a δ selections get their share of the ρ that a Gaussian would have at this (ε, δ), and box
    noise, which costs less there than a Gaussian of its mean loss, gets the rest of ``rho``.
    """
    composed_delta = request.delta * (1 - split.threshold)
    if composed_delta and request.epsilon:
        total = gaussian_rho(request.epsilon, composed_delta)
    else:
        total = rho
    rho_to_select = split.selection * total
    rho_to_count = max(rho - rho_to_select, LEAST_COUNT_SHARE * rho)
    return _selections_at_cost(request, split, rho_to_select), _box_counts(request, rho_to_count)


@lru_cache(maxsize=64)
def gaussian_rho(epsilon: float, delta: float) -> float:
    """Return ρ = μ²/2 of the Gaussian with exactly this (ε, δ).

    It is about the ρ that an (ε, δ) affords for most compositions, since the losses of many costs
    add up to about a normal law.
    """
    return gaussian_mu(epsilon=epsilon, delta=delta) ** 2 / 2


def _selections_alone(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return k selections that cost ρ together; no counts are released."""
    return (_selections_at_cost(request, split, rho),)


def _on_all_counts(noise: Callable[[float, int], Any]) -> Build:
    """Return a function that builds noise with the cost ρ on all counts of a public domain; the
    labels are taken from the noisy counts.

    Args:
        noise: the function that returns the noise for ρ and the number of counts that one user
            changes.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:  # noqa: ARG001
        """Return the one mechanism; there is nothing for ``split`` to divide."""
        return (noise(rho, _counts_changed_by_one_user(request)),)

    return build


def _counts_changed_by_one_user(request: Request) -> int:
    """Return how many of all counts one user changes: l0, without which ``Design.misfit`` leaves
    designs with noise on all counts out.
    """
    return request.sensitivity.l0 or 1


def _slots_changed_by_one_user(request: Request) -> int:
    """Return how many counts one user changes among the d_bar largest and the next one, the
    floor.
    """
    return request.sensitivity.touched(request.d_bar + 1)


def _threshold_delta(request: Request, split: Split) -> float:
    """Return the part of the request's δ that is for passing the threshold."""
    return split.threshold * request.delta


def _laplace_over_floor(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return Laplace noise of the cost ρ on the d_bar largest counts, over a noisy floor."""
    epsilon = _laplace_at_cost(rho, _slots_changed_by_one_user(request)).epsilon
    delta = _threshold_delta(request, split)
    return (UnknownLaplace(epsilon=epsilon, d_bar=request.d_bar, delta=delta),)


def _gaussian_over_floor(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return Gaussian noise of the cost ρ on the d_bar largest counts, over a noisy floor."""
    sigma = _gaussian_at_cost(rho, _slots_changed_by_one_user(request)).sigma
    delta = _threshold_delta(request, split)
    return (UnknownGaussian(sigma=sigma, d_bar=request.d_bar, delta=delta),)


def _centred_over_floor(floor_multiple: int) -> Build:
    """Return a function that builds centred Gaussian noise of the cost ρ on the
    ``floor_multiple`` · k largest counts, over a noisy floor.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the mechanism; the split says which part of δ is for its threshold."""
        d_bar = floor_multiple * request.k
        values = d_bar + 1  # the slots, and the floor
        # One more than without a floor may move, as ``UnknownCentred`` charges.
        moved = slots_and_floor(request.sensitivity).touched(values)
        counting = _centred_gaussian(rho, _best_shifts(values, moved))
        noise = counting.noise
        common = counting.common
        centre = counting.centre
        delta = _threshold_delta(request, split)
        return (
            UnknownCentred(d_bar=d_bar, noise=noise, delta=delta, common=common, centre=centre),
        )

    return build


def _box_over_floor(floor_multiple: int) -> Build:
    """Return a function that builds box noise of the cost ρ on the ``floor_multiple`` · k largest
    counts, over a noisy floor.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the mechanism; the split says which part of δ is for its threshold."""
        delta = _threshold_delta(request, split)
        d_bar = floor_multiple * request.k
        return (UnknownBox(d_bar=d_bar, epsilon=pure_epsilon(rho), delta=delta),)

    return build


def _truncated_laplace(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return truncated Laplace noise of the cost ρ on all counts of a private domain."""
    epsilon = _laplace_at_cost(rho, _counts_changed_by_one_user(request)).epsilon
    return (TruncatedLaplace(epsilon=epsilon, delta=_threshold_delta(request, split)),)


def _sparse_gaussian(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return Gaussian noise of the cost ρ on all counts of a private domain, over a fixed threshold
    that shares its δ.
    """
    sigma = _gaussian_at_cost(rho, _counts_changed_by_one_user(request)).sigma
    return (SparseGaussian(sigma=sigma, delta=_threshold_delta(request, split)),)


def _coins_at_cost(request: Request, split: Split, rho: float) -> Mechanisms:  # noqa: ARG001
    """Return coins that show labels of a private domain, at about the cost ρ and all of δ.

    There is one phase alone, so that ``split`` has nothing to divide.
    """
    epsilon = floor_digits(_coin_epsilon(request.delta, rho))
    return (PartitionSelection(epsilon=epsilon, delta=request.delta),)


def _coins_then_gaussian(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return coins that show labels, and then Gaussian noise on the counts of these labels.

    The coins follow from the budget, and so are the same for every ρ that the search tries, because
    computing their probabilities is slow; the noise gets the rest of ρ. How many labels are counted
    is not known before, so that the noise is for all counts that one user changes.
    """
    delta = COIN_DELTA * request.delta
    if request.epsilon is None:
        total = rho
    else:
        total = gaussian_rho(request.epsilon, request.delta)
    # Any smaller ε is sound; with three digits requests that are close share their coins.
    epsilon = floor_digits(_coin_epsilon(delta, split.selection * total), digits=3)
    rho_to_count = max(rho - gaussian_rho(epsilon, delta), LEAST_COUNT_SHARE * rho)
    noise = _gaussian_at_cost(rho_to_count, _counts_changed_by_one_user(request))
    return PartitionSelection(epsilon=epsilon, delta=delta), noise


def _coin_epsilon(delta: float, rho: float) -> float:
    """Return the ε at this δ of a Gaussian with this ρ: coins of this (ε, δ) cost about as much."""
    return float(gaussian_epsilon(math.sqrt(2 * rho), delta=delta))


def _whole_answer(build_draw: BuildDraw) -> Build:
    """Return a function that builds the one mechanism of an answer that is drawn as a whole.

    Args:
        build_draw: the function that returns the mechanism for a request and ρ.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:  # noqa: ARG001
        """Return the one mechanism; there is nothing for ``split`` to divide."""
        return (build_draw(request, rho),)

    return build


def _designs_over_a_floor() -> Iterator[Design]:
    """Yield the designs with noise on the k or 2k largest counts, over the noisy next count."""
    for floor_multiple, top in ((1, "the top k"), (2, "the top 2k")):
        yield Design(
            f"centred Gaussian noise over the noisy floor of {top}",
            "threshold",
            "gaussian",
            "private",
            _centred_over_floor(floor_multiple),
            floor_multiple=floor_multiple,
            least_labels=SEVERAL,
        )
        yield Design(
            f"box noise over the noisy floor of {top}",
            "threshold",
            "box",
            "private",
            _box_over_floor(floor_multiple),
            floor_multiple=floor_multiple,
            least_labels=SEVERAL,
        )


def _designs_with_selections(domain: Domain) -> Iterator[Design]:
    """Yield the designs that select k labels by Gumbel noise, and then perhaps count them."""
    yield Design("Gumbel selections", "peel", "none", domain, _selections_alone)
    yield Design(
        "Gumbel, then Laplace counts",
        "peel",
        "laplace",
        domain,
        _selections_then(_laplace_counts),
        least_labels=SEVERAL,
    )
    yield Design(
        "Gumbel, then centred Gaussian counts",
        "peel",
        "gaussian",
        domain,
        _selections_then(_centred_gaussian_counts),
        least_labels=SEVERAL,
    )
    yield Design(
        "Gumbel, then box counts",
        "peel",
        "box",
        domain,
        _selections_then_box,
        least_labels=SEVERAL,
    )


def _designs_of_whole_answers() -> Iterator[Design]:
    """Yield the designs that draw all k public labels at once, and then perhaps count them."""
    for draw in DRAWS:
        build = _whole_answer(draw.build)
        yield Design(draw.name, "whole", "none", "public", build, additive=draw.additive)
    kinds_of_counts = (
        CountNoise("gaussian", _gaussian_counts),
        CountNoise("gaussian", _centred_gaussian_counts),
        CountNoise("laplace", _laplace_counts),
        CountNoise("box", _box_counts_after_draw),
    )
    for draw in DRAWS_BEFORE_COUNTS:
        build = draw_and_counts(draw, kinds_of_counts)
        name = f"{draw.name}, then counts"
        yield Design(name, "whole", "any", "public", build, additive=draw.additive)


# A design over the whole histogram whose threshold is part of the charge: both share the δ.
_design_sharing_delta = partial(Design, whole=True, threshold_is_charged=True)

# In the order in which ties are broken: a floor of 0 before one that counts of other labels raise.
DESIGNS = (
    Design(
        "Laplace noise on all counts",
        "threshold",
        "laplace",
        "public",
        _on_all_counts(_laplace_at_cost),
    ),
    Design(
        "Gaussian noise on all counts",
        "threshold",
        "gaussian",
        "public",
        _on_all_counts(_gaussian_at_cost),
    ),
    Design(
        "truncated Laplace on all counts",
        "threshold",
        "laplace",
        "private",
        _truncated_laplace,
        whole=True,
    ),
    _design_sharing_delta(
        "Gaussian noise over a fixed threshold",
        "threshold",
        "gaussian",
        "private",
        _sparse_gaussian,
    ),
    _design_sharing_delta(
        "coins for labels", "whole", "none", "private", _coins_at_cost, additive=False
    ),
    _design_sharing_delta(
        "coins for labels, then Gaussian counts",
        "peel",
        "gaussian",
        "private",
        _coins_then_gaussian,
        coins_then_counts=True,
    ),
    Design(
        "Laplace noise over a noisy floor",
        "threshold",
        "laplace",
        "private",
        _laplace_over_floor,
        whole=False,
    ),
    Design(
        "Gaussian noise over a noisy floor",
        "threshold",
        "gaussian",
        "private",
        _gaussian_over_floor,
        whole=False,
    ),
    *_designs_over_a_floor(),
    *(design for domain in DOMAINS for design in _designs_with_selections(domain)),
    *_designs_of_whole_answers(),
)


def all_designs() -> tuple[Design, ...]:
    """Return our designs, and those that were registered with mechanisms."""
    return (*DESIGNS, *OTHER_DESIGNS)


def _design_of_name(name: str, domain: Domain) -> Design:
    """Return the design with a name in a domain."""
    return next(
        design for design in all_designs() if (design.name, design.domain) == (name, domain)
    )


def method_names() -> tuple[str, ...]:
    """Return the names that ``method`` accepts: a kind of design, or one design, which may exist
    for each domain.
    """
    return (*METHODS, *dict.fromkeys(design.name for design in all_designs()))
