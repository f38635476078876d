"""Who sends a request: its token is compared with the rows that the worker has in memory.

The rows are read for all requests together, one reading at a time. So a request with an unknown
token costs a look into memory, or its part of at most ten readings a second, and nobody's guesses
delay the owner of a token. A request that spends is checked against rows that were read after it
had come: a revoked token spends nothing from then on, and sees nothing RECENT_SECONDS later.
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

RECENT_SECONDS = 1.0  # rows so old are used for requests that spend nothing
STRANGER_SECONDS = 0.1  # readings for unknown tokens are at least so far apart


class Senders:
    """The senders of requests to one worker; only the thread of its event loop uses this.

    Args:
        access: the tokens.
        logins: the threads that read the rows.
        slow_logins: the threads for hashes of older versions.
    """

    def __init__(self, access: Access, logins: Turns, slow_logins: Turns) -> None:
        self._access = access
        self._logins = logins
        self._slow_logins = slow_logins
        self._reading: Future[None] | None = None

    async def find(self, token: str, *, now: bool = False) -> Person | None:
        """Return the person whose token this is, or None.

        Args:
            token: the token as it was sent.
            now: whether its row must have been read after this call.

        Raises:
            LedgerError: when the rows cannot be read.
            Busy: when the same token is being verified by a slow hash.
        """
        if not token:
            return None
        arrived = self._access.clock()
        await self._read(arrived - RECENT_SECONDS)
        if not self._access.is_known(token):  # it may have been created since the last reading
            await self._read(arrived, gap=STRANGER_SECONDS)
        person = await self._verify(token)
        if person is not None and now and self._access.read_at < arrived:
            await self._read(arrived)
            person = await self._verify(token)
        return person

    async def _verify(self, token: str) -> Person | None:
        """Return the person whose token this is, by the rows in memory; a slow hash is computed in
        a thread.
        """
        verify = partial(self._access.person, token)
        if not self._access.has_scrypt_hash(token):
            return verify()
        # Each secret has a turn of its own, so that guesses do not delay the right one.
        turn = fingerprint(token)
        return await asyncio.shield(wrap_future(self._slow_logins.submit(turn, verify)))

    async def _read(self, moment: float, gap: float = -math.inf) -> None:
        """Wait until the rows in memory are as of this moment or later.

        One reading is under way at a time, for all who wait. Each shields it: a request that ends
        meanwhile must not cancel it for the others.

        Args:
            moment: a time of the clock of ``Access``.
            gap: the seconds that must pass between the last reading and a new one.

        Raises:
            LedgerError: when the rows cannot be read.
        """
        while self._access.read_at < moment:
            reading = self._reading
            if reading is None or reading.done():
                wait = self._access.read_at + gap - self._access.clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                    continue
                reading = self._reading = self._logins.submit("tokens", self._access.read)
            await asyncio.shield(wrap_future(reading))
