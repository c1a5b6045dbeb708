"""Scenarios as files: those that are shipped, by name, and anyone's by path, with the traces that their links play."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hil.links.files import read_link, read_text
from hil.links.generator import generate
from hil.links.model_file import read_model
from hil.links.trace import Trace
from hil.scenarios.check import check_scenario
from hil.scenarios.scenario import LinkPart, Scenario
from shared.errors import SettingsError, UserError
from shared.settings_file import load

FOLDERS = tuple(Path(__file__).resolve().parents[up] / "configs" / "scenarios" for up in (2, 1))
"""Where the shipped ones are: in a checkout, or in an installed package (`pyproject.toml` puts them there)."""

SPARE_S = 5.0
"""A made trace is so much longer than the scenario."""


def shipped() -> dict[str, Path]:
    """The shipped scenarios by name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder is not None else {}


def find(word: str) -> Path:
    """The file of a scenario: a path, or the name of a shipped one. Raises `UserError` where it is neither."""
    path = Path(word)
    if path.suffix == ".toml" or (path.exists() and not path.is_dir()):
        return path
    known = shipped()
    if word not in known:
        raise UserError(
            f"{word!r} is no scenario; expected a file or one of {', '.join(known) or 'none that is shipped'}"
        )
    return known[word]


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file, its paths made absolute. Raises `SettingsError` that names the file and the key."""
    scenario = load(path, Scenario)
    try:
        check_scenario(scenario)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    beside = path.resolve().parent
    links = tuple(
        replace(
            link,
            trace=str(beside / link.trace) if link.trace else "",
            model=str(beside / link.model) if link.model else "",
        )
        for link in scenario.links
    )
    return replace(scenario, links=links)


def traces(scenario: Scenario) -> dict[str, Trace]:
    """What the links that are not constant play, by their names. Raises `UserError` where a file cannot be read."""
    found: dict[str, Trace] = {}
    for link in scenario.links:
        trace = _trace(link, scenario.stream.seconds + SPARE_S)
        if trace is not None:
            found[link.name] = trace
    return found


def _trace(link: LinkPart, seconds: float) -> Trace | None:
    if link.trace:
        return read_link(Path(link.trace))
    if not link.model:
        return None
    path = Path(link.model)
    model = read_model(read_text(path), str(path))
    return generate(model, seconds * 1000, np.random.default_rng(link.seed)).trace
