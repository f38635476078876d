"""Tables as spreadsheets and libraries write them are read alike, as counts and as events; no row
decides how the others are read.
"""

from __future__ import annotations

import csv
import gzip
import io

import numpy as np
import pandas as pd
import pytest

from dptopk.datasets import TextFile, columns_of, events_histogram, read_counts, text_files
from dptopk.datasets.backends import duckdb_files
from dptopk.errors import InvalidParameter

WORDS = ["café", "Müller, Söhne", "a;b", 'the "one"']
COUNTS = pd.DataFrame({"word": WORDS, "größe": [4, 3, 2, 1], "note": ["", "x", "y, z", ""]})
EVENTS = pd.DataFrame(
    [(f"u{user}", word, "é") for place, word in enumerate(WORDS) for user in range(place + 1)],
    columns=["user", "article", "größe"],
)
EXPECTED = {word: place + 1 for place, word in enumerate(WORDS)}


def excel(separator, encoding):
    """Write as Excel does: CRLF, and quotes only where they are needed."""

    def write(frame):
        text = io.StringIO(newline="")
        writer = csv.writer(text, dialect="excel", delimiter=separator)
        writer.writerow(frame.columns)
        writer.writerows(frame.to_numpy().tolist())
        return text.getvalue().encode(encoding)

    return write


def pandas_file(**options):
    def write(frame):
        encoding = options.get("encoding", "utf-8")
        text = frame.to_csv(**{"index": False, **options, "encoding": None})
        return text.encode(encoding)

    return write


def declared(frame):
    return b"sep=;\r\n" + excel(";", "cp1252")(frame)


EXPORTS = {
    "excel comma utf-8": excel(",", "utf-8"),
    "excel comma utf-8 with a mark": excel(",", "utf-8-sig"),
    "excel semicolons utf-8 with a mark": excel(";", "utf-8-sig"),
    "excel semicolons cp1252": excel(";", "cp1252"),
    "excel comma cp1252": excel(",", "cp1252"),
    "excel unicode text": excel("\t", "utf-16"),
    "excel tabs cp1252": excel("\t", "cp1252"),
    "excel tabs utf-8": excel("\t", "utf-8"),
    "excel with a line sep=": declared,
    "LibreOffice with a quoted line sep=": lambda frame: b'"sep=;"\n' + excel(";", "utf-8")(frame),
    "empty lines first": lambda frame: b"\r\n\r\n" + excel(",", "cp1252")(frame),
    "utf-16 little end, no mark": excel(";", "utf-16-le"),
    "utf-16 big end, no mark": excel(",", "utf-16-be"),
    "utf-32": excel(";", "utf-32"),
    "bars": excel("|", "utf-8"),
    "pandas": pandas_file(),
    "pandas semicolons": pandas_file(sep=";"),
    "pandas latin-1": pandas_file(encoding="latin-1"),
    "pandas semicolons latin-1": pandas_file(sep=";", encoding="latin-1"),
    "pandas all quoted": pandas_file(quoting=csv.QUOTE_ALL, sep=";"),
    "pandas tabs utf-16": pandas_file(sep="\t", encoding="utf-16"),
    "pandas with row numbers": pandas_file(index=True, sep=";"),
    "pandas bars CRLF": pandas_file(sep="|", lineterminator="\r\n"),
    "old Macintosh ends of lines": pandas_file(lineterminator="\r"),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_counts_of_every_export(tmp_path, name):
    path = tmp_path / "export.csv"
    path.write_bytes(EXPORTS[name](COUNTS))
    found = read_counts(path, label="word", count="größe")
    assert dict(zip(found["label"], found["count"], strict=True)) == {
        word: 5 - EXPECTED[word] for word in WORDS
    }
    assert columns_of(path) == ["word", "größe", "note"]


def histogram(table, item="article"):
    found = events_histogram(table, user="user", item=item, labels_per_user=9)
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_events_of_every_export(tmp_path, name):
    content = EXPORTS[name](EVENTS)
    path = tmp_path / "export.csv"
    path.write_bytes(content)
    assert histogram(path) == EXPECTED
    packed = tmp_path / "export.csv.gz"
    packed.write_bytes(gzip.compress(content))
    assert histogram(packed) == EXPECTED


@pytest.mark.slow
def test_bad_rows_follow_a_rule_and_change_no_other(tmp_path):
    """Each bad row alone, in a file that the engine reads strictly and in one that is copied."""
    rows = {b"z": {}, b"z;a;b;c": {"a": 1}, b"z;caf\xe9": {"café": 1}, b'z;"x"y': {"xy": 1}}
    for row, more in rows.items():
        for separator in (b";", b","):
            path = tmp_path / "rows.csv"
            lines = [b"user;article", b"u0;a", b"u1;b", row, b"u2;b"]
            path.write_bytes(b"\n".join(lines).replace(b";", separator) + b"\n")
            expected = {"a": 1, "b": 2}
            for label, count in more.items():
                expected[label] = expected.get(label, 0) + count
            assert histogram(path) == expected


MALFORMED = 'b,y,"q"q\n'


def histogram_of_text(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    found = events_histogram(path, user="user", item="article", labels_per_user=9)
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "label"),
    [
        ("a,x," + "c" * 140_000, "x"),  # beyond the cells that the csv module reads of itself
        ("a," + "x" * 140_000 + ",", "x" * 140_000),
        ('"a" ,"x"  ,""', "x"),
        ('a, "x",c', "x"),
        ('a,  "x",c', '  "x"'),
        ('a,"x" "y" ,c', "x y"),
        ('a,"x\ny" ,"c"', "x\ny"),
        ("a,x,c\r a,x,c", "x"),
    ],
)
def test_a_malformed_row_does_not_change_what_another_row_means(tmp_path, row, label):
    path = tmp_path / "events.csv"
    text = f"user,article,note\n{row}\nc,z,\n"
    expected = histogram_of_text(path, text)
    assert expected == {label: 1, "z": 1} or "\r" in row
    assert histogram_of_text(path, text + MALFORMED) == {**expected, "y": 1}


