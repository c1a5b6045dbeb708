"""Settings as TOML: what is written is read back, also tables inside arrays of tables."""

from __future__ import annotations

import tomllib

import msgspec

from hil.toml import to_toml


class Way(msgspec.Struct, frozen=True):
    name: str
    shares: tuple[float, ...] = ()


class Node(msgspec.Struct, frozen=True):
    name: str
    ways: tuple[Way, ...] = ()
    best: Way = Way("best")


class Tree(msgspec.Struct, frozen=True):
    about: str
    nodes: tuple[Node, ...]
    first: Way


def test_nested_tables_are_read_back() -> None:
    way = Way('over "there" \\ \u00e9', (0.5, 1e-9))
    tree = Tree("two\nlines", (Node("a", (way, Way("b")), way), Node("b")), way)
    assert msgspec.convert(tomllib.loads(to_toml(tree)), Tree) == tree
