"""``dptopk ledger``, and ``dptopk topk --ledger``."""

from __future__ import annotations

import json
import re
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

from dptopk import Histogram, Session, compose, plan_topk
from dptopk.cli import app
from dptopk.cli.topk import _delta_of_question
from dptopk.costs import BoundedRange, Budget, Charge, PureDP
from dptopk.datasets import macbeth_counts
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.ledger import Ledger
from dptopk.question import Question

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def run(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.db"
    result = run(
        "ledger",
        "init",
        path,
        "--dataset",
        "words",
        "--epsilon",
        3,
        "--delta",
        1e-5,
        "--labels-per-user",
        1,
    )
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture
def ask(ledger, tmp_path):
    counts = tmp_path / "counts.csv"
    macbeth_counts().to_csv(counts, index=False)

    def topk(*more, analyst="ann"):
        arguments = (
            "--label-col",
            "word",
            "--k",
            5,
            "--epsilon",
            0.5,
            "--delta",
            1e-7,
            "--labels-per-user",
            1,
        )
        return run(
            "topk",
            counts,
            *arguments,
            "--ledger",
            ledger,
            "--dataset",
            "words",
            "--analyst",
            analyst,
            *more,
        )

    return topk


@pytest.mark.slow
def test_an_answer_is_charged_and_shown(ledger, ask, tmp_path):
    assert ask().exit_code == 0
    assert ask(analyst="bob").exit_code == 0
    picture = tmp_path / "spent.png"
    shown = run("ledger", "show", ledger, "--dataset", "words", "--plot", picture)
    assert shown.exit_code == 0, shown.output
    for text in (
        "(3, 1e-05)-DP",
        "ann",
        "bob",
        "affordable",
        "released",
        "left:",
        "one user moves at most 1 label,",
    ):
        assert text in shown.output
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_registration_is_shown_with_what_is_left(tmp_path):
    path = tmp_path / "registered.db"
    costs = "100*BR(0.1) + 10*DP(0.1) + delta(1e-6)"
    assert (
        run(
            "ledger", "init", path, "--dataset", "d", "--registered", costs, "--delta", 1e-5
        ).exit_code
        == 0
    )
    with Ledger(path) as opened:
        opened.charge("d", "ann", Charge({BoundedRange(0.1): 25}, delta=1e-8))
    shown = run("ledger", "show", path)
    assert "75*BR(0.1)" in shown.output
    assert "25.0%" in shown.output
    assert "charged, no answer recorded" in shown.output
    limited = run(
        "ledger",
        "limit",
        path,
        "--dataset",
        "d",
        "--analyst",
        "ann",
        "--registered",
        "30*BR(0.1)",
        "--delta",
        1e-5,
    )
    assert limited.exit_code == 2  # its delta is below what was spent
    renewed = run(
        "ledger",
        "renew",
        path,
        "--dataset",
        "d",
        "--registered",
        costs,
        "--delta",
        1e-5,
        "--reason",
        "new year",
    )
    assert "25*BR(0.1)" in renewed.output
    assert "lifetime" in run("ledger", "show", path).output


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "cost"), [(1, "DP("), (5, "SGauss(")])
def test_a_registered_question_may_be_asked_as_often_as_it_was_registered(labels, cost, tmp_path):
    """Truncated Laplace and thresholded Gaussian counts: what `--query` registers pays for that
    very plan.
    """
    path, counts = tmp_path / "planned.db", tmp_path / "counts.csv"
    macbeth_counts().to_csv(counts, index=False)
    cap = ["--labels-per-user", labels]
    counts_as = "laplace" if labels == 1 else "gaussian"
    query = ("--query", f"k=5 epsilon=0.5 delta=1e-7 counts={counts_as}", "--times", 2)
    made = run("ledger", "init", path, "--dataset", "words", *query, "--delta", 1e-6, *cap)
    assert made.exit_code == 0, made.output
    assert cost in made.output
    ask = ("topk", counts, "--label-col", "word", "--k", 5, "--epsilon", 0.5, "--delta", 1e-7, *cap)
    ask += ("--counts", counts_as)
    codes = [
        run(*ask, "--ledger", path, "--dataset", "words", "--analyst", "ann").exit_code
        for _ in range(3)
    ]
    assert codes == [0, 0, 3]