@pytest.mark.slow
def test_rows_beyond_the_longest_line_are_left_out_alone(tmp_path, monkeypatch):
    longest = 2**18
    monkeypatch.setattr(text_files, "LONGEST_LINE", longest)
    monkeypatch.setattr(duckdb_files, "LONGEST_LINE", longest)
    path = tmp_path / "events.csv"
    text = "user,article,note\nc,z,\n"
    just = "a,x," + "é" * (longest // 2 - 4) + "\n"
    beyond = "b,y," + "é" * (longest // 2 + 1) + "\n"
    assert histogram_of_text(path, text + just) == {"x": 1, "z": 1}
    assert histogram_of_text(path, text + just + beyond) == {"x": 1, "z": 1}
    assert histogram_of_text(path, text + just + MALFORMED) == {"x": 1, "y": 1, "z": 1}


PIECES = ("a", '"', " ", "  ", "\t", '""', '"c""d"', '"c', 'c"', "\n", ",")
CELLS = ('"x"', "x", '"x""y"', '""', '"x\ny"', '" x,"', '"\n , "', '""""')


@pytest.mark.slow
def test_rows_that_the_engine_reads_strictly_are_those_of_our_rules(tmp_path):
    duckdb = pytest.importorskip("duckdb").connect()
    rng = np.random.default_rng(7)
    path = tmp_path / "rows.csv"
    strict = (
        f"FROM read_csv('{path}', all_varchar=true, header=true, delim=',', "
        "quote='\"', escape='\"', skip=0, comment='')"
    )
    compared = 0
    for _ in range(150):
        odd = "".join(rng.choice(PIECES, rng.integers(5)))
        cells = [rng.choice((" ", "", "  ")) + rng.choice(CELLS) + rng.choice((" ", "", "\t"))]
        cells.insert(rng.integers(2), odd)
        path.write_text(f"u,i\np,x\n{','.join(cells)}\nq,x\n", encoding="utf-8", newline="")
        try:
            found = duckdb.execute(strict).fetchall()
        except Exception:  # noqa: BLE001, S112
            continue
        compared += 1
        ours = text_files.rows(path, text_files.text_format(path))
        assert sorted(tuple(cell or "" for cell in row) for row in found if any(row)) == sorted(
            tuple(row) for row in ours if any(row)
        ), path.read_text(encoding="utf-8")
    assert compared > 30


@pytest.mark.slow
def test_what_is_stated_overrides_the_header(tmp_path):
    path = tmp_path / "events.csv"
    path.write_bytes("user;article\nu;café\n".encode("cp1252"))
    assert histogram(path) == {"café": 1}
    assert histogram(TextFile(path, encoding="cp437")) == {"cafΘ": 1}
    with pytest.raises(InvalidParameter, match="no column 'user'; it has 'user;article'"):
        histogram(TextFile(path, separator=","))
    with pytest.raises(InvalidParameter, match=r"'user', 'article'; did you mean 'article'\?"):
        histogram(path, item="Artikle")
    for options in ({"separator": ""}, {"separator": "ab"}, {"encoding": "klingon"}):
        with pytest.raises(InvalidParameter, match=next(iter(options))):
            TextFile(path, **options)


def test_unicode_text_of_excel_ends_in_txt(tmp_path):
    path = tmp_path / "export.txt"
    path.write_bytes(excel("\t", "utf-16")(COUNTS))
    assert columns_of(path) == ["word", "größe", "note"]
    assert read_counts(path, label="word", count="größe")["count"].tolist() == [4, 3, 2, 1]
    with pytest.raises(InvalidParameter, match="is a workbook; save the sheet"):
        read_counts(tmp_path / "export.xlsx", label="word", count="n")


def test_a_row_without_a_count_counts_zero(tmp_path):
    """Rows that are too short, and cells that are empty; the mark that ends a file of DOS is no
    label.
    """
    path = tmp_path / "counts.csv"
    path.write_text("word;n\na;3\nb\nc;\n;4\nd;5;x\n;\n\x1a")
    found = read_counts(path, label="word", count="n")
    assert dict(zip(found["label"], found["count"], strict=True)) == {
        "a": 3, "b": 0, "c": 0, "d": 5,
    }  # fmt: skip
    path.write_text("word;n\nb\n")
    assert read_counts(path, label="word", count="n")["count"].tolist() == [0]


def test_decimal_commas_are_declared(tmp_path):
    path = tmp_path / "counts.csv"
    pd.DataFrame({"word": ["a", "b"], "n": [7.0, 12.0]}).to_csv(
        path, sep=";", decimal=",", index=False
    )
    with pytest.raises(InvalidParameter, match="whole numbers"):
        read_counts(path, label="word", count="n")
    assert read_counts(path, label="word", count="n", decimal=",")["count"].tolist() == [7, 12]


def test_no_row_decides_how_the_others_are_read(tmp_path):
    """The header says comma, or ASCII: rows full of semicolons, or of other bytes, are still rows
    of that.
    """
    path = tmp_path / "counts.csv"
    path.write_bytes(b"word,n\n" + b"a;b;c;d,5\n" * 50 + b"caf\xe9,3\n,,,\n,\n")
    found = read_counts(path, label="word", count="n")
    assert found.to_numpy().tolist() == [["a;b;c;d", 250], ["café", 3]]


def test_a_wrong_name_lists_the_columns(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_bytes(EXPORTS["excel semicolons cp1252"](COUNTS))
    with pytest.raises(InvalidParameter, match="it has 'word', 'größe', 'note'; did you mean"):
        read_counts(path, label="Word", count="größe")


def test_only_ends_of_lines_count_as_lines_before_the_header(tmp_path):
    path = tmp_path / "events.csv"
    path.write_bytes(b"\x0c\nuser,article\nu,tea\nv,tea\n")
    assert text_files.text_format(path).skipped == 1
    found = events_histogram(path, user="user", item="article", labels_per_user=1)
    assert (found.labels.tolist(), found.counts.tolist()) == (["tea"], [2])


@pytest.mark.parametrize("name", ["x.tsv", "X.TSV", "x.Tab.gz"])
def test_of_two_separators_a_tab_is_that_of_a_tsv_file_in_any_case(tmp_path, name):
    path = tmp_path / name
    content = b"a,b\tc\n1,2\t3\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert text_files.text_format(path).names == ("a,b", "c")
