"""Count files: every format reads the same rows; what cannot be read is named, never quoted."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptopk.datasets import read_counts, read_labels
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram

FRAME = pd.DataFrame(
    {"word": ["the", "007", "naïve, “quoted”"], "n": [3, 2, 1], "other": [0, 0, 0]}
)


def write(path, frame):
    writers = {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        ".parquet": lambda: frame.to_parquet(path),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True),
    }
    writers[path.suffix]()
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_formats_agree(tmp_path, ending):
    found = read_counts(write(tmp_path / f"counts{ending}", FRAME), label="word", count="n")
    assert found["label"].tolist() == FRAME["word"].tolist()
    assert found["count"].tolist() == [3, 2, 1]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("missing", ["label", "count"])
def test_a_missing_column_is_named(tmp_path, ending, missing):
    columns = {"label": "word", "count": "n"} | {missing: "nowhere"}
    with pytest.raises(InvalidParameter, match=f"{missing}.*'nowhere'"):
        read_counts(write(tmp_path / f"counts{ending}", FRAME), **columns)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_binary_rubbish_and_missing_files_are_refused(tmp_path, ending):
    path = tmp_path / f"counts{ending}"
    with pytest.raises(InvalidParameter, match="source"):
        read_counts(path, label="word", count="n")
    path.write_bytes(bytes(range(128, 256)) * 10)
    with pytest.raises(InvalidParameter, match=r"encoding|source|label"):
        read_counts(path, label="word", count="n")
    path.write_bytes(b"")
    if ending != ".jsonl":  # which has no header: a table without rows is empty
        with pytest.raises(InvalidParameter, match=r"source|label"):
            read_counts(path, label="word", count="n")
    with pytest.raises(InvalidParameter, match="source"):
        read_counts(tmp_path, label="word", count="n")


@pytest.mark.parametrize("row", ["secret4711,x4711", "a,1.5", "a,-1", "the,-2"])
def test_bad_rows_are_refused_without_quoting_them(tmp_path, row):
    path = tmp_path / "counts.csv"
    path.write_text(f"word,n\nthe,3\n{row}\n", encoding="utf-8")
    with pytest.raises(InvalidParameter) as refusal:
        read_counts(path, label="word", count="n")
    assert "4711" not in str(refusal.value)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_what_one_user_may_cause_is_no_error_and_changes_no_other_label(tmp_path, ending):
    """A label in a second region, no label, no region: rows of a label are added up, the others are
    what they were.
    """
    frame = pd.DataFrame(
        {
            "word": pd.array([1, 2, 2, None, 2], dtype="Int64"),
            "n": [3, 2, 2**62 - 3, 1, 1],
            "at": pd.array([7, 7, 8, 7, None], dtype="Int64"),
        }
    )
    path = write(tmp_path / f"counts{ending}", frame)
    one, two = ("1", "2") if ending == ".csv" else (1, 2)

    def found(where):
        table = read_counts(path, label="word", count="n", where=where)
        return dict(zip(table["label"].tolist(), table["count"].tolist(), strict=True))

    assert found(None) == {one: 3, two: 2**62 - 1}  # and no more than a histogram may hold
    assert found({"at": "7"}) == {one: 3, two: 2}
    assert (
        len(
            Histogram.from_pandas(
                read_counts(path, label="word", count="n"), label="label", count="count"
            )
        )
        == 2
    )


def test_labels_are_added_up_by_type_and_value(tmp_path):
    path = tmp_path / "counts.jsonl"
    labels = ("1", '"1"', "1", '""', "null", "true")
    path.write_text("".join(f'{{"w": {label}, "n": 1}}\n' for label in labels), "utf-8")
    assert read_counts(path, label="w", count="n").to_numpy().tolist() == [
        [1, 2],
        ["1", 1],
        [True, 1],
    ]
    path.write_text("", "utf-8")
    assert len(read_counts(path, label="w", count="n")) == 0


def test_equal_columns_are_refused(tmp_path):
    with pytest.raises(InvalidParameter, match="different"):
        read_counts(write(tmp_path / "counts.csv", FRAME), label="n", count="n")


def test_labels_file(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("the\n\nand\n", encoding="utf-8")
    assert read_labels(path) == ["the", "and"]
    path.write_text("the\nthe\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="twice"):
        read_labels(path)
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InvalidParameter, match="UTF-8"):
        read_labels(path)
    with pytest.raises(InvalidParameter, match="cannot open"):
        read_labels(tmp_path / "none.txt")


@pytest.mark.parametrize("count", ["", "NA", "NULL", "nan"])
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_a_missing_count_is_zero(tmp_path, ending, count):
    """Of a list of labels that is joined with counts, one that nobody has comes without one: its
    first user decided that the file was read, or that a public label was one.
    """
    path = tmp_path / f"counts{ending}"
    if ending == ".csv":
        path.write_text(f"word,n\nthe,{2**53 + 1}\nand,{count}\na,2\n", encoding="utf-8")
    else:
        counts = pd.array([2**53 + 1, None, 2], dtype="Int64")
        write(path, pd.DataFrame({"word": ["the", "and", "a"], "n": counts}))
    found = read_counts(path, label="word", count="n")
    assert found["label"].tolist() == ["the", "and", "a"]
    assert found["count"].tolist() == [2**53 + 1, 0, 2]
    for dtype in ("float64", "Float64", "double[pyarrow]"):
        counts = pd.array([2.0, float("nan")], dtype=dtype)
        frame = pd.DataFrame({"word": ["the", "and"], "n": counts})
        assert Histogram.from_pandas(frame, label="word", count="n").counts.tolist() == [2, 0]


def test_a_count_of_64_bits_beside_a_missing_one_is_a_number(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(f"word,n\na,{2**63 - 1}\nb,NA\nc,{2**63}\nd,5\n", encoding="utf-8")
    found = read_counts(path, label="word", count="n")
    assert found["count"].tolist() == [2**62 - 1, 0, 2**62 - 1, 5]
    for text in ("1_000", "\u0663", "many", "1,000"):
        path.write_text(f'word,n\na,5\nb,"{text}"\n', encoding="utf-8")
        with pytest.raises(InvalidParameter, match="count"):
            read_counts(path, label="word", count="n")


@pytest.mark.parametrize("written", ["2.0", "2,0", "2e0"])
def test_a_count_that_is_written_as_a_float_rounds_no_other(tmp_path, written):
    path = tmp_path / "counts.tsv"
    path.write_text(f"word\tn\nthe\t{2**53 + 1}\na\t{written}\n", encoding="utf-8")
    decimal = "," if "," in written else "."
    found = read_counts(path, label="word", count="n", decimal=decimal)
    assert found["count"].tolist() == [2**53 + 1, 2]


@pytest.mark.parametrize("count", [2**62, 2**63, 2**64, 10**30, "1e30"], ids=str)
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_count_that_is_too_large_is_cut(tmp_path, ending, count):
    """The user who made it so large refused the file, and with it the counts of all others."""
    path = tmp_path / f"counts{ending}"
    if ending == ".csv":
        path.write_text(f"word,n\nthe,{2**53 + 1}\nand,{count}\n", encoding="utf-8")
    else:
        lines = [
            f'{{"word": "{word}", "n": {n}}}' for word, n in (("the", 2**53 + 1), ("a", count))
        ]
        path.write_text("\n".join(lines), encoding="utf-8")
    found = read_counts(path, label="word", count="n")
    assert found["count"].tolist() == [2**53 + 1, 2**62 - 1]


def texts_not_all_of_utf_8():
    stored = pa.array([b"x", b"\xff"], pa.binary())
    return pa.StringArray.from_buffers(2, *stored.buffers()[1:])


ODD_LABELS = {
    "text": texts_not_all_of_utf_8(),
    "category": pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), texts_not_all_of_utf_8()
    ),
    "day": pa.array([1, 2**30], pa.int32()).cast(pa.date32()),
    "time of day": pa.array([1, 86_400 * 10**6], pa.int64()).cast(pa.time64("us")),
    "time of day in nanoseconds": pa.array([2000, 1], pa.int64()).cast(pa.time64("ns")),
    "time": pa.array([1, 2**62], pa.timestamp("us")),
    "time with a zone": pa.array([1, 2**62], pa.timestamp("us", tz="UTC")),
    "time in nanoseconds": pa.array([1, None], pa.timestamp("ns")),
}


@pytest.mark.parametrize("name", ODD_LABELS)
def test_a_label_of_a_parquet_file_that_cannot_be_read_is_left_out(tmp_path, name):
    """It may be one user's, and it refused the file."""
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table({"word": ODD_LABELS[name], "n": [3, 1]}), path)
    found = read_counts(path, label="word", count="n")
    assert found["count"].tolist() == [3]
    assert len(Histogram.from_pandas(found, label="label", count="count").labels) == 1