@pytest.mark.slow
def test_who_asks_again_is_told_of_reuse(ask):
    assert "--reuse" not in ask().stderr
    assert "--reuse gives that answer, free" in ask().stderr
    assert "--reuse" not in ask("--reuse").stderr


@pytest.mark.slow
def test_reuse_gives_the_stored_answer(ledger, ask):
    first = json.loads(ask("--format", "json").output)
    again = json.loads(ask("--format", "json", "--reuse", analyst="bob").output)
    assert again["rows"] == first["rows"]
    assert again["charge"] == "0"


@pytest.mark.slow
def test_an_exhausted_budget_refuses(ledger, ask):
    with Ledger(ledger) as opened:
        opened.charge("words", "bob", Charge({PureDP(0.5): 4}))
    answered = 0
    while (result := ask()).exit_code == 0:
        answered += 1
    assert 0 < answered < 20
    assert result.exit_code == 3  # an exit code of its own
    assert "budget exceeded" in result.output
    with Ledger(ledger) as opened:
        assert len(opened.history("words")) == 1 + answered


@pytest.mark.slow
def test_verify_says_what_it_can_and_cannot_detect(ledger, ask, tmp_path):
    ask()
    whole = run("ledger", "verify", ledger)
    assert whole.exit_code == 0
    assert "the chain is whole" in whole.output
    assert "cannot find" in whole.output
    head = tmp_path / "head.json"
    assert run("ledger", "export", ledger, "--head", "--out", head).exit_code == 0
    assert run("ledger", "verify", ledger, "--head", head).exit_code == 0
    with sqlite3.connect(ledger) as connection:
        connection.execute("DROP TRIGGER entries_no_delete")
        connection.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    assert run("ledger", "verify", ledger).exit_code == 0
    cut = run("ledger", "verify", ledger, "--head", head)
    assert cut.exit_code == 1
    assert "tail is missing" in cut.output


def test_nothing_is_written_over_the_head_file_of_a_ledger(tmp_path):
    """Not even by a command that was not told of it: a restored ledger would then pass for the
    newest one.
    """
    path, live, exported = tmp_path / "l.db", tmp_path / "live.json", tmp_path / "exported.json"
    made = run(
        "ledger",
        "init",
        path,
        "--dataset",
        "d",
        "--registered",
        "DP(0.1)",
        "--delta",
        0,
        "--head-file",
        live,
    )
    assert made.exit_code == 0, made.output
    for _ in range(2):
        assert run("ledger", "export", path, "--head", "--out", exported).exit_code == 0
    before = live.read_bytes()
    for head in (["--head"], []):
        refused = run("ledger", "export", path, *head, "--out", live)
        assert refused.exit_code == 2
        assert "--out" in refused.output
        assert "head file of a ledger" in refused.output
    assert live.read_bytes() == before == exported.read_bytes()


def test_what_knows_no_ledger_does_not_write_over_one(tmp_path):
    path = tmp_path / "l.db"
    with Ledger(path):
        pass
    before = path.read_bytes()
    for command in (["certify", "2*BR(0.1)", "--delta", "1e-6", "--out"], ["datasets", "macbeth"]):
        refused = run(*command, path)
        assert refused.exit_code == 2
        assert "SQLite database" in refused.output
    assert path.read_bytes() == before


def test_a_name_too_long_for_the_file_of_a_lock_is_refused_in_words(tmp_path):
    out = tmp_path / ("x" * 250)
    refused = run("ledger", "export", tmp_path / "l.db", "--out", out)
    assert refused.exit_code == 2
    assert f"--out: {str(out)!r} cannot be written" in "".join(refused.output.splitlines())


@pytest.mark.slow
def test_a_changed_entry_is_found(ledger, ask):
    ask()
    with sqlite3.connect(ledger) as connection:
        connection.execute("DROP TRIGGER entries_no_update")
        connection.execute("UPDATE entries SET analyst = 'eve' WHERE kind = 'charge'")
    found = run("ledger", "verify", ledger)
    assert found.exit_code == 1
    assert "wrong hash" in found.output
    assert ask().exit_code == 4


