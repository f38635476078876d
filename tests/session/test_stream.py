"""Session.stream: charged once, each day drawn once; what is refused, and that nothing changes
then.
"""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pandas as pd
import pytest

from dptopk import (
    Budget,
    BudgetExceeded,
    Charge,
    Histogram,
    InvalidParameter,
    Ledger,
    LedgerError,
    Sensitivity,
    Session,
)
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk.datasets import EventsStore
from dptopk.ledger import log_store as ledger_store
from dptopk.mechanisms import ContinualTopK, continual
from dptopk.mechanisms.samplers.factorisation import factorisation_of
from dptopk.mechanisms.stream_day import StreamDay
from dptopk.mechanisms.stream_state import Stream
from dptopk.session import Calendar, StreamSession
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_file import StreamFile, Turn

ONE = Sensitivity(l0=1)
MECHANISM = ContinualTopK(k=2, days=4, sigma=5.0, delta=1e-6)
DEAR = ContinualTopK(k=2, days=4, sigma=1.0, delta=1e-6)
EMPTY = Histogram({}, sensitivity=ONE)


def day(**counts):
    return Histogram(counts, sensitivity=ONE)


def rows(release):
    return dict(zip(release.labels, release.counts.tolist(), strict=True))


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.create_dataset(
            "sales", registered=MECHANISM.charge(ONE), delta=1e-5, sensitivity=ONE, unit="user-day"
        )
        yield made


@pytest.fixture
def session(ledger):
    return Session(EMPTY, ledger=ledger, dataset="sales", analyst="ann", unit="user-day")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sales.stream"


@pytest.fixture
def draws(monkeypatch):
    """The days for which noise was drawn."""
    drawn, release = [], Stream.release

    def counted(stream, histogram):
        drawn.append(stream.day + 1)
        return release(stream, histogram)

    monkeypatch.setattr(Stream, "release", counted)
    return drawn


def test_the_whole_charge_is_in_the_ledger_before_the_first_answer_and_nothing_more_afterwards(
    ledger, session, path
):
    stream = session.stream("daily", MECHANISM, path=path)
    spent = ledger.spent("sales")
    assert spent == MECHANISM.charge(ONE)
    for number in range(1, 5):
        stream.answer(number, day(tea=90 * number))
        session.stream("daily", MECHANISM, path=path)
        assert ledger.spent("sales") == spent
    assert len(ledger.history("sales")) == 5
    assert ledger.verify()
    with pytest.raises(InvalidParameter, match="days"):
        stream.answer(5, day(tea=1))


def test_a_day_asked_twice_gives_the_same_answer_whatever_the_data_are_now(session, path, draws):
    stream = session.stream("daily", MECHANISM, path=path)
    first = stream.answer(1, day(tea=900, milk=600))
    assert rows(stream.answer(1, day(rum=10**6))) == rows(first)
    opened = session.stream("daily", MECHANISM, path=path)
    assert rows(opened.answer(1, EMPTY)) == rows(first)
    assert rows(opened.stored(1)) == rows(first)
    assert opened.stored(2) is None
    assert draws == [1]
    second = opened.answer(
        2, day(rum=10**6)
    )  # late events of day 1 count on the day on which they are given
    assert second.labels[0] == "rum"
    assert rows(stream.answer(2, EMPTY)) == rows(second)
    assert draws == [1, 2]


def test_a_missed_day_is_refused_until_it_is_said_to_be_empty(session, path, draws):
    stream = session.stream(
        "daily", MECHANISM, path=path, calendar=Calendar(first_day="2026-02-27")
    )
    stream.answer("2026-02-27", day(tea=900))
    with pytest.raises(InvalidParameter, match=r"day 2 \(2026-02-28\).*empty histogram"):
        stream.answer("2026-03-01", day(tea=1))
    with pytest.raises(InvalidParameter, match="before day 1 of the stream, 2026-02-27"):
        stream.answer("2026-02-26", day(tea=1))
    with pytest.raises(InvalidParameter, match="must be a date"):
        stream.answer("yesterday", day(tea=1))
    stream.answer(2, EMPTY)
    assert stream.answer("2026-03-01", day(tea=1)).labels[:1] == ("tea",)
    assert stream.answered() == {1: "2026-02-27", 2: "2026-02-28", 3: "2026-03-01"}
    assert draws == [1, 2, 3]


