"""The designs that a plan compares: ways to spend a zCDP budget ρ on a top-k answer.

A design turns (request, split, ρ) into mechanisms. Its parameters follow from ρ by the plain
formulas below (ε²/8 for a selection, 1/(2σ²) and ε²/2 for a count), which only fix the proportions:
the search scales ρ until the composition of all phases under the tightest valid bound spends the
total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
from dptopk.planning.request import Request, Split, pure_epsilon
from dptopk.planning.selections import charge_of_selections
from dptopk.planning.shape import Shape
from dptopk.planning.whole_answers import DRAWS, DRAWS_BEFORE_COUNTS, BuildDraw, draw_and_counts

Mechanisms = tuple[Mechanism, ...]
# A function that builds the mechanisms of a design from the request, the division of the budget,
# and the ρ of all mechanisms together.
Build = Callable[[Request, Split, float], Mechanisms]
# Whether a reason to leave a design out holds, and the reason in words.
Reason = tuple[bool, str]
NoiseName = Literal["gaussian", "laplace", "box", "any", "none"]
# Shares of the zCDP budget for selections, tried where the shape of the counts is known. They are
# closer where little is left for the counts, or for the selections; the best of them is refined by
# ``Split.neighbours``.
SELECTION_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
# The share where it is not known: the product of both noises is least there.
EVEN_SHARE = 0.5
# The shares of δ for a threshold where the shape is known, and the one where it is not; all of δ
# where the rest is pure and needs none.
THRESHOLD_SHARES: tuple[float, ...] = (0.1, 0.5, 0.9)
THRESHOLD_SHARE = 0.5
# From this many labels per user on, selections and noisy floors are compared: below, noise on all
# counts costs less.
SEVERAL = 3
# Coins that show labels before these are counted (docs/notes/partition-selection.md): their share
# of the zCDP budget, where the merit is least and flat, so that it is not searched, and their share
# of δ; the noise on the counts needs little of δ.
COIN_SHARE = 0.66
COIN_DELTA = 0.9
# The coins are compared from this number of labels per user on, since below it noise on all counts
# costs less, up to this multiple of k, since beyond it noise on k counts does.
COIN_LABELS = 16
MOST_FOLD = 4
# The coins do not change with ρ. Where they would take all of it, the counts get this share of it
# nevertheless, and the search makes ρ larger until both are within the total.
LEAST_COUNT_SHARE = 0.05
# The ε of box noise of a mean loss is a fixed point: each step at least halves the error of ln ε,
# since the mean loss grows as a power of ε from 1 to 2. A plan scales it, so it need not be exact.
BOX_STEPS = 4


@dataclass(frozen=True)
class Design:
    """One way to answer.

    Attributes:
        name: in words.
        method: "peel" (select, then count what was selected), "threshold" (noise on all counts at
            once) or "whole" (the labels are drawn at once, then perhaps counted; of a private
            domain all that coins show).
        noise: of the counts, "gaussian", "laplace" or "box"; "any": whichever is best; "none" where
            the design releases labels only.
        domain: of the labels.
        build: the mechanisms for a request, a split and ρ.
        whole: True: needs the whole histogram; False: compared only where it is cut, or where its
            name or its kind is asked for; None: for both.
        joint: the δ of labels that one user alone has is part of the charge, not added to it, and
            may be all of it.
        additive: labels are ordered by counts with noise of one law, so that its noise can be told
            without their gaps.
        fold: over a noisy floor: how many times k labels take part, where not d_bar of the request.
        least: how many labels a user touches at least, where it is compared although neither its
            name, nor its kind, nor its noise is asked for.
        coins: labels are shown by coins, then counted; compared for labels only, their counts being
            hidden, on shapes, and by name.
    """

    name: str
    method: Literal["peel", "threshold", "whole"]
    noise: NoiseName
    domain: Domain
    build: Build
    whole: bool | None = None
    joint: bool = False
    additive: bool = True
    fold: int | None = None
    least: int = 1
    coins: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to unpickle it: by name, since functions that build mechanisms do not
        pickle.
        """
        return _design_of_name, (self.name, self.domain)

    @property
    def pure(self) -> bool:
        """Return whether the design's costs compose without a δ."""
        return self.noise != "gaussian" and not self.joint

    def composition_delta(self, request: Request, split: Split) -> float:
        """Return the δ that is left for the composition: all of it where the threshold's part of δ
        is part of the charge.
        """
        if self.joint:
            return request.delta
        return request.delta * (1 - split.threshold)

    def misfit(self, request: Request) -> str:
        """Return why the design does not answer the request, or is not compared for it; "" if it
        is.
        """
        reasons = (
            *self._reasons_of_data_and_total(request),
            *self._reasons_of_counts(request),
        )
        for holds, reason in reasons:
            if holds:
                return reason
        return (
            self._reason_of_few_labels(request)
            or self._reason_of_coins(request)
            or self._reason_of_gaps(request)
        )

    def _is_named(self, request: Request) -> bool:
        """Return whether the request names the design, or its kind."""
        return request.method in (self.method, self.name)

    def _reasons_of_data_and_total(self, request: Request) -> tuple[Reason, ...]:
        """Return the conditions, by the data, the total and the method, under which the design is
        left out.
        """
        l0 = request.sensitivity.l0
        # Where the noise is on all counts that one user changes, there must be a limit on these.
        needs_l0 = (self.method == "threshold" and self.fold is None) or self.joint
        named = self._is_named(request)
        largest = (self.fold or 0) * request.k
        return (
            (self.domain != request.domain, f"for a {self.domain} domain"),
            (request.method != "auto" and not named, f"method={self.method!r}"),
            (needs_l0 and l0 is None, "needs a limit on the labels of one user"),
            (largest > request.d_bar, f"needs the {largest} largest counts (d_bar)"),
            (self.whole is True and not request.whole, "needs the whole histogram (d_bar=None)"),
            (self.whole is False and request.whole and not named, "for a histogram that is cut"),
            (request.delta == 0 and not self.pure, "needs a delta above 0"),
        )

    def _reasons_of_counts(self, request: Request) -> tuple[Reason, ...]:
        """Return the conditions, by what is to be shown and by the shape, under which the design is
        left out.
        """
        labels_only = self.noise == "none"
        # The others have noise on counts for nothing else than to show them.
        selects_by_noise = self.method == "threshold" or labels_only or self.coins
        other_noise = request.counts not in ("auto", "none", self.noise)
        short = request.shape is not None and len(request.shape.counts) < request.k
        return (
            (labels_only and request.counted, "releases labels only"),
            (not (selects_by_noise or request.counted), "pays for counts"),
            (self.noise != "any" and other_noise, f"counts={self.noise!r}"),
            (
                request.counts == "gaussian" and request.delta == 0,
                "counts='gaussian' needs a delta above 0",
            ),
            (
                self.method == "whole" and self.domain == "public" and short,
                "the shape has fewer than k labels",
            ),
        )

    def _reason_of_few_labels(self, request: Request) -> str:
        """Return why the design is not compared where a user touches few labels; "" if it is, or
        where its name, its kind or its noise is asked for.
        """
        if self._is_named(request) or request.counts == self.noise:
            return ""
        l0 = request.sensitivity.l0
        if l0 is None or l0 >= self.least:
            return ""
        return f"for {self.least} labels a user or more"

    def _reason_of_coins(self, request: Request) -> str:
        """Return why coins that come before counts are not compared; "" if they are, or where their
        name is asked for.
        """
        if not self.coins or request.method == self.name:
            return ""
        l0 = request.sensitivity.l0
        if l0 is None or not COIN_LABELS <= l0 <= MOST_FOLD * request.k:
            return f"for {COIN_LABELS} labels a user to {MOST_FOLD} k"
        if request.counted and request.shape is None:
            return (
                "how well it does depends on the shape of the counts: give like=, leave the counts "
                "out, or give its name"
            )
        return ""

    def _reason_of_gaps(self, request: Request) -> str:
        """Return why a design whose noise has no one law is not compared without a shape; "" if it
        is, or where its name or its kind is asked for.
        """
        if self.additive or request.shape is not None or self._is_named(request):
            return ""
        return "how well it does depends on the gaps between the counts: give like=, or its name"

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
        if self.coins:
            return (COIN_SHARE,)
        # The best share of a peel depends on the shape of the counts.
        nothing_known = request.shape is None and request.selection_share is None
        if nothing_known and self.method != "whole":
            return (EVEN_SHARE,)
        return SELECTION_SHARES

    def _threshold_shares(self, request: Request) -> tuple[float, ...]:
        """Return the shares of δ for the threshold that are compared; 0 where labels are public, 1
        where the threshold's part of δ is part of the charge.
        """
        if self.joint:
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
    """Return Laplace noise with the cost ρ in all, where one user changes ``copies`` counts."""
    return KnownLaplace(epsilon=pure_epsilon(rho / copies))


