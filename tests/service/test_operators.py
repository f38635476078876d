"""What operators get wrong is refused or warned of by name, without a traceback; terms of the
ledger hold.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.ledger import Ledger
from dptopk.service.access import Access
from dptopk.service.app import create_app
from dptopk.service.catalog import CatalogBudget, SegmentReading
from dptopk.service.catalog_changes import (
    _plain_terms_of_catalog,
    _source_name,
    apply,
    claim_version,
    open_ledger,
)
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.check import check
from dptopk.service.questions import TopK
from dptopk.service.tables import RELOAD, Tables
from dptopk.service.worker import RELOAD_TRIES

from .conftest import ASKED, CATALOG, Server, write_words

TOTAL = "budget = { epsilon = 4.0, delta = 1e-5 }"
LIMIT = "limits = { bob = { epsilon = 0.4, delta = 1e-6 } }"
MISTAKES = [  # what is written, what instead, what is told
    ("ledger =", "leger =", "unknown leger"),
    ('ledger = "ledger.db"', "ledger = 5", "ledger must be a text"),
    ('ledger = "ledger.db"', 'ledger = ""', "ledger must be a text"),
    ('ledger = "ledger.db"', 'ledger = "nowhere/ledger.db"', "there is no folder"),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\naccess = "ledger.db"',
        "access and ledger are the same file",
    ),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\naccess = "./ledger.db"',
        "access and ledger are the same file",
    ),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nhead_file = "ledger.db"',
        "head_file and ledger are the same",
    ),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nhead_file = "away/head.json"',
        "there is no folder",
    ),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nhead_file = "words-1.csv"',
        "not an exported head",
    ),
    ('ledger = "ledger.db"', 'ledger = "ledger.db"\nkey_file = "no.key"', "cannot read 'no.key'"),
    ('ledger = "ledger.db"', 'ledger = "ledger.db"\nkey_file = "empty"', "'empty' is empty"),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nanswers_every = "1"',
        "answers_every must be a number",
    ),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nanswers_every = -1',
        "answers_every must be a number",
    ),
    ('ledger = "ledger.db"', 'ledger = "ledger.db"\nworkers = 8', "unknown workers"),
    (
        'ledger = "ledger.db"',
        'ledger = "ledger.db"\nstorage = "1 GB"',
        "storage must be a whole number",
    ),
    ('ledger = "ledger.db"', 'ledger = "words-1.csv"', "refused"),
    ("rates = { free = 1000.0, spending = 1000.0 }", "rates = 5", "rates must be a table"),
    ("rates = { free = 1000.0", 'rates = { free = "many"', "free must be a number"),
    ("rates = { free = 1000.0", "rates = { free = 0", "free must be"),
    ("rates = { free = 1000.0", "rates = { fee = 1000.0", "unknown fee"),
    ("[datasets.words]", "[dataset.words]", "unknown dataset"),
    ("[datasets.words]", '[datasets."../words"]', "dataset must be"),
    ("[datasets.words]", "[[datasets.words]]", "datasets must be a table"),
    ("ledger", "ledger = [", "not TOML"),
    ('source = "words-{version}.csv"', "", "source and budget are needed"),
    ('source = "words-{version}.csv"', "source = 5", "source must be a text"),
    ('source = "words-{version}.csv"', 'source = "missing.csv"', "datasets.words:"),
    ('source = "words-{version}.csv"', 'source = "/etc/passwd"', "datasets.words:"),
    ('source = "words-{version}.csv"', 'source = "."', "datasets.words:"),
    ('source = "words-{version}.csv"', 'source = "catalog.toml"', "datasets.words:"),
    ('label = "word"', 'label = "wrd"', "datasets.words:"),
    ('label = "word"', "label = 1", "label must be a text"),
    ('label = "word"', 'user = "word"', "go together"),
    ('count = "n"', 'count = "part"', "datasets.words:"),
    ('count = "n"', 'cnt = "n"', "unknown cnt"),
    ("labels_per_user = 1", "labels_per_user = 0", "labels_per_user must be a whole number"),
    ("labels_per_user = 1", "labels_per_user = 1.5", "labels_per_user must be a whole number"),
    ("labels_per_user = 1", "labels_per_user = true", "labels_per_user must be a whole number"),
    ("labels_per_user = 1", "labels_per_member = 1", "unknown labels_per_member"),
    ("labels_per_user = 1\nunit", "unit", "labels_per_user is not given"),
    (
        "labels_per_user = 1",
        'labels_per_user = 1\nper_label_cap = "1"',
        "per_label_cap must be a whole number",
    ),
    ("labels_per_user = 1", 'labels_per_user = 1\nlabels = "empty"', "labels: "),
    (
        "labels_per_user = 1",
        'labels_per_user = 1\nlabels = "nowhere.txt"',
        "datasets.words.labels: ",
    ),
    ("labels_per_user = 1", "labels_per_user = 1\ntop = 1", "top must be"),
    ('unit = "word"', 'unit = ""', "unit must be a text"),
    ('unit = "word"', 'engine = "abacus"', "duckdb or spark"),
    ('unit = "word"', 'unit = "word"\nversion = 1', "version must be a text"),
    ('unit = "word"', 'unit = "word"\nversion = "a/b"', "version must be"),
    ('unit = "word"', 'unit = "word"\ndescription = 1', "description must be a text"),
    (TOTAL, "", "source and budget are needed"),
    (TOTAL, "budget = 4", "budget must be a table"),
    (TOTAL, "budget = { epsilon = 4.0, size = 1 }", "unknown size"),
    (TOTAL, "budget = { delta = 1e-5 }", "exactly one of epsilon, rho, registered and shares"),
    (TOTAL, "budget = { epsilon = -1, delta = 1e-5 }", "epsilon"),
    (TOTAL, 'budget = { epsilon = "4", delta = 1e-5 }', "epsilon"),
    (TOTAL, "budget = { epsilon = nan, delta = 1e-5 }", "epsilon"),
    (TOTAL, "budget = { epsilon = inf, delta = 1e-5 }", "epsilon"),
    (TOTAL, "budget = { epsilon = 4.0, delta = 2 }", "delta"),
    (TOTAL, "budget = { epsilon = 1e6, delta = 1e-5 }", "protects nobody"),
    (TOTAL, "budget = { epsilon = 4.0, delta = 0.5 }", "should be far below"),
    (TOTAL, "budget = { epsilon = 4.0, delta = 1e-5, failure_delta = 1 }", "failure_delta"),
    (TOTAL, 'budget = { registered = "3*WR(1)", delta = 1e-5 }', "WR"),
    (TOTAL, "budget = { shares = { ann = 3 }, delta = 1e-5 }", "exactly one"),
    (TOTAL, "budget = { shares = {}, delta = 1e-5 }", "at least one analyst"),
    (LIMIT, "limits = 5", "limits must be a table of tables"),
    (LIMIT, "limits = { bob = 5 }", "limits must be a table of tables"),
    (LIMIT, "limits = { bob = { epsilon = 50, delta = 1e-6 } }", "above the whole budget"),
    (LIMIT, LIMIT + '\nanalysts = ["ann"]', "limits for bob"),
    (LIMIT, "limits = { bob = { epsilon = 1 }, Bob = { epsilon = 2 } }", "one analyst"),
    (LIMIT, 'analysts = "ann"', "analysts must be a list"),
    (LIMIT, "analysts = []", "analysts must be a list"),
    (LIMIT, 'analysts = ["ann", "Ann"]', "one analyst"),
    (LIMIT, 'analysts = ["\\u0430nn"]', "look alike"),
    (LIMIT, 'analysts = ["Carol"]', "'carol' may ask and has no token"),
    (
        'filters = { part = ["one", "two"] }',
        'filters = { part = "eu" }',
        "filters must be a table of lists",
    ),
    (
        'filters = { part = ["one", "two"] }',
        'filters = ["part"]',
        "filters must be a table of lists",
    ),
    (
        'filters = { part = ["one", "two"] }',
        "filters = { part = [] }",
        "filters must be a table of lists",
    ),
    (
        'filters = { part = ["one", "two"] }',
        'filters = { part = ["a", "a"] }',
        "filters must be a table of lists",
    ),
    (
        'filters = { part = ["one", "two"] }',
        'filters = { part = ["one"], ward = ["a"] }',
        "datasets.words:",
    ),
    (
        "segments = { part = 1 }",
        'segments = ["part"]',
        "segments must be a table of whole numbers from 1 to 2^53",
    ),
    (
        "segments = { part = 1 }",
        "segments = { part = 0 }",
        "segments must be a table of whole numbers from 1 to 2^53",
    ),
    ("segments = { part = 1 }", "segments = { ward = 1 }", "need its public list"),
    (
        "segments = { part = 1 }",
        'segments = { part = 1 }\nbudget_by = "ward"',
        "a budget for each ward",
    ),
    (
        "segments = { part = 1 }",
        "segments = { part = 1 }\nbudget_by = 1",
        "budget_by must be a text",
    ),
    ('source = "macbeth"', 'source = "words-{version}.csv"', "are the same file"),
    (
        'source = "macbeth"',
        'source = "macbeth"\nfilters = { a = ["b"] }',
        "no columns to filter by",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    write_words(folder, "1")
    (folder / "empty").write_text("", encoding="utf-8")
    return folder


@pytest.mark.parametrize(("old", "new", "told"), MISTAKES)
def test_a_mistake_in_a_catalog_is_named(folder, old, new, told):
    assert CATALOG.count(old)
    (folder / "catalog.toml").write_text(CATALOG.replace(old, new, 1), encoding="utf-8")
    found = [str(one) for one in check(folder / "catalog.toml")]
    assert any(told in one for one in found), found
    assert not (folder / "ledger.db").exists()


def run(*arguments):
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, ["serve", *map(str, arguments)])


@pytest.fixture
def catalog(tmp_path):
    """A catalog whose ledger, access database and tokens are there."""
    server = Server(tmp_path)
    server.service.close()
    server.tables.close()
    return tmp_path / "catalog.toml"


def rewritten(catalog, *changes):
    text = CATALOG
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    catalog.write_text(text, encoding="utf-8")
    return catalog


def test_a_catalog_that_fits_can_be_served(catalog):
    told = run(catalog, "--check")
    assert told.exit_code == 0, told.output
    assert "can be served" in told.output
    assert run(catalog.with_name("none.toml"), "--check").exit_code == 1


@pytest.mark.slow
def test_terms_that_differ_are_refused_until_they_are_applied(catalog):
    rewritten(catalog, ("epsilon = 4.0", "epsilon = 1.0"), ("epsilon = 0.4", "epsilon = 0.2"))
    with pytest.raises(
        LedgerError, match=r"the ledger says epsilon 4.0, .* the catalog epsilon 1.0.*--apply"
    ):
        create_app(load_catalog(catalog))
    told = run(catalog, "--check")
    assert told.exit_code == 1
    assert "limit of 'bob': the ledger says epsilon 0.4" in told.output
    assert run(catalog, "--apply").exit_code != 0  # without a reason
    with Ledger(catalog.with_name("ledger.db")) as ledger:
        assert ledger.state("words").account.epsilon() == 4.0
    applied = run(catalog, "--apply", "--reason", "the owner decided")
    assert applied.exit_code == 0, applied.output
    create_app(load_catalog(catalog)).state.service.close()
    with Ledger(catalog.with_name("ledger.db")) as ledger:
        assert ledger.state("words").account.epsilon() == 1.0
        assert (
            next(e for e in ledger.entries() if e.kind == "renewal").body["reason"]
            == "the owner decided"
        )


def test_a_limit_is_never_set_without_the_reason(catalog, monkeypatch):
    """The reason was written after the limit, and lost where the process ended between the two."""
    rewritten(catalog, ("epsilon = 0.4", "epsilon = 0.2"))
    monkeypatch.setattr(Ledger, "set_limit", lambda *_, **__: (_ for _ in ()).throw(SystemExit(9)))
    with pytest.raises(SystemExit):
        apply(load_catalog(catalog), "a smaller part")
    tables = Tables(load_catalog(catalog).access)
    (line,) = Access(tables).newest_lines(limit=1)
    tables.close()
    assert line["outcome"] == "begun"
    assert line["detail"] == {"what": "limit of 'bob'", "reason": "a smaller part"}


def test_another_kind_of_budget_is_another_budget(catalog):
    registered = 'budget = { registered = "9*DP(0.1)", delta = 1e-5 }'
    rewritten(catalog, (TOTAL, registered))
    assert "the catalog registered" in run(catalog, "--check").output
    assert run(catalog, "--apply", "--reason", "so that nothing is left to choose").exit_code == 0
    assert run(catalog, "--check").exit_code == 0


@pytest.mark.parametrize(
    "source", ["words-{version}.csv", "./words-{version}.csv", "../{folder}/words-{version}.csv"]
)
def test_a_source_has_one_budget_whatever_it_is_called(catalog, source):
    source = source.replace("{folder}", catalog.parent.name)
    rewritten(catalog, ("[datasets.words]", "[datasets.verba]"), ("words-{version}.csv", source))
    with pytest.raises(LedgerError, match="the data of 'words'"):
        create_app(load_catalog(catalog))
    assert run(catalog, "--apply", "--reason", "other people").exit_code == 0
    create_app(load_catalog(catalog)).state.service.close()


def test_a_file_has_one_budget_whichever_version_names_it(catalog):
    """The data of another data set were read with the budget of the one whose version named them."""
    text = CATALOG.split("[datasets.hidden]", maxsplit=1)[0]
    other = text.partition("[datasets.words]")[2].replace("epsilon = 4.0", "epsilon = 0.1")
    other = f"[datasets.other]{other.replace('{version}', '1')}"
    catalog.write_text(text + other, encoding="utf-8")
    with pytest.raises(InvalidParameter, match="are the same file"):
        load_catalog(catalog)
    catalog.write_text(text + other.replace("words-1", "words-2"), encoding="utf-8")
    with Ledger(catalog.with_name("ledger.db")) as ledger:
        ledger.set_version("words", "2")
    with pytest.raises(LedgerError, match="the file of version '2' of 'words'"):
        create_app(load_catalog(catalog))


@pytest.mark.slow
def test_no_version_names_the_file_of_another_data_set(tmp_path):
    """An administrator's token opened the data of one data set to the budget of another."""
    text = CATALOG.replace(
        'source = "macbeth"', 'source = "words-own.csv"\nlabel="word"\ncount="n"'
    )
    write_words(tmp_path, "own")
    with (
        Server(tmp_path, text).running() as server,
        server.client("ann") as ann,
        server.client("eve") as eve,
    ):
        url = "/v1/datasets/words"
        assert eve.post(f"{url}/versions", json={"version": "2"}).status_code == 200
        refused = eve.post(f"{url}/versions", json={"version": "own"})
        assert refused.status_code == 422
        assert "belongs to another data set" in refused.json()["message"]
        server.service.reports.ledger.set_version("words", "own")  # as the command line does it
        asked = ann.post(f"{url}/topk", json=ASKED, headers={"Idempotency-Key": "a-key-of-ann"})
        assert asked.status_code == 422
        assert "belongs to another data set" in asked.json()["message"]
        assert not server.service.reports.ledger.history("words")


