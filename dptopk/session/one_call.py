"""One answer with a budget of its own: the shortest way from data to a private top k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptopk._internal import validate
from dptopk._internal.choices import Counts, Domain, LookShare
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.session.session import Session

if TYPE_CHECKING:
    from numpy.random import Generator

    from dptopk.datasets.backends.inputs import Condition
    from dptopk.release.release import Release


def top_k(  # noqa: PLR0913 - the options of a question
    data: Any,
    k: int,
    *,
    epsilon: float,
    delta: float = 0.0,
    user: str | None = None,
    item: str | None = None,
    labels_per_user: int | Literal["auto"] | None = "auto",
    per_label_cap: int = 1,
    domain: Domain = "private",
    counts: Counts | None = "auto",
    look: LookShare = "auto",
    where: Condition = None,
    rng: Generator | None = None,
) -> Release:
    """Answer "what are the top k?" once, with a privacy budget of its own.

    Calls know nothing of one another: the ε of several calls on data of the same people add up, and
    so do their δ. A Session accounts for several questions, and often needs less than the sum.

    Args:
        data: events, where ``user`` and ``item`` name columns (a path, a frame, an Arrow or an Ibis
            table); else counts: a Histogram, a dict from label to count, pairs, value counts, or a
            frame of two columns, as ``Histogram(data)`` takes them.
        k: how many labels are asked for, at least 1.
        epsilon: the ε of the whole answer, above 0.
        delta: the δ of the whole answer, in [0, 1). It must be above 0 if labels are private, and
            is best well below 1 over the number of users.
        user: the column of the people who are protected; only for events.
        item: the column of the labels; only for events.
        labels_per_user: for counts: the most labels of one user; "auto" and None: any number.
            For events: the cap under which labels are found, as for ``Session.from_events``.
        per_label_cap: the most by which one user can change one count.
        domain: for counts: "public" if the labels are known to all, whatever the data.
        counts: "auto", "gaussian", "laplace" or "box" noise on the counts shown; None: labels
            alone.
        look: for counts: whether a private look comes first, as for ``Session.top_k``.
        where: for events: a condition on rows, as for ``datasets.events_histogram``.
        rng: None draws from a cryptographically secure source; a generator is for tests.

    Returns:
        Release: the answer; its ``charge`` is what it has cost, within (epsilon, delta).

    Raises:
        InvalidParameter: naming the argument; before the data are read where that can be known.

    >>> import numpy as np
    >>> top_k({"tea": 900, "rum": 700, "ale": 90}, 2, epsilon=1, delta=1e-6,
    ...       rng=np.random.default_rng(1)).labels
    ('tea', 'rum')
    """
    budget = Budget(epsilon, delta)
    if (user is None) != (item is None):
        raise InvalidParameter("user and item: name both columns of events, or neither for counts")
    is_of_events = user is not None
    is_public = domain == "public" or (isinstance(data, Histogram) and data.domain == "public")
    if budget.delta == 0 and (is_of_events or not is_public):
        raise InvalidParameter(
            "delta must be above 0 where labels come from the data; for labels that are known to "
            "all give counts with domain='public'"
        )
    if is_of_events:
        session = Session.from_events(
            data,
            user=user,
            item=item,
            labels_per_user=labels_per_user,
            per_label_cap=per_label_cap,
            where=where,
            budget=budget,
            rng=rng,
        )
        return session.top_k(k, budget=budget, counts=counts)
    if where is not None:
        raise InvalidParameter("where is a condition on events: name user and item")
    histogram = _histogram_of(data, labels_per_user, per_label_cap, domain)
    session = Session(histogram, budget=budget, rng=rng)
    return session.top_k(k, budget=budget, counts=counts, look=look)


def _histogram_of(
    data: Any, labels_per_user: int | Literal["auto"] | None, per_label_cap: int, domain: Domain
) -> Histogram:
    """Return the data as a histogram with the stated sensitivity; the arguments are those of
    ``top_k``.

    Raises:
        InvalidParameter: if the data are a Histogram and its sensitivity or domain is stated again.
    """
    if isinstance(data, Histogram):
        if (labels_per_user, per_label_cap, domain) != ("auto", 1, "private"):
            raise InvalidParameter(
                "a Histogram states its own sensitivity and domain; leave out labels_per_user, "
                "per_label_cap and domain"
            )
        return data
    l0 = None
    if labels_per_user is not None and labels_per_user != "auto":
        l0 = validate.count(labels_per_user=labels_per_user)
    return Histogram(data, sensitivity=Sensitivity(linf=per_label_cap, l0=l0), domain=domain)
