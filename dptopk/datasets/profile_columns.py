"""The columns of a profile: counts of users by their number of labels, and counts of labels under
narrow caps.

The labels of a user are put in an order, and each has a place in it, from 0. A user has a label at
place n if and only if the user has more than n labels. So the users with more than n labels are
counted by their labels at place n, and the counts under a cap by the labels at the places below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dptopk.histogram.event_counts import CELLS, NARROW


@dataclass(frozen=True)
class Places:
    """The places of a user's labels that a column of a profile counts.

    Attributes:
        sign: "<" for all places below ``place``, "=" for this place alone; SQL has the same signs.
        place: a place, from 0.
    """

    sign: Literal["<", "="]
    place: int

    def include(self, places: Any) -> Any:
        """Return whether these places are among those counted, for each of an array or a column."""
        if self.sign == "<":
            return places < self.place
        return places == self.place


# Name of a column -> the places that it counts. ``under_n`` has the counts of labels under the cap
# n, and ``above_n`` has the users with more than n labels.
PROFILE = {f"under_{cap}": Places("<", cap) for cap in NARROW} | {
    f"above_{cell}": Places("=", cell) for cell in CELLS
}


def _cuts() -> tuple[int, ...]:
    """Return the first place of each range of places that every column of PROFILE counts alike: all
    places of the range or none. They begin with 0 and rise.
    """
    cuts = {0}
    for counted in PROFILE.values():
        cuts.add(counted.place)
        if counted.sign == "=":
            cuts.add(counted.place + 1)
    return tuple(sorted(cuts))


CUTS = _cuts()