def test_the_versions_of_a_source_move_with_it(catalog):
    tables = Tables(load_catalog(catalog).access)
    spec = load_catalog(catalog).datasets["words"]
    claim_version(tables, spec, "2")
    rewritten(catalog, ("[datasets.words]", "[datasets.verba]"))
    moved = load_catalog(catalog).datasets["verba"]
    with pytest.raises(InvalidParameter, match="belongs to another data set"):
        claim_version(tables, moved, "2")
    assert run(catalog, "--apply", "--reason", "another name").exit_code == 0
    claim_version(tables, moved, "2")
    with pytest.raises(InvalidParameter, match="belongs to another data set"):
        claim_version(tables, spec, "2")
    tables.close()


def test_tokens_expire_and_readers_spend_nothing(server):
    server.tokens["late"] = server.access.create("ann", days=1e-9)
    server.tokens["reader"] = server.access.create("ann", "reader")
    with server.client("late") as late, server.client("reader") as reader:
        assert late.get("/v1/me").status_code == 401
        assert reader.get("/v1/datasets/words/budget").status_code == 200
        from .conftest import ASKED

        refused = reader.post(
            "/v1/datasets/words/topk", json=ASKED, headers={"Idempotency-Key": "reader-asks"}
        )
        assert refused.status_code == 403
    assert {row["expires"] is None for row in server.access.people()} == {False}