def _gaussian_at_cost(rho: float, copies: int) -> KnownGaussian:
    """Return Gaussian noise with the cost ρ in all, where one user changes ``copies`` counts."""
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
    """How far one user shifts the noises of centred noise: Z of each count, and the common Y.

    Attributes:
        centre: a/b, in lowest terms.
        own: A, the sum of shift² over the noises Z, in units of linf².
        common: B, shift² of Y, in units of linf².
    """

    centre: Fraction
    own: int
    common: int


def _centred_gaussian(rho: float, shifts: _CentredShifts) -> Centred:
    """Return centred Gaussian noise at the cost ρ of all counts together. Its two deviations
    minimise the noise of a count: 2ρ = μ² = A/σ_Z² + B/σ_Y² with σ_Z²/σ_Y² = sqrt(A/B)
    (docs/notes/centred.md).
    """
    # Put into the formula for μ²: 2ρ = (A + sqrt(AB))/σ_Z², and σ_Y = σ_Z (B/A)^(1/4).
    mu_squared_times_variance = shifts.own + math.sqrt(shifts.own * shifts.common)
    sigma = ceil_digits(math.sqrt(mu_squared_times_variance / (2 * rho)))
    common = KnownGaussian(sigma=ceil_digits(sigma * (shifts.common / shifts.own) ** 0.25))
    return Centred(noise=KnownGaussian(sigma=sigma), common=common, centre=shifts.centre)


