"""Real processes on one stream: killed at every step of creating it and of answering a day, and
asking together.
"""

from __future__ import annotations

import json
import os
import signal
import warnings

import pytest

from dptopk import Histogram, Ledger, Sensitivity, Session
from dptopk.ledger.ledger import Ledger as LedgerClass
from dptopk.ledger.sqlite import SQLite
from dptopk.mechanisms import ContinualTopK
from dptopk.mechanisms.stream_state import Stream
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_file import StreamFile, Turn

ONE = Sensitivity(l0=1)
MECHANISM = ContinualTopK(k=2, days=4, sigma=5.0, delta=1e-6)


def day(**counts):
    return Histogram(counts, sensitivity=ONE)


def opened(folder):
    ledger = Ledger(folder / "ledger.db")
    session = Session(day(), ledger=ledger, dataset="sales", analyst="ann", unit="user-day")
    return ledger, session.stream("daily", MECHANISM, path=folder / "sales.stream")


def in_child(work):
    """Fork; the child does the work and ends without any clean-up. Its process number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that belong to numpy
        child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(1)


def killed_at(place, *, after, work):
    """Do the work in a process that gets SIGKILL before or after the method at ``place`` runs for
    the first time.
    """
    owner, name = place
    method = getattr(owner, name)

    def dies(*arguments, **options):
        if after:
            method(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    def child():
        setattr(owner, name, dies)
        work()

    _, status = os.waitpid(in_child(child), 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.fixture
def folder(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create_dataset(
            "sales", registered=MECHANISM.charge(ONE), delta=1e-5, sensitivity=ONE, unit="user-day"
        )
    return tmp_path


def written(folder, number):
    """The answer of a day as the stream's file has it."""
    with StreamFile(folder / "sales.stream").turn() as turn:
        return turn.answer(number)


CREATION = {
    "before the charge": ((LedgerBudget, "charge"), False),
    "the charge is written": ((LedgerBudget, "charge"), True),
    "in the middle of the file": ((Turn, "begin"), True),
}


@pytest.mark.parametrize("step", CREATION)
def test_a_stream_that_was_cut_off_while_it_was_created_is_charged_once(folder, step):
    place, after = CREATION[step]
    killed_at(place, after=after, work=lambda: opened(folder))
    ledger, stream = opened(folder)
    assert ledger.spent("sales") == MECHANISM.charge(ONE)
    assert stream.answer(1, day(tea=900)).labels == ("tea",)
    assert ledger.spent("sales") == MECHANISM.charge(ONE)
    assert len(ledger.history("sales")) == 2
    assert ledger.verify()


# Where an answer is cut off, and whether its file has the day by then.
ANSWER = {
    "before the draw": ((Stream, "release"), False, False),
    "drawn": ((Stream, "release"), True, False),
    "not committed": ((Turn, "append"), True, False),
    "committed": ((LedgerClass, "charge"), False, True),
    "recorded without its answer": ((LedgerClass, "finalize"), False, True),
    "recorded": ((LedgerClass, "finalize"), True, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("step", ANSWER)
def test_a_day_that_was_cut_off_is_drawn_again_or_never(folder, step, number):
    place, after, there = ANSWER[step]
    opened(folder)
    if number == 2:
        opened(folder)[1].answer(1, day(tea=900))
    killed_at(
        place, after=after, work=lambda: opened(folder)[1].answer(number, day(tea=900, milk=600))
    )
    before = written(folder, number)
    assert (before is not None) == there
    ledger, stream = opened(folder)
    answer = stream.answer(number, day(rum=900) if there else day(tea=900, milk=600))
    assert answer.labels == ("tea", "milk")
    assert before in (None, written(folder, number))
    assert ledger.answer(ledger.history("sales")[-1])["rows"] == written(folder, number)["rows"]
    assert stream.answer(number + 1, day(rum=9000)).labels[0] == "rum"
    assert ledger.spent("sales") == MECHANISM.charge(ONE)
    assert len(ledger.history("sales")) == 2 + number
    assert ledger.verify()


def test_the_next_day_records_the_one_before_it_that_was_cut_off(folder):
    opened(folder)
    killed_at(
        (LedgerClass, "charge"), after=False, work=lambda: opened(folder)[1].answer(1, day(tea=900))
    )
    ledger, stream = opened(folder)
    assert len(ledger.history("sales")) == 1
    stream.answer(2, day(tea=900))
    assert [spend.mechanism["text"] for spend in ledger.history("sales")][1:] == [
        "stream 'daily', day 1", "stream 'daily', day 2"
    ]  # fmt: skip


@pytest.mark.slow
def test_processes_that_ask_together_get_one_answer_for_each_day(folder):
    opened(folder)

    def ask(place):
        _, stream = opened(folder)
        found = [
            stream.answer(number, day(**{f"label{place}": 900})).to_dict()["rows"]
            for number in (1, 2)
        ]
        (folder / f"{place}.json").write_text(json.dumps(found), encoding="ascii")

    children = [in_child(lambda place=place: ask(place)) for place in range(4)]
    for child in children:
        os.waitpid(child, 0)
    found = [json.loads((folder / f"{place}.json").read_text("ascii")) for place in range(4)]
    assert found == [found[0]] * 4
    assert len(opened(folder)[0].history("sales")) == 3


def test_a_kill_while_the_file_commits_leaves_the_day_whole_or_not_there(folder):
    """SQLite's own journal decides; whichever it is, one answer is ever given."""
    opened(folder)
    killed_at(
        (SQLite, "commit"), after=False, work=lambda: opened(folder)[1].answer(1, day(tea=900))
    )
    assert written(folder, 1) is None
    assert opened(folder)[1].answer(1, day(milk=900)).labels == ("milk",)
