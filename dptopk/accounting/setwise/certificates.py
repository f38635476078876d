"""Certificates: files from which an auditor can check an ε without this package
(checker/check_certificate.py).

A certificate holds the product of pairs of docs/notes/setwise.md, Theorem C, that ``optimum`` came
to, in a form that is dear to make and cheap to check: for each group of bounded ranges the value
functions of all that may be left, on the group's own grid; every other cost is named, for the
checker knows its profile. Nothing here needs to be rigorous: the step of the engine proposes node
values, moved up by more than the checker's intervals are wide, and its product an ε, moved up by
more than its rounding; the checker proves both in interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Effort
from dptopk._internal.rounding import round_up
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.curves import Curve, Query
from dptopk.accounting.gaussian.pair import gaussian_curve
from dptopk.accounting.registry import Certificate, split_failure
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.certificate_factors import (
    LISTED,
    PARAMETERS,
    Claim,
    Entry,
    closed_form,
    factor_of_game,
    factor_of_list,
    one_gaussian,
)
from dptopk.accounting.setwise.concentrated_game import (
    SMALLEST_DELTA as CONCENTRATED_DELTA,
    ConcentratedGame,
)
from dptopk.accounting.setwise.moment_certificate import CertifiedGame
from dptopk.accounting.setwise.optimum import optimal_setwise
from dptopk.accounting.setwise.product_certificates import MOST_LISTED, Aim, product_certificates
from dptopk.accounting.setwise.zcdp_gaussian import gaussian_of
from dptopk.accounting.work import Work
from dptopk.costs import (
    BoundedRange,
    Charge,
    GaussianDP,
    PureDP,
)
from dptopk.errors import NotApplicable, NotCertified

SMALLEST_DELTA = 1e-11  # below, the float products that propose ε lose their digits
SMALLEST_SHARE = 1e-9  # of δ, beside failures: their difference is a float
STEP_BY_STEP = 1e-5  # relative, of ε: a few concentrated costs are worth their game beyond it
ABOVE_ONE_CURVE = 1e-6  # relative, of ε: the checker looks for an order on a grid of its own
# The same for a game, of which the checker computes the same majorants, but for rounding.
ABOVE_GAME = ABOVE_ONE_CURVE / 100
EXACT_REACH = 16.0  # standard deviations of the loss that are read, of a single closed form
LARGEST_FLOAT = 1e300  # an ε from which on it is not written down
LARGEST_MU = 1000.0  # of a Gaussian: beyond, the checker's tails have no digits
MOST_COPIES = 10**9  # of a closed form: its integers have places that floats tell apart


def certify(
    charge: Charge,
    *,
    delta: float,
    aim: float = math.inf,
    rtol: float = 1e-3,
    effort: Effort = "normal",
) -> Certificate:
    """Return a certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, GaussianDP, DiscreteGaussianDP, ZCDP and CDP
            costs.
        delta: in [0, 1); 0 for pure costs only.
        aim: the ε of ``compose``, which the certificate should have; inf: that of the set-wise
            engine, which is computed first.
        rtol: as for ``compose``.
        effort: as for ``compose``.

    Returns:
        A certificate of an upper bound ε, the least of those that were found: one curve of
            everything where that is good enough, else the product of ``optimal_setwise``, but for
            rounding.

    Raises:
        InvalidParameter: for what is no Charge, or a δ outside [0, 1).
        NotCertified: for other costs, for a δ that is not above the charge's own failures, and
            where no ε was found that can be certified.
    """
    claim = _claim_of(charge, delta)
    if not claim.failure_free.costs:
        return claim.certificate(0.0, [])
    if math.isinf(aim) and claim.delta_left:
        query = Query(delta=claim.delta_left, rtol=rtol, work=Work.of(effort))
        aim = _optimum(claim.failure_free, query)
    candidates = _all_of(_single_factor_certificates(claim, aim))
    good_enough = aim * (1 + rtol / 2)
    least = _least_epsilon(candidates)
    if least > aim * (1 + STEP_BY_STEP):  # no curve of everything is as good as ``compose``
        start = min(least, 2 * aim)
        candidates += _all_of(_game_certificates(claim, start, effort))
    if claim.delta_left >= SMALLEST_DELTA and _least_epsilon(candidates) > good_enough:
        candidates += _all_of(product_certificates(claim, Aim(good_enough, rtol, effort)))
    if not candidates:
        raise NotCertified("these costs have no finite ε that can be certified at this delta")
    return min(candidates, key=lambda certificate: certificate.epsilon)


def _claim_of(charge: Charge, delta: float) -> Claim:
    """Return what a certificate of a charge at δ = ``delta`` is about.

    Raises:
        InvalidParameter: for what is no Charge, or a δ outside [0, 1).
        NotCertified: for costs of which there is no certificate, or a δ that is not above the
            charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    failure_free, failure = split_failure(charge)
    unlisted = [cost for cost, _ in failure_free if not isinstance(cost, tuple(LISTED))]
    if unlisted:
        raise NotCertified(f"there is no certificate for {type(unlisted[0]).__name__}")
    delta_left = _delta_without_failures(charge, delta, failure)
    return Claim(charge, failure_free, delta, delta_left)


