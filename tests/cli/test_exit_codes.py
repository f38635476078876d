"""Exit codes are as docs/cli.md says, for every command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.cli.shell import EXIT_CODES, INTERRUPTED

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
EPS = "--epsilon 1 --delta 1e-6"
LEDGER = "topk c.csv --k 1 --labels-per-user 1 --ledger l.db --dataset d --analyst ann"
CHARGE = "'3*BR(0.1)' --delta 1e-6"
# Of every command: what it exits with, in the order given, on the files of the fixture.
LINES = [
    ("--version", 0),
    ("--help", 0),
    ("ledger init l.db --dataset d --epsilon 1 --delta 1e-6 --labels-per-user 1", 0),
    ("ledger init l.db --dataset d --epsilon 1 --delta 1e-6", 2),
    ("ledger init missing/l.db --dataset d --epsilon 1 --delta 1e-6", 4),
    (f"topk c.csv --k 1 --labels-per-user 1 {EPS}", 0),
    (f"topk c.csv --k 0 {EPS}", 2),
    (f"topk missing.csv --k 1 {EPS}", 2),
    (f"{LEDGER} --epsilon 0.6", 0),
    (f"{LEDGER} --epsilon 0.6", 3),
    (f"{LEDGER} --epsilon 0.6 --reuse", 0),
    (f"topk c.csv --k 1 {EPS} --ledger missing.db --dataset d --analyst ann", 4),
    (f"topk c.csv --k 1 {EPS} --ledger c.csv --dataset d --analyst ann", 4),
    (f"plan --k 3 --labels-per-user 1 {EPS}", 0),
    (f"plan --k x {EPS}", 2),
    (f"compose {CHARGE}", 0),
    ("compose 'XX(0.1)' --delta 1e-6", 2),
    (f"certify {CHARGE} --out c.json", 0),
    (f"certify {CHARGE} --out missing/c.json", 2),
    ("budget plan.toml", 0),
    ("budget missing.toml", 2),
    ("datasets macbeth words.csv", 0),
    ("datasets macbeth missing/words.csv", 2),
    ("datasets make events.parquet --events 100 --users 10 --items 5", 0),
    ("datasets make events.csv", 2),
    ("refresh s.store e.csv --data-version 1 --user-col user --item-col item", 0),
    ("refresh s.store missing.csv --data-version 2", 2),
    ("events-sql --dialect trino --table t --user-col u --item-col i", 0),
    ("events-sql --dialect mysql --table t --user-col u --item-col i", 2),
    ("reproduce", 0),
    ("reproduce nope", 2),
    ("audit nope --epsilon 1", 2),
    ("attest 'KnownLaplace(epsilon=4.0)' --known-domain --labels 1", 0),
    ("attest 'KnownLaplace(epsilon=4.0)' --known-domain --labels 1 --claim 'DP(3)'", 1),
    ("attest KnownLaplace", 2),
    ("ledger statement l.db --dataset d", 0),
    ("ledger statement l.db --dataset d --about x", 2),
    ("serve missing.toml --check", 1),
    ("serve", 2),
    ("ledger show l.db", 0),
    ("ledger show missing.db", 4),
    ("ledger verify l.db", 0),
    ("ledger verify c.csv", 1),
    ("ledger export l.db --head", 0),
    ("ledger export l.db --out l.db", 2),
    ("ledger backup l.db --out copy.db", 0),
    ("ledger backup l.db --out copy.db", 4),
    ("ledger limit l.db --dataset d --analyst bob --epsilon 0.1 --delta 1e-7", 0),
    ("ledger limit l.db --dataset nope --analyst bob --epsilon 0.1 --delta 1e-7", 2),
    ("ledger set-version l.db --dataset d --version 2", 0),
    ("ledger set-version l.db --dataset nope --version 2", 2),
    ("ledger renew l.db --dataset d --epsilon 1 --delta 1e-6 --reason 'a new year'", 0),
    ("ledger renew l.db --dataset d --epsilon 1 --delta 1e-6", 2),
    ("ledger accept-restore l.db --reason x", 2),
    ("ledger rekey l.db --key-file missing --new-key-file missing", 2),
    ("ledger analyst list missing.toml", 2),
]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path
    (made / "c.csv").write_text("label,count\na,9000\nb,8000\n", encoding="utf-8")
    (made / "e.csv").write_text("user,item\nu1,a\nu2,a\n", encoding="utf-8")
    (made / "plan.toml").write_text(
        'epsilon = 1\ndelta = 1e-6\n[[query]]\nname = "a"\nk = 3\n', encoding="utf-8"
    )
    return made


@pytest.mark.slow
def test_every_command_exits_with_what_is_documented(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for line, code in LINES:
        result = RUNNER.invoke(app, shlex.split(line))
        assert result.exit_code == code, (line, result.output)
        assert code in documented()


def documented():
    """The codes of docs/cli.md."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    return {
        int(code)
        for code in re.findall(r"^\| (\d+) \|", text.split("## Exit codes")[1], re.MULTILINE)
    }


def test_the_table_has_every_command_and_every_code():
    names = {
        command.name or command.callback.__name__.replace("_", "-")
        for command in app.registered_commands
    }
    used = {shlex.split(line)[0] for line, _ in LINES}
    assert {name.removesuffix("-command") for name in names} - used <= {"demo"}
    assert documented() == {0, 1, 2, INTERRUPTED, *EXIT_CODES.values()}
