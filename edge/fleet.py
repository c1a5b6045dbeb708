"""Which nodes an agent begins with: those of its own file, of a directory's file, or of the list that it kept, by their
epochs; and what this host lacks to reach them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from edge.paths import connections
from shared.addresses import is_here
from shared.directory import Directory, as_own, newest
from shared.directory_file import load_kept
from shared.errors import SettingsError
from shared.settings import EdgeSettings, NodeAddress


def with_newest(settings: EdgeSettings, found: Directory | None) -> tuple[EdgeSettings, str]:
    """The settings with the newest list of nodes in place of their own: `found` in a directory's file, or what was kept.
    The text says what was wrong with the latter, which is then as if nothing had been kept."""
    fleet = settings.fleet
    kept, fault = None, ""
    if fleet.state:
        try:
            kept = load_kept(Path(fleet.state))
        except SettingsError as error:
            fault = str(error)
    best = newest(found, kept)
    if best is None or best.epoch <= fleet.epoch:
        return settings, fault
    own = {node.name: node for node in settings.nodes}
    nodes = tuple(_own_view(own, told) for told in best.nodes)
    return replace(settings, nodes=nodes, fleet=replace(fleet, epoch=best.epoch)), fault


def absent_sources(settings: EdgeSettings) -> Iterator[str]:
    """What is to be said of sources that this host does not have. They may come later, so this is no error."""
    for node in settings.nodes:
        for source in dict.fromkeys(way.source for way in connections(node)):
            if source and not is_here(source):
                yield f"nodes: this host has no {source!r} now, from where node {node.name!r} is to be reached"


def _own_view(own: dict[str, NodeAddress], told: NodeAddress) -> NodeAddress:
    known = own.get(told.name)
    return known if known is not None and as_own(known, told) else told