def test_data_that_were_counted_under_their_name_are_refused_again(session, path):
    stream = session.stream("daily", MECHANISM, path=path)
    with pytest.raises(InvalidParameter, match="partition must be non-empty text"):
        stream.answer(1, day(tea=900), partition="")
    stream.answer(1, day(tea=900), partition="monday")
    with pytest.raises(InvalidParameter, match="partition: 'monday' was counted on day 1"):
        stream.answer(2, day(tea=1800), partition="monday")
    same = day(tea=5)
    stream.answer(2, same, partition="tuesday")
    with pytest.raises(InvalidParameter, match="histogram: this one was given"):
        session.stream("daily", MECHANISM, path=path).answer(3, same, partition="wednesday")
    assert list(stream.answered()) == [1, 2]


def test_equal_counts_of_other_data_are_no_reason_to_refuse(session, path):
    """Whether two days have the same counts is private."""
    stream = session.stream("daily", MECHANISM, path=path)
    for number in (1, 2):
        stream.answer(number, day(tea=900))
    assert list(stream.answered()) == [1, 2]


def test_a_store_gives_the_day_and_never_the_sum_of_days(tmp_path, session, path):
    stream = session.stream(
        "daily", MECHANISM, path=path, calendar=Calendar(first_day="2026-11-01")
    )
    events = pd.DataFrame({"who": range(400), "what": ["tea"] * 400})
    settings = {"user": "who", "item": "what", "labels_per_user": 1}
    with EventsStore(tmp_path / "days.store", **settings, partitions=True) as store:
        for number in (1, 2):
            store.append(events, version=f"2026-11-0{number}")
            shown = rows(stream.answer(number, store))
            assert shown["tea"] == pytest.approx(400 * number, abs=100)
        with pytest.raises(InvalidParameter, match="'2026-11-03' was not appended"):
            stream.answer(3, store)
    with EventsStore(tmp_path / "sum.store", **settings) as store:
        store.append(events, version="2026-11-03")
        with pytest.raises(InvalidParameter, match="partitions=True"):
            stream.answer(3, store)
    assert list(stream.answered()) == [1, 2]


@pytest.mark.parametrize(
    ("own", "apart", "refused"),
    [
        (None, 1, "days_per_user=2"),
        (3, 1, "days_per_user=2"),
        (2, 1, ""),
        (1, 1, ""),
        (2, 2, "days_apart=2"),
    ],
)
def test_a_store_must_leave_out_the_days_of_a_user_that_are_not_protected(
    tmp_path, own, apart, refused
):
    mechanism = ContinualTopK(
        k=2, days=4, sigma=50.0, delta=1e-6, days_per_user=2, days_apart=apart
    )
    with (
        Ledger(tmp_path / "ledger.db") as ledger,
        EventsStore(tmp_path / "days.store", user="who", item="what", labels_per_user=1, partitions=True,
                    days_per_user=own) as store,
    ):  # fmt: skip
        ledger.create_dataset(
            "sales", registered=mechanism.charge(ONE), delta=1e-5, sensitivity=ONE, unit="two days"
        )
        session = Session(EMPTY, ledger=ledger, dataset="sales", analyst="ann", unit="two days")
        stream = session.stream("daily", mechanism, path=tmp_path / "sales.stream")
        store.append(pd.DataFrame({"who": ["a"], "what": ["tea"]}), version="1")
        if not refused:
            assert len(stream.answer(1, store)) == 0
            return
        with pytest.raises(InvalidParameter, match=refused):
            stream.answer(1, store)
        assert stream.stored(1) is None


def test_an_old_copy_of_the_file_or_a_lost_one_gives_no_answer(tmp_path, session, path, draws):
    stream = session.stream("daily", MECHANISM, path=path)
    stream.answer(1, day(tea=900))
    shutil.copy(path, tmp_path / "old.stream")
    stream.answer(2, day(tea=900))
    for name in ("old.stream", "lost.stream"):
        with pytest.raises(LedgerError, match="its file lacks it"):
            session.stream("daily", MECHANISM, path=tmp_path / name).answer(2, day(tea=1))
    assert draws == [1, 2]


