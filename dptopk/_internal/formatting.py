"""Text that people look at: labels and names shown, never obeyed by a terminal, a browser or a
spreadsheet.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


# A cell that starts with one of these is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

# Of charges and mechanisms as text: parameters of which a larger one costs more; and numbers of
# more than six digits.
_COSTLIER = re.compile(r"\b(?:A?DP|BR|Clock|GDP|Z?CDP|MultiDP|delta)\([^)]*|\bdelta=[\d.e-]+")
_LONG = re.compile(r"\b\d*\.\d{6,}(?:e[-+]?\d+)?")


def text_of(value: object) -> str:
    """Return the text of a value; where Python writes none, as of an integer of more than 4,300
    digits, its hexadecimal digits or the name of its type.
    """
    try:
        return str(value)
    # The str of a label of a caller's type may raise anything.
    except Exception:  # noqa: BLE001
        return hex(value) if isinstance(value, int) else f"<{type(value).__name__}>"


def visible(value: Any) -> str:
    r"""Return the text of a value with everything that is not printable written out.

    >>> visible("a" + chr(27) + "[2J")
    'a\\x1b[2J'
    """
    text = text_of(value)
    if text.isprintable():
        return text
    characters = [c if c.isprintable() else repr(c)[1:-1] for c in text]
    return "".join(characters)


def escape(value: Any) -> str:
    """Return the visible text of a value for HTML, in element text and in quoted attributes.

    >>> escape('<b onclick="x">')
    '&lt;b onclick=&quot;x&quot;&gt;'
    """
    return html.escape(visible(value), quote=True)


def spreadsheet_cell(value: Any) -> Any:
    """Return a cell that a spreadsheet shows as it is: text that would start a formula gets an
    apostrophe before it.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("the"), spreadsheet_cell(-3)
    ("'=1+1", 'the', -3)
    """
    if not isinstance(value, str):
        return value
    visible_text = visible(value)
    if value.startswith(FORMULA):
        return f"'{visible_text}"
    return visible_text


def format_upper(value: float, digits: int = 6) -> str:
    """Format an upper bound with n digits, rounded up, so that the printed number is a bound too.

    A relative 1e-12 of it is taken for the rounding of floating-point numbers, and not shown.

    >>> format_upper(2.2510001), format_upper(10.000000000000002), format_upper(3.2072801, digits=4)
    ('2.25101', '10', '3.208')
    """
    return _format_rounded(value * (1 - 1e-12), digits, ROUND_CEILING)


def rounded_up(text: object) -> str:
    """Return the text of a charge or mechanism for people: long numbers of which more only costs
    more, δ above all, are rounded up.

    >>> costs = "2*GDP(0.17363919022609026) + DLap(12.3456789, 1.0)"
    >>> rounded_up(f"{costs} + delta(5.000000000000001e-07)")
    '2*GDP(0.17364) + DLap(12.3456789, 1.0) + delta(5.00001e-07)'
    """

    def six_digits(number: re.Match[str]) -> str:
        """Round the matched number up to six digits."""
        return _format_rounded(number[0], 6, ROUND_CEILING)

    def round_cost(cost: re.Match[str]) -> str:
        """Round the long numbers of the matched cost up."""
        return _LONG.sub(six_digits, cost[0])

    return _COSTLIER.sub(round_cost, str(text))


def format_lower(value: float, digits: int = 6) -> str:
    """Format a lower bound with n digits, rounded down.

    As in ``format_upper``, a relative 1e-12 is taken for the rounding of floating-point numbers.

    >>> format_lower(2.2509999)
    '2.25099'
    """
    return _format_rounded(value * (1 + 1e-12), digits, ROUND_FLOOR)


def format_exact(value: float) -> str:
    """Format a number so that its text reads back as the same float.

    >>> format_exact(1.0), format_exact(1e-6), format_exact(0.12345678)
    ('1', '1e-06', '0.12345678')
    """
    text = f"{value:g}"
    if float(text) == value:
        return text
    return repr(float(value))


def _format_rounded(value: float | str, digits: int, rounding: str) -> str:
    """Return a number as text with few significant digits.

    Args:
        value: the number, as a float or as text; both are taken exactly.
        digits: how many significant digits are left.
        rounding: the direction, a constant of the module decimal.
    """
    exact = Decimal(value)
    if not exact or not exact.is_finite():
        return f"{float(value):g}"
    exponent = exact.adjusted() - digits + 1
    last_place = Decimal(1).scaleb(exponent)
    return f"{float(exact.quantize(last_place, rounding)):.{digits}g}"


def numbered(count: int, noun: str) -> str:
    """Return a number and its noun, in the plural where it must be.

    >>> numbered(1, "label"), numbered(5, "label")
    ('1 label', '5 labels')
    """
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def describe_l0(l0: int | None) -> str:
    """Describe the number of labels that one user can affect.

    >>> describe_l0(5), describe_l0(None)
    ('at most 5 labels', 'any number of labels')
    """
    if l0 is None:
        return "any number of labels"
    return f"at most {numbered(l0, 'label')}"


def describe_caps(linf: int, l0: int | None, l1: int | None) -> str:
    """Describe the caps that each user's events were limited to.

    Args:
        linf: the most that one user adds to one label.
        l0: the most labels of one user; None: any number.
        l1: the most that one user adds to all labels together; None: what the others imply.

    >>> describe_caps(2, None, None)
    'at most 2 at each label'
    >>> describe_caps(2, 5, 7)
    'at most 5 labels, at most 2 at each, and 7 in all'
    """
    at_each = f"at most {linf} at each"
    caps = f"{at_each} label" if l0 is None else f"{describe_l0(l0)}, {at_each}"
    return caps if l1 is None else f"{caps}, and {l1} in all"


def number(value: float) -> str:
    """Format a count: whole numbers as they are, others to one decimal.

    >>> number(3.0), number(3.25)
    ('3', '3.2')
    """
    if value == int(value):
        return str(int(value))
    return f"{value:.1f}"


def percent(share: float) -> str:
    """Format a share as a percentage with the digits it has.

    >>> percent(0.95), percent(0.8), percent(0.9999)
    ('95%', '80%', '99.99%')
    """
    return f"{100 * share:.10g}%"


def bar(
    value: float, low: float, high: float, largest: float, width: int = 24, marks: str = "█░"
) -> str:
    """Return a bar of text: filled up to ``low``, shaded from there to ``high``.

    Args:
        value: the count, which a bar of text does not show; ``html_bar`` does.
        low: the lower end of its interval.
        high: the upper end of its interval.
        largest: the number at which a bar has its full width.
        width: the full width in characters.
        marks: the character that fills and the one that shades.

    >>> bar(5, 4, 6, 8, width=8, marks="#-")
    '####--'
    """
    scale = width / largest if largest > 0 else 0.0
    filled_marks = round(max(min(low, value), 0) * scale)
    marks_to_high = round(max(high, 0) * scale)
    shaded_marks = max(marks_to_high - filled_marks, 0)
    return marks[0] * filled_marks + marks[1] * shaded_marks


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Return a table in Markdown (GitHub's); what would be markup in a cell is shown as it is.

    >>> print(markdown_table(["label"], [["a|b"]]))
    | label |
    | --- |
    | a\|b |
    """
    lines = [headers, ["---"] * len(headers)]
    lines += [[markdown(cell) for cell in row] for row in rows]
    joined = [" | ".join(line) for line in lines]
    return "\n".join(f"| {line} |" for line in joined)


