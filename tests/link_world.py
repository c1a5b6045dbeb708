"""An edge's data connection over a trace of a link, on virtual time, without machines: exchanges one by one.

Each direction is a queue at the trace's rate with its delay on top. Nothing passes in an outage. A lost packet is sent again
after a round trip where enough packets follow it (fast retransmit, RFC 5681), else after the time-out of 200 ms. What was
sent later never comes sooner.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

import numpy as np

from edge.nodes import Node
from edge.paths import Path as Way
from edge.paths import Sent
from hil.links.generator import generate
from hil.links.model_file import read_model
from hil.links.trace import Direction, Trace
from shared.settings import Link

MS = 1_000_000
LINKS = Path(__file__).parent.parent / "configs" / "links"
PACKET = 1448
RTO_NS = 200 * MS


def trace_of(name: str, seed: int, seconds: float) -> Trace:
    """A generated trace of a shipped link."""
    model = read_model((LINKS / f"{name}.toml").read_text(), name)
    return generate(model, seconds * 1000, np.random.default_rng(seed)).trace


class OneWay:
    """One direction of the connection."""

    def __init__(self, trace: Trace, direction: Direction, rng: random.Random) -> None:
        self._step_ns = trace.step_us * 1000
        self._steps = trace.steps
        self._direction = direction
        self._rng = rng
        self._free = 0
        self._last = 0

    def carry(self, nbytes: int, at: int) -> int:
        """When `nbytes` that are sent at `at` are there."""
        begins = self._open(max(at, self._free))
        now = self._direction.at(self._step(begins))
        self._free = begins + (int(nbytes * 8000 / now.rate_mbit) if now.rate_mbit else 0)
        arrives = self._free + int(now.delay_ms * MS)
        packets = -(-nbytes // PACKET)
        for packet in range(packets):
            if now.loss and self._rng.random() < now.loss:
                arrives += int(2 * now.delay_ms * MS) if packet < packets - 3 else RTO_NS
        arrives = self._open(arrives)
        self._last = max(self._last, arrives)
        return self._last

    def _step(self, at: int) -> int:
        return at // self._step_ns % self._steps

    def _open(self, at: int) -> int:
        while self._direction.outage.item(self._step(at)):
            at = (at // self._step_ns + 1) * self._step_ns
        return at


@dataclass(frozen=True)
class Size:
    """A route of the world: bytes up and down, and what the node takes, in nanoseconds."""

    up: int
    down: int
    node_ns: int = 5 * MS


@dataclass
class Told:
    """One exchange: what was predicted of it and what it took."""

    at: int
    size: int
    typical_ns: int
    sure_ns: int
    chance: float
    took_ns: int


def play(
    trace: Trace, sizes: tuple[Size, ...], *, hertz: float, deadline_ms: float, seed: int, settings: Link | None = None
) -> list[Told]:
    """A request at each period, of a size drawn at random, over the whole trace. Each is cancelled at its deadline; the
    node's part varies by a tenth. Probes go every 100 ms."""
    rng = random.Random(seed)
    up, down = OneWay(trace, trace.up, rng), OneWay(trace, trace.down, rng)
    probe_up, probe_down = OneWay(trace, trace.up, rng), OneWay(trace, trace.down, rng)
    path = Node("a", settings or Link()).paths[0]
    events: list[tuple[int, int, str, object]] = []
    order = 0
    found: list[Told] = []

    def put(at: int, kind: str, what: object) -> None:
        nonlocal order
        order += 1
        heappush(events, (at, order, kind, what))

    end = trace.duration_us * 1000
    period = int(1e9 / hertz)
    for at in range(0, end, 100 * MS):
        put(at, "probe", None)
    for at in range(500 * MS, end, period):
        put(at, "ask", None)
    while events:
        now, _, kind, what = heappop(events)
        if kind == "probe":
            put(probe_down.carry(60, probe_up.carry(60, now)), "probed", now)
        elif kind == "probed":
            assert isinstance(what, int)
            path.estimate.probed(now - what)
        elif kind == "ask":
            told, sent, takes_ns = _ask(path, sizes, deadline_ms, now, up, down, rng)
            found.append(told)
            key = (len(found), 1)
            path.out[key] = sent
            put(now + told.took_ns, "answer", (key, takes_ns, told.took_ns <= deadline_ms * MS))
        else:
            key, takes_ns, in_time = what  # type: ignore[misc]
            sent = path.out.pop(key)
            if in_time:
                path.learn(sent, takes_ns, path.answered(sent, takes_ns, now), now)
            else:
                path.refused(sent, now)
    return found


def _ask(
    path: Way, sizes: tuple[Size, ...], deadline_ms: float, now: int, up: OneWay, down: OneWay, rng: random.Random
) -> tuple[Told, Sent, int]:
    index = rng.randrange(len(sizes))
    size, estimate = sizes[index], path.estimate
    nbytes = size.up + size.down
    extra_ns = estimate.extra_ns(size.up, now)
    network_ns = estimate.network_ns(nbytes) + extra_ns
    typical = now + network_ns + size.node_ns
    sure = typical + estimate.margin_ns(nbytes, network_ns, now)
    due = now + int(deadline_ms * MS)
    chance = min(path.still(due, now), estimate.chance(nbytes, network_ns, due - typical, now))
    startup, upto = estimate.sent(size.up, now)
    takes_ns = int(size.node_ns * rng.uniform(0.95, 1.1))
    back = down.carry(size.down, up.carry(size.up, now) + takes_ns)
    sent = Sent(now, typical, due, nbytes, False, network_ns, startup, upto, sure, size.node_ns)
    return Told(now, index, typical - now, sure - now, chance, back - now), sent, takes_ns


def exceeded(told: list[Told], size: int) -> float:
    """The share of a size's exchanges that took longer than their predicted p95."""
    mine = [one for one in told if one.size == size]
    return sum(one.took_ns > one.sure_ns for one in mine) / len(mine)


def reliability(told: list[Told], borders: tuple[float, ...], deadline_ms: float) -> list[tuple[int, float, float]]:
    """For chances between borders: how many, their mean, and the share that was in time."""
    rows: list[tuple[int, float, float]] = []
    for low, high in pairwise(borders):
        mine = [one for one in told if low <= one.chance < high]
        if mine:
            mean = sum(one.chance for one in mine) / len(mine)
            rows.append((len(mine), mean, sum(one.took_ns <= deadline_ms * MS for one in mine) / len(mine)))
    return rows