def test_tokens_of_older_databases_are_read(tmp_path):
    import sqlite3

    tables = Tables(str(tmp_path / "access.db"))
    token = Access(tables).create("ann")
    tables.close()
    with sqlite3.connect(tmp_path / "access.db") as file:
        file.execute("ALTER TABLE service_tokens DROP COLUMN expires")
    tables = Tables(str(tmp_path / "access.db"))
    access = Access(tables)
    access.read()
    assert access.person(token).analyst == "ann"
    tables.close()


def test_a_question_of_the_catalog_before_leaves_nothing_for_that_of_now(server):
    """It stored the counts of the old source for the new one, under the same version."""
    path, service = server.folder / "catalog.toml", server.service
    before = service.catalog.datasets["words"]
    text = (server.folder / "words-1.csv").read_text(encoding="utf-8")
    moved = server.folder / "moved"
    moved.mkdir()
    (moved / "words-1.csv").write_text(text.replace("918273", "7"), encoding="utf-8")
    rewritten(path, ('source = "words-', 'source = "moved/words-'))
    apply(load_catalog(path), "the data have moved")
    service.reload()
    now = service.catalog.datasets["words"]
    counts = [
        service.histograms.get(spec, "1", {}, SegmentReading(), lambda *_: None)[""].counts.max()
        for spec in (before, now)
    ]
    assert counts == [918273, 604513]
    plans = [service.plans.get(spec, TopK(**ASKED)) for spec in (before, now)]
    assert plans[0] is not plans[1]
    pages = [
        service.get_or_compute(spec, ("page",), lambda spec=spec: spec) for spec in (before, now)
    ]
    assert [page is spec for page, spec in zip(pages, (before, now), strict=True)] == [True, True]


