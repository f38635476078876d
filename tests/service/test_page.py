"""The page in a real Chromium: the whole way from a token to a chart, by keyboard too, dark,
narrow, and escaped.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import shutil
import tomllib

import pytest
from typer.testing import CliRunner

from dptopk._internal.formatting import FORMULA
from dptopk.cli.commands import app
from dptopk.costs import Charge

from .conftest import Server
from .test_streams import ASKED as DAILY, STREAMS, write_day

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
PROGRAM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)

untested = "the page was NOT tested: there is no Chromium here (`make browser` installs Debian's)"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason=untested)]
SECONDS = 180_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("page")).running() as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield made
        made.close()


def opened(browser, server, who, **options):
    """A page after signing in; everything that went wrong in it, and every host it spoke to."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(SECONDS)
    page.wrong, page.hosts = [], set()
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda line: page.wrong.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda request: page.hosts.add(request.url.split("/")[2]) if "://" in request.url else None,
    )
    page.on("dialog", lambda dialog: page.wrong.append("a label ran as a script"))
    page.goto(server.url)
    page.fill("#token", server.tokens[who])
    page.keyboard.press("Enter")
    page.wait_for_selector("#go:not([disabled])")
    return page


def test_from_token_to_chart(browser, server):
    page = opened(browser, server, "ann")
    before = page.inner_text("#promise") + page.inner_text("#balance")
    assert "ε = " in before
    assert " 0% used (" in before
    assert len(page.query_selector_all("#foreseen .whisker")) == 1
    page.click("#go")
    page.wait_for_selector("#answer svg")
    page.click("#answer summary")
    labels = [text.text_content() for text in page.query_selector_all("#answer td:nth-child(2)")]
    assert "<img src=x onerror=alert(1)>" in labels  # as text: it neither loaded nor ran
    assert page.query_selector_all("#answer img") == []
    assert (
        len(page.query_selector_all("#answer .whisker"))
        == len(page.query_selector_all("#answer tbody tr"))
        > 0
    )
    with page.expect_download() as download:
        page.click("#answer a:text('CSV')")
    rows = download.value.path().read_text(encoding="utf-8").splitlines()
    assert rows[0] == "rank,label,count,low,high,rank_low,rank_high"
    assert len(rows) == 1 + len(page.query_selector_all("#answer tbody tr"))
    for start in FORMULA:  # as on the command line
        written = page.evaluate(
            "text => import('/csv.js').then(m => m.csv(['a'], [{ a: text }]))", f"{start}1+1"
        )
        assert next(itertools.islice(csv.reader(io.StringIO(written, newline="")), 1, None)) == [
            f"'{start}1+1"
        ]
    page.wait_for_selector("#go:not([disabled])")
    assert " 0% used (" not in page.inner_text("#balance")
    assert page.wrong == []
    assert page.hosts <= {server.url.split("/")[2]}
    assert len(server.service.reports.ledger.recent("words", analyst="ann")) == 1
    page.context.close()


def test_an_answer_that_breaks_off_is_paid_once(browser, server):
    """Half an answer was taken for a whole one: the same question asked again had a new key. And
    without its budgets an answer was not shown.
    """

    def broken(route):
        route.fulfill(status=200, body=route.fetch().text()[:-20])

    page = opened(browser, server, "bob")
    page.route("**/topk?*", broken)
    page.click("#go")
    page.wait_for_selector("#message:text('not charged twice')")
    page.unroute("**/topk?*")
    page.wait_for_selector("#go:not([disabled])")
    page.route("**/budget", lambda route: route.abort())
    page.click("#go")
    page.wait_for_selector("#answer svg")
    assert len(server.service.reports.ledger.recent("words", analyst="bob")) == 1
    page.context.close()


