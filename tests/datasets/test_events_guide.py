"""The Python of docs/events.md runs as it stands, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pytest.importorskip("polars")

GUIDE = Path(__file__).parents[2] / "docs" / "events.md"


@pytest.mark.slow
def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    blocks = re.findall(
        r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), namespace)  # noqa: S102
    assert len(namespace["release"]) > 0
    assert set(namespace["tops"]) == {"north", "east", "south", "west"}
    assert "pass 2 of 2" in capsys.readouterr().out
    assert (tmp_path / "top.csv").read_text().startswith("rank,label,count\n")
