"""The demo's settings: every key written and true, mistakes refused by their path."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.demo_settings import DemoSettings
from hil.phases import LinkShape
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
        ("[links.good]\nrate_mbit = 1e-310\nrtt_ms = 2.0", "links.good.rate_mbit"),
    ],
)
def test_a_mistake_is_refused_with_its_path(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "demo.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=path.replace(".", r"\.")):
        load(file, DemoSettings)


@given(st.floats(min_value=0.0, max_value=1e6), st.floats(min_value=0.0, max_value=60_000.0))
def test_whatever_link_is_taken_can_be_shaped(rate: float, rtt: float) -> None:
    try:
        shape = msgspec.convert({"rate_mbit": rate, "rtt_ms": rtt}, LinkShape).shape()
    except msgspec.ValidationError:
        assert rate < 0.001
        return
    assert 0 <= shape.serialise_ns(1 << 31) < 1 << 62
