"""Reads the configuration files. What they mean is decided in `shared.settings_check`; here is only the door to the disk.

A message starts with the file. Paths of models and journals are taken relative to the file that names them, not to the
folder in which the command happens to run, so that a configuration works from anywhere.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from shared.errors import SettingsError
from shared.settings import CloudSettings, EdgeSettings, Journal
from shared.settings_check import Settings, decode
from shared.toml_text import parse_toml


def load(path: Path, kind: type[Settings]) -> Settings:
    """The settings of `kind` that the TOML file at `path` holds; every key has a default unless its type says otherwise.

    Raises `SettingsError` where the file cannot be read, is not TOML (with the line), or does not pass
    `settings_check.decode`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 text at byte {error.start}, expected TOML") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{str(path)!r}: no path of a file: {error}") from None
    tree = parse_toml(text, str(path), SettingsError)
    try:
        return decode(tree, kind)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def load_edge(path: Path) -> EdgeSettings:
    """An edge agent's settings, their paths made absolute. Raises `SettingsError` as `load` does."""
    settings = load(path, EdgeSettings)
    agent = replace(settings.agent, models=_beside(path, settings.agent.models))
    fleet = replace(
        settings.fleet,
        directory=_one_beside(path, settings.fleet.directory),
        state=_one_beside(path, settings.fleet.state),
    )
    return replace(settings, agent=agent, fleet=fleet, journal=_journal_beside(path, settings.journal))


def load_cloud(path: Path) -> CloudSettings:
    """A cloud node's settings, their paths made absolute. Raises `SettingsError` as `load` does."""
    settings = load(path, CloudSettings)
    node = replace(
        settings.node,
        models=_beside(path, settings.node.models),
        directory=_one_beside(path, settings.node.directory),
    )
    return replace(settings, node=node, journal=_journal_beside(path, settings.journal))


def _beside(path: Path, others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(path.resolve().parent / other) for other in others)


def _one_beside(path: Path, other: str) -> str:
    return _beside(path, (other,))[0] if other else ""


def _journal_beside(path: Path, journal: Journal) -> Journal:
    return replace(journal, folder=_beside(path, (journal.folder,))[0]) if journal.folder else journal
