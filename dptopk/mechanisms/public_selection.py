"""Base of the selections of labels from a public domain, and the labels of drawn indices."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import identity, label_order
from dptopk.mechanisms.mechanism import LabelsOnly, require_public
from dptopk.mechanisms.samplers.random import Array, Bits, Ints, Rng, random_bits
from dptopk.release.release import Release


class PublicSelection(LabelsOnly):
    """Base of the mechanisms that draw labels of a public domain at a charge known beforehand."""

    #: How many labels are drawn.
    k: int
    # Whether the rows are a ranking. A set is shown in label order, which reveals nothing of the
    # counts.
    ordered: ClassVar[bool] = True

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        # Refuses a private or an incomplete histogram, and a k that is too large.
        require_public(histogram, type(self).__name__, self.k)
        self.charge(histogram.sensitivity)  # refuses a sensitivity that is not covered

    @abstractmethod
    def rows(self, histogram: Histogram, bits: Bits) -> Sequence[int] | Ints:
        """Draw the indices of the k selected rows of the histogram; labels without a row have the
        indices n, n + 1, ..., where n is the number of rows.
        """

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Draw the answer from a public, complete histogram; unlisted labels take part with count
        0.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the
                domain.
        """
        return self._checked_release(histogram, rng)

    def _checked_release(self, histogram: Histogram, rng: Rng, **options: Any) -> Release:
        """Draw the answer, after the checks of ``check``, and return its release.

        Args:
            histogram: as for ``release``.
            rng: as for ``release``.
            options: what the mechanism's own ``check`` and ``rows`` take beside these.
        """
        self.check(histogram, **options)
        charge = self.charge(histogram.sensitivity)
        bits = random_bits(rng)
        rows = np.array(self.rows(histogram, bits, **options), dtype=np.int64)
        labels = drawn_labels(histogram, rows, bits)
        note = ""
        if not self.ordered:
            labels = in_label_order(labels)
            note = NOTE_OF_A_SET
        return Release.of_draw(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=note
        )


NOTE_OF_A_SET = "a set, in label order: ranks mean nothing"


def in_label_order(labels: Sequence[Any]) -> tuple[Any, ...]:
    """Return the labels of a set in an order that does not depend on the counts."""
    array = np.fromiter(labels, dtype=object, count=len(labels))
    return tuple(labels[i] for i in label_order(array))


def drawn_labels(histogram: Histogram, indices: Array, bits: Bits) -> tuple[Any, ...]:
    """Return the labels of drawn indices; an index of at least n, the number of rows, stands for
    some label without a row.

    Labels without a row are exchangeable: an index from n on is a uniform choice among those not
    drawn before. If the domain is named by a function, that label is drawn here: labels of the
    whole domain are drawn until one has no row. So its name reveals nothing about the other
    labels.

    Args:
        histogram: the one from which they are drawn.
        indices: the drawn indices, all different, shape (k,).
        bits: the source of words.

    Raises:
        InvalidParameter: when the histogram's absent_label does not name domain_size different
            labels, the labels of the rows among them.
    """
    rows = len(histogram)
    missing = int((indices >= rows).sum())
    if histogram.listed or not missing:
        return tuple(histogram.label_at(index) for index in indices.tolist())
    unlisted = iter(_labels_without_row(histogram, missing, bits))
    labels: list[Any] = []
    for index in indices.tolist():
        label = histogram.label_at(index) if index < rows else next(unlisted)
        labels.append(label)
    return tuple(labels)


def _labels_without_row(histogram: Histogram, size: int, bits: Bits) -> list[Any]:
    """Draw ``size`` different labels that have no row, uniformly, by rejection.

    Args:
        histogram: of a public domain named by a function.
        size: how many labels are drawn, from 1 to ``histogram.absent``.
        bits: the source of words.

    Raises:
        InvalidParameter: where absent_label does not keep its promise.
    """
    names: list[Any] = []
    identities = set(map(identity, histogram.labels.tolist()))
    # If absent_label keeps its promise, a try finds the (j + 1)-th label with the probability
    # (absent - j) / domain_size. The sum of the inverses of these is the expected number of tries;
    # an integral bounds it. A hundred times as many tries are exceeded with a probability below
    # e^-90 (a sum of geometric variables: Janson 2018, Theorem 2.1).
    fewest_left = histogram.absent - size + 1
    sum_of_inverses = 1 / fewest_left + math.log(histogram.absent / fewest_left)
    tries = math.ceil(100 * histogram.domain_size * sum_of_inverses)
    while len(names) < size:
        (index,) = bits.below(histogram.domain_size, 1).tolist()
        name = histogram.label_in_domain(index)
        if identity(name) not in identities:
            identities.add(identity(name))
            names.append(name)
            continue
        tries -= 1
        if tries < 0:
            raise InvalidParameter(
                "absent_label must name domain_size different labels, those of the rows among them"
            )
    return names