def markdown(value: Any) -> str:
    r"""Return the visible text of a value for Markdown.

    >>> markdown("*<b>*")
    '\\*\\<b\\>\\*'
    """
    return re.sub(r"([\\`*_\[\]<>|~#&])", r"\\\1", visible(value))


def answer_rows(
    rows: pd.DataFrame, draw_bar: Callable[..., str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the headers and the cells of an answer.

    Args:
        rows: the answer as ``Release.display_table`` gives it.
        draw_bar: the function that draws the bar of a row from its count, the lower and the upper
            end of its interval, and the largest number of all rows, as ``html_bar`` does; None: no
            bars.
    """
    has_counts = "count" in rows
    has_intervals = "low" in rows
    headers = ["rank", "label"]
    if has_counts:
        headers.append("noisy count")
    if has_intervals:
        headers.append(f"{percent(rows.attrs['confidence'])} interval (joint)")
        if draw_bar is not None:
            headers.append("")
    if has_intervals and len(rows):
        largest = max(rows["high"].max(), rows["count"].max())
    else:
        largest = 0
    cells = []
    for row in rows.to_dict("records"):
        cell = [str(row["rank"]), text_of(row["label"])]
        if has_counts:
            cell.append(number(row["count"]))
        if has_intervals:
            cell.append(f"{row['low']} to {row['high']}")
            if draw_bar is not None:
                cell.append(draw_bar(row["count"], row["low"], row["high"], largest))
        cells.append(cell)
    return headers, cells


def html_table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], *, raw: frozenset[int] = frozenset()
) -> str:
    """Return a table in HTML.

    Args:
        headers: the names of the columns, which are escaped.
        rows: the cells of each row, which are escaped too, but for those of ``raw``.
        raw: the places of the columns that hold markup of our own.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headers)
    body = "".join(_html_row(row, raw) for row in rows)
    table = f'<table class="dptopk"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto">{table}</div>'


def _html_row(row: Sequence[Any], raw: frozenset[int]) -> str:
    """Return a row of a table in HTML; cells in the columns ``raw`` are not escaped."""
    cells = [cell if place in raw else escape(cell) for place, cell in enumerate(row)]
    row_text = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr>{row_text}</tr>"


def html_rows(rows: pd.DataFrame) -> str:
    """Return an answer, as ``Release.display_table`` gives it, as a table in HTML, with bars where
    it has intervals.
    """
    headers, cells = answer_rows(rows, html_bar)
    # With intervals the fifth column has the bars, which are HTML already.
    bars = frozenset({4}) if "low" in rows else frozenset[int]()
    return html_table(headers, cells, raw=bars)


def html_terms(terms: Mapping[str, str]) -> str:
    """Return names and their descriptions as a description list in HTML, escaped."""
    rows = [
        f"<dt>{escape(name)}</dt><dd>{escape(description)}</dd>"
        for name, description in terms.items()
    ]
    return f"<dl>{''.join(rows)}</dl>"


def html_lines(lines: Iterable[str]) -> str:
    """Return lines as paragraphs in HTML, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def html_bar(value: float, low: float, high: float, largest: float) -> str:
    """Return a bar with its interval in HTML; "" if there is no width.

    Args:
        value: the count, at which the fill ends.
        low: the lower end of its interval, where the stretch in another colour begins.
        high: the upper end of its interval, where that stretch ends.
        largest: the number at which a bar has its full width.
    """
    if largest <= 0:
        return ""
    left, middle, right = [100 * min(max(place, 0) / largest, 1.0) for place in (low, value, high)]
    return (
        '<span aria-hidden="true" '
        'style="display:inline-block;position:relative;width:min(16em,14vw);height:.8em;'
        'background:#8883">'
        f'<span style="position:absolute;left:0;top:0;bottom:0;width:{middle:.2f}%;'
        'background:#4477aa"></span>'
        f'<span style="position:absolute;left:{left:.2f}%;top:35%;height:30%;'
        f"width:{right - left:.2f}%;"
        'background:#ee6677"></span></span>'
    )


# The style of every page that is written to a file.
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 58rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: break-word; }
table { border-collapse: collapse; margin: 1rem 0; min-width: 50%; }
th, td { padding: .2rem .6rem .2rem 0; text-align: left; border-bottom: 1px solid #8884;
  vertical-align: top; }
td { font-variant-numeric: tabular-nums; } td:nth-child(2) { overflow-wrap: anywhere;
  min-width: 5em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; } dt { opacity:
  .75; } dd { margin: 0; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
summary { cursor: pointer; margin-top: 2rem; font-weight: 600; } img { max-width: 100%;
  background: white; }
"""


def html_page(title: str, sections: Iterable[str]) -> str:
    """Return an HTML page that needs nothing from elsewhere; the sections are markup of our own."""
    name = escape(title)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{STYLE}</style></head>\n"
    )
    body = "\n".join(sections)
    return f"{head}<body><main>\n<h1>{name}</h1>\n{body}\n</main></body></html>\n"
