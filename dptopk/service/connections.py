"""Connections that are opened and say nothing: uvicorn itself waits for the head of a request for ever.

The number of open ones is limited: where one more comes, the oldest that says nothing ends.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 10.0  # in which the head of a request must come
MOST_CONNECTIONS = 800  # of a worker, below the 1,024 files that a process may open by default


class Timely(AutoHTTPProtocol):  # type: ignore[misc, valid-type, unused-ignore] # one of two classes
    """uvicorn's connection, which ends when the head of a request does not come in time."""

    _late: asyncio.TimerHandle | None = None
    _open: ClassVar[dict[Timely, None]] = {}  # oldest first

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()
        self._open[self] = None
        if len(self._open) > MOST_CONNECTIONS:
            silent = next(one for one in self._open if one._late is not None)  # noqa: SLF001 - of this class
            silent._stop()  # noqa: SLF001 - it is chosen once
            silent.transport.close()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the head, or stop waiting."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop()
        self._open.pop(self, None)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