def test_two_copies_of_a_file_give_one_answer_between_them(
    tmp_path, session, path, draws, monkeypatch
):
    """The second one has drawn before the first has recorded its day: what it drew is never
    given.
    """
    one = session.stream("daily", MECHANISM, path=path)
    shutil.copy(path, tmp_path / "copy.stream")
    other = session.stream("daily", MECHANISM, path=tmp_path / "copy.stream")
    recorded = StreamSession._record_answer

    def first_the_other(self, *about):
        monkeypatch.setattr(StreamSession, "_record_answer", recorded)
        other.answer(1, day(milk=900))
        return recorded(self, *about)

    monkeypatch.setattr(StreamSession, "_record_answer", first_the_other)
    with pytest.raises(LedgerError, match="another copy"):
        one.answer(1, day(tea=900))
    for asked in (
        lambda: one.stored(1),
        lambda: one.answer(1, EMPTY),
        lambda: one.answer(2, EMPTY),
    ):
        with pytest.raises(LedgerError, match="another copy"):
            asked()
    assert other.stored(1).labels == ("milk",)
    assert draws == [1, 1]


def test_what_fails_in_the_middle_of_a_day_leaves_the_day_as_it_was(
    session, path, draws, monkeypatch
):
    stream = session.stream("daily", MECHANISM, path=path)
    stream.answer(1, day(tea=900))
    before = path.read_bytes()

    def full(_stream):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(StreamDay, "to_parts", full)
        with pytest.raises(OSError, match="no space"):
            stream.answer(2, day(tea=900))
    assert stream.stored(2) is None
    assert path.read_bytes() == before
    assert stream.answer(2, day(tea=900)).labels == ("tea",)
    assert draws == [1, 2, 2]


def test_other_terms_other_files_and_other_names_are_refused_and_charge_nothing(
    ledger, session, path, tmp_path
):
    session.stream("daily", MECHANISM, path=path)
    spent = ledger.spent("sales")
    (tmp_path / "not.stream").write_text("text " * 500, encoding="ascii")
    larger = Session(Histogram({}, sensitivity=Sensitivity(l0=2)), ledger=ledger, dataset="sales",
                     analyst="ann", unit="user-day")  # fmt: skip
    public = Session(Histogram(["a"], [0], sensitivity=ONE, domain="public"), ledger=ledger, dataset="sales",
                     analyst="ann", unit="user-day")  # fmt: skip
    no_delta = ContinualTopK(k=2, days=4, sigma=9.0)
    for refused, match in (
        (
            lambda: session.stream(
                "daily", ContinualTopK(k=2, days=4, sigma=6.0, delta=1e-6), path=path
            ),
            "mechanism",
        ),
        (
            lambda: session.stream(
                "daily", MECHANISM, path=path, calendar=Calendar(time_zone="CET")
            ),
            "calendar",
        ),
        (lambda: larger.stream("daily", MECHANISM, path=path), "sensitivity"),
        (lambda: session.stream("weekly", MECHANISM, path=path), "path: the file's stream 'daily'"),
        (
            lambda: session.stream("weekly", MECHANISM, path=tmp_path / "ledger.db"),
            "not the file of a stream",
        ),
        (lambda: session.stream("weekly", "square_root", path=path), "mechanism"),
        (lambda: session.stream("", MECHANISM, path=path), "name"),
        (
            lambda: session.stream("weekly", no_delta, path=tmp_path / "w.stream"),
            "delta must be above 0",
        ),
        (
            lambda: session.stream(
                "weekly",
                MECHANISM,
                path=tmp_path / "w.stream",
                calendar=Calendar(first_day="9999-12-31"),
            ),
            "first_day: day 4",
        ),
        (lambda: Calendar(late="somehow"), "late"),
        (lambda: Calendar(first_day="soon"), "first_day"),
        (lambda: public.stream("weekly", MECHANISM, path=tmp_path / "w.stream"), "delta must be 0"),
    ):
        with pytest.raises(InvalidParameter, match=match):
            refused()
    with pytest.raises(LedgerError, match="file of the stream"):
        session.stream("weekly", MECHANISM, path=tmp_path / "no" / "w.stream")
    with pytest.raises(LedgerError, match="not a database"):
        session.stream("weekly", MECHANISM, path=tmp_path / "not.stream")
    with pytest.raises(BudgetExceeded):
        session.stream("weekly", MECHANISM, path=tmp_path / "w.stream")
    assert ledger.spent("sales") == spent


