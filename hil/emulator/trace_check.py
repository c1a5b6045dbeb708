"""A trace played between two namespaces, with probes sent into both directions, held against what the trace tells."""

from __future__ import annotations

import select
import time

import msgspec
import numpy as np

from hil.emulator.checks import LINK, faults
from hil.emulator.handle import Emulator
from hil.emulator.probe import Arrival, Probe, Side
from hil.emulator.row import Row
from hil.emulator.trace_source import trace_sources
from hil.emulator.trace_told import Times, arrivals_ns, judged, loss_at
from hil.links.trace import Direction, Trace
from shared.errors import UserError

EVERY_NS = 5_000_000
SIZE = 64
"""Bytes of a probe, small so that it takes hardly any of a link's rate."""

QUEUE_BYTES = 1 << 30
"""No probe is to be dropped by a queue, however long an outage is."""

WAIT_S = 60.0
"""The longest that probes may be on their way after the last was sent."""

_GRACE_NS = 500_000_000


class _Flow(msgspec.Struct):
    """One direction's probes."""

    side: Side
    direction: Direction
    probe: Probe
    sent_ns: list[int] = []
    came: list[Arrival] = []


def check_trace(trace: Trace, seconds: float, seed: int) -> list[Row]:
    """Play `trace` for `seconds`, a probe every 5 ms in each direction, and judge what came.

    Raises `UserError` before anything is made where the trace cannot be played, or would keep probes for longer than a
    minute; later what `Emulator` raises.
    """
    trace_sources(trace, QUEUE_BYTES)
    count = max(2, round(seconds * 1e9 / EVERY_NS))
    planned = np.arange(count, dtype=np.int64) * EVERY_NS
    for side, direction in (("up", trace.up), ("down", trace.down)):
        last_s = int(arrivals_ns(direction, trace.step_us, planned, np.ones(count, np.bool_), SIZE).max()) / 1e9
        if last_s > seconds + WAIT_S:
            raise UserError(
                f"a packet that is sent {side} within {seconds:g} s of the trace would arrive after {last_s:.0f} s; "
                f"expected all to arrive within {WAIT_S:g} s more"
            )
    with (
        Emulator((LINK,), seed) as emulator,
        Probe(emulator, LINK.name, LINK.near, LINK.far, "up", stamped=True) as up,
        Probe(emulator, LINK.name, LINK.near, LINK.far, "down", stamped=True) as down,
    ):
        flows = (_Flow("up", trace.up, up), _Flow("down", trace.down, down))
        began_ns = emulator.play_trace(trace, LINK.name, QUEUE_BYTES)
        for due in planned.tolist():
            _receive(flows, began_ns + due)
            for flow in flows:
                flow.sent_ns += flow.probe.send([len(flow.sent_ns)], SIZE)
        sent = [np.array(flow.sent_ns, np.int64) - began_ns for flow in flows]
        everything = np.ones(count, np.bool_)
        ends = [
            int(arrivals_ns(flow.direction, trace.step_us, times, everything, SIZE).max())
            for flow, times in zip(flows, sent, strict=True)
        ]
        _receive(flows, began_ns + max(ends) + _GRACE_NS)
        for flow in flows:
            flow.came += flow.probe.receive(flow.probe.settle(count).delivered - len(flow.came))
        rows = [
            row for flow, times in zip(flows, sent, strict=True) for row in _judge(flow, times, trace.step_us, began_ns)
        ]
        return [*rows, faults(emulator)]


def _receive(flows: tuple[_Flow, ...], until_ns: int) -> None:
    """Take in what comes until then."""
    by_socket = {flow.probe.into: flow for flow in flows}
    while True:
        left_ns = until_ns - time.monotonic_ns()
        ready = select.select(list(by_socket), [], [], max(0, left_ns) / 1e9)[0]
        for socket in ready:
            by_socket[socket].came += by_socket[socket].probe.receive(1)
        if left_ns <= 0:
            return


def _judge(flow: _Flow, sent_ns: Times, step_us: int, began_ns: int) -> list[Row]:
    came_ns = np.zeros(sent_ns.size, np.int64)
    came = np.zeros(sent_ns.size, np.bool_)
    for arrival in flow.came:
        came_ns[arrival.number] = arrival.came_ns - began_ns
        came[arrival.number] = True
    told_ns = arrivals_ns(flow.direction, step_us, sent_ns, came, SIZE)
    return judged(flow.side, sent_ns, told_ns, came_ns, came, loss_at(flow.direction, step_us, sent_ns))