def _box_counts(request: Request, rho: float) -> Box:
    """Return box noise on the k counts of a request with a mean privacy loss of ρ, which is that of
    a Gaussian of this ρ.

    The mean loss is ε t, where t is the δ at ε = 0 of the noise's cost; counts of private labels
    are charged as ε-DP, with t = tanh(ε/2). Without a δ the noise is one ε-DP mechanism, which
    costs as much as Laplace noise on k counts does in all.
    """
    if not request.delta:
        return Box(epsilon=pure_epsilon(rho * request.k))
    # Of one count the cost is the ε-DP one, which is that of counts of private labels.
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


def _one_box(request: Request, rho: float) -> Box:
    """Return box noise on the k counts of a request, of the cost ρ in all, beside one other pure
    cost.

    Without a δ it is one ε-DP mechanism, whose ρ is not that of one count; with a δ it has the mean
    loss that ``_box_counts`` finds.
    """
    if not request.delta:
        return Box(epsilon=pure_epsilon(rho))
    return _box_counts(request, rho)


def _best_shifts(labels: int, touched: int) -> _CentredShifts:
    """Return the best centre of centred noise, with the shifts that it leads to.

    A count that the user moves shifts its Z by b - a, each other count its Z by a, and Y shifts by
    a.

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
    """Return k selections that cost ρ together, at ε²/8 each; charged as clocks their ε is larger
    by the gain, at about the same cost.

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
    from the rest; ``counts`` makes the noise from the request and its ρ.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the selections and the noise, which is fitted to their order where asked for."""
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
    """Return ρ = μ²/2 of the Gaussian with this (ε, δ); nearly all compositions are close to it."""
    return gaussian_mu(epsilon=epsilon, delta=delta) ** 2 / 2


def _selections_alone(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return k selections that cost ρ together; no counts are released."""
    return (_selections_at_cost(request, split, rho),)


def _on_all_counts(noise: Callable[[float, int], Any]) -> Build:
    """Return a function that builds noise with the cost ρ on all counts of a public domain; the
    labels are taken from the noisy counts. ``noise`` makes it from ρ and the number of counts that
    one user changes.
    """
    return lambda request, _, rho: (noise(rho, _all_counts_of_one_user(request)),)


def _all_counts_of_one_user(request: Request) -> int:
    """Return how many counts one user changes, of all: l0, without which ``Design.misfit`` leaves
    designs with noise on all counts out.
    """
    return request.sensitivity.l0 or 1


def _slots_changed_by_one_user(request: Request) -> int:
    """Return how many counts one user changes among those that are looked at and the floor."""
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


def _centred_over_floor(fold: int) -> Build:
    """Return a function that builds centred Gaussian noise of the cost ρ on the ``fold`` · k
    largest counts, over a noisy floor.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the mechanism; the split says which part of δ is for its threshold."""
        d_bar = fold * request.k
        values = d_bar + 1
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


def _box_over_floor(fold: int) -> Build:
    """Return a function that builds box noise of the cost ρ on the ``fold`` · k largest counts,
    over a noisy floor.
    """

    def build(request: Request, split: Split, rho: float) -> Mechanisms:
        """Return the mechanism; the split says which part of δ is for its threshold."""
        delta = _threshold_delta(request, split)
        noise = UnknownBox(d_bar=fold * request.k, epsilon=pure_epsilon(rho), delta=delta)
        return (noise,)

    return build


