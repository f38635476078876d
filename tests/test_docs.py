"""Every Python block of the README and of docs/ runs; every link of docs/ leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dptopk
import dptopk.datasets
import dptopk.mechanisms

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^```(?P<language>[\w.+-]*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
LANGUAGES = {"python", "console", "text", "sql"}
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """(line of the first line of code, language, code) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")) + 1, match["language"], match["code"])
        for match in FENCE.finditer(text)
    ]


RUNNABLE = [page for page in PAGES if any(language == "python" for _, language, _ in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """One after the other in one namespace, in an empty folder; a failure shows the page's own
    line.
    """
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "docs"}
    for line, language, code in blocks(page):
        if language == "python":
            # our own pages
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)  # noqa: S102


def test_pages_with_code_are_found():
    assert {"README.md", "docs/index.md", "docs/choose.md", "docs/events.md"} <= {
        name(page) for page in RUNNABLE
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    for line, language, _ in blocks(page):
        assert language in LANGUAGES, f"{name(page)}:{line}: a block fenced as {language!r}"
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page)), (
        "a fence that is not closed"
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        if not match["target"].startswith(("http://", "https://", "mailto:")):
            assert (page.parent / match["target"]).exists(), (
                f"{name(page)} links to {match['target']}"
            )


def test_the_site_has_every_page():
    """Each page is in the navigation of mkdocs.yml, or is named there as left out."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        relative = page.relative_to(ROOT / "docs")
        assert str(relative) in config or f"{relative.parts[0]}/\n" in config, relative


def test_every_public_name_is_in_the_reference():
    """The module that defines it is on a page of docs/api."""
    pages = "\n".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md")
    )
    listed = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    for face in (dptopk, dptopk.mechanisms, dptopk.datasets):
        for public in (name for name in dir(face) if not name.startswith("_")):
            module = getattr(getattr(face, public), "__module__", None)
            assert module is None or module in listed, f"{public}: ::: {module}"


def test_evidence_named_in_the_docs_exists():
    """Tests, benchmarks and modules that a page names are there, and so is each test function named
    with them.
    """
    named = re.compile(r"`((?:tests|benchmarks|examples|dptopk)/[\w/]+\.py)(?:::(\w+))?")
    found = [
        (page, *match)
        for page in PAGES
        for match in named.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(found) > 50
    for page, path, function in found:
        assert (ROOT / path).exists(), f"{name(page)} names {path}"
        if function:
            assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), (
                f"{name(page)}: {path}::{function}"
            )


def test_every_citation_has_its_entry_and_every_entry_is_cited():
    """docs/notes/related.md and docs/references.bib name the same works."""
    entries = re.findall(
        r"^@\w+\{(\w+),",
        (ROOT / "docs" / "references.bib").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    cited = re.findall(
        r"\[(\w+\d\d\w*)\](?!\()",
        (ROOT / "docs" / "notes" / "related.md").read_text(encoding="utf-8"),
    )
    assert len(entries) == len(set(entries)) > 30
    assert set(cited) == set(entries)


CODE = re.compile(
    r"^```.*?^```$|`[^`]*`|^    .*$|\$\$.*?\$\$|\$[^$\n]+\$", re.MULTILINE | re.DOTALL
)
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)[^*]*[^\s*]\1(?![\w*])")
INSIDE = re.compile(r"\w\*(?!\*)")  # as in P*(S): the site takes it as it is


def eaten(text: str) -> list[str]:
    """Asterisks of formulas that Markdown would take for emphasis."""
    rest = EMPHASIS.sub("", CODE.sub("", text))
    rest = INSIDE.sub("", re.sub(r"^\s*\*\s", "", rest, flags=re.MULTILINE)).replace("\\*", "")
    return [line for line in rest.splitlines() if "*" in line]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_asterisk_of_a_formula_is_eaten(page):
    assert eaten(page.read_text(encoding="utf-8")) == []


def test_the_check_for_asterisks_can_fail():
    assert eaten("*Proof.* P*(S) - u Q*(S), **not** `a*b` $x^*$") == []
    assert eaten("a product 2 * 3 of y *star") == ["a product 2 * 3 of y *star"]


def test_the_site_sets_formulas_and_asks_no_other_host():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "pymdownx.arithmatex" in config
    assert "pymdownx.betterem" in config
    for asset in re.findall(r"assets/[\w.-]+", config):
        assert asset == "assets/mathjax.js" or (ROOT / "docs" / asset).exists()
    for asset in (ROOT / "docs" / "assets").iterdir():
        assert "http" not in asset.read_text(encoding="utf-8")


@pytest.mark.parametrize("public", dir(dptopk))
def test_the_first_page_of_the_reference_lists_every_public_name(public):
    assert f"`{public}`" in (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