def test_a_catalog_is_read_again_without_a_restart(server):
    path, service = server.folder / "catalog.toml", server.service
    with server.client("ann") as ann:
        assert len(ann.get("/v1/datasets").json()) == 2
        rewritten(path, ('analysts = ["ann"]', 'analysts = ["bob"]'))
        told = run(path, "--reload")
        assert told.exit_code == 0, told.output
        assert service.tables.value(Tables.settings, RELOAD) == 1
        service.reload_if_asked()
        assert [one["name"] for one in ann.get("/v1/datasets").json()] == ["words"]
        rewritten(path, ("epsilon = 4.0", "epsilon = 9.0"))
        with pytest.raises(LedgerError, match="the catalog epsilon 9"):
            service.reload()
        assert run(path, "--reload").exit_code == 1
        assert service.catalog.datasets["words"].terms.budget.epsilon == 4.0


def test_a_reload_that_failed_is_tried_again(server, monkeypatch):
    """The worker served the old catalog until its operator asked once more."""
    path, service = server.folder / "catalog.toml", server.service
    rewritten(path, ('analysts = ["ann"]', 'analysts = ["bob"]'))
    assert run(path, "--reload").exit_code == 0
    real, calls = service.reload, []

    def busy() -> None:
        calls.append(None)
        if len(calls) < 3:
            raise LedgerError("database is locked")
        real()

    monkeypatch.setattr(service, "reload", busy)
    for _ in range(2):
        with pytest.raises(LedgerError, match="locked"):
            service.reload_if_asked()
    service.reload_if_asked()
    assert service.catalog.datasets["hidden"].analysts == ("bob",)
    service.reload_if_asked()
    assert len(calls) == 3