@pytest.mark.slow
def test_export_is_one_json_object_an_entry(ledger, ask):
    ask()
    lines = [json.loads(line) for line in run("ledger", "export", ledger).output.splitlines()]
    assert [line["kind"] for line in lines] == ["ledger", "dataset", "charge", "release"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--dataset", "d", "--delta", 1e-5), "exactly one"),
        (
            ("--dataset", "d", "--delta", 1e-5, "--epsilon", 1, "--registered", "BR(1)"),
            "exactly one",
        ),
        (("--dataset", "d", "--delta", 1e-5, "--registered", "FOO(1)"), "FOO"),
        (("--dataset", "words", "--delta", 1e-5, "--epsilon", 1), "exists"),
        (
            ("--dataset", "d", "--delta", 1e-5, "--epsilon", 1, "--failure-delta", 2e-5),
            "at most the budget",
        ),
        (
            ("--dataset", "d", "--delta", 1e-5, "--registered", "BR(1)", "--failure-delta", 1e-6),
            "is for --epsilon",
        ),
        (("--dataset", "d", "--delta", 1e-5, "--epsilon", 1, "--key-file", "/no/key"), "key-file"),
    ],
)
def test_bad_arguments_exit_with_2(ledger, arguments, named):
    result = run("ledger", "init", ledger, *arguments)
    assert result.exit_code == 2
    assert named in result.output


def test_the_ledger_says_what_a_flag_does_not(ledger, tmp_path, monkeypatch):
    """Caps and δ: absent, they are the ledger's; others than the ledger's are refused with both
    values.
    """
    words = tmp_path / "few.csv"
    words.write_text("label,count\nthe,900\nof,700\n")
    run(
        "ledger",
        "init",
        ledger,
        "--dataset",
        "few",
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--labels-per-user",
        1,
    )
    who = ("--ledger", ledger, "--dataset", "few", "--analyst", "ann")
    for flag, value, known in (
        ("--labels-per-user", 5, 1),
        ("--per-label-cap", 2, 1),
        ("--delta", 1e-5, "1e-06"),
    ):
        refused = run("topk", words, "--k", 2, "--epsilon", 0.5, flag, value, *who)
        assert refused.exit_code == 2
        assert all(str(part) in refused.output for part in (flag, value, known))
    seen = []
    from dptopk.planning import choose

    plan = choose.plan_topk
    monkeypatch.setattr(
        choose,
        "plan_topk",
        lambda *a, **given: seen.append((given, plan(*a, **given))) or seen[-1][1],
    )
    assert run("topk", words, "--k", 2, "--epsilon", 1, *who).exit_code == 0
    given, made = seen[0]
    assert given["sensitivity"].l0 == 1
    assert made.budget.delta == 1e-6
    again = run("topk", words, "--k", 2, "--epsilon", 0.5, *who)
    assert "what fits" in again.output or "set aside for the deltas" in again.output.replace(
        "\n", " "
    )


def test_a_ledger_in_rho(tmp_path):
    ledger = tmp_path / "rho.db"
    made = run(
        "ledger",
        "init",
        ledger,
        "--dataset",
        "d",
        "--rho",
        0.5,
        "--delta",
        1e-6,
        "--labels-per-user",
        1,
    )
    assert "0.5-zCDP but for failures of at most 5e-07; (" in made.output.replace("\n", " ")
    assert (
        run(
            "ledger",
            "limit",
            ledger,
            "--dataset",
            "d",
            "--analyst",
            "a",
            "--rho",
            0.1,
            "--delta",
            0,
        ).exit_code
        == 0
    )
    both = run(
        "ledger", "init", ledger, "--dataset", "e", "--rho", 0.5, "--epsilon", 1, "--delta", 1e-6
    )
    assert both.exit_code == 2
    assert "exactly one" in both.output


def test_a_seed_needs_a_test_ledger(ask):
    assert "fixed seed" in ask("--seed", 1).output