def test_a_stream_s_chart(browser, tmp_path):
    """Totals with their bars, of chosen labels; one that would run is a text; the next day is asked
    for.
    """
    label = "<img src=x onerror=alert(1)>"
    for day, counts in enumerate(
        ({"tea": 5000, label: 3000}, {"tea": 4000, "ale": 9000}, {"rum": 700}), 1
    ):
        write_day(tmp_path, day, **counts)
    with Server(tmp_path, STREAMS).running() as server, server.client("ann") as ann:
        at = "/v1/datasets/sales/streams"
        assert ann.post(at, json=DAILY | {"k": 3, "stream": "top"}).status_code == 200
        for day in "12":
            assert ann.post(f"{at}/top/days", json={"day": day}).status_code == 200
        page = opened(browser, server, "ann", viewport={"width": 390, "height": 740})
        page.click("#tab-streams")
        page.wait_for_selector("#stream-chart svg")
        assert "2 of 4 days" in page.inner_text("#stream-about")
        assert [one.text_content() for one in page.query_selector_all("#stream-labels label")] == [
            label,
            "ale",
            "tea",
        ]
        assert (
            len(page.query_selector_all("#stream-chart circle")) == 5
        )  # two of two labels, one of ale
        page.focus("#stream-labels label:nth-child(2) input")
        page.keyboard.press("Space")
        assert len(page.query_selector_all("#stream-chart circle")) == 4
        assert page.evaluate("document.activeElement.parentElement.textContent") == "ale"
        assert page.inner_text("#stream-ask") == "Ask for 2026-11-03"
        page.click("#stream-ask")
        page.wait_for_selector("#stream-ask:text('2026-11-04')")
        assert len(page.query_selector_all("#stream-chart circle")) == 6
        page.click("#stream-chart summary")
        assert len(page.query_selector_all("#stream-chart tbody tr")) == 3
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.query_selector_all("#stream-chart img, #stream-labels img") == []
        page.click("#tab-answers")
        page.wait_for_selector("#answers-list")
        assert page.wrong == []
        page.context.close()


def test_the_slider_moves_the_error_bars_by_keyboard(browser, server):
    page = opened(browser, server, "ann")
    error = page.inner_text("#promise div:nth-child(2) dd")
    page.focus("#slider")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("#before.stale")
    page.wait_for_selector("#go:not([disabled])")
    assert page.inner_text("#promise div:nth-child(2) dd") != error
    assert page.get_attribute("#slider", "aria-valuetext").startswith("ε 0.6")
    page.focus("#tab-ask")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#answers")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input,select,button,meter,progress')].filter(e =>"
        " !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => "
        "e.id || e.outerHTML)"
    )
    assert unnamed == []
    page.context.close()


def test_the_owner_on_a_dark_phone(browser, server):
    page = opened(
        browser, server, "eve", viewport={"width": 360, "height": 740}, color_scheme="dark"
    )
    page.click("#tab-owner")
    page.wait_for_selector("#spending table")
    assert "ε = 4" in page.inner_text("#spending")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 25)"
    assert page.wrong == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_answer_on_a_phone_leads_with_what_its_reader_wants(browser, server, scheme):
    page = opened(
        browser, server, "ann", viewport={"width": 390, "height": 844}, color_scheme=scheme
    )
    assert "Charged" not in page.inner_text("#before")
    page.click("#go")
    page.wait_for_selector("#answer svg")
    page.wait_for_selector("#go:not([disabled])")
    seen = page.inner_text("#answer")
    for said in (
        "words: top",
        "data version 1",
        "Protected: one word, who can affect one label",
        "Counts are noisy",
        "95%",
    ):
        assert said in seen
    assert "Budget of the data set" in seen
    assert "delta(" not in seen  # which is folded
    size = (
        "t => parseFloat(getComputedStyle(t).fontSize) * "
        "t.ownerSVGElement.getBoundingClientRect().width"
    )
    size += " / t.ownerSVGElement.viewBox.baseVal.width"
    assert min(page.eval_on_selector_all("svg text", f"all => all.map({size})")) >= 12
    for summary in page.query_selector_all("#answer summary"):
        summary.focus()
        page.keyboard.press("Enter")
    assert "delta(" in page.inner_text("#answer")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    named = {
        node["role"]["value"]: node["name"]["value"]
        for node in tree(page)
        if node.get("name", {}).get("value")
    }
    assert "bars are noisy counts" in named["image"]
    assert named["meter"].startswith("Budget")
    with page.expect_download() as download:
        page.click("#answer a:text-is('SVG')")
    drawing = download.value.path().read_text(encoding="utf-8")
    for said in ("Data set words, data version 1", "Answered 20", "Protected: one word"):
        assert said in drawing
    assert page.wrong == []
    page.context.close()


