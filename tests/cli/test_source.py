"""What the command line makes of its files: public labels, and the source that stored answers are
for.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from dptopk import InvalidParameter, Sensitivity
from dptopk.cli.input import Source

ONE = Sensitivity(l0=1)


@pytest.mark.parametrize("name", ["data.jsonl", "DATA.JSONL"])
@pytest.mark.parametrize(
    "others", ["", '{"label": "text", "count": 1}\n'], ids=["integers", "one text label"]
)
def test_a_label_of_one_user_does_not_change_what_the_public_labels_mean(tmp_path, others, name):
    data, domain = tmp_path / name, tmp_path / "domain.txt"
    data.write_text('{"label": 7, "count": 30}\n{"label": "8", "count": 20}\n' + others)
    domain.write_text('7\n"8"\n9\nother words\n')
    histogram = Source(path=data, domain=domain).capped_histogram(ONE)
    assert histogram.labels.tolist() == [7, "8", 9, "other words"]
    assert histogram.counts.tolist() == [30, 20, 0, 0]


def test_labels_of_a_csv_file_are_text(tmp_path):
    data, domain = tmp_path / "data.csv", tmp_path / "domain.txt"
    data.write_text("label,count\n07,30\n7,20\n")
    domain.write_text("7\n8\n")
    assert Source(path=data, domain=domain).capped_histogram(ONE).counts.tolist() == [20, 0]


@pytest.mark.parametrize("name", ["data.csv", "DATA.CSV"])
def test_counts_with_decimal_commas_are_refused_with_a_hint(tmp_path, capsys, name):
    data = tmp_path / name
    data.write_text("label;count\na;7,0\n")
    source = Source(path=data)
    with pytest.raises(InvalidParameter, match="decimal commas"):
        source.capped_histogram(ONE)
    source._tell_format()
    assert "cells between semicolons" in capsys.readouterr().err


def test_the_source_is_where_data_come_from_and_never_what_they_are(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("label,count\na,30\n")
    first = Source(path=data).state_fingerprint()
    assert Source(path=data).state_fingerprint() == first
    assert Source(path=data, label="other").state_fingerprint() != first
    assert Source(path=data, where=["x=1"]).state_fingerprint() != first
    assert Source(path=data, known_domain=True).state_fingerprint() != first
    os.utime(data, ns=(1, 1))
    rewritten = Source(path=data).state_fingerprint()
    assert rewritten != first
    copy = tmp_path / "copy.csv"
    copy.write_text("label,count\na,30\n")
    assert Source(path=copy).state_fingerprint() != rewritten


@pytest.mark.parametrize(
    ("labels", "counts"),
    [([7, 8], [20, 0, 0]), ([8, 7, 2**64 - 1], [30, 0, 0]), ([None, None], [0, 0, 0])],
    ids=["integers", "one beyond 64 bits with a sign", "none"],
)
def test_public_labels_of_an_integer_column_are_the_lines_whatever_the_rows(
    tmp_path, labels, counts
):
    data, domain = tmp_path / "data.parquet", tmp_path / "domain.txt"
    column = pd.array(labels, dtype="UInt64")
    pd.DataFrame({"label": column, "count": [30, 20, 1][: len(labels)]}).to_parquet(data)
    domain.write_text("8\n9\neight\n")
    histogram = Source(path=data, domain=domain).capped_histogram(ONE)
    assert histogram.labels.tolist() == ["8", "9", "eight"]
    assert histogram.counts.tolist() == counts


def test_public_labels_of_integer_events_are_the_lines_whatever_the_rows(tmp_path):
    data, domain = tmp_path / "data.parquet", tmp_path / "domain.txt"
    domain.write_text("8\neight\n")
    for label, counts in ((8, [1, 0]), (None, [0, 0])):
        column = pd.array([label], dtype="Int64")
        pd.DataFrame({"u": [1], "i": column}).to_parquet(data)
        events = Source(path=data, user="u", item="i", domain=domain)
        histogram = events.capped_histogram(ONE)
        assert histogram.labels.tolist() == ["8", "eight"]
        assert histogram.counts.tolist() == counts


def test_a_condition_that_is_repeated_is_one_and_two_values_are_refused(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("label,sex,count\na,F,30\nb,M,20\n")
    repeated = Source(path=data, where=["sex=F", "sex=F"])
    assert repeated.capped_histogram(ONE).labels.tolist() == ["a"]
    once = Source(path=data, where=["sex=F"])
    assert repeated.state_fingerprint() == once.state_fingerprint()
    with pytest.raises(InvalidParameter, match="--where"):
        Source(path=data, where=["sex=F", "sex=M"]).capped_histogram(ONE)


def test_the_source_of_a_glob_is_the_files_that_it_finds(tmp_path):
    """The files of all globs had one fingerprint: --reuse gave the answer about other files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.parquet").touch()
    first = Source(path=tmp_path / "a" / "*.parquet").state_fingerprint()
    assert Source(path=tmp_path / "b" / "*.parquet").state_fingerprint() != first
    assert Source(path=tmp_path / "a" / "*.parquet").state_fingerprint() == first
    os.utime(tmp_path / "a" / "1.parquet", ns=(1, 1))
    assert Source(path=tmp_path / "a" / "*.parquet").state_fingerprint() != first
    folder = Source(path=tmp_path).state_fingerprint()
    (tmp_path / "link").symlink_to("a")
    assert Source(path=tmp_path).state_fingerprint() != folder


def test_a_store_is_known_by_the_ending_of_its_name_in_any_case():
    assert Source(path=Path("CLICKS.STORE"))._is_store
    assert not Source(path=Path("clicks.csv"))._is_store


@pytest.mark.parametrize("columns", [{}, {"user": "u", "item": "i"}], ids=["counts", "events"])
def test_a_condition_on_the_column_of_segments_is_refused(columns):
    """Events met both, so that all segments but one were empty; counts were refused."""
    with pytest.raises(InvalidParameter, match="given by --segments"):
        Source(path=Path("t.csv"), segment_by="s", segments=["x", "y"], where=["s=x"], **columns)
