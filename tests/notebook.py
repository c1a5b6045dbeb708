"""Running a notebook without Jupyter: its cells of code in one namespace, and what each of them shows.

    PYTHONPATH=.:tests python tests/notebook.py docs/notebooks/where-to-cut.ipynb

runs a notebook in a fresh folder and stores what its cells show in it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Output = dict[str, Any]
REPRESENTATIONS = (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_"))


def read(path: Path) -> Notebook:
    return json.loads(path.read_text(encoding="utf-8"))


def run(notebook: Notebook) -> list[list[Output]]:
    """What each cell of code shows, in the working directory. An exception goes through."""
    names: dict[str, object] = {"__name__": "__main__"}
    return [
        _run("".join(cell["source"]), names, number)
        for number, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), 1)
    ]


def _run(source: str, names: dict[str, object], number: int) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    told = io.StringIO()
    value: object = None
    with contextlib.redirect_stdout(told):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    shown: list[Output] = []
    if told.getvalue():
        shown.append({"name": "stdout", "output_type": "stream", "text": _lines(told.getvalue())})
    if value is not None:
        data = {mime: _lines(getattr(value, name)()) for mime, name in REPRESENTATIONS if hasattr(value, name)}
        data["text/plain"] = [f"<{type(value).__name__}>"] if data else _lines(repr(value))
        shown.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return shown


def kinds(outputs: list[Output]) -> list[object]:
    """What kinds of things a cell shows."""
    return [sorted(one["data"]) if isinstance(one.get("data"), Mapping) else one["output_type"] for one in outputs]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    notebook = read(path)
    place = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            shown = run(notebook)
        finally:
            os.chdir(place)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(cells, shown, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
