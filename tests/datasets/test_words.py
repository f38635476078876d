"""The shipped word table of Macbeth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dptopk.datasets import macbeth, macbeth_counts
from dptopk.histogram.histogram import Sensitivity

SCRIPT = Path(__file__).parents[2] / "scripts" / "count_words.py"


def test_published_counts():
    counts = macbeth_counts().set_index("word")["count"]
    assert counts.head(9).to_dict() == {
        "the": 649, "and": 545, "to": 383, "of": 338, "i": 331, "a": 241, "that": 227, "my": 203, "you": 203
    }  # fmt: skip
    assert len(counts) == 3546
    assert counts.sum() == 17754
    assert counts.index.notna().all()


def test_histogram_carries_what_was_said():
    histogram = macbeth(sensitivity=Sensitivity(l0=1), domain="public")
    assert histogram.sensitivity.l0 == 1
    assert histogram.domain == "public"
    assert macbeth().domain == "private"
    assert macbeth().complete


def test_the_script_counts_words_by_the_stated_rule(tmp_path: Path):
    text, table = tmp_path / "text.txt", tmp_path / "table.csv"
    text.write_text("What's done, is done; 'tis DONE - 'what's' done?", encoding="utf-8")
    subprocess.run([sys.executable, str(SCRIPT), str(text), str(table)], check=True)
    assert table.read_text() == "word,count\ndone,4\nwhat's,2\nis,1\ntis,1\n"


def test_case_and_order_rule_hold_in_the_table():
    counts = macbeth_counts()
    keys = list(zip(-counts["count"], counts["word"], strict=True))
    assert keys == sorted(keys)
    assert counts["word"].str.fullmatch(r"[a-z]+('[a-z]+)*").all()


@pytest.mark.parametrize("word", ["null", "nan", "na"])
def test_no_word_is_read_as_missing(word, tmp_path: Path):
    from dptopk.datasets import read_counts

    path = tmp_path / "table.csv"
    path.write_text(f"word,count\n{word},3\n", encoding="utf-8")
    assert read_counts(path, label="word", count="count")["label"].tolist() == [word]
