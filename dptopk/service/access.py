"""Tokens, which are stored as hashes, their roles, and the audit log.

A token is ``dptopk_ID_SECRET``: the id finds the row, the secret is 256 random bits. The row holds
SHA-256 of a salt and the secret: somebody who reads the table cannot ask, since no search finds
such a secret, and a wrong token costs no more time than a right one. Older versions stored scrypt
hashes, which take 40 ms of processor time; each is replaced when its token is first used again.

All valid rows are in memory as they were at one moment. A worker reads them again when that moment
is too long ago (``senders``).
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

# A reader sees and plans; an analyst also asks; an admin also sees what all do.
Role = Literal["reader", "analyst", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

DAYS = 365.0  # the days for which a token is valid unless another number is given
BEGUN = "begun"  # the outcome of a question that is being answered, or whose worker was killed
LINE_BYTES = 200  # the estimated size of a line of the audit log without its question
PAGE_BYTES = 1_000_000  # the most bytes of lines that are sent at a time
_TOKEN = re.compile(r"dptopk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
# The parameters with which earlier versions hashed secrets.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}
_FAST = "sha256:"  # a stored hash begins with it, unless it is one of scrypt


@dataclass(frozen=True)
class Person:
    """The sender of a request.

    Attributes:
        analyst: the analyst's name.
        role: what they may do.
        token: the id of their token, which is no secret.
    """

    analyst: str
    role: Role
    token: str


@dataclass(frozen=True)
class _StoredToken:
    """A valid token as it is stored.

    Attributes:
        person: the person whose token it is.
        salt: random bytes in hexadecimal, hashed together with the secret.
        hash: the hash of salt and secret.
        expires: the time at which it ends, as text that sorts; None: never.
    """

    person: Person
    salt: str
    hash: str
    expires: str | None

    @property
    def has_scrypt_hash(self) -> bool:
        """Return whether the stored hash is one of scrypt, which takes long to compute."""
        return not self.hash.startswith(_FAST)

    def accepts(self, secret: str) -> bool:
        """Return whether this is the token's secret, and the token is valid now."""
        if self.has_scrypt_hash:
            computed = _slow_hash(secret, self.salt)
        else:
            computed = _fast_hash(secret, self.salt)
        is_valid = self.expires is None or self.expires > _now()
        return hmac.compare_digest(computed, self.hash) and is_valid


