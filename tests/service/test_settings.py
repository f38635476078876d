"""Every setting at its extremes: refused or warned of by name, or questions are answered as ever."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.cli.ledger_upkeep import _catalog_text_with
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.planning import choose
from dptopk.service.access import Person
from dptopk.service.answering import job_of
from dptopk.service.app import create_app
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.check import check
from dptopk.service.limits import Busy
from dptopk.service.questions import TopK
from dptopk.service.tables import Tables

from .conftest import ASKED, CATALOG, Server, write_words

ANN = Person("ann", "analyst", "a-token")
TOTAL = "budget = { epsilon = 4.0, delta = 1e-5 }"
LIMIT = "limits = { bob = { epsilon = 0.4, delta = 1e-6 } }"
LEDGER = 'ledger = "ledger.db"'
RATES = "rates = { free = 1000.0, spending = 1000.0 }"
HUGE = "9" * 4301
EXTREMES = ("0", "5e-324", "1", "9007199254740993", "1e308", "nan", "0x" + "f" * 5000)
if "DPTOPK_EXTREMES" in os.environ:  # `make service-torture` tries more
    EXTREMES += ("1e-12", "-1", "inf", "1e300", "-0.0", "9007199254740992", "true", '"5"', "[1]")
# What is written in the place of what, with {} for the extreme.
NUMBERS = {
    "answers_every": (LEDGER, LEDGER + "\nanswers_every = {}"),
    "storage": (LEDGER, LEDGER + "\nstorage = {}"),
    "audit.days": (LEDGER, LEDGER + "\naudit = {{ days = {} }}"),
    "audit.bytes": (LEDGER, LEDGER + "\naudit = {{ bytes = {} }}"),
    "rates.free": (RATES, "rates = {{ free = {} }}"),
    "rates.spending": (RATES, "rates = {{ spending = {} }}"),
    "labels_per_user": ("labels_per_user = 1", "labels_per_user = {}"),
    "per_label_cap": ("labels_per_user = 1", "labels_per_user = 1\nper_label_cap = {}"),
    "days_per_user": ("labels_per_user = 1", "labels_per_user = 1\ndays_per_user = {}"),
    "segments": ("segments = { part = 1 }", "segments = {{ part = {} }}"),
    "epsilon": (TOTAL, "budget = {{ epsilon = {}, delta = 1e-5 }}"),
    "rho": (TOTAL, "budget = {{ rho = {}, delta = 1e-5 }}"),
    "delta": (TOTAL, "budget = {{ epsilon = 4.0, delta = {} }}"),
    "failure_delta": (TOTAL, "budget = {{ epsilon = 4.0, delta = 1e-5, failure_delta = {} }}"),
    "limits.epsilon": (LIMIT, "limits = {{ ann = {{ epsilon = {}, delta = 1e-6 }} }}"),
    "limits.delta": (LIMIT, "limits = {{ ann = {{ epsilon = 1.0, delta = {} }} }}"),
}


def written(folder: Path, text: str) -> Path:
    write_words(folder, "1")
    path = folder / "catalog.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(name: str, value: str) -> str:
    old, new = NUMBERS[name]
    text = CATALOG.replace(old, new.format(value), 1)
    if name.startswith(("segments", "rho")):
        text = text.replace(LIMIT, "")
    return text


@pytest.fixture(scope="module")
def plans():
    """Plans are arithmetic on a question and public facts: made once for all catalogs."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_no_accepted_setting_charges_and_fails(tmp_path, monkeypatch, plans, name):
    real = choose.plan_topk

    def plan_topk(k, **options):
        key = f"{k} {options}"
        if key not in plans:
            plans[key] = real(k, **options)
        return plans[key]

    monkeypatch.setattr(choose, "plan_topk", plan_topk)
    for number, value in enumerate(EXTREMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = changed(name, value)
        path = written(folder, text[: text.index("[datasets.hidden]")])
        if any(problem.refused for problem in check(path)):
            with pytest.raises(DptopkError):
                create_app(load_catalog(path)).state.service.close()
            continue
        service = create_app(load_catalog(path)).state.service
        service.sleep = lambda seconds: None if 0 <= seconds <= 3600 else pytest.fail(str(seconds))
        try:
            service.begin(
                service.catalog.datasets["words"], ANN, "a-question", TopK(**ASKED)
            ).result(120)
        except DptopkError:
            assert not service.reports.ledger.recent("words"), (name, value)
        assert service.rates.take("ann", service.catalog.free_per_second, 1e6) >= 0.0
        assert [line["outcome"] for line in service.access.newest_lines()] in (
            ["answered"],
            ["failed"],
            ["refused"],
            [],
        )
        charged = len(service.reports.ledger.recent("words"))
        assert [line["outcome"] for line in service.access.newest_lines()].count(
            "answered"
        ) == charged
        service.close()


@pytest.mark.parametrize("value", ["1e308", "1e300", "3601", "-1", "nan", "inf", '"5"', "true"])
def test_answers_never_wait_for_ever(tmp_path, value):
    """With 1e308 questions were charged, answered 500, and left no line in the audit log."""
    path = written(tmp_path, CATALOG.replace(LEDGER, f"{LEDGER}\nanswers_every = {value}"))
    assert [str(one) for one in check(path)] == [
        "refused: catalog: answers_every must be a number from 0 to 3600"
    ]


@pytest.mark.parametrize(
    "budget",
    [
        "{ rho = 1e308, delta = 1e-5 }",
        "{ rho = 100.0, delta = 1e-5 }",
        '{ registered = "999999999999999999999*BR(0.1)", delta = 1e-5 }',
        '{ registered = "2*DP(300)", delta = 1e-5 }',
        "{ epsilon = 1e300, delta = 1e-5 }",
        "{ shares = { ann = { epsilon = 50.0, delta = 1e-7 } }, delta = 1e-5 }",
    ],
)
def test_absurd_budgets_are_warned_of(tmp_path, budget):
    text = CATALOG.replace(TOTAL, f"budget = {budget}").replace(LIMIT, "")
    found = [str(one) for one in check(written(tmp_path, text))]
    assert any("datasets.words." in one and "protects nobody" in one for one in found), found


def test_a_small_budget_in_rho_without_delta_is_not_absurd(tmp_path):
    """Its epsilon at delta 0 is infinite, whatever rho is."""
    text = CATALOG.replace(TOTAL, "budget = { rho = 0.1 }").replace(LIMIT, "")
    found = [str(one) for one in check(written(tmp_path, text))]
    assert not any("protects nobody" in one for one in found), found


def test_a_file_is_no_folder_of_streams(tmp_path):
    """Each stream of the data set ended in a 500."""
    text = CATALOG.replace(TOTAL, TOTAL + '\nstreams = "words-1.csv"')
    found = [one.text for one in check(written(tmp_path, text)) if one.refused]
    assert found == ["datasets.words.streams: 'words-1.csv' is not a folder"]


@pytest.mark.parametrize("name", ["ledger", "access", "key_file", "head_file", "streams", "source"])
def test_a_loop_of_links_is_refused_in_words(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    text = {
        "ledger": CATALOG.replace(LEDGER, 'ledger = "loop"'),
        "streams": CATALOG.replace(TOTAL, TOTAL + '\nstreams = "loop"'),
        "source": CATALOG.replace("words-{version}.csv", "loop"),
    }.get(name, CATALOG.replace(LEDGER, f'{LEDGER}\n{name} = "loop"'))
    found = [one.text for one in check(written(tmp_path, text)) if one.refused]
    assert any(name in one or name == "source" for one in found), found
    assert any("'loop' leads to a loop of symbolic links" in one for one in found), found
    told = CliRunner().invoke(app, ["serve", str(tmp_path / "catalog.toml"), "--check"])
    assert isinstance(told.exception, SystemExit)


def test_a_folder_of_streams_with_a_name_too_long_is_refused_in_words(tmp_path):
    text = CATALOG.replace(TOTAL, TOTAL + f'\nstreams = "{"x" * 5000}"')
    with pytest.raises(InvalidParameter, match=r"datasets\.words\.streams: 'xxx"):
        load_catalog(written(tmp_path, text))


@pytest.mark.parametrize("head", ["{ledger}-wal", "sqlite:///{ledger}"])
def test_a_head_in_the_ledger_is_refused_by_a_check(tmp_path, head):
    path = written(tmp_path, CATALOG)
    create_app(load_catalog(path)).state.service.close()
    ledger = tmp_path / "ledger.db"
    before = ledger.read_bytes()
    named = f'{LEDGER}\nhead_file = "{head.format(ledger=ledger)}"'
    path.write_text(CATALOG.replace(LEDGER, named), encoding="utf-8")
    found = [one.text for one in check(path) if one.refused]
    assert any(one.startswith("head_file: ") and "the ledger itself" in one for one in found), found
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("name", ["access", "key_file"])
@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_file_beside_the_ledger_is_no_place_of_the_catalog(tmp_path, name, ending):
    text = CATALOG.replace(LEDGER, f'{LEDGER}\n{name} = "ledger.db{ending}"')
    with pytest.raises(InvalidParameter, match=rf"{name}: .*{ending}' is a file of the ledger"):
        load_catalog(written(tmp_path, text))


def test_an_absurd_limit_is_named(tmp_path):
    text = CATALOG.replace(LIMIT, "limits = { bob = { epsilon = 30.0, delta = 1e-6 } }")
    found = [str(one) for one in check(written(tmp_path, text))]
    assert "warning: datasets.words.limits.bob: epsilon 30 protects nobody" in found


def test_all_mistakes_are_listed(tmp_path):
    text = CATALOG.replace(LEDGER, LEDGER + "\nanswers_every = 1e308\nstorage = 0")
    text = text.replace("free = 1000.0", "free = 0")
    text = text.replace("labels_per_user = 1\nunit", "labels_per_user = 1.5\nunit")
    text = text.replace(
        LIMIT, "limits = { bob = { epsilon = -1, delta = 3 }, ann = { delta = 2.0 } }"
    )
    text = text.replace("epsilon = 1.0, delta = 1e-6", "epsilon = 1.0, delta = 7.0")
    found = [one.text for one in check(written(tmp_path, text)) if one.refused]
    for expected in (
        "catalog: answers_every",
        "catalog: storage",
        "rates: free",
        "datasets.words: labels_per_user",
        "datasets.words.limits.bob: epsilon",
        "datasets.words.limits.bob: delta",
        "datasets.words.limits.ann: give exactly one",
        "datasets.hidden.budget: delta",
    ):
        assert sum(one.startswith(expected) for one in found) == 1, (expected, found)
    assert len(found) == 8
    with pytest.raises(InvalidParameter, match=r"answers_every.*datasets\.hidden"):
        load_catalog(tmp_path / "catalog.toml")


def test_wrong_data_and_wrong_budgets_are_both_named(tmp_path):
    text = CATALOG.replace('count = "n"', 'count = "no"').replace("delta = 1e-5 }", "delta = 0.9 }")
    text = text.replace(
        "[datasets.hidden]",
        '[datasets.lost]\nsource = "lost.csv"\nbudget = { epsilon = 1.0 }\n\n[datasets.hidden]',
    )
    found = [str(one) for one in check(written(tmp_path, text))]
    assert any("refused: datasets.words:" in one for one in found)
    assert any("refused: datasets.lost:" in one for one in found)
    assert any("datasets.words.budget: delta 0.9" in one for one in found)


ODD = {
    "a number of 4,301 digits": CATALOG.replace("labels_per_user = 1", f"labels_per_user = {HUGE}"),
    "a budget of 4,301 digits": CATALOG.replace("epsilon = 4.0", f"epsilon = {HUGE}"),
    "a long number in hexadecimal": CATALOG.replace("epsilon = 4.0", "epsilon = 0x" + "f" * 5000),
    "a long number in a list": CATALOG.replace('["one", "two"]', "[0x" + "f" * 5000 + "]"),
    "a long count of a cost": CATALOG.replace(
        TOTAL, f'budget = {{ registered = "{HUGE}*BR(0.1)", delta = 1e-5 }}'
    ),
    "NUL in a source": CATALOG.replace("words-{version}.csv", "words\\u0000.csv"),
    "NUL in a path": CATALOG.replace(LEDGER, 'ledger = "led\\u0000ger.db"'),
    "NUL in labels": CATALOG.replace("labels_per_user = 1\nunit", 'labels = "a\\u0000"\nunit'),
    "NUL in a unit": CATALOG.replace('unit = "word"', 'unit = "a\\u0000"'),
    "half an address": CATALOG.replace(LEDGER, 'ledger = "postgresql://[::1"'),
    "half an address of tokens": CATALOG.replace(LEDGER, LEDGER + '\naccess = "postgresql://[::1"'),
    "half an address of a head": CATALOG.replace(
        LEDGER, LEDGER + '\nhead_file = "postgresql://[::1"'
    ),
    "half an address of data": CATALOG.replace("words-{version}.csv", "postgresql://[::1"),
    "another database": CATALOG.replace(LEDGER, 'ledger = "oracle://x/y"'),
    "a port that is none": CATALOG.replace(LEDGER, 'ledger = "postgresql://x:99999999/y"'),
    "deep lists": CATALOG.replace('["one", "two"]', "[" * 5000 + "]" * 5000),
    "deep tables": CATALOG.replace(LIMIT, "limits = " + "{ a = " * 5000 + "1" + " }" * 5000),
    "deep keys": CATALOG + "\n[a" + ".a" * 5000 + "]\n",
    "a name of 300 letters": CATALOG.replace("words-{version}.csv", "w" * 300),
    "a folder": CATALOG.replace(LEDGER, 'ledger = "."'),
    "no text": "\udc80",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_catalogs_are_refused_without_a_traceback(tmp_path, kind):
    write_words(tmp_path, "1")
    path = tmp_path / "catalog.toml"
    path.write_bytes(ODD[kind].encode("utf-8", "surrogateescape"))
    told = CliRunner().invoke(app, ["serve", str(path), "--check"])
    assert told.exit_code == 1, told.output
    assert isinstance(told.exception, SystemExit)
    assert "refused:" in told.output
    assert "Traceback" not in told.output
    assert len(told.output) < 5000
    with suppress(DptopkError):  # and nothing else; data are first read with the first question
        create_app(load_catalog(path)).state.service.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("words-{version}.csv", "pipe"),
        ("labels_per_user = 1\nunit", 'labels = "pipe"\nunit'),
        (LEDGER, LEDGER + '\nkey_file = "pipe"'),
        (LEDGER, LEDGER + '\nhead_file = "pipe"'),
        (LEDGER, LEDGER + '\naccess = "pipe"'),
        (LEDGER, 'ledger = "pipe"'),
    ],
)
def test_a_pipe_is_not_waited_for(tmp_path, old, new):
    os.mkfifo(tmp_path / "pipe")
    found = [str(one) for one in check(written(tmp_path, CATALOG.replace(old, new)))]
    assert any("neither a file nor a folder" in one for one in found), found


def test_a_catalog_is_a_file_and_no_pipe(tmp_path):
    """The service, its check and the migration waited for somebody who writes into it."""
    pipe = tmp_path / "catalog.toml"
    os.mkfifo(pipe)
    with pytest.raises(InvalidParameter, match=r"'catalog\.toml' is neither a file"):
        load_catalog(pipe)
    device = tmp_path / "device"
    device.symlink_to("/dev/zero")
    with pytest.raises(InvalidParameter, match="'device' is neither a file nor a folder"):
        load_catalog(device)
    with pytest.raises(InvalidParameter, match=r"--catalog: cannot read 'catalog\.toml'"):
        _catalog_text_with(pipe, "old.db", tmp_path / "new.db")
    long = tmp_path / "long.toml"
    with long.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(InvalidParameter, match="longer than 64 MiB"):
        load_catalog(long)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_a_check_writes_nothing(tmp_path, monkeypatch):
    server = Server(tmp_path)
    server.service.close()
    server.tables.close()
    with sqlite3.connect(tmp_path / "ledger.db.access") as file:  # of an older version
        file.execute("DROP TABLE service_current")
        file.execute("ALTER TABLE service_tokens DROP COLUMN expires")
    for name in ("mkdtemp", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", lambda *_, **__: pytest.fail("a file was made"))
    before = tree(tmp_path)
    found = [str(one) for one in check(tmp_path / "catalog.toml")]
    assert not any("refused" in one for one in found), found
    assert tree(tmp_path) == before


def test_another_source_under_the_same_name_needs_the_owners_word(tmp_path):
    path = written(tmp_path, CATALOG)
    create_app(load_catalog(path)).state.service.close()
    (tmp_path / "other.csv").write_bytes((tmp_path / "words-1.csv").read_bytes())
    text = CATALOG.replace("words-{version}.csv", "other.csv")
    path.write_text(text, encoding="utf-8")
    found = [str(one) for one in check(path) if one.refused]
    assert len(found) == 1
    assert "datasets.words: source: the ledger says that it is 'words-{version}.csv'" in found[0]
    assert "'other.csv'" in found[0]
    with pytest.raises(LedgerError, match=r"datasets\.words: source"):
        create_app(load_catalog(path))
    applied = CliRunner().invoke(app, ["serve", str(path), "--apply", "--reason", "same people"])
    assert applied.exit_code == 0, applied.output
    create_app(load_catalog(path)).state.service.close()
    # The former source does not come back under another name with a budget of its own.
    again = text.replace(
        "[datasets.hidden]",
        f'[datasets.again]\nsource = "words-{{version}}.csv"\nlabels_per_user = 1\nlabel = "word"\ncount = "n"\n{TOTAL}\n\n[datasets.hidden]',
    )
    path.write_text(again, encoding="utf-8")
    assert any("the data of 'words'" in str(one) for one in check(path))


def test_a_charge_has_its_line_before_it_is_made(tmp_path, monkeypatch):
    """Where the line cannot be written, nothing is charged."""
    service = Server(tmp_path).service
    spec, ledger = service.catalog.datasets["words"], service.reports.ledger
    seen, real = [], service.reports.ledger.charge

    def charge(*given, **about):
        seen.append([line["outcome"] for line in service.access.newest_lines()])
        return real(*given, **about)

    monkeypatch.setattr(ledger, "charge", charge)
    service.begin(spec, ANN, "the-first", TopK(**ASKED)).result(120)
    assert seen == [["begun"]]
    assert [line["outcome"] for line in service.access.newest_lines()] == ["answered"]
    service.close()


def full(tables: Tables) -> None:
    """Let the access database have no room for another page."""
    with tables.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    for engine in (tables.engine, tables._durable):
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    filler = "x" * 500
    with pytest.raises(LedgerError, match="disk is full"):
        for number in range(10_000):
            tables.insert(
                Tables.audit.insert().values(
                    at=filler,
                    analyst=filler,
                    action="a",
                    dataset="d",
                    outcome="o",
                    detail=str(number),
                )
            )


def test_a_full_disk_is_told_and_charges_nothing(server):
    with server.client("ann") as ann, server.client("eve") as eve:
        full(server.service.tables)
        answers = [
            ann.post(
                "/v1/datasets/words/topk",
                json=ASKED,
                headers={"Idempotency-Key": f"question-{number}"},
            )
            for number in range(3)
        ]
        for answer in answers:
            assert answer.status_code == 503
            assert "database or disk is full" in answer.json()["message"]
        new = eve.post("/v1/datasets/words/versions", json={"version": "2"})
        assert new.status_code in {200, 503}
        assert ann.get("/v1/datasets/words/budget").status_code == 200
    assert not server.service.reports.ledger.recent("words")


def test_refused_questions_have_a_quota_of_the_audit_log(tmp_path):
    """One label of 60 KB in 60 refused questions took 5.5 MB, and half a terabyte in a week."""
    text = CATALOG.replace(LEDGER, LEDGER + "\naudit = { bytes = 3000 }")
    service = Server(tmp_path, text).service
    spec = service.catalog.datasets["words"]
    outcomes = []
    for number in range(60):
        try:
            service.begin(
                spec, ANN, f"too-much-{number}", TopK(**ASKED | {"epsilon": 50.0})
            ).result(120)
        except DptopkError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == "BudgetExceeded"
    assert outcomes[-1] == Busy.__name__
    assert outcomes.count("BudgetExceeded") < 12
    other = Person("bob", "analyst", "another-token")
    assert service.begin(spec, other, "a-question", TopK(**ASKED | {"epsilon": 0.1})).result(120)
    service.access.sweep(days=365)
    assert len(service.access.newest_lines(limit=1000)) == outcomes.count("BudgetExceeded") + 1
    service.access.sweep(days=0)
    assert service.access.newest_lines() == []
    service.close()


def test_repeats_of_a_charged_question_have_twice_the_quota(tmp_path):
    """Each repeat wrote a line, whatever the quota: a stream that was charged, or a charge that was
    not answered before a renewal.
    """
    text = CATALOG.replace(LEDGER, LEDGER + "\naudit = { bytes = 3000 }")
    service = Server(tmp_path, text).service
    spec = service.catalog.datasets["words"]
    question = TopK(**ASKED)
    job = job_of("ann", "words", "charged-key")
    service.jobs.start(job, "ann", "words")
    service.answer_service._charge(spec, "ann", "charged-key", question, job)
    service.reports.ledger.renew("words", reason="new users", **spec.terms.arguments())
    outcomes = []
    for _ in range(60):
        try:
            service.begin(spec, ANN, "charged-key", question).result(120)
        except DptopkError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == "KeyUsed"
    assert outcomes[-1] == Busy.__name__
    assert outcomes.count("KeyUsed") < 24
    assert service.access.uncharged_bytes("ann") < 2 * 3000 + 1000
    service.close()


def test_what_was_paid_is_answered_however_much_was_refused(tmp_path):
    """A worker was killed after the charge, and the analyst's quota of refused questions is used
    up: until the next day the data, or the budget, may be renewed, and the answer is lost.
    """
    text = CATALOG.replace(LEDGER, LEDGER + "\naudit = { bytes = 3000 }")
    service = Server(tmp_path, text).service
    spec = service.catalog.datasets["words"]
    job = job_of("ann", "words", "paid")
    service.jobs.start(job, "ann", "words")
    service.answer_service._charge(spec, "ann", "paid", TopK(**ASKED), job)
    refused = TopK(**ASKED | {"epsilon": 50.0})
    while service.access.uncharged_bytes("ann") < service.catalog.audit_bytes:
        with pytest.raises(BudgetExceeded):
            service.begin(
                spec, ANN, f"refused {service.access.uncharged_bytes('ann')}", refused
            ).result(120)
    with pytest.raises(Busy, match="ask again tomorrow"):
        service.begin(spec, ANN, "another", refused)
    assert service.begin(spec, ANN, "paid", TopK(**ASKED)).result(120).answer is not None
    service.close()


@pytest.mark.slow
def test_the_audit_log_is_shown_in_pages_and_exported(tmp_path):
    server = Server(tmp_path)
    for number in range(250):
        note = server.access.line_statement(
            "ann", "topk", "words", "refused", {"long": "x" * 20_000, "n": number}
        )
        server.tables.change(note)
    page = server.access.newest_lines(limit=1000)
    assert 40 <= len(page) < 60
    assert page[0]["detail"]["n"] == 249
    rest = server.access.newest_lines(before=page[-1]["number"], limit=10)
    assert rest[0]["number"] == page[-1]["number"] - 1
    out = tmp_path / "log.jsonl"
    told = CliRunner().invoke(
        app, ["ledger", "analyst", "log", str(tmp_path / "catalog.toml"), "--out", str(out)]
    )
    assert told.exit_code == 0, told.output
    assert len(out.read_text(encoding="utf-8").splitlines()) == 250
    assert out.stat().st_mode & 0o077 == 0
    server.service.close()
    server.tables.close()
