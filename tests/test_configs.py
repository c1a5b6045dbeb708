"""The configurations that come with the project say every key, its meaning and its true default."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from hil.demo_settings import DemoSettings
from shared.settings import CloudSettings, EdgeSettings, NodeAddress
from shared.settings_file import load, load_cloud, load_edge

CONFIGS = Path(__file__).parent.parent / "configs"
KINDS: dict[str, type[msgspec.Struct]] = {
    "edge.toml": EdgeSettings,
    "cloud.toml": CloudSettings,
    "demo.toml": DemoSettings,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_key_is_written(name: str) -> None:
    tree = tomllib.loads((CONFIGS / name).read_text())
    assert msgspec.to_builtins(KINDS[name]()).keys() == tree.keys()
    for group, keys in msgspec.to_builtins(KINDS[name]()).items():
        if isinstance(keys, dict):
            assert keys.keys() == tree[group].keys()


def test_the_values_written_are_the_defaults() -> None:
    assert load_edge(CONFIGS / "edge.toml") == EdgeSettings()
    assert load_cloud(CONFIGS / "cloud.toml") == CloudSettings()
    assert load(CONFIGS / "demo.toml", DemoSettings) == DemoSettings()


@pytest.mark.parametrize("name", KINDS)
def test_every_key_has_a_comment_that_states_its_default(name: str) -> None:
    comment = ""
    for line in (CONFIGS / name).read_text().splitlines():
        if line.startswith("#"):
            comment += f" {line.removeprefix('#').strip()}"
            continue
        if match := re.match(r"(\w+) = (.*)", line):
            value = match[2]
            assert f"Default {value}." in comment or (value == "[]" and "Default: none" in comment), line
        comment = ""


def test_the_example_of_a_node_shows_every_key_and_is_valid(tmp_path: Path) -> None:
    text = (CONFIGS / "edge.toml").read_text()
    example = "\n".join(
        re.findall(r"^# (\[\[nodes\]\].*|(?:name|endpoint|source|connections|paths) =.*)$", text, re.MULTILINE)
    )
    filled = text.replace("nodes = []", "") + example + "\n"
    path = tmp_path / "edge.toml"
    path.write_text(filled)
    (node,) = load_edge(path).nodes
    written = set(re.findall(r"^(\w+) =", example, re.MULTILINE))
    assert {field.name for field in msgspec.structs.fields(NodeAddress)} == written
    assert node.name