@pytest.mark.parametrize(("days_per_user", "whole"), [(1, False), (3, False), (4, True)])
def test_a_stream_that_leaves_days_of_a_user_unprotected_needs_a_unit_that_says_so(
    tmp_path, days_per_user, whole
):
    mechanism = ContinualTopK(k=2, days=4, sigma=50.0, delta=1e-6, days_per_user=days_per_user)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create_dataset(
            "sales", registered=mechanism.charge(ONE), delta=1e-5, sensitivity=ONE
        )
        session = Session(EMPTY, ledger=ledger, dataset="sales", analyst="ann")
        path = tmp_path / "sales.stream"
        if whole:
            session.stream("daily", mechanism, path=path)
            return
        with pytest.raises(InvalidParameter, match="unit"):
            session.stream("daily", mechanism, path=path)
        wrong = Session(EMPTY, ledger=ledger, dataset="sales", analyst="ann", unit="user-day")
        with pytest.raises(InvalidParameter, match="unit"):
            wrong.stream("daily", mechanism, path=path)
        assert not ledger.spent("sales")


def test_after_a_renewal_answers_are_there_and_further_days_are_not(ledger, session, path):
    """The new budget promises a total for what is asked from now on; the stream's charge is not in
    it.
    """
    stream = session.stream("daily", MECHANISM, path=path)
    first = stream.answer(1, day(tea=900))
    ledger.renew("sales", registered=MECHANISM.charge(ONE), delta=1e-5, reason="new year")
    assert rows(stream.stored(1)) == rows(first)
    with pytest.raises(LedgerError, match="the budget charged"):
        stream.answer(2, day(tea=900))


def test_the_ledger_holds_released_answers_and_nothing_else_of_the_data(ledger, session, path):
    stream = session.stream("daily", MECHANISM, path=path)
    first = stream.answer(1, Histogram({"tea": 900, "hidden": 1}, sensitivity=ONE))
    entries = str([entry.body for entry in ledger.entries()])
    assert "hidden" not in entries
    assert "sums" not in entries
    assert b"hidden" in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    spend = ledger.history("sales")[-1]
    assert [row["count"] for row in ledger.answer(spend)["rows"]] == list(rows(first).values())


def test_a_stream_of_public_labels_has_intervals_and_knows_its_labels_again(tmp_path, path):
    mechanism = ContinualTopK(k=2, days=2, sigma=5.0, days_per_user=2)
    public = Histogram(["a", "b", "c"], [0, 0, 0], sensitivity=ONE, domain="public")
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create_dataset(
            "sales", registered=mechanism.charge(ONE), delta=1e-5, sensitivity=ONE
        )
        session = Session(public, ledger=ledger, dataset="sales", analyst="ann")
        stream = session.stream("daily", mechanism, path=path)
        answer = stream.answer(
            1, Histogram({"a": 50, "c": 90}, sensitivity=ONE, domain=["a", "b", "c"])
        )
        assert set(answer.labels) == {"a", "c"}
        assert len(stream.stored(1).intervals()) == 2
        others = Session(
            Histogram(["a", "b", "d"], [0, 0, 0], sensitivity=ONE, domain="public"),
            ledger=ledger, dataset="sales", analyst="ann",
        )  # fmt: skip
        for path_ in (path, tmp_path / "other.stream"):
            with pytest.raises(InvalidParameter, match="labels"):
                others.stream("daily", mechanism, path=path_)


