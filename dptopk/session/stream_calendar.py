"""The calendar of a stream: which date each of its days has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from dptopk._internal import validate
from dptopk.errors import InvalidParameter

# What becomes of events that arrive when their day has been answered. The stream records it; who
# makes the histograms of the days must act on it.
LATE = ("counted when they arrive", "left out")


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The calendar of a stream, which is recorded with it.

    Args:
        first_day: the date of day 1, as 2026-11-01; None: days have numbers alone.
        time_zone: the time zone whose midnight separates two days, in words.
        late: what becomes of events that arrive when their day has been answered, one of LATE.
    """

    first_day: str | None = None
    time_zone: str = "UTC"
    late: str = LATE[0]

    def __post_init__(self) -> None:
        validate.member(LATE, late=self.late)
        validate.text(time_zone=self.time_zone)
        if self.first_day is not None:
            _date(first_day=self.first_day)  # refuses what is no date

    def number(self, day: int | str | date) -> int:
        """Return the number of a day, from 1.

        Args:
            day: its number, or its date.

        Raises:
            InvalidParameter: for a date before day 1, or in a stream without dates.
        """
        if str(day).isdecimal():
            return validate.count(day=int(str(day)))
        if self.first_day is None:
            raise InvalidParameter(
                f"day={day!r}: this stream has no first_day, so its days have only numbers"
            )
        since_first = _date(day=day) - _date(first_day=self.first_day)
        number = since_first.days + 1
        if number < 1:
            raise InvalidParameter(
                f"day {day} is before day 1 of the stream, {self.first_day}", parameter="day"
            )
        return number

    def name(self, number: int) -> str:
        """Return the date of a day as text, or its number in a stream without dates.

        Raises:
            InvalidParameter: for a day after the last date there is, in the year 9999.
        """
        if self.first_day is None:
            return str(number)
        ordinal = _date(first_day=self.first_day).toordinal() + number - 1
        if ordinal > date.max.toordinal():
            raise InvalidParameter(
                f"first_day: day {number} from {self.first_day} on would be after {date.max}"
            )
        return str(date.fromordinal(ordinal))


def _date(**arguments: str | int | date) -> date:
    """Return the date that the one keyword argument states.

    Raises:
        InvalidParameter: naming the argument.
    """
    ((name, value),) = arguments.items()
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise InvalidParameter(
            f"{name} must be a date like 2026-11-01, got {value!r:.40}", parameter=name
        ) from None