def _all_of(certificates: Iterator[Certificate]) -> list[Certificate]:
    """Return all certificates of an iterator, or those made before numbers went beyond the range of
    floats.
    """
    finished = []
    with suppress(ArithmeticError), _strict_floats():
        for certificate in certificates:
            finished.append(certificate)  # noqa: PERF402 - those before an error count
    return finished


def _strict_floats() -> np.errstate:
    """Return a context in which a NaN or a division by 0 is an error, as in ``compose``."""
    return np.errstate(over="ignore", divide="raise", invalid="raise")


def _delta_without_failures(charge: Charge, delta: float, failure: float) -> float:
    """Return the δ that is left for a charge's costs, given that none of them fails; 0 where their
    ε's can only be added up.

    δ is at least the mass of bad events, plus the failures of costs, plus (1 - failures) times what
    is left.

    Args:
        charge: the charge, with its failures.
        delta: δ of everything.
        failure: the probability that one of the costs fails.

    Raises:
        NotCertified: for a δ that is not above the charge's own failures.
    """
    delta_left = 0.0
    if failure < 1:
        delta_left = (delta - charge.delta - failure) / (1 - failure)
    if delta_left > SMALLEST_SHARE * delta and delta_left > 0:
        return delta_left
    if failure == 0 and charge.delta <= delta:
        return 0.0
    raise NotCertified("a certificate needs a delta above the charge's own failures")


def _least_epsilon(certificates: Sequence[Certificate]) -> float:
    """Return the least ε of the certificates; inf where there are none."""
    return min((certificate.epsilon for certificate in certificates), default=math.inf)


def _game_certificates(claim: Claim, start: float, effort: Effort) -> Iterator[Certificate]:
    """Yield the certificate of a few concentrated costs, with no others beside them, by their game,
    if there is one with an ε below ``start``.

    Args:
        claim: what the certificate is about.
        start: an upper bound on ε that is known already.
        effort: how much work the game may take.
    """
    if claim.delta_left < CONCENTRATED_DELTA or not math.isfinite(start):
        return
    game = ConcentratedGame.fitting(claim.failure_free, start, Work.of(effort).budget)
    if game is None:
        return
    certified = CertifiedGame.of(game, whole=False)
    if certified is None:
        return
    near_answer = certified.with_majorants_near_answer(
        claim.delta_left * (1 - tuning.CHECKER_ROOM), start
    )
    if near_answer is not None:
        proven_game, epsilon = near_answer
        factor = factor_of_game(proven_game, claim.failure_free)
        yield claim.certificate(epsilon * (1 + ABOVE_GAME), [factor])