def test_a_condition_on_a_parquet_file_fails_for_no_value(tmp_path):
    path = tmp_path / "counts.parquet"
    pq.write_table(
        pa.table({"word": ["a", "b"], "n": [3, 1], "part": texts_not_all_of_utf_8()}), path
    )
    found = read_counts(path, label="word", count="n", where={"part": "x"})
    assert found["label"].tolist() == ["a"]


@pytest.mark.parametrize("rows", [1, 2])
def test_lists_are_no_labels_whatever_they_hold(tmp_path, rows):
    """Without the one list the column was taken for labels that are all missing."""
    path = tmp_path / "counts.parquet"
    lists = pa.array([None, ["a"]][:rows], pa.list_(pa.string()))
    pq.write_table(pa.table({"word": lists, "n": [3, 1][:rows]}), path)
    with pytest.raises(InvalidParameter, match="hashable"):
        read_counts(path, label="word", count="n")


@pytest.mark.parametrize("label", ['["a"]', '{"a": 1}', "1" * 5000], ids=["list", "object", "long"])
def test_a_label_of_json_that_is_none_is_left_out(tmp_path, label):
    path = tmp_path / "counts.jsonl"
    path.write_text(f'{{"word": "x", "n": 3}}\n{{"word": {label}, "n": 1}}\n', encoding="utf-8")
    assert read_counts(path, label="word", count="n")["label"].tolist() == ["x"]
