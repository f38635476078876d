"""Who sends a request: tokens against the rows that a worker holds, as recent as it takes.

The rows are read for all requests together, one reading at a time. So a stranger's request costs a
look into memory, or its part of at most ten readings a second, and nobody's guesses keep the owner
of a token waiting. What spends is answered by rows that were read after the request had come: a
revoked token spends nothing from then on, and sees nothing RECENT_SECONDS later.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import wrap_future
from concurrent.futures import Future
from functools import partial

from dptopk._internal.json_text import fingerprint
from dptopk.service.access import Access, Person
from dptopk.service.limits import Turns

RECENT_SECONDS = 1.0  # for which rows serve requests that spend nothing
STRANGER_SECONDS = 0.1  # between two readings for tokens that nobody knows


class Senders:
    """The senders of requests to one worker; used by its event loop alone.

    Args:
        access: the tokens.
        logins: threads that read the rows.
        slow: threads for hashes of older versions; a wrong secret waits for its own turn.
    """

    def __init__(self, access: Access, logins: Turns, slow: Turns) -> None:
        self._access = access
        self._logins = logins
        self._slow = slow
        self._reading: Future[None] | None = None

    async def find(self, token: str, *, now: bool = False) -> Person | None:
        """Whose token this is, or None.

        Args:
            token: as it was sent.
            now: whether its row must have been read after this call.

        Raises:
            LedgerError: when the rows cannot be read.
        """
        if not token:
            return None
        arrived = self._access.clock()
        await self._read(arrived - RECENT_SECONDS)
        if not self._access.held(token):
            await self._read(arrived, apart=STRANGER_SECONDS)
        person = await self._verified(token)
        if person is not None and now and self._access.read_at < arrived:
            await self._read(arrived)
            person = await self._verified(token)
        return person

    async def _verified(self, token: str) -> Person | None:
        verify = partial(self._access.person, token)
        if not self._access.slow(token):
            return verify()
        turn = fingerprint(token)  # each secret that is tried waits for itself
        return await asyncio.shield(wrap_future(self._slow.submit(turn, verify)))

    async def _read(self, moment: float, apart: float = -math.inf) -> None:
        """Let the rows be as of this moment or later, and begin no reading sooner than so many
        seconds after the last one.
        """
        while self._access.read_at < moment:
            reading = self._reading
            if reading is None or reading.done():
                wait = self._access.read_at + apart - self._access.clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                reading = self._reading = self._logins.submit("tokens", self._access.read)
            await asyncio.shield(wrap_future(reading))
