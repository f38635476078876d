"""An answer that was charged, and that cannot be written to its file, is printed."""

import errno

import pytest
from typer.testing import CliRunner

from dptopk.cli.answer_sheet import write_sheet
from dptopk.cli.commands import app

TOTAL = ("--k", "2", "--epsilon", "2", "--delta", "1e-6", "--labels-per-user", "1", "--seed", "1")
SEGMENTS = ("--segment-by", "region", "--segments", "eu,us", "--segments-per-user", "1")


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    rows = ["storm,eu,900", "cup,eu,700", "storm,us,500", "vote,us,800"]
    path.write_text("label,region,count\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("printed", [True, False])
def test_answers_by_segment_are_printed_and_said_to_be_charged(
    counts, tmp_path, monkeypatch, printed
):
    def full_disk(sheet, form, out):
        if out is None and printed:
            return write_sheet(sheet, form, out)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dptopk.cli.topk.write_sheet", full_disk)
    options = ("--format", "csv", "--out", str(tmp_path / "answer.csv"))
    result = CliRunner().invoke(app, ["topk", str(counts), *TOTAL, *SEGMENTS, *options])
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "could not be written (No space left on device), and were charged" in said
    assert ("They are lost" in said) != printed
    for shown in ("eu", "us", "storm", "Total:"):
        assert (shown in result.stdout) == printed
