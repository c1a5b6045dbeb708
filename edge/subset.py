"""Which nodes of a large fleet an edge uses for a plan: by rendezvous hashing of their names.

Each edge ranks the nodes for each plan by a hash of the three names, and uses the first few of that order that can be used.
Edges spread over the nodes evenly without knowing each other, an edge meets the same nodes again (whose connections, clocks
and delays it knows), and where a node leaves only those that used it move, each to the next of its own order.

Thaler and Ravishankar, "A name-based mapping scheme for rendezvous" (1996).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def ranked(edge: str, contract: str, nodes: Iterable[str]) -> list[str]:
    """The nodes in the order in which this edge uses them for a plan; the same in every process."""
    return sorted(nodes, key=lambda node: (_score(edge, contract, node), node))


def _score(edge: str, contract: str, node: str) -> bytes:
    return blake2b("\0".join((edge, contract, node)).encode(), digest_size=8).digest()
