"""Authentication: tokens, stored as scrypt hashes; roles; and the audit log.

A token is ``dptopk_ID_SECRET``: the id finds the row, the secret is 256 random bits. What is stored is
scrypt(secret, salt): whoever reads the table cannot ask. Once a token was verified, later requests compare a keyed hash
that lives in this process alone. The row is read again for each request that spends, and for others when the last look
is more than VERIFIED_SECONDS seconds old: a revoked token spends nothing from then on, and sees nothing a second later.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import sqlalchemy as sa

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter
from dptopk.ledger.names import analyst_name
from dptopk.service.tables import Tables

Role = Literal["reader", "analyst", "admin"]  # who sees and plans; who also asks; who also sees what all do
ROLES: tuple[Role, ...] = get_args(Role)

DAYS = 365.0  # for which a token holds
VERIFIED_SECONDS = 1.0  # seconds for which a token that was read counts as valid for requests that cost nothing
_TOKEN = re.compile(r"dptopk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}


@dataclass(frozen=True)
class Person:
    """The sender of a request."""

    analyst: str
    role: Role
    token: str  # its id, which is no secret


class Access:
    """Tokens and the audit log in a database.

    Args:
        tables: of the service.
        clock: seconds that never go back.
    """

    def __init__(self, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables = tables
        self._clock = clock
        self._recent: dict[str, tuple[float, bytes, Person]] = {}  # id -> when its row was read, keyed hash, whose
        self._process_key = secrets.token_bytes(32)
        self._verified: dict[str, tuple[bytes, str]] = {}  # id -> keyed hash of the token, stored hash it had

    def create(self, analyst: str, role: Role = "analyst", *, days: float = DAYS) -> str:
        """A new token for an analyst, valid for n days; shown only once, and stored as a hash."""
        role, expires = validate.member(ROLES, role=role), _now(validate.positive(days=days))
        name, ident, secret = analyst_name(analyst), secrets.token_hex(6), secrets.token_urlsafe(32)
        salt = secrets.token_hex(16)
        values = {"id": ident, "analyst": name, "role": role, "salt": salt, "hash": _hashed(secret, salt)}
        row = sa.insert(Tables.tokens).values(made=_now(), expires=expires, **values)
        self._tables.change(row, durable=True)
        return f"dptopk_{ident}_{secret}"

    def rotate(self, analyst: str, *, days: float = DAYS) -> str:
        """A new token of the same role, valid for n days; all earlier ones of the analyst end.

        Raises:
            InvalidParameter: when the analyst has none.
        """
        held = [row for row in self.people() if row["analyst"] == analyst_name(analyst) and not row["ended"]]
        if not held:
            raise InvalidParameter(f"analyst: {analyst!r} has no token")
        token = self.create(analyst, held[-1]["role"], days=days)
        self.revoke(analyst, keep=token.split("_")[1])
        return token

    def revoke(self, analyst: str, *, keep: str = "") -> int:
        """End all tokens of an analyst; how many there were."""
        table = Tables.tokens
        mine = (table.c.analyst == analyst_name(analyst)) & table.c.ended.is_(None) & (table.c.id != keep)
        return self._tables.change(sa.update(table).where(mine).values(ended=_now()), durable=True)

    def people(self) -> list[dict[str, Any]]:
        """All tokens, oldest first: id, analyst, role, made, expires, ended; never a hash."""
        table = Tables.tokens
        columns = (table.c.id, table.c.analyst, table.c.role, table.c.made, table.c.expires, table.c.ended)
        rows = self._tables.rows(sa.select(*columns).order_by(table.c.made))
        return [dict(row._mapping) for row in rows]  # noqa: SLF001

    def person(self, token: str) -> Person | None:
        """Whose token this is, or None."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        ident, secret = match.groups()
        table = Tables.tokens
        valid = table.c.ended.is_(None) & (table.c.expires.is_(None) | (table.c.expires > _now()))
        rows = self._tables.rows(sa.select(table).where((table.c.id == ident) & valid))
        if not rows or not self._right(ident, secret, rows[0].salt, rows[0].hash):
            self._recent.pop(ident, None)
            return None
        person = Person(rows[0].analyst, rows[0].role, ident)
        self._recent[ident] = (self._clock(), self._quick(secret), person)
        return person

    def recent(self, token: str) -> Person | None:
        """Whose token this is, if its row was read a moment ago; nothing is read now."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        read, quick, person = self._recent.get(match[1], (-math.inf, b"", None))
        fresh = self._clock() - read < VERIFIED_SECONDS
        return person if fresh and hmac.compare_digest(quick, self._quick(match[2])) else None

    def verified(self, token: str) -> bool:
        """Whether this process has already verified the secret of a token, so that ``person`` is fast."""
        match = _TOKEN.fullmatch(token)
        known = None if match is None else self._verified.get(match[1])
        return match is not None and known is not None and hmac.compare_digest(known[0], self._quick(match[2]))

    def _quick(self, secret: str) -> bytes:
        return hmac.digest(self._process_key, secret.encode(), "sha256")

    def _right(self, ident: str, secret: str, salt: str, stored: str) -> bool:
        quick = self._quick(secret)
        known = self._verified.get(ident)
        if known is not None and known[1] == stored and hmac.compare_digest(known[0], quick):
            return True
        right = hmac.compare_digest(_hashed(secret, salt), stored)
        if right:
            self._verified[ident] = (quick, stored)
        return right

    # What was done

    def note(self, analyst: str, action: str, dataset: str, outcome: str, detail: Mapping[str, Any]) -> sa.Insert:
        """The statement that writes a line of the audit log: parameters, never data."""
        values = {"at": _now(), "analyst": analyst, "action": action, "dataset": dataset, "outcome": outcome}
        return sa.insert(Tables.audit).values(detail=canonical_json(dict(detail)), **values)

    def notes(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Lines of the audit log, newest first."""
        table = Tables.audit
        query = sa.select(table).order_by(table.c.number.desc()).limit(limit)
        query = query if before is None else query.where(table.c.number < before)
        # A refused question may contain NaN and infinity, JSON may not.
        rows = [dict(row._mapping) for row in self._tables.rows(query)]  # noqa: SLF001 - SQLAlchemy's public name
        return [row | {"detail": json.loads(row["detail"], parse_constant=lambda _: None)} for row in rows]


def token_id(token: str) -> str:
    """The id in a token, which is no secret; empty where there is none."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else ""


def _hashed(secret: str, salt: str) -> str:
    return hashlib.scrypt(secret.encode(), salt=bytes.fromhex(salt), **_SCRYPT).hex()


def _now(days: float = 0.0) -> str:
    """The time n days from now, as text that sorts."""
    return (datetime.now(UTC) + timedelta(days=min(days, 36_500.0))).isoformat(timespec="microseconds")
