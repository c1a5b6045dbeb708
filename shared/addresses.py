"""Watches this host's addresses: a source of `AddressesChanged`, from the kernel's own announcements (rtnetlink)."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterable

from shared.endpoints import is_address
from shared.events import Address, AddressesChanged, Event
from shared.netlink import Change, changes, settle

_GROUPS = 0x10 | 0x100
"""RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR."""

_MOST = 1 << 16


class AddressWatch:
    """One socket of the kernel's. Where there is no rtnetlink (a sandbox forbids it) nothing is ever seen, and `fault` says
    why."""

    def __init__(self) -> None:
        self.fault = ""
        self._socket: socket.socket | None = None
        self._shown = select.poll()
        self._fd = -1
        try:
            made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
            made.bind((0, _GROUPS))
        except OSError as error:
            self.fault = f"changes of this host's addresses are not watched: {error.strerror}"
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        self._socket = made
        self._shown.register(made, select.POLLIN)

    def fileno(self) -> int:
        """Readable when something has changed."""
        return self._fd if self._socket is None else self._socket.fileno()

    def drain(self) -> Iterable[Event]:
        """What has changed since the last time, in one event."""
        if self._socket is None or not self._shown.poll(0):
            # Nearly always; a receive that fails would cost ten times as much.
            return ()
        seen: list[Change] = []
        missed = False
        while True:
            try:
                seen += changes(self._socket.recv(_MOST))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                # The kernel had more to say than the socket holds: what it was is not known.
                missed = True
        came, left = settle(seen)
        if not (came or left or missed):
            return ()
        return (AddressesChanged(tuple(map(_address, came)), tuple(map(_address, left)), missed),)

    def pending(self) -> bool:
        """Nothing waits that the descriptor does not show."""
        return False

    def close(self) -> None:
        """Release the descriptor."""
        if self._socket is None:
            os.close(self._fd)
        else:
            self._socket.close()


def _address(change: Change) -> Address:
    try:
        name = socket.if_indextoname(change.index)
    except OSError:
        name = ""
    return Address(name, change.address)


def is_here(source: str) -> bool:
    """Whether this host has the address or interface that a connection is to leave from, now."""
    if not is_address(source):
        try:
            socket.if_nametoindex(source)
        except OSError:
            return False
        return True
    with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((source, 0))
        except OSError:
            return False
    return True
