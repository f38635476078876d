"""The built site in a real Chromium: is every formula set, and nothing else? ``make docs-check``.

    python scripts/docs_in_browser.py site [--shots FOLDER]

For every page: each formula that Markdown marked is set by MathJax without an error, no formula is
left as text, no emphasis was made of the asterisks of one, no request goes to another host, and the
console is silent. Prints a line a page and what is wrong; exits with 1 if anything is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

PROGRAM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
# What a formula that was not set looks like in the text of a page: marks of TeX, subscripts,
# powers, sums, "P*(S)".
RAW = re.compile(
    r"\\[()\[\]]|\\(?:le|ge|frac|sum|mathrm|sqrt)\b|\$[^$\s][^$\n]*\$|[_^]\{|[A-Za-zα-ω)\]]\^[A-Za-z({α-ω]"
    r"|[Σ∫]_|sqrt\(|\b[A-Z]\*\("
)
# The text outside formulas and code, and the emphasised pieces that look like parts of formulas.
LOOK = """() => {
  const article = document.querySelector("article").cloneNode(true);
  article.querySelectorAll("pre, code, .arithmatex, .doc-signature, .doc-contents").forEach((part) => part.remove());
  const slanted = [...article.querySelectorAll("em")].map((part) => part.textContent);
  return {
    text: article.textContent,
    slanted: slanted.filter((text) => /[(=<>_^]|^[A-Za-z]$/.test(text) && !/[a-z]{3}|^\\([ivx]*\\)$/.test(text)),
    marked: document.querySelectorAll("article .arithmatex").length,
    set: document.querySelectorAll("article .arithmatex > mjx-container").length,
    wrong: [...document.querySelectorAll("[data-mml-node=merror], mjx-merror")].map((part) => part.textContent),
    wide: document.documentElement.scrollWidth - window.innerWidth,
  };
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def trouble(page: Page, url: str, problems: list[str]) -> tuple[list[str], int]:
    """What is wrong with one page, and how many formulas it has."""
    problems.clear()
    page.goto(url)
    page.wait_for_function("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
    page.evaluate("() => MathJax.startup.promise")
    seen = page.evaluate(LOOK)
    found = list(problems)
    if seen["marked"] != seen["set"]:
        found.append(f"{seen['marked'] - seen['set']} of {seen['marked']} formulas are not set")
    found += [f"MathJax cannot read {text!r}" for text in seen["wrong"]]
    found += [f"emphasis in a formula: {text!r}" for text in seen["slanted"]]
    for line in seen["text"].splitlines():
        match = RAW.search(line)
        if match:
            found.append(
                f"a formula as text: "
                f"{line.strip()[max(match.start() - 30, 0) : match.end() + 40]!r}"
            )
    if seen["wide"] > 0:
        found.append(f"wider than the window by {seen['wide']} pixels")
    return found, seen["set"]


def main() -> int:
    """Look at every page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument(
        "--shots", type=Path, default=None, help="a folder for pictures of all pages"
    )
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(given.site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    wrong, formulas = 0, 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=PROGRAM, args=["--headless", "--no-sandbox"]
        )
        page, problems = browser.new_page(viewport={"width": 1280, "height": 900}), list[str]()
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on(
            "console", lambda line: problems.append(line.text) if line.type == "error" else None
        )
        page.on(
            "request",
            lambda request: (
                problems.append(request.url) if not request.url.startswith(home) else None
            ),
        )
        for file in sorted(given.site.rglob("index.html")):
            name = file.parent.relative_to(given.site).as_posix()
            found, count = trouble(page, f"{home}/{name}/", problems)
            formulas += count
            wrong += len(found)
            sys.stdout.write("\n    ".join([f"{name}: {count} formulas", *found]) + "\n")
            if given.shots is not None:
                page.screenshot(
                    path=given.shots / f"{name.replace('/', '-') or 'index'}.png", full_page=True
                )
        browser.close()
    server.shutdown()
    sys.stdout.write(f"{formulas} formulas set, {wrong} problems\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
