"""Tokens, which are stored as hashes, their roles, and the audit log.

A token is ``dptopk_ID_SECRET``: the id finds the row, the secret is 256 random bits. What is stored
is SHA-256 of a salt and the secret: whoever reads the table cannot ask, since no such secret can be
searched for, and a wrong token costs no more than a right one. Older versions stored scrypt hashes,
which take 40 ms of processor time; each is replaced when its token is first seen again.

All valid rows are held in memory as they were at one moment. A worker reads them again where that
moment is too long ago (``senders``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import sqlalchemy as sa

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter
from dptopk.ledger.names import analyst_name
from dptopk.service.tables import Tables

Role = Literal[
    "reader", "analyst", "admin"
]  # who sees and plans; who also asks; who also sees what all do
ROLES: tuple[Role, ...] = get_args(Role)

DAYS = 365.0  # for which a token holds
BEGUN = "begun"  # the outcome of a question while it is being answered, or whose worker was killed
LINE_BYTES = 200  # of a line of the audit log beside its question
PAGE_BYTES = 1_000_000  # of lines that are shown at a time
_TOKEN = re.compile(r"dptopk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}
_FAST = "sha256:"  # what a stored hash begins with, unless it is one of scrypt


@dataclass(frozen=True)
class Person:
    """The sender of a request."""

    analyst: str
    role: Role
    token: str  # its id, which is no secret


@dataclass(frozen=True)
class _Stored:
    """A valid token as it is stored."""

    person: Person
    salt: str
    hash: str
    expires: str | None

    @property
    def slow(self) -> bool:
        """Whether its hash takes long."""
        return not self.hash.startswith(_FAST)

    def fits(self, secret: str) -> bool:
        """Whether this is its secret, today."""
        hashed = (_slowly_hashed if self.slow else _hashed)(secret, self.salt)
        valid = self.expires is None or self.expires > _now()
        return hmac.compare_digest(hashed, self.hash) and valid


class Access:
    """Tokens and the audit log in a database.

    Args:
        tables: of the service.
        clock: seconds that never go back.
    """

    def __init__(self, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables = tables
        self._stored: dict[str, _Stored] = {}  # by id
        self.clock = clock
        self.read_at = -math.inf  # the moment as of which the rows are held

    def create(self, analyst: str, role: Role = "analyst", *, days: float = DAYS) -> str:
        """A new token for an analyst, valid for n days; shown only once, and stored as a hash."""
        role = validate.member(ROLES, role=role)
        expires = _now(validate.positive(days=days))
        name = analyst_name(analyst)
        ident = secrets.token_hex(6)
        secret = secrets.token_urlsafe(32)
        salt = secrets.token_hex(16)
        values = {
            "id": ident,
            "analyst": name,
            "role": role,
            "salt": salt,
            "hash": _hashed(secret, salt),
        }
        row = sa.insert(Tables.tokens).values(made=_now(), expires=expires, **values)
        self._tables.change(row, durable=True)
        return f"dptopk_{ident}_{secret}"

    def rotate(self, analyst: str, *, days: float = DAYS) -> str:
        """A new token of the same role, valid for n days; all earlier ones of the analyst end.

        Raises:
            InvalidParameter: when the analyst has none.
        """
        held = [
            row
            for row in self.people()
            if row["analyst"] == analyst_name(analyst) and not row["ended"]
        ]
        if not held:
            raise InvalidParameter(f"analyst: {analyst!r} has no token")
        token = self.create(analyst, held[-1]["role"], days=days)
        self.revoke(analyst, keep=token.split("_")[1])
        return token

    def revoke(self, analyst: str, *, keep: str = "") -> int:
        """End all tokens of an analyst; how many there were."""
        table = Tables.tokens
        mine = (
            (table.c.analyst == analyst_name(analyst))
            & table.c.ended.is_(None)
            & (table.c.id != keep)
        )
        ended = sa.update(table).where(mine).values(ended=_now())
        return self._tables.change(ended, durable=True)

    def people(self) -> list[dict[str, Any]]:
        """All tokens, oldest first: id, analyst, role, made, expires, ended; never a hash."""
        table = Tables.tokens
        columns = (
            table.c.id,
            table.c.analyst,
            table.c.role,
            table.c.made,
            table.c.expires,
            table.c.ended,
        )
        rows = self._tables.rows(sa.select(*columns).order_by(table.c.made))
        return [dict(row._mapping) for row in rows]  # noqa: SLF001

    def read(self) -> None:
        """Hold the valid rows as of now."""
        began = self.clock()
        table = Tables.tokens
        valid = table.c.ended.is_(None) & (table.c.expires.is_(None) | (table.c.expires > _now()))
        stored: dict[str, _Stored] = {}
        for row in self._tables.rows(sa.select(table).where(valid)):
            person = Person(row.analyst, row.role, row.id)
            stored[row.id] = _Stored(person, row.salt, row.hash, row.expires)
        self._stored = stored
        self.read_at = began

    def held(self, token: str) -> bool:
        """Whether there is a row for the id of a token, as of the last reading."""
        return token_id(token) in self._stored

    def slow(self, token: str) -> bool:
        """Whether ``person`` takes long for a token."""
        stored = self._stored.get(token_id(token))
        return stored is not None and stored.slow

    def person(self, token: str) -> Person | None:
        """Whose token this is, or None, as of the last reading."""
        match = _TOKEN.fullmatch(token)
        stored = None if match is None else self._stored.get(match[1])
        if match is None or stored is None or not stored.fits(match[2]):
            return None
        if stored.slow:
            self._store_fast(stored, match[2])
        return stored.person

    def _store_fast(self, stored: _Stored, secret: str) -> None:
        """Replace a hash of scrypt by a fast one."""
        ident = stored.person.token
        fast = replace(stored, hash=_hashed(secret, stored.salt))
        table = Tables.tokens
        same = (table.c.id == ident) & (table.c.hash == stored.hash)
        replaced = sa.update(table).where(same).values(hash=fast.hash)
        self._tables.change(replaced)
        if ident in self._stored:
            self._stored[ident] = fast

    # What was done

    def note(
        self, analyst: str, action: str, dataset: str, outcome: str, detail: Mapping[str, Any]
    ) -> sa.Insert:
        """The statement that writes a line of the audit log: parameters, never data."""
        return sa.insert(Tables.audit).values(
            at=_now(),
            analyst=analyst,
            action=action,
            dataset=dataset,
            outcome=outcome,
            detail=canonical_json(dict(detail)),
        )

    def begun(
        self, analyst: str, action: str, dataset: str, detail: Mapping[str, Any]
    ) -> tuple[int, int]:
        """Write the line of a question before anything can be charged for it; the number of the
        line, and how many bytes it takes.
        """
        line = self.note(analyst, action, dataset, BEGUN, detail)
        size = len(canonical_json(dict(detail))) + LINE_BYTES
        return self._tables.insert(line), size

    def ended(self, line: int, outcome: str) -> sa.Update:
        """The statement that writes what came of the question of a line."""
        table = Tables.audit
        here = table.c.number == line
        return sa.update(table).where(here).values(outcome=outcome)

    def logged(self, analyst: str) -> int:
        """Return how many bytes the lines of an analyst's questions of today take for which nothing
        was charged.
        """
        return self._tables.value(Tables.logged, _today(analyst))

    def add_logged(self, analyst: str, size: int) -> sa.TextClause:
        """The statement that counts such a line."""
        return self._tables.add(Tables.logged, _today(analyst), size)

    def sweep(self, days: float) -> None:
        """Delete lines of the audit log that are older than a number of days."""
        table = Tables.audit
        counted = Tables.logged
        self._tables.change(
            sa.delete(table).where(table.c.at < _now(-days)),
            sa.delete(counted).where(counted.c.day_and_analyst < _now(-2)[:10]),
        )

    def notes(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Lines of the audit log, newest first: at most a number, and PAGE_BYTES of them unless the
        first one is longer.
        """
        table = Tables.audit
        sizes = sa.select(table.c.number, sa.func.length(table.c.detail))
        newest = table.c.number.desc()
        sizes = sizes.order_by(newest).limit(limit)
        if before is not None:
            sizes = sizes.where(table.c.number < before)
        numbers: list[int] = []
        left = PAGE_BYTES
        for number, size in self._tables.rows(sizes):
            left -= size
            if numbers and left < 0:
                break
            numbers.append(number)
        wanted = table.c.number.between(min(numbers, default=0), max(numbers, default=0))
        return self._lines(sa.select(table).where(wanted).order_by(newest))

    def lines(self, since: str = "") -> Iterator[dict[str, Any]]:
        """All lines of the audit log from a time on, oldest first."""
        table = Tables.audit
        last = 0
        while True:
            query = sa.select(table).where((table.c.number > last) & (table.c.at >= since))
            page = self._lines(query.order_by(table.c.number).limit(100))
            yield from page
            if not page:
                return
            last = page[-1]["number"]

    def _lines(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        # SQLAlchemy's public name
        rows = [dict(row._mapping) for row in self._tables.rows(query)]  # noqa: SLF001
        for row in rows:
            # A refused question may contain NaN and infinity, JSON may not.
            row["detail"] = json.loads(row["detail"], parse_constant=lambda _: None)
        return rows


def token_id(token: str) -> str:
    """The id in a token, which is no secret; empty where there is none."""
    match = _TOKEN.fullmatch(token)
    if match:
        return match[1]
    return ""


def _hashed(secret: str, salt: str) -> str:
    salted = bytes.fromhex(salt) + secret.encode()
    return _FAST + hashlib.sha256(salted).hexdigest()


def _slowly_hashed(secret: str, salt: str) -> str:
    return hashlib.scrypt(secret.encode(), salt=bytes.fromhex(salt), **_SCRYPT).hex()


def _now(days: float = 0.0) -> str:
    """The time n days from now, as text that sorts."""
    away = timedelta(days=max(-36_500.0, min(days, 36_500.0)))
    return (datetime.now(UTC) + away).isoformat(timespec="microseconds")


def _today(analyst: str) -> str:
    return f"{_now()[:10]} {analyst}"
