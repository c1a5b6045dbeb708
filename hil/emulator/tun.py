"""A TUN device: IP packets that the kernel sends there are read from a descriptor, and what is written is received.

It is not persistent, so that the kernel removes it with the descriptor. It asks for no offloads: each read is one packet, at
most as large as the device's MTU, with its checksums done.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from hil.emulator.namespaces import TUN, configure, inside
from hil.emulator.shape import MTU
from shared.errors import UserError

DEVICE_QUEUE = 8192
"""Packets that the kernel keeps for us until we read them. Many more than the usual 500: what is dropped here is no drop of
the link's."""

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


class Tun:
    """The device `name` in a namespace, up, with one address. `close` removes it.

    `peer` is the address of the other end, which is reached through it. Raises `UserError` where the system refuses.
    """

    def __init__(self, namespace: str, name: str, address: str, peer: str) -> None:
        self.namespace, self.name = namespace, name
        try:
            with inside(namespace):
                self._fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"the system refuses {TUN}: {error.strerror}") from error
        try:
            fcntl.ioctl(self._fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        except OSError as error:
            self.close()
            raise UserError(f"the system refuses a TUN device {name}: {error.strerror}") from error
        # Without IPv6 nothing but what the rig sends crosses the link, so that counts are exact.
        configure(
            namespace,
            [
                f"link set dev {name} addrgenmode none",
                f"link set dev {name} mtu {MTU} txqueuelen {DEVICE_QUEUE}",
                f"addr add {address}/32 dev {name}",
                f"link set dev {name} up",
                f"route add {peer}/32 dev {name}",
            ],
        )

    def fileno(self) -> int:
        """Readable while packets wait; each read is one, each write another."""
        return self._fd

    def unread(self) -> int:
        """Packets that the kernel dropped because nobody read them in time."""
        with inside(self.namespace):
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        # Eight counters of receiving, then of sending: bytes, packets, errs, drop.
        return next(int(line.split(":")[1].split()[11]) for line in lines if line.split(":")[0].strip() == self.name)

    def close(self) -> None:
        """Remove the device."""
        os.close(self._fd)