def tree(page) -> list[dict]:
    """What a screen reader is told."""
    return page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]


def test_a_refusal_on_the_page_is_in_plain_words(browser, server):
    page = opened(browser, server, "ann")
    page.fill("#k", "0")
    page.wait_for_selector("#balance .refused")
    assert page.inner_text("#balance") == "k must be at least 1"
    page.context.close()


def test_a_question_that_does_not_fit_says_why_and_what_would(browser, server):
    """It said only that it does not fit."""
    page = opened(browser, server, "eve")
    page.evaluate(
        "() => { const s = document.querySelector('#slider'); s.value = 100;"
        " s.dispatchEvent(new Event('input', { bubbles: true })) }"
    )
    page.wait_for_selector("#balance .refused")
    said = page.inner_text("#balance .refused")
    assert "epsilon 5 is more than the total of 4." in said
    largest = float(re.search(r"The largest ε that fits is ([0-9.]+)\.$", said)[1])
    question = {"k": 10, "delta": 1e-7}
    with server.client("eve") as eve:
        for epsilon, fits in ((largest, True), (1.02 * largest, False)):
            asked = question | {"epsilon": round(epsilon, 6)}
            planned = eve.post("/v1/datasets/words/plan", json=asked).json()
            assert (planned["balance"]["total"]["refused"] == "") == fits
    assert page.is_disabled("#go")
    page.fill("#delta", "1e-3")
    page.wait_for_selector("#balance .refused:has-text('No ε fits at this δ')")
    page.context.close()


def test_views_open_where_the_user_was(browser, server):
    page = opened(browser, server, "eve")
    page.select_option("#dataset", "hidden")
    for view in ("answers", "owner"):
        page.click(f"#tab-{view}")
        assert page.input_value(f"#{view}-dataset") == "hidden"
    page.context.close()


def test_labels_that_differ_at_their_ends_are_told_apart(browser, server):
    """Eight labels of 40 characters were cut to the same text."""
    labels = [
        "a label of forty characters number one a",
        "a label of forty characters number one b",
        "x" * 60 + "1",
        "x" * 60 + "2",
        "日本語のとても長いラベルは幅が二倍になります一",
        "日本語のとても長いラベルは幅が二倍になります二",
        "👨‍👩‍👧‍👦 family",
        "short",
    ]
    page = browser.new_page()
    page.goto(server.url)
    for columns in (15, 27):
        shown = [
            page.evaluate(
                "([label, columns]) => import('/answer.js').then(m => m.wrapped(label, columns))",
                [label, columns],
            )
            for label in labels
        ]
        assert len({str(lines) for lines in shown}) == len(labels), shown
        assert all(len(lines) <= 2 for lines in shown)
        assert max(len(line) for lines in shown for line in lines[:2]) <= columns
        assert shown[-1] == ["short"]
        assert shown[-2] == ["👨‍👩‍👧‍👦 family"]  # one letter, not four
    assert "".join(shown[4]) == labels[4]
    page.close()


