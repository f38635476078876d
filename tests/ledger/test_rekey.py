"""Another key for a chain: what was charged and answered stays, the old secret opens nothing
more.
"""

from __future__ import annotations

import sqlite3

import pytest
from typer.testing import CliRunner

from dptopk.cli.commands import app
from dptopk.costs import Budget, Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.journal import CHECKPOINT_EVERY
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite import SQLite
from dptopk.ledger.transaction import Transaction

SMALL = Charge({PureDP(0.001): 1})


@pytest.fixture
def path(tmp_path):
    """A keyed ledger with a checkpoint, an answer and a charge under a key of the analyst's."""
    made = tmp_path / "ledger.db"
    with Ledger(made, key="old") as ledger:
        ledger.create_dataset("data", budget=Budget(1.0, 0.0))
        receipt = ledger.charge("data", "ann", SMALL, query="asked", once="the key")
        ledger.finalize(receipt, SMALL, answer={"labels": ["ä"]})
        for _ in range(CHECKPOINT_EVERY):
            ledger.charge("data", "bob", SMALL)
    return made


@pytest.mark.slow
def test_everything_stays_but_the_key(path):
    with Ledger(path, key="old") as ledger, Ledger(path, key="old") as other:
        before, spent = ledger.head(), ledger.spent("data")
        ledger.rekey("new")
        assert ledger.verify()
        assert ledger.head()["seq"] == before["seq"] + 1
        with pytest.raises(LedgerError):  # it has the old secret
            other.charge("data", "ann", SMALL)
        assert [entry.body for entry in ledger.entries() if entry.kind == "rekey"] == [
            {"before": before}
        ]
        assert (
            ledger.charge("data", "ann", SMALL, once="the key").seq == ledger.history("data")[0].seq
        )
    with pytest.raises(LedgerError, match="wrong hash"):
        Ledger(path, key="old")
    with Ledger(path, key="new") as again:
        assert again.spent("data") == spent
        assert again.reuse("data", "bob", "asked") == {"labels": ["ä"]}
        again.charge("data", "ann", Charge({PureDP(0.7): 1}))
        with pytest.raises(BudgetExceeded):
            again.charge("data", "ann", Charge({PureDP(0.7): 1}))
        assert again.inspect().problems == again.inspect().warnings == ()
        assert not again.verify(head=before)
    with sqlite3.connect(path) as file, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        file.execute("UPDATE entries SET at = '' WHERE seq = 1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "at"), [(Transaction, "rehash"), (Transaction, "append"), (SQLite, "commit")]
)
def test_an_error_on_the_way_leaves_the_old_key(path, monkeypatch, where, at):
    real = getattr(where, at)

    def failing(self, *arguments, **options):
        if at != "commit":
            real(self, *arguments, **options)
        raise KeyboardInterrupt

    ledger = Ledger(path, key="old")
    with monkeypatch.context() as broken:
        broken.setattr(where, at, failing)
        with pytest.raises(KeyboardInterrupt):
            ledger.rekey("new")
    ledger.charge("data", "ann", SMALL)
    assert ledger.verify()
    with pytest.raises(LedgerError):
        Ledger(path, key="new")


@pytest.mark.slow
def test_a_log_that_is_not_whole_gets_no_new_hashes(path):
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER entries_no_update")
        file.execute("UPDATE entries SET analyst = 'eve' WHERE seq = 3")
    ledger = Ledger(path, key="old")  # opens from the checkpoint after it
    with pytest.raises(LedgerError, match="entry 3 has a wrong hash"):
        ledger.rekey("new")
    assert not ledger.verify()


@pytest.mark.slow
def test_keys_that_are_none(path, tmp_path):
    with Ledger(path, key="old") as ledger:
        for key in ("old", ""):
            with pytest.raises(InvalidParameter, match="key"):
                ledger.rekey(key)
    with (
        Ledger(tmp_path / "plain.db") as plain,
        pytest.raises(InvalidParameter, match="without a key"),
    ):
        plain.rekey("new")


@pytest.mark.slow
def test_on_the_command_line_with_a_head_file(path, tmp_path):
    old, new, head = tmp_path / "old.key", tmp_path / "new.key", tmp_path / "head.json"
    for file, secret in ((old, "old"), (new, "new")):
        file.write_text(secret, encoding="utf-8")
        file.chmod(0o600)

    def run(*arguments):
        return CliRunner().invoke(app, ["ledger", *map(str, arguments)])

    Ledger.attach_witness(path, head, key="old", reason="from now on")
    changed = run("rekey", path, "--key-file", old, "--new-key-file", new, "--head-file", head)
    assert changed.exit_code == 0, changed.output
    assert "export a new one" in " ".join(changed.output.split())
    assert run("verify", path, "--key-file", new, "--head", head).exit_code == 0
    assert run("verify", path, "--key-file", old).exit_code == 1