def test_show_as_json_says_what_is_left(tmp_path):
    counts = tmp_path / "counts.csv"
    counts.write_text("label,count\nthe,900\nand,800\n", encoding="utf-8")
    url = tmp_path / "l.db"
    terms = (
        "--dataset",
        "d",
        "--registered",
        "4*DP(0.5) + delta(1e-6)",
        "--delta",
        1e-5,
        "--labels-per-user",
        1,
    )
    assert run("ledger", "init", url, *terms).exit_code == 0
    (shown,) = json.loads(run("ledger", "show", url, "--format", "json").output)
    assert shown["dataset"] == "d"
    assert shown["left"] == "4*DP(0.5) + delta(1e-06)"
    assert shown["epsilon_spent"] == 0
    assert shown["epsilon_left"] <= shown["epsilon_total"] <= 2
    assert shown["fits"] == {}


@pytest.mark.slow
def test_ranges_may_be_declared_for_free_choice(tmp_path):
    path = tmp_path / "ranges.db"
    arguments = ("--dataset", "d", "--epsilon", 2.0, "--delta", 1e-6)
    assert run("ledger", "init", path, *arguments, "--ranges", "0.1,x").exit_code == 2
    assert not path.exists()
    declared = ("--ranges", "0.1", "--costs", "DGauss(20, 1)")
    assert run("ledger", "init", path, *arguments, *declared).exit_code == 0
    with Ledger(path) as opened:
        for cost in ("BR(0.1)", "DGauss(20, 1)"):
            assert opened.summary("d").fits(Charge.parse(cost)) > 70


@pytest.mark.parametrize("command", ["verify", "export", "show"])
def test_a_missing_key_file_is_named_and_not_a_traceback(ledger, tmp_path, command):
    result = run("ledger", command, ledger, "--key-file", tmp_path / "none.key")
    assert result.exit_code == 2
    assert "key-file: cannot read 'none.key'" in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "show LEDGER --key-file",
        "verify LEDGER --head",
        "rekey LEDGER --new-key-file",
        "export LEDGER --out",
        "backup LEDGER --out",
    ],
)
def test_a_file_of_the_ledger_is_taken_for_nothing_else(ledger, tmp_path, command):
    """Reading it would drop the locks of the process, and SQLite would take it for its own."""
    (tmp_path / "link.db").symlink_to(ledger)
    for named in (ledger, tmp_path / "link.db"):
        arguments = command.replace("LEDGER", str(named)).split()
        for ending in ("-wal", "-shm", ""):
            told = run("ledger", *arguments, f"{ledger}{ending}")
            assert told.exit_code != 0
            expected = "a file of the ledger|by this very command|of SQLite's own|exists already"
            assert re.search(expected, told.output), told.output
    assert {file.name for file in tmp_path.glob("*-[ws]*")} == set()


@pytest.mark.slow
def test_a_question_in_rho_takes_its_part_of_a_ledger_in_rho(tmp_path):
    """Two questions for half of ρ each are what a ledger has; their δ, where none is given, is half
    of it too.
    """
    ledger, counts = tmp_path / "rho.db", tmp_path / "counts.csv"
    counts.write_text("label,count\na,90000\nb,80000\n", encoding="utf-8")
    init = ("--dataset", "d", "--rho", 0.5, "--delta", 1e-6, "--labels-per-user", 1)
    assert run("ledger", "init", ledger, *init).exit_code == 0
    asked = (
        "topk",
        counts,
        "--k",
        2,
        "--rho",
        0.25,
        "--ledger",
        ledger,
        "--dataset",
        "d",
        "--analyst",
        "ann",
    )
    for _ in range(2):
        answer = run(*asked, "--format", "json")
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["guarantee"]["delta"] <= 2.5e-7
    assert run(*asked).exit_code == 3
    with Ledger(ledger, create=False) as book:
        (price,) = {book.state("d").account.price(cost)[0] for cost in book.spent("d").costs}
        assert 0.49 < 2 * price <= 0.5


