"""A stream of a service: the top k of all days so far, asked for day by day over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptopk.release.release import Release
from dptopk.session.service_connection import ServiceConnection

if TYPE_CHECKING:
    from datetime import date


class ClientStream:
    """An open stream of a service; ``Client.stream`` makes it, and it has the calls of
    ``StreamSession``.

    Args:
        connection: the connection of the client that opened it.
        path: the path of the stream's days after /v1.
    """

    def __init__(self, connection: ServiceConnection, path: str) -> None:
        self._connection = connection
        self._path = path

    def answer(self, day: int | str | date) -> Release:
        """Return the answer of a day, which is drawn once from the service's data and then
        repeated.

        Args:
            day: the day's number from 1, or its date.

        Raises:
            InvalidParameter: for a day after the next one, or what is neither number nor date.
            LedgerError: the service could not store the answer; ask again.
            ServiceError: any other refusal, such as that the day's data are not there (503).
        """
        # The stream and the day in the request are what is answered once; the service reads no
        # key here.
        asked = {"day": str(day)}
        reply = self._connection.call_until_answered(lambda: self._path, asked, "stream")
        return Release.from_dict(reply["release"])

    def answered(self) -> dict[int, Release]:
        """Return the answers so far by the day's number; free.

        Raises:
            ServiceError: if the service refuses, or cannot be reached.
        """
        answers: dict[int, Release] = {}
        while True:
            page = self._page(len(answers) + 1)["answers"]
            if not page:
                return answers
            for answer in page:
                answers[answer["day"]] = Release.from_dict(answer["release"])

    def half_widths(self) -> list[int]:
        """Return for each day the half-width of a total, in counts: 95% of its noise is within it;
        free.

        Raises:
            ServiceError: if the service refuses, or cannot be reached.
        """
        return list(self._page(1)["half_width"])

    def _page(self, first: int) -> dict[str, Any]:
        """Return the service's facts on the stream, with a page of its answers.

        Args:
            first: the number of the day with which the page begins, from 1.
        """
        return dict(self._connection.call("GET", f"{self._path}?first={first}"))
