"""One folder, one answer: which of its files are the rows of a table."""

from __future__ import annotations

import json
import os

import pytest

from dptopk import InvalidParameter

pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from dptopk.datasets import events_histogram  # noqa: E402


def counts(table, **options):
    found = events_histogram(table, **({"user": "u", "item": "i", "labels_per_user": 5} | options))
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


def written(path, user="a", **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"u": [user], "i": ["x"], **more}), path)


HIDDEN = (".x.parquet", "_meta.parquet", "_temporary/0/p.parquet", "day=1/.t/p.parquet")


@pytest.mark.parametrize("pattern", ["", "*.parquet", "**/*.parquet"])
def test_hidden_files_are_no_rows(tmp_path, pattern):
    for place, name in enumerate(HIDDEN):
        written(tmp_path / name, user=str(place))
    written(tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert counts(tmp_path / pattern if pattern else tmp_path) == {"x": 1}


def test_a_hidden_file_that_is_named_is_refused(tmp_path):
    for name in (".x.parquet", "_meta.parquet"):
        written(tmp_path / name)
        with pytest.raises(InvalidParameter, match="rename it"):
            counts(tmp_path / name)


def test_folders_of_a_column_may_start_with_an_underscore(tmp_path):
    written(tmp_path / "_raw" / "_x=1" / "a.parquet")
    written(tmp_path / "_raw" / "_x=2" / "a.parquet", user="b")
    assert counts(tmp_path / "_raw", item="_x") == {"1": 1, "2": 1}
    assert counts(tmp_path / "_raw" / "*" / "*.parquet") == {"x": 2}


def test_a_folder_may_have_the_letters_of_a_pattern_in_its_name(tmp_path):
    written(tmp_path / "a[1]*" / "b?" / "a.parquet")
    assert counts(tmp_path / "a[1]*") == {"x": 1}


@pytest.mark.slow
def test_folders_above_what_is_named_are_no_columns(tmp_path):
    """A file was read with the name of a folder above it for its users: all were one."""
    folder = tmp_path / "u=1" / "events"
    for name in "ab":
        written(folder / f"{name}.parquet", user=name)
    for table in (folder, folder / "*.parquet", folder / "[ab].parquet"):
        assert counts(table) == {"x": 2}
    assert counts(folder / "a.parquet") == {"x": 1}
    written(folder / "day=1" / "a.parquet")
    (folder / "a.parquet").unlink()
    (folder / "b.parquet").unlink()
    with pytest.raises(InvalidParameter, match="a folder above is called u=, as a column"):
        counts(folder, item="day")


@pytest.mark.parametrize(("above", "below"), [("U=1", "day=1"), ("i=9", "i=x")])
def test_a_folder_above_covers_no_column(tmp_path, above, below):
    """DuckDB read the folder above: "U" covers "u", and of two folders the upper one counts."""
    for user in "ab":
        written(tmp_path / above / "t" / below / f"{user}.parquet", user=user)
    with pytest.raises(InvalidParameter, match="a folder above is called"):
        counts(tmp_path / above / "t")


def test_a_folder_above_is_no_column_beside_those_below(tmp_path):
    written(tmp_path / "z=1" / "t" / "day=1" / "a.parquet")
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        counts(tmp_path / "z=1" / "t", item="z")


# Folders of two files of a table, and what is said of them.
ODD_NAMES = [
    (("k=1", "."), "k=, and of others none"),  # Spark left the second file out
    (("k=1/m=2", "m=1/k=2"), "name them alike"),
    (("k=1", "K=2"), "name them alike"),
    (("k=1/k=2", "k=1/k=3"), "name a column twice"),
    (("k=1/s/m=1", "k=1/s/m=2"), "one that is no column"),
    (("I=1", "I=2"), "called I=, and a column of the files 'i'"),
    *[((f"k={value}", "k=n"), "do not agree") for value in ("x=y", "a?b", "a\\b", "a\nb", "%FF")],
    (("=1", "=2"), "do not agree"),
]


@pytest.mark.parametrize(("folders", "message"), ODD_NAMES)
def test_names_of_folders_that_engines_read_differently_are_refused(tmp_path, folders, message):
    for user, folder in zip("ab", folders, strict=True):
        written(tmp_path / folder / "f.parquet", user=user)
    with pytest.raises(InvalidParameter, match=message) as refused:
        counts(tmp_path)
    assert folders[0] not in str(refused.value)  # it may be a user's value


def test_folders_that_are_no_columns_may_be_above_and_below_those_that_are(tmp_path):
    for user, folder in zip("abc", ("k=1/s", "k=2", "above/k=2"), strict=True):
        written(tmp_path / folder / "f.parquet", user=user)
    assert counts(tmp_path, item="k") == {"1": 1, "2": 2}


def test_a_column_that_a_later_file_lacks_is_no_column(tmp_path):
    """DuckDB failed on the second file, Spark read NULL there."""
    written(tmp_path / "a.parquet", z=["q"])
    written(tmp_path / "b.parquet", user="b")
    assert counts(tmp_path) == {"x": 2}
    assert counts(tmp_path, where=lambda t: t.i == "x") == {"x": 2}
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        counts(tmp_path, item="z")


def test_a_value_that_nobody_can_read_in_a_file_with_other_capitals(tmp_path):
    written(tmp_path / "a.parquet")
    offsets = pa.array(["ab", "cd"]).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab\xff\xfe")])
    pq.write_table(pa.table({"U": texts, "i": ["x", "x"]}), tmp_path / "b.parquet")
    assert counts(tmp_path) == {"x": 2}


def test_a_name_that_is_needed_for_values_that_nobody_can_read_is_refused(tmp_path):
    """Such a value in one row decided whether the table was read."""
    written(tmp_path / "a.parquet", file_row_number=[1])
    with pytest.raises(InvalidParameter, match="rename it"):
        counts(tmp_path / "a.parquet")


def test_no_link_counts_a_file_twice(tmp_path):
    """A link to its own folder was followed 40 times."""
    written(tmp_path / "d" / "a.parquet")
    link = tmp_path / "d" / "again"
    link.symlink_to(".")
    with pytest.raises(InvalidParameter, match="a folder that it is in"):
        counts(tmp_path)
    link.unlink()
    (tmp_path / "latest").symlink_to("d")
    for table in (tmp_path, tmp_path / "*" / "*.parquet"):
        with pytest.raises(InvalidParameter, match=r"'a\.parquet' is found twice"):
            counts(table)
    assert counts(tmp_path / "latest") == {"x": 1}


def test_a_file_of_two_names_is_refused(tmp_path):
    """Its rows counted twice."""
    written(tmp_path / "d" / "a.parquet")
    written(tmp_path / "d" / "b.parquet")
    (tmp_path / "elsewhere.parquet").hardlink_to(tmp_path / "d" / "a.parquet")
    assert counts(tmp_path / "d") == {"x": 1}
    (tmp_path / "d" / "c.parquet").hardlink_to(tmp_path / "d" / "a.parquet")
    for table in (tmp_path / "d", tmp_path / "d" / "*.parquet"):
        with pytest.raises(InvalidParameter, match=r"'c\.parquet' is found twice"):
            counts(table)


def test_a_folder_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    """Its files were left out without a word, or the error was one of Python."""
    written(tmp_path / "a.parquet")
    written(tmp_path / "closed" / "b.parquet")
    scandir = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", closed)
    with pytest.raises(InvalidParameter, match="cannot be read: Permission denied") as refused:
        counts(tmp_path)
    assert "closed" not in str(refused.value)
    (tmp_path / "closed").rename(tmp_path / "_closed")  # no part of the table
    assert counts(tmp_path) == {"x": 1}
    with pytest.raises(InvalidParameter, match="there is no file"):
        counts(tmp_path / "nowhere" / "**" / "*.parquet")


def test_an_escaped_pattern_is_a_file(tmp_path):
    written(tmp_path / "[a].parquet")
    written(tmp_path / "_[a].parquet")
    assert counts(tmp_path / "[[]a].parquet") == {"x": 1}
    with pytest.raises(InvalidParameter, match="there is no file"):
        counts(tmp_path / "_[[]a].parquet")


def test_folders_that_a_glob_finds_are_columns(tmp_path):
    for name in "ab":
        written(tmp_path / "t" / f"day={name}" / "1.parquet", user=name)
    for pattern in ("*/*.parquet", "day=*/1.parquet", "**/*.parquet"):
        assert counts(tmp_path / "t" / pattern, item="day") == {"a": 1, "b": 1}


def test_no_row_of_a_text_file_decides_whether_a_folder_is_a_column(tmp_path):
    folder = tmp_path / "u=1"
    folder.mkdir()
    for odd, expected in (("", 2), ("c,x,more,cells\n", 3)):
        (folder / "events.csv").write_text("u,i\na,x\nb,x\n" + odd, encoding="utf-8")
        assert counts(folder / "events.csv") == {"x": expected}


PATTERNS = ("a*", "a?", "[a]", "a[b", "[!b]", "{a,b}")


def other_files(folder):
    """Files that engines take some of PATTERNS for."""
    for name in ("a", "ab", "b"):
        written(folder / f"{name}.parquet", user=name)
        (folder / f"{name}.csv").write_text("u,i\nz,x\n", encoding="utf-8")
        (folder / f"{name}.jsonl").write_text('{"u":"z","i":"x"}\n', encoding="utf-8")


def pattern_files(folder, name):
    """A file of each format with one row of its own."""
    paths = [folder / f"{name}{ending}" for ending in (".parquet", ".csv", ".jsonl")]
    pq.write_table(pa.table({"u": ["a"], "i": ["own"]}), paths[0])
    paths[1].write_text("u,i\na,own\n", encoding="utf-8")
    paths[2].write_text('{"u":"a","i":"own"}\n', encoding="utf-8")
    return paths


@pytest.mark.parametrize("name", PATTERNS)
def test_a_file_named_as_a_pattern_is_that_file_alone(tmp_path, name):
    other_files(tmp_path)
    for path in pattern_files(tmp_path, name):
        assert counts(path) == {"own": 1}
    options = {"per_label_cap": 9}  # a row that is read twice would count twice
    assert counts(tmp_path, **options) == {"x": 3, "own": 1}
    assert counts(tmp_path / "*.csv", **options) == {"x": 3, "own": 1}


def log_of_delta(folder):
    log = folder / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text(json.dumps({"remove": {"path": "a.parquet"}}), encoding="utf-8")


def log_of_iceberg(folder):
    (folder / "metadata").mkdir()
    (folder / "metadata" / "00000-a.metadata.json").write_text("{}", encoding="utf-8")


def log_of_iceberg_packed(folder):
    (folder / "metadata").mkdir()
    (folder / "metadata" / "v2.metadata.json.gz").touch()


def log_of_hudi(folder):
    (folder / ".hoodie").mkdir()


LOGS = [log_of_delta, log_of_iceberg, log_of_iceberg_packed, log_of_hudi]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("asked", ["table", "table/*.parquet", ".", "*/*.parquet"])
def test_a_table_with_a_log_is_refused_with_a_way_to_read_it(tmp_path, log, asked):
    written(tmp_path / "table" / "a.parquet")
    assert counts(tmp_path / asked) == {"x": 1}
    log(tmp_path / "table")
    with pytest.raises(InvalidParameter, match=r"rows that were removed; give"):
        counts(tmp_path / asked)


@pytest.mark.parametrize("log", LOGS)
def test_a_part_of_a_table_with_a_log_is_refused_as_the_table_is(tmp_path, log, monkeypatch):
    folder = tmp_path / "table" / "data" / "day=1"
    written(folder / "a.parquet")
    log(tmp_path / "table")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "link.parquet").symlink_to(folder / "a.parquet")
    monkeypatch.chdir(folder)
    parts = [folder, folder / "a.parquet", folder / "*.parquet", folder.parent, "a.parquet", "."]
    for part in [*parts, tmp_path / "link", tmp_path / "link.parquet"]:
        with pytest.raises(InvalidParameter, match=r"'table' is .* rows that were removed; give"):
            counts(part)


