"""The guided way in, in a real process at a real terminal; and never in a pipe."""

from __future__ import annotations

import gzip
import io
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
from rich.console import Console

from dptopk.cli import guide
from dptopk.cli.guide import ROWS, _ask_columns
from dptopk.datasets import columns_of
from dptopk.planning.request import number_of_labels

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENV = {"COLUMNS": "200", "LINES": "50", "TERM": "dumb", "NO_COLOR": "1"}
DEADLINE = 60.0
# A process of a background job may have been started without the handler of interrupts.
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from "
    "dptopk.cli import main; main()"
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "counts.csv").write_text(
        "word,count\na,9000\nb,8000\nsecret4711,7\n", encoding="utf-8"
    )
    events = "".join(f"u{i},i{i % 3}\n" for i in range(6000))
    (tmp_path / "events.csv").write_text("member,article\n" + events, encoding="utf-8")
    return tmp_path


class Terminal:
    """A dptopk process at a terminal of its own."""

    def __init__(self, folder, *arguments):
        pty = pytest.importorskip("pty")
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", MAIN, *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, **ENV},
            start_new_session=True,
        )
        os.close(theirs)
        self.file, self.seen = ours, ""

    def until(self, *texts):
        """Read until one of the texts is there, or the end."""
        end = time.monotonic() + DEADLINE
        start = len(self.seen)
        while not any(text in self.seen[start:] for text in texts):
            assert time.monotonic() < end, self.seen
            if not select.select([self.file], [], [], 1.0)[0]:
                continue
            try:
                more = os.read(self.file, 65536)
            except OSError:  # the terminal's other end is closed
                break
            if not more:
                break
            self.seen += ESCAPES.sub("", more.decode(errors="replace"))
        return self.seen[start:]

    def say(self, answer):
        os.write(self.file, f"{answer}\n".encode())

    def end(self):
        self.until("\0")
        os.close(self.file)
        return self.process.wait(DEADLINE)


def talk(folder, file, answers):
    """Answer what is asked, in turn; whatever else is asked is left at its default."""
    terminal = Terminal(folder, "topk", file)
    while (
        text := terminal.until("): ", "]: ", "without questions")
    ) and "without questions" not in text:
        question = text.splitlines()[-1]
        terminal.say(next((answer for words, answer in answers.items() if words in question), ""))
    return terminal.end(), terminal.seen


def same(folder, seen):
    """What the command that was printed answers, with a seed of its own."""
    command = shlex.split(seen.split("without questions:")[1].strip().splitlines()[0])
    assert command[:2] == ["dptopk", "topk"]
    python = [sys.executable, "-m", "dptopk", *command[1:], "--format", "csv"]
    return command, subprocess.run(
        python, capture_output=True, text=True, cwd=folder, timeout=DEADLINE, check=True
    ).stdout


def test_a_k_that_no_plan_takes_is_asked_for_again(monkeypatch):
    answers = iter(["2000000", "0", "7"])
    monkeypatch.setattr(guide.Prompt, "ask", lambda *_, **__: next(answers))
    console = Console(record=True, file=io.StringIO())
    assert guide._ask(console, "How many", "10", lambda text: number_of_labels(int(text))) == 7
    assert "k must be at most 1000000, got 2000000" in console.export_text()


@pytest.mark.slow
def test_a_table_of_counts_is_asked_about_and_answered(files):
    code, seen = talk(
        files,
        "counts.csv",
        {"labels do you want": "2", "one person be counted": "1", "people are in": "20000"},
    )
    assert code == 0, seen
    for told in (
        "columns word, count",
        "2.7 times",
        "probability that this guarantee fails",
        "(1, 5e-06)-differential",
    ):
        assert told in seen
    assert "of the noise on a count is within" in seen
    assert "9000" not in seen.split("Ask this, once")[0]
    assert "4711" not in seen
    command, rows = same(files, seen)
    wanted = (
        "--label-col word --count-col count --k 2 --labels-per-user 1 --epsilon 1 --delta 5e-06"
    )
    assert " ".join(command[3:]) == wanted
    assert [row.split(",")[1] for row in rows.splitlines()] == ["label", "a", "b"]