def _truncated_laplace(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return truncated Laplace noise of the cost ρ on all counts of a private domain."""
    epsilon = _laplace_at_cost(rho, _all_counts_of_one_user(request)).epsilon
    return (TruncatedLaplace(epsilon=epsilon, delta=_threshold_delta(request, split)),)


def _sparse_gaussian(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return Gaussian noise of the cost ρ on all counts of a private domain, over a fixed threshold
    that shares its δ.
    """
    sigma = _gaussian_at_cost(rho, _all_counts_of_one_user(request)).sigma
    return (SparseGaussian(sigma=sigma, delta=_threshold_delta(request, split)),)


def _coins_at_cost(request: Request, split: Split, rho: float) -> Mechanisms:  # noqa: ARG001
    """Return coins that show labels of a private domain, at about the cost ρ and all of δ.

    There is one phase alone, so that ``split`` has nothing to divide.
    """
    epsilon = floor_digits(_coin_epsilon(request.delta, rho))
    return (PartitionSelection(epsilon=epsilon, delta=request.delta),)


def _coins_then_gaussian(request: Request, split: Split, rho: float) -> Mechanisms:
    """Return coins that show labels, and then Gaussian noise on the counts of these labels.

    The coins are scaled to the budget, and so are the same for every ρ, because finding them is
    slow; the noise gets the rest of ρ. How many labels are counted is not known before, so that the
    noise is for all counts that one user changes.
    """
    delta = COIN_DELTA * request.delta
    if request.epsilon is None:
        total = rho
    else:
        total = gaussian_rho(request.epsilon, request.delta)
    # Any smaller ε is sound; with three digits requests that are close share their coins.
    epsilon = floor_digits(_coin_epsilon(delta, split.selection * total), digits=3)
    rho_to_count = max(rho - gaussian_rho(epsilon, delta), LEAST_COUNT_SHARE * rho)
    noise = _gaussian_at_cost(rho_to_count, _all_counts_of_one_user(request))
    return PartitionSelection(epsilon=epsilon, delta=delta), noise


def _coin_epsilon(delta: float, rho: float) -> float:
    """Return the ε at this δ of a Gaussian with this ρ: coins of this (ε, δ) cost about as much."""
    return float(gaussian_epsilon(math.sqrt(2 * rho), delta=delta))


def _whole_answer(build_draw: BuildDraw) -> Build:
    """Return a function that builds the one mechanism of a whole answer; ``build_draw`` makes it
    from the request and ρ.
    """
    return lambda request, _, rho: (build_draw(request, rho),)


# The kinds of noise on the counts after a draw of the whole answer: name, and what builds it.
_COUNTS = (
    ("gaussian", _gaussian_counts),
    ("gaussian", _centred_gaussian_counts),
    ("laplace", _laplace_counts),
    ("box", _one_box),
)

# Noise over the noisy floor of the top of the counts: in words, its kind, and the function that
# builds it for a multiple of k.
_FLOORS: tuple[tuple[str, NoiseName, Callable[[int], Build]], ...] = (
    ("centred Gaussian", "gaussian", _centred_over_floor),
    ("box", "box", _box_over_floor),
)

# Noise on the counts after Gumbel selections: in words, its kind, and what builds both.
_PEELED: tuple[tuple[str, NoiseName, Build], ...] = (
    ("Laplace", "laplace", _selections_then(_laplace_counts)),
    ("centred Gaussian", "gaussian", _selections_then(_centred_gaussian_counts)),
    ("box", "box", _selections_then_box),
)

_design_of_several_labels = partial(Design, least=SEVERAL)
# A design over the whole histogram whose threshold is part of the charge: both share the δ.
_design_sharing_delta = partial(Design, whole=True, joint=True)

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
        coins=True,
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
    *(
        _design_of_several_labels(
            f"{law} noise over the noisy floor of {top}",
            "threshold",
            noise,
            "private",
            build(fold),
            fold=fold,
        )
        for fold, top in ((1, "the top k"), (2, "the top 2k"))
        for law, noise, build in _FLOORS
    ),
    *(
        design
        for domain in DOMAINS
        for design in (
            Design("Gumbel selections", "peel", "none", domain, _selections_alone),
            *(
                _design_of_several_labels(
                    f"Gumbel, then {name} counts", "peel", noise, domain, build
                )
                for name, noise, build in _PEELED
            ),
        )
    ),
    *(
        Design(
            draw.name, "whole", "none", "public", _whole_answer(draw.build), additive=draw.additive
        )
        for draw in DRAWS
    ),
    *(
        Design(
            f"{draw.name}, then counts",
            "whole",
            "any",
            "public",
            draw_and_counts(draw, _COUNTS),
            additive=draw.additive,
        )
        for draw in DRAWS_BEFORE_COUNTS
    ),
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