class Access:
    """Tokens and the audit log in the service's database.

    Args:
        tables: the tables of the service.
        clock: a function that returns seconds that never go back.

    Attributes:
        clock: this function.
        read_at: the moment, by the clock, as of which valid tokens are in memory.
    """

    def __init__(self, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self._tables = tables
        self._stored: dict[str, _StoredToken] = {}  # by id
        self.clock = clock
        self.read_at = -math.inf  # they were never read

    def create(self, analyst: str, role: Role = "analyst", *, days: float = DAYS) -> str:
        """Create a token for an analyst, and return it; only its hash is stored.

        Args:
            analyst: the name of the analyst.
            role: what the token allows.
            days: how long it is valid.

        Raises:
            InvalidParameter: on a name that cannot be one, another role, or days that are not
                positive.
        """
        role = validate.member(ROLES, role=role)
        token, columns = _new_token(analyst_name(analyst), role, days)
        self._tables.change(sa.insert(Tables.tokens).values(columns), durable=True)
        return token

    def rotate(self, analyst: str, *, days: float = DAYS) -> str:
        """Create and return a token with the role of the analyst's latest one; all earlier tokens
        of the analyst end in the same transaction.

        Of two calls at the same time neither ends the other one's new token. If all tokens of the
        analyst are revoked meanwhile, none is created.

        Args:
            analyst: the name of the analyst.
            days: how long the new token is valid.

        Raises:
            InvalidParameter: when the analyst has no token that has not ended, and for days that
                are not positive.
        """
        name = analyst_name(analyst)
        tokens = [row for row in self.people() if row["analyst"] == name and not row["ended"]]
        if not tokens:
            raise InvalidParameter(f"analyst: {analyst!r} has no token")
        token, columns = _new_token(name, tokens[-1]["role"], days)
        table = Tables.tokens
        has_valid_token = sa.exists().where(table.c.analyst == name, table.c.ended.is_(None))
        new_row = sa.select(*map(sa.literal, columns.values())).where(has_valid_token)
        creation = sa.insert(table).from_select(list(columns), new_row)
        is_earlier = table.c.id.in_([row["id"] for row in tokens])
        ending = sa.update(table).where(is_earlier, table.c.ended.is_(None))
        locking = self._tables.lock_statements(table)
        self._tables.change(*locking, creation, ending.values(ended=_now()), durable=True)
        if not self._tables.rows(sa.select(table.c.id).where(table.c.id == columns["id"])):
            raise InvalidParameter(f"analyst: {analyst!r} has no token: they were just revoked")
        return token

    def revoke(self, analyst: str) -> int:
        """End all tokens of an analyst; return how many ended.

        Args:
            analyst: the name of the analyst, in any spelling.

        Raises:
            InvalidParameter: on a name that cannot be one.
        """
        table = Tables.tokens
        belongs = table.c.analyst == analyst_name(analyst)
        is_valid = table.c.ended.is_(None)
        ending = sa.update(table).where(belongs, is_valid)
        locking = self._tables.lock_statements(table)
        return self._tables.change(*locking, ending.values(ended=_now()), durable=True)

    def people(self) -> list[dict[str, Any]]:
        """Return all tokens, oldest first, with the columns id, analyst, role, made, expires and
        ended; hashes are left out.
        """
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
        """Read the valid tokens into memory.

        Raises:
            LedgerError: when they cannot be read now; those of the last reading stay.
        """
        # The clock is read before the rows, so that they are at least as new as ``read_at`` says.
        started_at = self.clock()
        table = Tables.tokens
        valid = table.c.ended.is_(None) & (table.c.expires.is_(None) | (table.c.expires > _now()))
        stored: dict[str, _StoredToken] = {}
        for row in self._tables.rows(sa.select(table).where(valid)):
            person = Person(row.analyst, row.role, row.id)
            stored[row.id] = _StoredToken(person, row.salt, row.hash, row.expires)
        self._stored = stored
        self.read_at = started_at

    def is_known(self, token: str) -> bool:
        """Return whether a token's id was among the valid ones at the last reading."""
        return token_id(token) in self._stored

    def has_scrypt_hash(self, token: str) -> bool:
        """Return whether a token is stored with a hash of scrypt, so that ``person`` takes long."""
        stored = self._stored.get(token_id(token))
        return stored is not None and stored.has_scrypt_hash

    def person(self, token: str) -> Person | None:
        """Return the person whose token this is, as of the last reading; None for a token that is
        not valid.

        A valid token whose stored hash is one of scrypt is stored with a hash of today.
        """
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        ident, secret = match.groups()
        stored = self._stored.get(ident)
        if stored is None or not stored.accepts(secret):
            return None
        if stored.has_scrypt_hash:
            self._replace_hash(stored, secret)
        return stored.person

    def _replace_hash(self, stored: _StoredToken, secret: str) -> None:
        """Replace the scrypt hash of a token by SHA-256, in the database and in memory.

        Args:
            stored: the token as it is stored.
            secret: its secret, which was found to be the right one.
        """
        ident = stored.person.token
        renewed = replace(stored, hash=_fast_hash(secret, stored.salt))
        table = Tables.tokens
        is_unchanged = (table.c.id == ident) & (table.c.hash == stored.hash)
        self._tables.change(sa.update(table).where(is_unchanged).values(hash=renewed.hash))
        if ident in self._stored:
            self._stored[ident] = renewed

    # The audit log

    def line_statement(
        self, analyst: str, action: str, dataset: str, outcome: str, detail: Mapping[str, Any]
    ) -> sa.Insert:
        """Return the statement that writes a line of the audit log, with the parameters of what was
        asked and never data.

        Args:
            analyst: the name of the sender.
            action: what was asked for, such as "topk".
            dataset: the name of the data set.
            outcome: how it ended, or BEGUN.
            detail: the parameters, as JSON can hold them.
        """
        return sa.insert(Tables.audit).values(
            at=_now(),
            analyst=analyst,
            action=action,
            dataset=dataset,
            outcome=outcome,
            detail=canonical_json(dict(detail)),
        )

    def begin_line(
        self, analyst: str, action: str, dataset: str, detail: Mapping[str, Any]
    ) -> tuple[int, int]:
        """Write the line of a question, before anything can be charged for it; return the line's
        number and its size in bytes.

        The outcome is BEGUN, until ``outcome_statement`` is run.

        Args:
            analyst: the name of the sender.
            action: what was asked for, such as "topk".
            dataset: the name of the data set.
            detail: the parameters, as JSON can hold them.

        Raises:
            LedgerError: when nothing can be written now; nothing was.
        """
        line = self.line_statement(analyst, action, dataset, BEGUN, detail)
        size = len(canonical_json(dict(detail))) + LINE_BYTES
        return self._tables.insert(line), size

    def outcome_statement(self, line: int, outcome: str) -> sa.Update:
        """Return the statement that writes the outcome of a question into its line."""
        table = Tables.audit
        return sa.update(table).where(table.c.number == line).values(outcome=outcome)

    def uncharged_bytes(self, analyst: str) -> int:
        """Return how many bytes the audit log holds of an analyst's questions of today (UTC) for
        which nothing was charged.
        """
        return self._tables.value(Tables.logged, _day_and_analyst(analyst))

    def uncharged_statement(self, analyst: str, size: int) -> sa.TextClause:
        """Return the statement that adds a line's ``size`` in bytes to ``uncharged_bytes``."""
        return self._tables.add_statement(Tables.logged, _day_and_analyst(analyst), size)

    def sweep(self, days: float) -> None:
        """Delete lines of the audit log that are older than a number of days, and old counts of
        ``uncharged_bytes``.
        """
        table = Tables.audit
        counts = Tables.logged
        # Two days ago, and not one: the day may change between counting and deleting.
        first_day = _now(-2)[:10]
        self._tables.change(
            sa.delete(table).where(table.c.at < _now(-days)),
            sa.delete(counts).where(counts.c.day_and_analyst < first_day),
        )

    def newest_lines(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return lines of the audit log, newest first.

        Args:
            before: only lines with a smaller number; None: all.
            limit: at most this many lines. They have at most PAGE_BYTES, unless the first one is
                longer.
        """
        table = Tables.audit
        newest_first = table.c.number.desc()
        sizes = sa.select(table.c.number, sa.func.length(table.c.detail))
        sizes = sizes.order_by(newest_first).limit(limit)
        if before is not None:
            sizes = sizes.where(table.c.number < before)
        numbers: list[int] = []
        # Sizes are read first, so that long lines are not read only to be left out.
        free_bytes = PAGE_BYTES
        for number, size in self._tables.rows(sizes):
            free_bytes -= size
            if numbers and free_bytes < 0:
                break
            numbers.append(number)
        if not numbers:
            return []
        is_in_page = table.c.number.between(min(numbers), max(numbers))
        return self._lines(sa.select(table).where(is_in_page).order_by(newest_first))

    def all_lines(self, since: str = "") -> Iterator[dict[str, Any]]:
        """Yield all lines of the audit log from a time on (text such as "2026-11-01"), oldest
        first.
        """
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
        """Return the lines that a query finds, as dictionaries."""
        # SQLAlchemy's public name
        rows = [dict(row._mapping) for row in self._tables.rows(query)]  # noqa: SLF001
        for row in rows:
            # A refused question may contain NaN and infinity, JSON may not.
            row["detail"] = json.loads(row["detail"], parse_constant=lambda _: None)
        return rows


def _new_token(analyst: str, role: Role, days: float) -> tuple[str, dict[str, str]]:
    """Return a new token, valid for a number of days, and the columns of its row, with its hash.

    Args:
        analyst: the analyst's name as the ledger writes it.
        role: what the token allows.
        days: the number of days, above 0.
    """
    expires = _now(validate.positive(days=days))
    ident = secrets.token_hex(6)  # 48 bits, in 12 digits as _TOKEN has them
    secret = secrets.token_urlsafe(32)  # 256 bits, in 43 characters
    salt = secrets.token_hex(16)
    columns = {
        "id": ident,
        "analyst": analyst,
        "role": role,
        "salt": salt,
        "hash": _fast_hash(secret, salt),
        "made": _now(),
        "expires": expires,
    }
    return f"dptopk_{ident}_{secret}", columns


def token_id(token: str) -> str:
    """Return the id in a token, which is no secret; "" if the text is no token."""
    match = _TOKEN.fullmatch(token)
    if match:
        return match[1]
    return ""


def _fast_hash(secret: str, salt: str) -> str:
    """Return the hash that is stored of a secret: "sha256:" and SHA-256 of the salt and the
    secret.
    """
    salted = bytes.fromhex(salt) + secret.encode()
    return _FAST + hashlib.sha256(salted).hexdigest()


def _slow_hash(secret: str, salt: str) -> str:
    """Return the hash that older versions stored of a secret, by scrypt."""
    return hashlib.scrypt(secret.encode(), salt=bytes.fromhex(salt), **_SCRYPT).hex()


def _now(days: float = 0.0) -> str:
    """Return the time (UTC) in a number of days, negative for the past, as text of ISO 8601, whose
    alphabetical order is that of time.
    """
    # A century is more than any token or log lasts, and a date that Python can write.
    offset = timedelta(days=max(-36_500.0, min(days, 36_500.0)))
    return (datetime.now(UTC) + offset).isoformat(timespec="microseconds")


def _day_and_analyst(analyst: str) -> str:
    """Return the key under which an analyst's lines of today are counted, such as
    "2026-11-01 ann".
    """
    return f"{_now()[:10]} {analyst}"
