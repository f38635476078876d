"""The page in a real Chromium: the whole way from a token to a chart, by keyboard too, dark, narrow, and escaped."""

from __future__ import annotations

import shutil

import pytest

from .conftest import Server

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="the page was NOT tested: there is no Chromium here (`make browser` installs Debian's)"
)
SECONDS = 60_000


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
    page.on("request", lambda request: page.hosts.add(request.url.split("/")[2]) if "://" in request.url else None)
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
    assert "0% used now" in before
    assert len(page.query_selector_all("#foreseen .whisker")) == 1
    page.click("#go")
    page.wait_for_selector("#answer svg")
    labels = [text.text_content() for text in page.query_selector_all("#answer td.text")]
    assert "<img src=x onerror=alert(1)>" in labels  # as text: it neither loaded nor ran
    assert page.query_selector_all("#answer img") == []
    assert len(page.query_selector_all("#answer .whisker")) == len(page.query_selector_all("#answer tbody tr")) > 0
    with page.expect_download() as download:
        page.click("#answer a:text('CSV')")
    rows = download.value.path().read_text(encoding="utf-8").splitlines()
    assert rows[0] == "rank,label,count,low,high,rank_low,rank_high"
    assert len(rows) == 1 + len(page.query_selector_all("#answer tbody tr"))
    page.wait_for_selector("#go:not([disabled])")
    assert "0% used now" not in page.inner_text("#balance")
    assert page.wrong == []
    assert page.hosts <= {server.url.split("/")[2]}
    assert len(server.service.books.spends("words", "ann")) == 1
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
        " !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.id || e.outerHTML)"
    )
    assert unnamed == []
    page.context.close()


def test_the_owner_on_a_dark_phone(browser, server):
    page = opened(browser, server, "eve", viewport={"width": 360, "height": 740}, color_scheme="dark")
    page.click("#tab-owner")
    page.wait_for_selector("#spending table")
    assert "ε = 4" in page.inner_text("#spending")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 25)"
    assert page.wrong == []
    page.context.close()


def test_the_budget_tool(browser, server):
    page = opened(browser, server, "ann")
    page.click("#tab-divide")
    for name in ("daily top 10", "monthly top 50"):  # leave two small queries
        page.query_selector(f"[aria-label='remove {name}']").evaluate("button => button.closest('tr').remove()")
    page.click("#add-query")
    page.query_selector_all("#queries select")[1].select_option("counts")
    page.wait_for_selector("#division table")
    assert "even split" in page.inner_text("#division")
    assert "DGauss" in page.inner_text("#division pre")
    assert page.wrong == []
    page.context.close()


def test_the_description_for_programs(browser, server):
    page = browser.new_page()
    page.goto(f"{server.url}/api")
    page.wait_for_selector("h2:text('POST /v1/datasets/{dataset}/topk')", timeout=SECONDS)
    page.close()
