"""The notebook's cells still run, and what is stored with them is what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import DOCS
from notebook import kinds, read, run

STORED = DOCS / "notebooks" / "where-to-cut.ipynb"
MOST_BYTES = 300_000


def test_every_cell_runs_and_shows_what_is_stored_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = read(STORED)
    monkeypatch.chdir(tmp_path)
    shown = run(notebook)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [kinds(outputs) for outputs in shown] == [kinds(cell["outputs"]) for cell in cells]
    charts = [one["data"] for outputs in shown for one in outputs if "image/svg+xml" in one.get("data", {})]
    assert len(charts) == 7
    assert shown[-1][-1]["data"]["text/plain"] == cells[-1]["outputs"][-1]["data"]["text/plain"] == ["True"]


def test_the_stored_notebook_is_small_and_says_nothing_of_where_it_was_run() -> None:
    text = STORED.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert not [place for place in ("/tmp/", "/home/", "/root/", "/Users/", str(Path.cwd())) if place in text]
    notebook = read(STORED)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
