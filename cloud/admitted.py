"""What a node knows of a request that it let in."""

from __future__ import annotations

import msgspec

from cloud.kept import Identity
from cloud.peers import Peer
from shared.wire.messages import Infer


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A request that was let in and is not over."""

    identity: Identity
    peer: Peer
    links: tuple[str, ...]
    """The connections that it came on: each is answered."""
    message: Infer
    job: int
    received_ns: int
    deadline_ns: int
    tail_ns: int = 0
    """How long earlier pieces of it ran,"""
    codec_ns: int = 0
    """and the decoding before them."""