def test_fields_that_share_a_name_are_not_of_different_types(tmp_path):
    """Two columns of lists, and a field called as a column: each has one type in all files."""
    nested = {"l": [["p"]], "m": [[1.0]], "r": [{"id": 1}], "id": ["7"]}
    for name in "ab":
        written(tmp_path / f"{name}.parquet", user=name, **nested)
    assert counts(tmp_path) == {"x": 2}
    written(tmp_path / "c.parquet", **(nested | {"m": [["q"]]}))
    with pytest.raises(InvalidParameter, match="different types"):
        counts(tmp_path)


def test_a_parquet_file_of_a_folder_is_known_by_the_ending_of_its_name_in_any_case(tmp_path):
    """Files called b.PARQUET and c.pq were left out without a word."""
    for name in ("a.parquet", "b.PARQUET", "k=1/c.pq", "_d.PQ"):
        written(tmp_path / "t" / name, user=name)
    with pytest.raises(InvalidParameter, match="name them alike"):
        counts(tmp_path / "t")
    (tmp_path / "t" / "k=1" / "c.pq").rename(tmp_path / "t" / "c.pq")
    assert counts(tmp_path / "t") == {"x": 3}


def test_what_is_found_and_is_no_file_is_not_left_out(tmp_path):
    """The rows of the other files were taken for those of the table."""
    written(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to("on_a_disk_that_is_not_mounted.parquet")
    for table in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(InvalidParameter, match=r"'b\.parquet' is no file"):
            counts(table)
    (tmp_path / "b.parquet").unlink()
    written(tmp_path / "c.parquet" / "part.parquet", user="c")
    assert counts(tmp_path) == {"x": 2}
    with pytest.raises(InvalidParameter, match=r"'c\.parquet' is a folder"):
        counts(tmp_path / "*.parquet")


def test_columns_that_are_alike_but_for_case_are_refused_in_every_file(tmp_path):
    """DuckDB took the first of them in each file: here "i" of one and "I" of the other."""
    names = (["u", "i", "I"], ["u", "I", "i"])
    for place, columns in enumerate(names):
        cells = [pa.array([f"{name}{place}"]) for name in columns]
        table = pa.Table.from_arrays(cells, names=columns)
        pq.write_table(table, tmp_path / f"{place}.parquet")
    for table in (tmp_path, tmp_path / "0.parquet"):
        with pytest.raises(InvalidParameter, match=r"'0\.parquet' has several columns called 'i'"):
            counts(table)
    assert counts(tmp_path / "0.parquet", item="u", user=None, labels_per_user=1) == {"u0": 1}