def test_the_file_and_the_ledger_are_enough_to_go_on(ledger, session, path, tmp_path):
    calendar = Calendar(first_day="2026-11-01", time_zone="Europe/Berlin", late="left out")
    first = session.stream("daily", MECHANISM, path=path, calendar=calendar).answer(1, day(tea=900))
    stream = StreamSession.open(ledger, path)
    assert (stream.name, stream.mechanism, stream.sensitivity, stream.calendar) == (
        "daily",
        MECHANISM,
        ONE,
        calendar,
    )
    assert rows(stream.stored(1)) == rows(first)
    assert stream.answer("2026-11-02", day(tea=900)).labels == ("tea",)
    (tmp_path / "empty.stream").touch()
    with pytest.raises(InvalidParameter, match="not the file of a stream"):
        StreamSession.open(ledger, tmp_path / "empty.stream")
    with Ledger(tmp_path / "other.db") as other:
        other.create_dataset("sales", registered=MECHANISM.charge(ONE), delta=1e-5, sensitivity=ONE)
        with pytest.raises(InvalidParameter, match="this ledger has no such stream"):
            StreamSession.open(other, path)


def test_another_process_that_was_faster_with_other_terms_is_not_undercharged(
    ledger, path, session, monkeypatch
):
    """Both find no stream; the one that comes second gets the receipt of the first, which paid for
    other noise.
    """
    ledger.renew(
        "sales",
        registered=Charge.join(DEAR.charge(ONE), MECHANISM.charge(ONE)),
        delta=1e-4,
        reason="two",
    )
    charge = LedgerBudget.charge

    def after_another(self, *arguments, **about):
        monkeypatch.setattr(LedgerBudget, "charge", charge)
        session.stream("daily", MECHANISM, path=path)
        return charge(self, *arguments, **about)

    monkeypatch.setattr(LedgerBudget, "charge", after_another)
    with pytest.raises(InvalidParameter, match="other terms"):
        session.stream("daily", DEAR, path=path.with_name("dear.stream"))
    assert ledger.spent("sales") == MECHANISM.charge(ONE)


def test_measurements_that_cost_more_than_was_charged_draw_nothing(
    ledger, path, session, draws, monkeypatch
):
    """The charge is written, the file is not, and the version that makes it finds measurements that
    use all of μ.
    """
    mechanism = ContinualTopK(k=2, days=4, sigma=5.0, delta=1e-6, factorisation="optimal")
    best = mechanism.measurements
    with monkeypatch.context() as former:
        less = factorisation_of(best.strategy - np.eye(4, dtype=np.int64), best.unit)
        former.setattr(continual, "factorise", lambda *_: less)
        former.setattr(Turn, "begin", lambda *_: None)
        session.stream("daily", mechanism, path=path)
    stream = session.stream("daily", mechanism, path=path)
    with pytest.raises(LedgerError, match="cost more than was charged"):
        stream.answer(1, day(tea=900))
    assert draws == []


def test_a_key_that_was_used_for_something_else_pays_for_no_stream(ledger, session, path):
    ledger.charge("sales", "ann", Charge({}), once=fingerprint(["stream", "daily"]))
    with pytest.raises(InvalidParameter, match="other terms"):
        session.stream("daily", MECHANISM, path=path)


def test_a_budget_in_memory_has_no_stream(path):
    with pytest.raises(InvalidParameter, match="ledger"):
        Session(EMPTY, budget=Budget(5, 1e-5)).stream("daily", MECHANISM, path=path)
    assert not path.exists()


