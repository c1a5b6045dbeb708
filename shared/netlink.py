"""What the Linux kernel says of this host's addresses (rtnetlink), from bytes. Pure: `shared.addresses` reads the socket.

A datagram holds several messages, each a header (length, type, flags, sequence, port) and, for an address, `ifaddrmsg` with
attributes behind it; all numbers in the host's own order. See rtnetlink(7).
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator

import msgspec

NEW_ADDRESS, DELETED_ADDRESS = 20, 21
_HEADER = struct.Struct("=IHHII")
_ADDRESS = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ANY, _LOCAL, _FLAGS = 1, 2, 8
_TENTATIVE = 0x40
"""An address of IPv6 that the kernel still looks for on the network: it cannot be used yet."""


class Change(msgspec.Struct, frozen=True):
    """An address came to the interface of this index, or left it."""

    came: bool
    index: int
    address: str


def changes(datagram: bytes) -> Iterator[Change]:
    """The changes of addresses that a datagram tells of. What is cut off or malformed ends it."""
    at = 0
    while at + _HEADER.size <= len(datagram):
        length, kind, *_ = _HEADER.unpack_from(datagram, at)
        if length < _HEADER.size or at + length > len(datagram):
            return
        if kind in (NEW_ADDRESS, DELETED_ADDRESS) and length >= _HEADER.size + _ADDRESS.size:
            change = _change(kind, datagram[at + _HEADER.size : at + length])
            if change is not None:
                yield change
        at += _aligned(length)


def settle(seen: Iterable[Change]) -> tuple[list[Change], list[Change]]:
    """What came and what left in all, in the order of its last change: an address that left and came again is as it was."""
    last: dict[tuple[int, str], Change] = {}
    first: dict[tuple[int, str], Change] = {}
    for change in seen:
        key = (change.index, change.address)
        first.setdefault(key, change)
        last.pop(key, None)
        last[key] = change
    # One that left and came again was there before, and is there now.
    changed = [change for key, change in last.items() if change.came == first[key].came]
    return [change for change in changed if change.came], [change for change in changed if not change.came]


def _change(kind: int, body: bytes) -> Change | None:
    _family, _prefix, flags, _scope, index = _ADDRESS.unpack_from(body)
    found: dict[int, bytes] = {}
    at = _ADDRESS.size
    while at + _ATTRIBUTE.size <= len(body):
        length, name = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size or at + length > len(body):
            break
        found[name] = body[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)
    if len(found.get(_FLAGS, b"")) == 4:
        (flags,) = struct.unpack("=I", found[_FLAGS])
    raw = found.get(_LOCAL) or found.get(_ANY) or b""
    if len(raw) not in (4, 16) or (kind == NEW_ADDRESS and flags & _TENTATIVE):
        return None
    return Change(kind == NEW_ADDRESS, index, str(ipaddress.ip_address(raw)))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