def test_a_catalog_that_stays_refused_is_read_for_a_minute(server, monkeypatch):
    service = server.service
    service.tables.change(service.tables.add_statement(Tables.settings, RELOAD, 1))
    calls = []

    def refused() -> None:
        calls.append(None)
        raise InvalidParameter("catalog: a new ledger needs a restart")

    monkeypatch.setattr(service, "reload", refused)
    for _ in range(RELOAD_TRIES + 3):
        with contextlib.suppress(InvalidParameter):
            service.reload_if_asked()
    assert len(calls) == RELOAD_TRIES


def test_the_log_names_the_regular_task_that_failed(server, monkeypatch, caplog):
    def failing() -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(server.service.access, "sweep", lambda _days: failing())
    monkeypatch.setattr(server.service, "_swept", -math.inf)
    server.service._do_regular_tasks()
    assert caplog.messages == ["old lines of the audit log were not deleted: the disk is full"]


def test_health(server, monkeypatch):
    with server.client(None) as nobody:
        assert nobody.get("/health").json() == {"status": "ok"}
        monkeypatch.setattr(server.service, "_health", (-1, True))
        (server.folder / "ledger.db").rename(server.folder / "moved.db")
        failing = nobody.get("/health")
        assert (failing.status_code, failing.json()) == (503, {"status": "failing"})
        (server.folder / "moved.db").rename(server.folder / "ledger.db")


