"""Settings as the text of a configuration file, for the processes that a rig starts.

The standard library reads TOML and does not write it. What settings hold needs little of the format: values, tables, arrays
of tables one level deep, tables inline below that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

Table = Mapping[str, object]


def to_toml(settings: msgspec.Struct) -> str:
    """Settings as a TOML file: values first, then tables and arrays of tables."""
    tree = cast(Mapping[str, object], msgspec.to_builtins(settings))
    tables = {key: cast(Table, value) for key, value in tree.items() if isinstance(value, Mapping)}
    arrays = {key: cast(Sequence[Table], value) for key, value in tree.items() if _is_tables(value)}
    lines = [f"{key} = {_value(value)}" for key, value in tree.items() if key not in {*tables, *arrays}]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *_pairs(table)]
    for key, array in arrays.items():
        for table in array:
            lines += ["", f"[[{key}]]", *_pairs(table)]
    return "\n".join(lines) + "\n"


def _is_tables(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return False
    items = cast(Sequence[object], value)
    return bool(items) and all(isinstance(item, Mapping) for item in items)


def _pairs(table: Table) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: object) -> str:
    """A TOML value, tables inline; JSON writes strings, numbers and booleans the same way."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(cast(Table, value)))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in cast(Sequence[object], value))}]"
    return json.dumps(value, ensure_ascii=True)