def test_an_exported_page_fits_a_phone(browser, tmp_path):
    out, counts = tmp_path / "answer.html", tmp_path / "counts.csv"
    counts.write_text(
        "label,count\n" + "".join(f"{'long' * 20}{n},{900 - n}\n" for n in range(5)),
        encoding="utf-8",
    )
    asked = [
        "--k",
        "3",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--labels-per-user",
        "1",
        "--format",
        "html",
        "--out",
    ]
    assert CliRunner().invoke(app, ["topk", str(counts), *asked, str(out)]).exit_code == 0
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
        page.goto(out.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not page.is_visible("text=How to cite")
        page.focus("summary")
        page.keyboard.press("Enter")
        assert page.is_visible("text=How to cite")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        roles = [node["role"]["value"] for node in tree(page)]
        assert {"main", "heading", "table", "columnheader", "term"} <= set(roles)
        page.close()


def errors(page) -> list[float]:
    return [float(output.text_content()) for output in page.query_selector_all("#queries output")]


def rested(page) -> None:
    page.wait_for_selector("#divide-stage:empty", state="attached")


def test_the_budget_tool(browser, server):
    """Move one error by keyboard and the others give way at once; lock one and it stays; export."""
    page = opened(browser, server, "ann", viewport={"width": 360, "height": 740})
    page.route(
        "**/v1/divide", lambda route: route.abort()
    )  # of the example queries: not of this test
    page.click("#tab-divide")
    for button in page.query_selector_all("#queries button"):
        button.click()
    page.unroute("**/v1/divide")
    page.wrong.clear()
    page.fill("#total-epsilon", "0.2")
    for k in ("4", "2", "8"):
        page.click("#add-query")
        page.click("#queries li:last-child summary")
        page.select_option("#queries li:last-child select", "counts")
        page.fill("#queries li:last-child details input", k)
        page.keyboard.press("Tab")
    page.wait_for_selector("#division table")
    rested(page)
    before = errors(page)
    page.focus("#queries li:nth-child(1) input[type=range]")
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    about = errors(page)  # at once, before the service is asked
    assert about[0] < before[0]
    assert all(after > was for after, was in zip(about[1:], before[1:], strict=True))
    page.wait_for_selector("#divide-stage:has-text('exact when')")
    rested(page)
    exact = errors(page)
    assert all(
        abs(real - shown) <= 0.1 * shown + 1 for real, shown in zip(exact, about, strict=True)
    )
    page.check("#queries li:nth-child(2) input[type=checkbox]")
    page.focus("#queries li:nth-child(3) input[type=range]")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("#divide-stage:has-text('exact when')")
    rested(page)
    last = errors(page)
    assert abs(last[1] - exact[1]) <= 1  # locked
    assert last[2] > exact[2]
    assert last[0] < exact[0]  # gives way, no longer held
    assert "even split" in page.inner_text("#division")
    with page.expect_download() as download:
        page.click("#division a:text('plan.toml')")
    plan = tomllib.loads(download.value.path().read_text(encoding="utf-8"))
    assert [query["k"] for query in plan["query"]] == [4, 2, 8]
    with page.expect_download() as download:
        page.click("#division a:text('registration.txt')")
    assert Charge.parse(download.value.path().read_text(encoding="utf-8").strip()).costs
    assert page.get_attribute(
        "#queries li:nth-child(3) input[type=range]", "aria-valuetext"
    ).startswith("± ")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.wrong == []
    page.context.close()


def test_each_segment_at_once(browser, server):
    page = opened(browser, server, "ann")
    page.select_option("[data-column=part]", "each")
    page.wait_for_selector("#promise dt:has-text('one for each part')")
    page.wait_for_selector("#go:not([disabled])")
    page.click("#go")
    page.wait_for_selector("#answer h3")
    assert [heading.text_content() for heading in page.query_selector_all("#answer h3")] == [
        "one",
        "two",
    ]
    page.click("#tab-answers")
    page.wait_for_selector("#answers-list h2:has-text('each part')")
    assert page.wrong == []
    page.context.close()


def test_the_description_for_programs(browser, server):
    page = browser.new_page()
    page.goto(f"{server.url}/api")
    page.wait_for_selector("h2:text('POST /v1/datasets/{dataset}/topk')", timeout=SECONDS)
    page.close()