def test_an_address_for_everybody_is_warned_of(monkeypatch, catalog):
    monkeypatch.setattr("dptopk.cli.serve._run", lambda *_: None)
    # that is the point
    assert "unencrypted" in run(catalog, "--host", "0.0.0.0", "--port", "0").output  # noqa: S104
    assert "unencrypted" not in run(catalog, "--port", "0").output


@pytest.mark.slow
def test_a_backup_is_restored_by_the_recipe(tmp_path):
    """docs/deploy.md: both databases are copied while the service runs, and put back; the head file
    tells of losses.
    """
    import sqlite3

    from .conftest import ASKED

    (tmp_path / "elsewhere").mkdir()
    text = CATALOG.replace(
        'ledger = "ledger.db"', 'ledger = "ledger.db"\nhead_file = "elsewhere/head.json"'
    )
    key = {"Idempotency-Key": "before-the-copy"}
    with Server(tmp_path, text).running() as server, server.client("ann") as ann:
        answer = ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).json()
        backed = CliRunner().invoke(
            app,
            [
                "ledger",
                "backup",
                str(tmp_path / "ledger.db"),
                "--out",
                str(tmp_path / "elsewhere" / "ledger.db"),
            ],
        )
        assert backed.exit_code == 0, backed.output
        with sqlite3.connect(tmp_path / "ledger.db.access") as file:
            file.execute("VACUUM INTO ?", (str(tmp_path / "elsewhere" / "access.db"),))
        token = server.tokens["ann"]
    for lost in tmp_path.glob("ledger.db*"):
        lost.unlink()
    shutil.copy(tmp_path / "elsewhere" / "ledger.db", tmp_path / "ledger.db")
    shutil.copy(tmp_path / "elsewhere" / "access.db", tmp_path / "ledger.db.access")
    with Server(tmp_path, text).running() as server:
        server.tokens["ann"] = token
        with server.client("ann") as ann:
            assert ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).json() == answer


@pytest.mark.parametrize("why", ["earlier format", "was migrated", "head of this ledger"])
def test_a_ledger_that_would_grant_nothing_is_told_by_the_check(catalog, why):
    ledger = catalog.with_name("ledger.db")
    if why == "earlier format":
        ledger.unlink()
        text = (Path(__file__).parents[1] / "ledger/formats/6f1a7a7.sql").read_text("utf-8")
        with contextlib.closing(sqlite3.connect(ledger)) as file:
            file.executescript(text)
        (catalog.parent / "key").write_text("a secret of the tests")
        rewritten(catalog, ('ledger = "ledger.db"', 'ledger = "ledger.db"\nkey_file = "key"'))
    elif why == "was migrated":
        Ledger.migrate(ledger, catalog.with_name("new.db"))
    else:
        Ledger.attach_witness(ledger, catalog.with_name("head.json"), reason="from now on")
    told = run(catalog, "--check")
    assert told.exit_code == 1
    assert why in told.output


@pytest.mark.slow
def test_data_that_were_served_before_get_no_new_ledger(catalog):
    """Their budget would come back with it; the access database knows them, and says so."""
    service = load_catalog(catalog)

    def start():
        with contextlib.closing(Tables(service.access)) as tables:
            open_ledger(service, tables).close()

    start()
    away = catalog.parent / "away"
    away.mkdir()
    for file in catalog.parent.glob("ledger.db*"):
        if "access" not in file.name:
            file.rename(away / file.name)
    for _ in range(2):
        with pytest.raises(LedgerError, match="served before"):
            start()
        assert not (catalog.parent / "ledger.db").exists()
    told = run(catalog, "--check")
    assert told.exit_code == 1
    assert "served before" in told.output
    Ledger(service.ledger).close()  # an empty one is none either
    with pytest.raises(LedgerError, match="nothing of it"):
        start()
    assert run(catalog, "--check").exit_code == 1
    assert run(catalog, "--apply", "--reason", "the data are others").exit_code == 0
    start()
    with Ledger(service.ledger, read_only=True) as ledger:
        reasons = [entry.body["reason"] for entry in ledger.entries() if entry.kind == "renewal"]
        assert set(reasons) == {"the data are others"}


