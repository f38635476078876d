"""What people look at: notebooks, pictures; labels are shown, never obeyed."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    Charge,
    Histogram,
    InvalidParameter,
    KnownGumbel,
    KnownLaplace,
    PureDP,
    Sensitivity,
    compose,
    plan_topk,
)
from dptopk._internal.formatting import (
    bar,
    escape,
    format_upper,
    html_bar,
    spreadsheet_cell,
    visible,
)
from dptopk.release.release import Release

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A1",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "[red]x[/red]",
    "$\\frac{1}{0}$",
    "a\nb",
    "\u202egpj.exe",
    "\ud800",
]


class Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.found, self.attributes, self.text = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def answer(labels=EVIL):
    histogram = Histogram(
        labels, np.arange(len(labels), 0, -1) * 100, sensitivity=Sensitivity(l0=1), domain="public"
    )
    return KnownLaplace(epsilon=1.0).release(histogram, np.random.default_rng(0))


@pytest.mark.slow
def test_notebooks_show_labels_as_text():
    page = Elements(answer()._repr_html_())
    assert page.found <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "p"}
    assert page.attributes <= {"class", "style", "scope", "aria-hidden"}
    assert {visible(label) for label in EVIL} <= set(page.text)
    for character in ("\x1b", "\x9b", "\u202e", "\ud800", "\x07"):
        assert character not in "".join(page.text)


def test_notebooks_show_error_bars_cost_and_seed():
    text = answer(["a", "b"])._repr_html_()
    row = answer(["a", "b"]).intervals().iloc[0]
    assert f"{row['low']} to {row['high']}" in text
    assert "charge: DP(1.0)" in text
    assert "fixed seed" in text


def test_an_answer_of_labels_only_is_shown_without_bars():
    histogram = Histogram(["a", "b"], [9, 1], sensitivity=Sensitivity(l0=1), domain="public")
    release = KnownGumbel(k=1, epsilon=1.0).release(histogram)
    assert "noisy count" not in release._repr_html_()
    assert list(release.display_table().columns) == ["rank", "label"]
    with pytest.raises(InvalidParameter, match="labels only"):
        release.plot()


def test_a_stored_answer_is_shown_as_the_drawn_one():
    release = answer(["a", "b"])
    back = Release.from_dict(release.to_dict())
    assert back.display_table().equals(release.display_table())
    assert "mechanism: KnownLaplace(epsilon=1.0" in " ".join(back.remarks())


@pytest.mark.slow
def test_empty_answers_are_shown():
    empty = plan_topk(2, Budget(1, 1e-6), sensitivity=Sensitivity(l0=1)).release(
        Histogram({}, sensitivity=Sensitivity(l0=1))
    )
    assert "<tbody></tbody>" in empty._repr_html_()
    assert len(empty.plot().patches) == 0


@pytest.mark.slow
def test_the_picture_has_a_bar_and_an_error_bar_for_each_row():
    release = answer()
    axes = release.plot(confidence=0.9)
    table = release.intervals(confidence=0.9)
    assert [patch.get_width() for patch in axes.patches] == release.counts.tolist()
    ends = axes.collections[0].get_segments()
    assert [segment[0][0] for segment in ends] == pytest.approx(table["low"].tolist())
    assert [segment[1][0] for segment in ends] == pytest.approx(table["high"].tolist())
    axes.figure.canvas.draw()  # no label is a formula that cannot be set
    assert "90%" in axes.get_title(loc="left")


@pytest.mark.slow
def test_drawing_without_matplotlib_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from dptopk import Histogram, KnownLaplace, Sensitivity\n"
        "KnownLaplace(epsilon=1.0).release(Histogram(None, [1, 2], "
        "sensitivity=Sensitivity(l0=1))).plot()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'dptopk[plots]'" in result.stderr


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_starts_a_formula(start):
    assert spreadsheet_cell(f"{start}1+1").startswith("'")
    assert spreadsheet_cell(f"a{start}1") == visible(f"a{start}1")


def test_bars_end_where_the_interval_does():
    assert bar(50, 40, 60, 100, width=10, marks="#-") == "####--"
    assert bar(0, 0, 0, 0) == ""
    assert bar(-5, 0, 0, 100) == ""
    assert "width:20.00%" in html_bar(50, 40, 60, 100)
    assert escape("a&b") == "a&amp;b"


def test_bounds_and_accounts_are_shown_in_notebooks():
    charge = Charge({PureDP(0.5): 4})
    bound = compose(charge, delta=1e-6)
    assert str(bound.epsilon) in bound._repr_html_()
    accountant = Accountant(charge, delta=1e-6)
    accountant.spend(Charge({PureDP(0.5): 1}))
    for account in (accountant, Accountant.filter(Budget(2.0, 0.0))):
        shown = account._repr_html_()
        assert f"({format_upper(account.epsilon())}, " in shown
        assert str(account.remaining()) in shown
    assert "25.0%" in accountant._repr_html_()
