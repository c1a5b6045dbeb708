"""The network of a crowd: a delay of its own for each edge, connections that break when a node dies and are made again."""

from __future__ import annotations

import random
from collections.abc import Callable

from hil.regret.tcp import MS, PAUSES_NS, Agenda, Happen
from hil.regret.world import Channel

PER_BYTE_NS = 40.0
"""200 Mbit/s."""

ONE_WAY_MS = (0.5, 4.0)


class FixedNetwork:
    """A `Network` without losses. `alive` tells whether a node lives."""

    def __init__(self, agenda: Agenda, alive: Callable[[str], bool], rng: random.Random) -> None:
        self._agenda = agenda
        self._alive = alive
        self._rng = rng
        self._delays: dict[str, int] = {}
        self._channels: dict[str, list[FixedChannel]] = {}

    def connect(self, edge: str, node: str, link: str, up: Happen, down: Happen) -> Channel:
        """A connection of this edge; both directions take the edge's own delay."""
        del link
        delay = self._delays.get(edge)
        if delay is None:
            delay = self._delays[edge] = int(self._rng.uniform(*ONE_WAY_MS) * MS)
        channel = FixedChannel(self._agenda, delay, lambda: self._alive(node), up, down, self._rng)
        self._channels.setdefault(node, []).append(channel)
        return channel

    def cut(self, node: str) -> None:
        """The node has died: each edge hears of it after its delay, and tries again."""
        for channel in self._channels.get(node, []):
            channel.cut()


class FixedChannel:
    """One connection. A lost one is tried again after pauses as `shared.transport` has them, doubled each time, with as much
    again at random as ZeroMQ adds."""

    def __init__(
        self,
        agenda: Agenda,
        delay_ns: int,
        alive: Callable[[], bool],
        up: Happen,
        down: Happen,
        rng: random.Random,
    ) -> None:
        self._agenda = agenda
        self._delay_ns = delay_ns
        self._alive = alive
        self._up = up
        self._down = down
        self._rng = rng
        self._made = 0
        self._last = [0, 0]
        self._pause_ns = PAUSES_NS[0]
        self._connect(agenda.now)

    def send(self, nbytes: int, deliver: Happen, *, upward: bool) -> bool:
        """Send a message; False where there is no connection."""
        made = self._made
        if not made:
            return False
        index = int(upward)
        arrival = self._agenda.now + self._delay_ns + int(nbytes * PER_BYTE_NS)
        self._last[index] = arrival = max(self._last[index], arrival)

        def arrive(at: int) -> None:
            if made == self._made:
                deliver(at)

        self._agenda.put(arrival, arrive)
        return True

    def renew(self) -> None:
        """Make it anew."""
        if self._made:
            self._made = 0
            self._connect(self._agenda.now)

    def cut(self) -> None:
        """The other end has died."""
        if not self._made:
            return
        self._made = 0

        def hear(at: int) -> None:
            self._down(at)
            self._again(at)

        self._agenda.put(self._agenda.now + self._delay_ns, hear)

    def _again(self, now: int) -> None:
        pause = self._pause_ns + int(self._rng.random() * PAUSES_NS[0])
        self._pause_ns = min(2 * self._pause_ns, PAUSES_NS[1])
        self._agenda.put(now + pause, self._connect)

    def _connect(self, now: int) -> None:
        def shaken(at: int) -> None:
            if not self._alive():
                self._again(at)
                return
            self._made = at + 1
            self._pause_ns = PAUSES_NS[0]
            self._up(at)

        self._agenda.put(now + 4 * self._delay_ns, shaken)
