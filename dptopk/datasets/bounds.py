"""The limits on what each user contributes to a histogram of events."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial

from dptopk._internal import validate
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity

# What ``Bounds.choose`` may be.
CHOICES = ("hash", "random", "top")

# Largest per_label_cap: the sums of up to 2^31 users stay below 2^62.
LARGEST_CAP = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits on each user's contribution.

    Args:
        labels_per_user: Δ, the most labels of one user that count; None: all.
        per_label_cap: τ, the most that one user adds to one label, in 1..2^31 - 1.
        choose: which labels of a user with more than Δ count: "hash" (those with the smallest hash
            of key, user and item, which looks random and is repeatable), "random" ("hash" with a
            new secret key) or "top" (the user's most frequent ones, ties as in "hash").
        total_per_user: the most that one user adds to all labels together; the labels are added up
            in the order of the choice, and what exceeds the total is cut. None: no limit.
        key: text that varies the choice of "hash" and "top".
        portable: whether hashes are SHA-256, the same on every engine and version, instead of the
            engine's own 64-bit hash, which is about twice as fast. Privacy needs only that the
            choice is a function of the key and the one user's rows, as both are.
    """

    labels_per_user: int | None
    per_label_cap: int = 1
    choose: str = "hash"
    key: str = ""
    portable: bool = False
    total_per_user: int | None = None

    def __post_init__(self) -> None:
        # These calls refuse values that are out of range.
        validate.parameters(self, per_label_cap=partial(validate.count, at_most=LARGEST_CAP))
        validate.member(CHOICES, choose=self.choose)
        validate.instance(str, key=self.key)
        # The two differ where the key holds half of a surrogate pair.
        if self.key.encode("utf-8", "replace") != self.key.encode("utf-8", "surrogatepass"):
            raise InvalidParameter("key must be text that UTF-8 can hold")
        if self.choose == "random":
            if self.key:
                raise InvalidParameter(
                    "key: choose='random' draws a fresh key itself; with a key, use choose='hash'"
                )
            # An engine's random() would not do: Spark draws it again when it repeats a lost task.
            validate.assign(self, key=secrets.token_hex(32))

    @property
    def sensitivity(self) -> Sensitivity:
        """Return the caps that adding or removing one user obeys: linf = τ, l0 = Δ, and the total
        l1.

        A total below τ also limits linf.
        """
        linf = self.per_label_cap
        if self.total_per_user is not None:
            linf = min(linf, self.total_per_user)
        return Sensitivity(linf=linf, l0=self.labels_per_user, l1=self.total_per_user)

    @property
    def counts_once(self) -> bool:
        """Return whether each user adds 1 to each label of that user that counts, and which labels
        count does not depend on numbers of events.
        """
        return self.per_label_cap == 1 and self.choose != "top"