def test_another_ledger_on_the_same_terms_is_refused(catalog):
    """A ledger that was made anew in the place of the one before had the whole budget again."""
    service = load_catalog(catalog)

    def start(named):
        with contextlib.closing(Tables(named.access)) as tables:
            open_ledger(named, tables).close()

    start(service)
    place = Path(service.ledger)
    place.rename(place.with_name("former.db"))
    start(replace(service, access=str(place.with_name("other.access"))))  # it knows no data
    with pytest.raises(LedgerError, match="another ledger"):
        start(service)
    told = run(catalog, "--check")
    assert told.exit_code == 1
    assert "another ledger" in told.output
    assert run(catalog, "--apply", "--reason", "the former one is lost").exit_code == 0
    start(service)
    with contextlib.closing(Tables(service.access)) as tables:
        lines = Access(tables).newest_lines()
    assert {line["detail"]["reason"] for line in lines} == {"the former one is lost"}
    with Ledger(service.ledger, read_only=True) as ledger:  # what was spent in it stays spent
        assert all(ledger.state(name).renewals == 0 for name in ledger.datasets())
    new = place.with_name("new.db")
    Ledger.migrate(place, new)
    start(replace(service, ledger=str(new)))
    new.rename(place)
    place.with_name("former.db").rename(new)
    with pytest.raises(LedgerError, match="another ledger"):
        start(replace(service, ledger=str(new)))


def begin(service):
    with contextlib.closing(Tables(service.access)) as tables:
        open_ledger(service, tables).close()


def test_an_empty_ledger_is_refused_for_data_that_have_moved(catalog):
    """Their whole budget came back where ledger and data were both put at other places."""
    service = load_catalog(catalog)
    begin(service)
    for file in catalog.parent.glob("ledger.db*"):
        if "access" not in file.name:
            file.unlink()
    Ledger(service.ledger).close()
    moved = catalog.with_name("moved")
    moved.mkdir()
    for table in catalog.parent.glob("words-*.csv"):
        table.rename(moved / table.name)
    rewritten(catalog, ('source = "words-{version}.csv"', 'source = "moved/words-{version}.csv"'))
    with pytest.raises(LedgerError, match="nothing of it, the catalog data that were served"):
        begin(load_catalog(catalog))
    assert run(catalog, "--apply", "--reason", "the disk is lost").exit_code == 0
    begin(load_catalog(catalog))


def test_an_accepted_ledger_is_never_without_the_reason(catalog, monkeypatch):
    """Where the process was killed before the line of the audit log, the ledger was accepted."""
    service = load_catalog(catalog)
    begin(service)
    place = Path(service.ledger)
    place.rename(place.with_name("former.db"))
    begin(replace(service, access=str(place.with_name("other.access"))))

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Access, "line_statement", killed)
        with pytest.raises(KeyboardInterrupt):
            apply(service, "the former one is lost")
    with pytest.raises(LedgerError, match=r"datasets.words: another ledger"):
        begin(service)


def test_a_ledger_that_was_migrated_twice_is_known(catalog):
    service = load_catalog(catalog)
    begin(service)
    places = [Path(service.ledger).with_name(name) for name in ("one.db", "two.db", "three.db")]
    for old, new in itertools.pairwise([service.ledger, *places]):
        Ledger.migrate(old, new)
    begin(replace(service, ledger=str(places[-1])))


def test_the_shipped_table_is_the_same_from_every_folder(catalog, monkeypatch, tmp_path):
    """It was a file of the folder in which the service was started, and refused in another."""
    service = load_catalog(catalog)
    begin(service)
    with contextlib.closing(Tables(service.access)) as tables:  # as earlier versions recorded it
        earlier = sa.update(Tables.current).where(Tables.current.c.dataset == "hidden")
        tables.change(earlier.values(source="/srv/macbeth"))
    monkeypatch.chdir(tmp_path)
    begin(service)


def test_a_budget_without_terms_is_not_compared_with_the_ledger():
    with pytest.raises(InvalidParameter, match="budget"):
        _plain_terms_of_catalog(CatalogBudget())


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("postgresql://ann:secret@host/db", "'postgresql database db'"),
        ("postgresql://ann:secret@host", "'postgresql database '"),
        ("postgresql://host//a/db?password=secret/x", "'postgresql database db'"),
        ("postgresql://ann:sec/ret@host", "'postgresql database '"),
        ("/data/words.parquet", "'words.parquet'"),
    ],
)
def test_the_name_of_a_source_shows_no_password(source, name):
    assert _source_name(source) == name