def _optimum(failure_free: Charge, query: Query) -> float:
    """Return the ε of the set-wise engine; inf where it does not take the costs, or numbers go
    beyond the range of floats.
    """
    try:
        with _strict_floats():
            return optimal_setwise(failure_free).answer(query).value
    except (NotApplicable, ArithmeticError):
        return math.inf


def _single_factor_certificates(claim: Claim, aim: float) -> Iterator[Certificate]:
    """Yield certificates with a single factor, which the checker evaluates at ε itself.

    Args:
        claim: what the certificates are about; without a δ left, only basic composition is allowed.
        aim: the ε of ``compose``, at which a closed form of everything should hold.
    """
    yield from _basic_certificate(claim)
    if not claim.delta_left:
        return
    failure_free = claim.failure_free
    entries: list[tuple[float, Entry]] = []  # the ε of each factor, and the factor
    room = claim.delta_left * (1 - tuning.CHECKER_ROOM)
    curves = {
        "Renyi": renyi_curve(log_mgf(failure_free), pure_sum(failure_free)),
        "Smoothed": _curve_of_one_gaussian(failure_free),
    }
    for kind, curve in curves.items():
        if curve is not None:
            entries.append((_epsilon_of(curve, room), factor_of_list(kind, failure_free)))
    if claim.delta_left >= SMALLEST_DELTA:
        entries += [(aim, entry) for entry in _closed_form_of_all(failure_free)]
    for epsilon, entry in entries:
        if epsilon < LARGEST_FLOAT:
            above = epsilon * (1 + ABOVE_ONE_CURVE)
            yield claim.certificate(above, [entry])


def _basic_certificate(claim: Claim) -> Iterator[Certificate]:
    """Yield the certificate of the sum of all ε's (basic composition), where every cost has one."""
    costs = claim.failure_free
    epsilons: dict[PureDP | BoundedRange, int] = dict(costs.of(PureDP))
    epsilons.update(costs.of(BoundedRange))
    if len(epsilons) < len(costs.costs):
        return
    total = sum((Fraction(cost.epsilon) * n for cost, n in epsilons.items()), Fraction(0))
    if total < LARGEST_FLOAT:
        yield claim.certificate(round_up(total), [factor_of_list("Basic", costs)])


def _epsilon_of(curve: Curve, delta: float) -> float:
    """Return the ε of a curve at δ; inf where its numbers are out of range."""
    try:
        with np.errstate(over="ignore", divide="raise", invalid="raise"):
            return float(curve.epsilon(delta))
    except ArithmeticError:
        return math.inf


def _closed_form_of_all(failure_free: Charge) -> Iterator[Entry]:
    """Yield one factor for all costs by a closed form, where they are equal or are all Gaussian,
    and the checker can compute it.
    """
    gaussian = len(failure_free.of(GaussianDP)) == len(failure_free.costs)
    single_cost = one_gaussian(failure_free) if gaussian else failure_free.costs
    if len(single_cost) != 1:
        return
    ((cost, times),) = single_cost.items()
    is_too_large = isinstance(cost, GaussianDP) and not cost.mu * math.sqrt(times) < LARGEST_MU
    if type(cost) in PARAMETERS and times <= MOST_COPIES and not is_too_large:
        entry = closed_form(cost, times, 1.0, EXACT_REACH)
        # A single factor is evaluated without a lattice, and needs no places on one.
        if entry["width"] <= MOST_LISTED:
            yield {name: value for name, value in entry.items() if name not in {"low", "high"}}


def _curve_of_one_gaussian(failure_free: Charge) -> Curve | None:
    """Return the profile of the Gaussian of Theorem H for all costs; None where the theorem does
    not apply or μ is too large for the checker.
    """
    try:
        mu = gaussian_of(failure_free).mu
    except NotApplicable:
        return None
    if mu < LARGEST_MU:
        return gaussian_curve(mu)
    return None
