"""What holds for every source file: its length, its docstrings. Part of `make check`."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("shared", "edge", "cloud", "partitioner", "hil")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def undocumented(tree: ast.Module) -> Iterator[str]:
    """The public names of a module without a docstring; a module without any statement needs none."""
    if tree.body and ast.get_docstring(tree) is None:
        yield "(the module)"
    yield from _undocumented(tree.body, "")


def _undocumented(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        overload = any(
            isinstance(mark, ast.Name) and mark.id in {"overload", "override"} for mark in node.decorator_list
        )
        if ast.get_docstring(node) is None and not overload:
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body, f"{prefix}{node.name}.")


def test_there_are_sources() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=name_of)
def test_no_file_is_longer_than_500_lines(path: Path) -> None:
    assert lines(path) <= 500


def test_the_median_file_is_shorter_than_250_lines() -> None:
    assert statistics.median(lines(path) for path in SOURCES + TESTS) < 250


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_public_name_has_its_docstring(path: Path) -> None:
    assert list(undocumented(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_a_missing_docstring_is_found() -> None:
    methods = '    """Doc."""\n    def f(self): ...\n    def _g(self): ...\n'
    source = f'"""Head."""\nclass A:\n{methods}async def h(): ...\ndef _i(): ...\n'
    assert list(undocumented(ast.parse(source))) == ["A.f", "h"]
    assert list(undocumented(ast.parse("x = 1"))) == ["(the module)"]
