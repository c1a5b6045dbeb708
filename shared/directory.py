"""The directory of a fleet: which nodes there are, as a list with an epoch. A newer list replaces an older one, everywhere.

It comes from a file that somebody edits, from a node's own file, which the node hands on to its edges, or from what an edge
kept of an earlier run. Each way in ends in a `Directory` that has been checked; who decides which one counts knows nothing
of files. So another source (a cluster engine's, one day) only has to say `DirectorySeen`.

DNS SRV records are not read: the standard library has no resolver for them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shared.errors import SettingsError
from shared.settings import Group, NodeAddress, PathAddress
from shared.wire.messages import MAX_HEADER, NodeEntry, NodeList

MOST_NODES = 64


class Directory(Group, frozen=True):
    """`nodes` as of `epoch`. Of two lists the one of the higher epoch counts; epochs begin at 1, and 0 is no directory's."""

    epoch: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    nodes: Annotated[tuple[NodeAddress, ...], Meta(max_length=MOST_NODES)] = ()


def to_message(directory: Directory) -> NodeList:
    """What a node tells its edges of it. From where a connection leaves is the edge's own affair."""
    return NodeList(
        directory.epoch,
        tuple(
            NodeEntry(
                node.name,
                node.endpoint,
                node.connections,
                tuple(path.endpoint for path in node.paths if path.endpoint),
            )
            for node in directory.nodes
        ),
    )


def from_message(message: NodeList) -> Directory:
    """A directory that was told; still to be checked."""
    return Directory(
        epoch=message.epoch,
        nodes=tuple(
            NodeAddress(
                name=entry.name,
                endpoint=entry.endpoint,
                connections=entry.connections,
                paths=tuple(PathAddress(endpoint=endpoint) for endpoint in entry.more),
            )
            for entry in message.nodes
        ),
    )


def check_length(directory: Directory) -> None:
    """Raise `SettingsError` where the nodes are too many for one message."""
    size = len(msgspec.msgpack.encode(to_message(directory)))
    if size > MAX_HEADER:
        raise SettingsError(
            f"nodes: {len(directory.nodes)} nodes take {size} bytes in a message; expected at most {MAX_HEADER}"
        )


def newest(first: Directory | None, *others: Directory | None) -> Directory | None:
    """The one of the highest epoch; of two of the same the earlier one here."""
    best = first
    for other in others:
        if other is not None and (best is None or other.epoch > best.epoch):
            best = other
    return best


def as_own(known: NodeAddress, told: NodeAddress) -> bool:
    """Whether a node that is told of is one that this edge knows at the same address: then its own settings for it count."""
    return (known.name, known.endpoint) == (told.name, told.endpoint)


def encode(directory: Directory) -> bytes:
    """As kept on disk: JSON."""
    return msgspec.json.format(msgspec.json.encode(directory)) + b"\n"
