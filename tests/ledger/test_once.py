"""A charge under a key is made once, whoever asks again, and its answer can be found."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace

import pytest

from dptopk._internal.json_text import canonical_json
from dptopk.costs import Budget, Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.entries import GENESIS
from dptopk.ledger.ledger import Ledger

CHARGE = Charge({PureDP(0.3): 2})


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.create_dataset("articles", budget=Budget(1.0, 0.0))
        yield made


def test_a_key_is_charged_once(tmp_path, ledger):
    first = ledger.charge("articles", "ann", CHARGE, once="key", mechanism={"k": 3})
    with Ledger(tmp_path / "ledger.db") as other:
        assert other.charge("articles", "Ann", Charge({PureDP(0.1): 1}), once="key") == first
    assert ledger.spent("articles") == CHARGE
    with pytest.raises(BudgetExceeded):  # another analyst's key is another charge
        ledger.charge("articles", "bob", CHARGE, once="key")
    with pytest.raises(InvalidParameter, match="once"):
        ledger.charge("articles", "ann", CHARGE, once=7)
    assert ledger.verify()


def test_what_became_of_it(ledger):
    assert ledger.asked("articles", "ann", "key") is None
    assert ledger.asked("articles", "ann", "") is None
    receipt = ledger.charge("articles", "ann", CHARGE, once="key", mechanism={"k": 3})
    open_ = ledger.asked("articles", "ann", "key")
    assert (open_.seq, open_.charge, open_.mechanism, open_.released) == (
        receipt.seq,
        CHARGE,
        {"k": 3},
        False,
    )
    assert ledger.answer(open_) is None
    ledger.finalize(receipt, Charge({PureDP(0.3): 1}), answer={"rows": [1]})
    done = ledger.asked("articles", "ann", "key")
    assert done.released
    assert ledger.answer(done) == {"rows": [1]}
    with pytest.raises(InvalidParameter, match="already settled"):
        ledger.finalize(ledger.charge("articles", "ann", CHARGE, once="key"), CHARGE)


def test_a_forged_answer_is_no_answer(tmp_path, ledger):
    ledger.finalize(
        ledger.charge("articles", "ann", CHARGE, once="key"), CHARGE, answer={"rows": [1]}
    )
    done = ledger.asked("articles", "ann", "key")
    for other in (replace(done, answer=done.answer + 1), replace(done, seq=done.seq + 100)):
        with pytest.raises(LedgerError, match="is not the answer"):
            ledger.answer(other)
    raw = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    raw.execute("DROP TRIGGER entries_no_update")
    raw.execute("UPDATE entries SET body = replace(body, '[1]', '[2]') WHERE kind = 'release'")
    raw.close()
    with pytest.raises(LedgerError, match="wrong hash"):
        ledger.answer(done)


def test_a_key_of_one_segment_pays_for_no_other(tmp_path):
    with Ledger(tmp_path / "segments.db") as ledger:
        ledger.create_dataset("d", budget=Budget(1.0, 0.0), segments={"region": ["eu", "us"]})
        options = {"version": "1", "once": "key"}
        first = ledger.charge("d", "ann", CHARGE, segments=["eu"], **options)
        assert ledger.charge("d", "ann", CHARGE, segments=["eu"], **options) == first
        for segments in (["us"], ["eu", "us"], None):
            with pytest.raises(InvalidParameter, match="once: this key was charged for other"):
                ledger.charge("d", "ann", CHARGE, segments=segments, **options)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("charge", "query", None),
        ("charge", "stated", [0.5]),
        ("release", "answer", None),
        ("release", "answer", 0),
        ("release", "used", None),
    ],
)
def test_an_entry_that_nobody_could_have_written_is_found(tmp_path, kind, field, value):
    """A chain without a key can be forged; the history of such a ledger was a traceback."""
    path = tmp_path / "forged.db"
    with Ledger(path) as ledger:
        ledger.create_dataset("d", budget=Budget(1.0, 0.0))
        receipt = ledger.charge("d", "ann", CHARGE, stated=Budget(0.5, 0.0))
        ledger.finalize(receipt, CHARGE, answer={"rows": [1]})
        entries = list(ledger.entries())
    previous = GENESIS
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER entries_no_update")
        for entry in entries:
            body = dict(entry.body)
            if entry.kind == kind:
                body[field] = value
                if value is None:
                    del body[field]
            unhashed = replace(entry, body=body, previous=previous)
            row = (canonical_json(body), previous, unhashed.chain_hash(None), entry.seq)
            raw.execute("UPDATE entries SET body = ?, previous = ?, hash = ? WHERE seq = ?", row)
            previous = unhashed.chain_hash(None)
    (problem,) = Ledger.inspect_file(path).problems
    assert "could never have been written" in problem
    with pytest.raises(LedgerError, match="could never have been written"):
        Ledger(path, read_only=True)
