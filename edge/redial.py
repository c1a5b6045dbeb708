"""Which connections to make anew when this host's addresses change.

A connection whose own address is gone cannot carry anything any more, and TCP would find that out only when what it sends
stays unacknowledged for 1.5 s. One that could not be made waits up to 2 s until it is tried again, while a new address may
make it possible now. Connections that are up and keep their address are left alone: whether another link would be better is
for the estimates to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge.paths import Connection
from shared.endpoints import is_address
from shared.events import AddressesChanged


def to_redial(
    connections: Iterable[Connection], local: Mapping[str, str], change: AddressesChanged
) -> list[Connection]:
    """The connections to be made anew, in their order. `local` is the own address of each that is up, by its link."""
    left = {address.address for address in change.left}
    return [c for c in connections if (local[c.link] in left if c.link in local else _may_be_made(c, change))]


def _may_be_made(connection: Connection, change: AddressesChanged) -> bool:
    """Whether a connection that is down may be possible since this change."""
    if change.missed:
        return True
    source = connection.source
    if not source:
        return bool(change.came)
    return any(source == (each.address if is_address(source) else each.interface) for each in change.came)