def test_threads_that_ask_for_one_day_get_one_answer(session, path, draws):
    streams = [session.stream("daily", MECHANISM, path=path) for _ in range(3)]
    found, together = [], threading.Barrier(3)

    def ask(stream):
        together.wait()
        found.append(rows(stream.answer(1, day(tea=900))))

    threads = [threading.Thread(target=ask, args=[stream]) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 3
    assert draws == [1]


def test_noise_with_a_fixed_seed_needs_a_ledger_for_tests(ledger, path):
    session = Session(EMPTY, ledger=ledger, dataset="sales", analyst="ann", unit="user-day",
                      rng=np.random.default_rng(1))  # fmt: skip
    with pytest.raises(LedgerError, match="fixed seed"):
        session.stream("daily", MECHANISM, path=path)


def test_a_fork_waits_for_the_files_of_streams_before_the_ledger(session, path):
    """A thread that has a stream's file may wait for the ledger: the other order would never
    end.
    """
    session.stream("daily", MECHANISM, path=path)
    file = StreamFile(path)
    ledger_store._lock_stores()
    try:
        assert ledger_store._locked_for_fork[0] is file._store
        assert [store.serial for store in ledger_store._locked_for_fork] == sorted(
            (store.serial for store in ledger_store._locked_for_fork), reverse=True
        )
    finally:
        ledger_store._unlock_stores()


def parts_of(path):
    with StreamFile(path).turn() as turn:
        return {
            (day, part): content
            for day, part, content in turn._run("SELECT day, part, content FROM parts")
        }


def test_the_state_is_binary_and_only_grows(session, path):
    """What a day has written is the same on all later days, and as large as the day alone."""
    names = [f"l{n}" for n in range(500)]
    public = session.stream("daily", MECHANISM, path=path)
    public.answer(1, day(**dict.fromkeys(names, 1)))
    with StreamFile(path).turn() as turn:
        header = turn.header()
    before = parts_of(path)
    public.answer(2, day(tea=900))
    after = parts_of(path)
    with StreamFile(path).turn() as turn:
        assert turn.header() == header
    assert {key: after[key] for key in before} == before
    assert all(isinstance(content, bytes) for content in after.values())
    assert sum(len(content) for key, content in after.items() if key[0] == 2) < 4 * 501 + 500


@pytest.mark.parametrize("name", ["square_root", "tree"])
def test_a_stream_that_is_opened_on_every_day_goes_on_as_one_that_was_never_closed(
    name, session, path, tmp_path, ledger, monkeypatch
):
    """Labels that come late and days without any: the states are the same numbers, where noise is
    0.
    """
    monkeypatch.setattr(
        Stream, "_measurement_noise", lambda _, size: np.zeros(size, dtype=np.int64)
    )
    mechanism = ContinualTopK(k=2, days=4, sigma=5.0, delta=1e-6, factorisation=name)
    ledger.create_dataset(
        "more", registered=Charge.join(mechanism.charge(ONE), mechanism.charge(ONE)), delta=1e-5,
        sensitivity=ONE, unit="user-day",
    )  # fmt: skip
    session = Session(EMPTY, ledger=ledger, dataset="more", analyst="ann", unit="user-day")
    days = [day(tea=900, milk=10), EMPTY, day(rum=40_000, tea=1), day(milk=3)]
    whole = session.stream("whole", mechanism, path=path)
    session.stream("parts", mechanism, path=tmp_path / "parts.stream")
    for number, counts in enumerate(days, 1):
        again = StreamSession.open(ledger, tmp_path / "parts.stream")
        assert rows(again.answer(number, counts)) == rows(whole.answer(number, counts))
    assert parts_of(path) == parts_of(tmp_path / "parts.stream")


def test_the_file_of_an_earlier_version_is_gone_on_with(session, path, draws):
    """Its state is one JSON text that holds all days; the next day brings it into today's form."""
    stream = session.stream("daily", MECHANISM, path=path)
    for number, counts in enumerate((day(tea=900, milk=600), day(rum=700)), 1):
        stream.answer(number, counts)
    state = stream._latest.stream.to_dict()
    with StreamFile(path).turn() as turn:
        turn._run("DROP TABLE parts")
        turn._run("UPDATE stream SET state = ?", canonical_json(state))
    again = session.stream("daily", MECHANISM, path=path)
    assert again.public_labels() is None
    assert rows(again.answer(2, EMPTY)) == rows(stream.stored(2))
    again.answer(3, day(tea=100))
    assert again._latest.stream.to_dict()["measured"][:2] == state["measured"]
    assert {key[0] for key in parts_of(path)} == {1, 2, 3}
    assert rows(StreamSession.open(again._book._ledger, path).answer(4, EMPTY))["tea"] > 500


@pytest.mark.parametrize("change", ["DELETE FROM parts WHERE day = 1 AND part = 0",
                                    "UPDATE parts SET content = x'00' WHERE day = 1 AND part = 0",
                                    "DELETE FROM parts"])  # fmt: skip
def test_a_file_whose_numbers_are_damaged_is_refused_and_draws_nothing(
    change, session, path, draws
):
    session.stream("daily", MECHANISM, path=path).answer(1, day(tea=900))
    with StreamFile(path).turn() as turn:
        turn._run(change)
    with pytest.raises(InvalidParameter, match="state"):
        session.stream("daily", MECHANISM, path=path).answer(2, day(tea=1))
    assert draws == [1]
