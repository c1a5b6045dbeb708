"""What a process under trial is told to suffer, and how it is told: a file beside its configuration, and a signal."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hil.scenarios.scenario import What

if TYPE_CHECKING:
    from hil.services import Service

CHANGED = signal.SIGRTMIN
"""A signal that agents and nodes have no use for."""


class Orders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`times`: so many times slower than it began. `boot_ns`, `clock_ns`, `wall_ns`: how far its boot time, all its clocks,
    and its wall clock are ahead of the host's. `what`: how it meddles with `share` of its messages, drawn by `seed`."""

    times: float = 1.0
    boot_ns: int = 0
    clock_ns: int = 0
    wall_ns: int = 0
    what: tuple[What, ...] = ()
    share: float = 0.0
    seed: int = 1


def orders_file(config: Path) -> Path:
    """Where the orders of the process with this configuration are."""
    return config.with_suffix(".orders")


def write_orders(config: Path, orders: Orders) -> None:
    """Leave orders for the process, which reads them when it starts and when it is signalled."""
    new = config.with_suffix(".orders-new")
    new.write_bytes(msgspec.json.encode(orders))
    new.replace(orders_file(config))


def read_orders(config: Path) -> Orders:
    """The orders that were left; none where there is no file."""
    file = orders_file(config)
    return msgspec.json.decode(file.read_bytes(), type=Orders) if file.exists() else Orders()


def order_here(service: Service, orders: Orders) -> None:
    """Tell a process of this host; one that is starting reads its orders by itself when it is far enough."""
    write_orders(service.config, orders)
    if service.running and service.ready:
        os.kill(service.pid, CHANGED)