@pytest.mark.slow
def test_events_are_asked_about_and_what_a_cap_leaves_out_is_said(files):
    code, seen = talk(
        files, "events.csv", {"labels do you want": "3", "Which column holds the labels": "article"}
    )
    assert code == 0, seen
    assert "the cap can hide a label, and makes no count smaller" in " ".join(seen.split())
    command, rows = same(files, seen)
    assert "--user-col member --item-col article" in " ".join(command)
    assert len(rows.splitlines()) == 4


@pytest.mark.slow
def test_wrong_answers_are_asked_again_and_no_is_no(files):
    terminal = Terminal(files, "topk", "counts.csv")
    asked = []
    answers = {
        "labels do you want": ["0", "many", "2000000", "2"],
        "Ask this": ["n"],
        "ε (": ["-1", "1"],
    }
    while terminal.process.poll() is None:
        text = terminal.until("): ", "]: ", "nothing was spent")
        if "nothing was spent" in text or not text:
            break
        question = text.splitlines()[-1]
        asked.append(question)
        own = next((own for words, own in answers.items() if words in question), None)
        terminal.say(own.pop(0) if own else "")
    assert terminal.end() == 0
    assert "k must be at least 1, got 0" in terminal.seen
    assert "That is not a number." in terminal.seen
    assert "epsilon must be greater than 0" in terminal.seen
    assert "noisy count" not in terminal.seen


@pytest.mark.slow
def test_an_interrupt_at_a_question_ends_with_130(files):
    terminal = Terminal(files, "topk", "counts.csv")
    terminal.until("]: ", "): ")
    for _ in range(10):  # one that arrives just before the read begins is seen when the read ends
        os.killpg(terminal.process.pid, signal.SIGINT)
        try:
            terminal.process.wait(3)
            break
        except subprocess.TimeoutExpired:
            continue
    assert terminal.end() == 130
    assert "Traceback" not in terminal.seen


@pytest.mark.slow
def test_in_a_pipe_nothing_is_asked(files):
    command = [sys.executable, "-m", "dptopk", "topk", "counts.csv"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        input="1\n" * 9,
        cwd=files,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 2
    assert "'--k'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "is_text"),
    [("x.csv", True), ("X.CSV", True), ("x.Tsv.gz", True), ("x.csv.parquet", False)],
)
def test_how_a_file_is_read_is_told_of_text_files_alone(tmp_path, monkeypatch, name, is_text):
    """The names of its columns are read by the last ending, in either case, without .gz."""
    file = tmp_path / name
    header = b"word,count\n"
    file.write_bytes(gzip.compress(header) if name.endswith(".gz") else header)
    told = io.StringIO()
    monkeypatch.setattr(guide, "Console", lambda **_: Console(file=told))
    monkeypatch.setattr("dptopk.datasets.columns_of", lambda _: ["word", "count"])
    monkeypatch.setattr(guide, "_ask_kind_of_row", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        guide.ask_for_arguments(str(file), [])
    assert ("read with cells between commas" in told.getvalue()) == is_text


def test_what_a_row_is_in_plain_words():
    assert list(ROWS) == ["1", "2", "3"]


def test_columns_whose_names_have_spaces_around_them_or_are_missing(tmp_path, monkeypatch):
    path = tmp_path / "odd.csv"
    path.write_text('," user"," page "\n0,ann,a\n', encoding="ascii")
    assert columns_of(path) == [" user", " page "]
    monkeypatch.setattr("builtins.input", lambda: " page ")
    chosen = _ask_columns("2", columns_of(path), Console(quiet=True))
    assert chosen == {"--item-col": " page "}
