"""The demo's settings: every key written and true, mistakes refused by their path."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from hil.demo_settings import DemoSettings
from shared.errors import SettingsError
from shared.settings_file import load

FILE = Path(__file__).parent.parent / "configs" / "demo.toml"


def keys(tree: object, path: str = "") -> set[str]:
    if not isinstance(tree, dict):
        return {path}
    return set().union(*(keys(value, f"{path}.{key}") for key, value in tree.items()))


def test_the_file_has_every_key_and_the_true_defaults() -> None:
    tree = tomllib.loads(FILE.read_text())
    assert keys(tree) == keys(msgspec.to_builtins(DemoSettings()))
    assert load(FILE, DemoSettings) == DemoSettings()


def test_every_key_has_a_comment_that_tells_its_default() -> None:
    comment = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("#"):
            comment += f" {line.removeprefix('#').strip()}"
        elif " = " in line:
            assert f"Default {line.partition(' = ')[2]}." in comment, line
            comment = ""


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[stream]\nframe = 300", "stream.frame"),
        ("[links.good]\nrate_mbit = 200.0\nrtt_ms = 2.0\nloss = 1.0", "links.good.loss"),
        ("[noise]\nlate = 2.0", "noise.late"),
        ("[verdict]\ngood = 0.5", "verdict"),
        ("[stream]\nframes = 3", "stream.frames"),
        ("[deadline]\nchoices_ms = []", "deadline.choices_ms"),
        ('[device]\nslowdown = "4"', "device.slowdown"),
        ("[links.good]\nrate_mbit = 0.0\nrtt_ms = 2.0", "links.good.rate_mbit"),
    ],
)
def test_a_mistake_is_refused_with_its_path(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "demo.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=path.replace(".", r"\.")):
        load(file, DemoSettings)