def test_what_was_charged_is_shown_rounded_up(tmp_path):
    """A long δ is shown with six digits, never below what was charged; programs get all digits."""
    ledger, delta = tmp_path / "l.db", 5.000000000000001e-07
    init = ("--dataset", "d", "--epsilon", 3, "--delta", 1e-5, "--labels-per-user", 1)
    assert run("ledger", "init", ledger, *init).exit_code == 0
    with Ledger(ledger, create=False) as book:
        book.charge("d", "ann", Charge({PureDP(0.123456789): 1}, delta=delta))
    shown = run("ledger", "show", ledger).stdout
    assert "DP(0.123457) + delta(5.00001e-07)" in shown
    assert str(delta) not in shown
    assert json.loads(run("ledger", "show", ledger, "--format", "json").stdout)[0][
        "spent"
    ].endswith(f"delta({delta})")


def test_verify_takes_the_head_file_for_a_head(tmp_path):
    """An older state put back is whole by itself; but the ledger has a head, which is asked for."""
    ledger, head = tmp_path / "l.db", tmp_path / "head.json"
    init = ("--dataset", "d", "--epsilon", 1, "--delta", 1e-6, "--head-file", head)
    assert run("ledger", "init", ledger, *init).exit_code == 0
    older = ledger.read_bytes()
    with Ledger(ledger, create=False, head_file=head) as book:
        book.charge("d", "ann", Charge({PureDP(0.1): 1}))
    assert run("ledger", "verify", ledger, "--head-file", head).exit_code == 0
    for journal in tmp_path.glob("l.db-*"):
        journal.unlink()
    ledger.write_bytes(older)
    assert "head of this ledger is missing" in run("ledger", "verify", ledger).output
    told = run("ledger", "verify", ledger, "--head-file", head)
    assert told.exit_code == 1
    assert "tail is missing" in told.output


def test_a_question_in_rho_leaves_delta_to_later_ones_of_a_ledger_in_epsilon(tmp_path):
    """Without --delta it takes a part of the ledger's, as a question in ε does: a pure ε costs ρ =
    ε²/2.
    """
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset(
            "d", budget=Budget(3, 1e-5), unit="user", version="1", sensitivity=Sensitivity(1, 1)
        )
        state = ledger.state("d")
        assert (
            _delta_of_question(Question(k=2, rho=0.045), state)
            == _delta_of_question(Question(k=2, epsilon=0.3), state)
            == pytest.approx(5e-7)
        )
        assert (
            _delta_of_question(Question(k=2, accuracy=9.0), state)
            == _delta_of_question(Question(k=2, rho=9.0), state)
            == 1e-5
        )


@pytest.mark.slow
def test_a_long_history_says_when_a_registration_would_have_fitted_more(tmp_path):
    url = tmp_path / "long.db"
    charge = Charge({PureDP(0.1): 1}, delta=3e-8)
    with Ledger(url, create=True) as ledger:
        ledger.create_dataset("d", budget=Budget(3, 1e-6))
        for _ in range(9):
            ledger.charge("d", "ann", charge, mechanism={"text": "the five"})
        assert "registered beforehand" not in run("ledger", "show", url).output
        ledger.charge("d", "ann", charge, mechanism={"text": "the five"})
    shown = run("ledger", "show", url).output
    assert re.search(r"registered beforehand, \d+ of the five would fit, not \d+", shown)
    assert "left:      ε up to" in shown


@pytest.mark.slow
def test_a_long_history_says_when_gaussian_noise_would_have_fitted_more(tmp_path):
    url = tmp_path / "long.db"
    words = Histogram({"the": 900, "of": 700, "and": 500}, sensitivity=Sensitivity(l0=1))
    with Ledger(url, test=True) as ledger:
        ledger.create_dataset("d", budget=Budget(1, 1e-6), sensitivity=words.sensitivity)
        rng = np.random.default_rng(1)
        session = Session(words, ledger=ledger, dataset="d", analyst="ann", rng=rng)
        for _ in range(10):
            session.top_k(2, budget=Budget(0.02, 1e-9), counts="laplace", look=None)
    shown = run("ledger", "show", url).output.replace("\n", " ")
    found = re.search(r'registered beforehand, .*?(\d+) with counts="gaussian" of', shown)
    assert found is not None, shown
    plan = plan_topk(2, Budget(0.02, 1e-9), counts="gaussian", sensitivity=words.sensitivity)
    assert compose(plan.charge.times(int(found[1])), delta=1e-6).epsilon <= 1
