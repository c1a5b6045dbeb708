"""Real packets over an emulated link, held against what the emulator was told.

What can be counted is exact: which packets come, in which order, how many are dropped, and that none is early. Whether they
are late depends on the machine as well, so it is judged apart, with room.
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from hil.emulator.fates import Fates
from hil.emulator.handle import Emulator
from hil.emulator.messages import Link
from hil.emulator.probe import PATIENCE_S, Arrival, Probe, Side, foretell
from hil.emulator.row import Row
from hil.emulator.shape import GilbertElliott, Passing, Shape
from hil.emulator.sources import Step

LINK = Link("air", "edge", "cloud")
SEED = 53
"""One whose losses among 2,000 packets are near the shares that are told."""

SMALL, LARGE = 128, 1000
ROOM_MS = 3.0
"""A median that is later than told by less than this counts as punctual."""

QUIET_S = 0.1
"""A link on which nothing passed for so long carries nothing that nobody waits for."""

OPEN = Shape()
_TCP, _UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM


Check = Callable[[Emulator], Row]


def delay(emulator: Emulator, side: Side = "up", told_ms: float = 20.0, count: int = 50) -> Row:
    """No packet takes less than the delay of its direction, and most hardly more."""
    emulator.shape(*_sides(side, Shape(delay_ms=told_ms)))
    with _probe(emulator, side) as probe:
        took = [arrival.took_ms for arrival in _one_by_one(probe, count)]
    middle = statistics.median(took)
    measured = f"{min(took):.2f} least, {middle:.2f} median, {max(took):.2f} ms most"
    return Row(f"delay {side}", f"{told_ms:g} ms", measured, min(took) >= told_ms, middle <= told_ms + ROOM_MS)


def delay_down(emulator: Emulator) -> Row:
    """The other direction has a delay of its own."""
    return delay(emulator, "down", 7.0)


def jitter(emulator: Emulator) -> Row:
    """Jitter adds to the delay, and packets keep their order."""
    shape = Shape(delay_ms=10.0, jitter_ms=10.0)
    emulator.shape(shape, OPEN)
    with _probe(emulator) as probe:
        probe.send(range(200), SMALL)
        came = probe.receive(200)
        spread = [arrival.took_ms for arrival in _one_by_one(probe, 50)]
    told = _ordered(came) and min(arrival.took_ms for arrival in came) >= 10.0 and min(spread) >= 10.0
    measured = f"{min(spread):.2f} to {max(spread):.2f}, {statistics.mean(spread):.2f} ms mean, in order"
    return Row("jitter", "10 to 20, 15 ms mean", measured, told, statistics.mean(spread) <= 15.0 + ROOM_MS)


def rate(emulator: Emulator) -> Row:
    """A burst of packets comes no faster than the rate, and hardly slower."""
    emulator.shape(Shape(rate_mbit=20.0, queue_bytes=1 << 20), OPEN)
    count = 300
    with _probe(emulator) as probe:
        probe.send(range(count), LARGE)
        came = probe.receive(count)
    got_mbit = count * LARGE * 8e3 / (came[-1].came_ns - came[0].sent_ns)
    return Row(
        "rate, UDP", "20 Mbit/s", f"{got_mbit:.2f} Mbit/s", got_mbit <= 20.0 and _ordered(came), got_mbit >= 18.0
    )


def stream(emulator: Emulator) -> Row:
    """A TCP stream comes whole, and no faster than the rate."""
    shape = Shape(rate_mbit=40.0, delay_ms=2.0)
    emulator.shape(shape, shape)
    told = bytes(range(256)) * 4000
    with emulator.socket_at(LINK.far, _TCP) as listener, emulator.socket_at(LINK.near, _TCP) as near:
        listener.settimeout(PATIENCE_S)
        listener.bind((emulator.place(LINK.name, LINK.far).address, 0))
        listener.listen()
        near.settimeout(PATIENCE_S)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        began_ns = time.monotonic_ns()
        sender = threading.Thread(target=near.sendall, args=(told,))
        sender.start()
        with far:
            far.settimeout(PATIENCE_S)
            came = bytearray()
            while len(came) < len(told) and (data := far.recv(1 << 16)):
                came += data
        took_ns = time.monotonic_ns() - began_ns
        sender.join()
    _quiet(emulator)
    got_mbit = len(told) * 8e3 / took_ns
    whole = bytes(came) == told
    measured = f"{got_mbit:.2f} Mbit/s of data, {'whole' if whole else 'NOT whole'}"
    return Row("rate, TCP", "40 Mbit/s", measured, whole and got_mbit < 40.0, got_mbit >= 24.0)


def independent_loss(emulator: Emulator) -> Row:
    """Exactly those packets of 2,000 are lost that the seed says."""
    return _loss(emulator, "loss, one by one", Shape(loss=0.05), "5 %")


def bursty_loss(emulator: Emulator) -> Row:
    """Exactly those packets of 2,000 are lost that the seed says, in bursts."""
    return _loss(emulator, "loss, bursts", Shape(bursts=GilbertElliott.of(0.05, 8.0)), "5 %, 8 at a time")


def order(emulator: Emulator) -> Row:
    """Exactly those packets are overtaken that the seed says."""
    shape = Shape(reorder=0.1, reorder_ms=20.0)
    expected = foretell(shape, _fates(), 500, SMALL)
    came, _ = _after_stall(emulator, shape, 500, SMALL)
    late = sum(b < a for a, b in pairwise(expected))
    same = [arrival.number for arrival in came] == expected and late > 0
    return Row("reordering", "10 % of 500", "the order of the seed" if same else "ANOTHER order", same)


def queue(emulator: Emulator) -> Row:
    """A full queue drops what comes, to the byte."""
    shape = Shape(queue_bytes=64_000)
    came, dropped = _after_stall(emulator, shape, 200, LARGE)
    first = [arrival.number for arrival in came] == list(range(64))
    measured = f"{len(came)} kept, {dropped} dropped"
    return Row("queue of 64,000 bytes", f"64 of 200 packets of {LARGE}", measured, first and dropped == 136)


def stall(emulator: Emulator) -> Row:
    """During a stall nothing passes; afterwards everything comes."""
    steps = (Step(0, Shape(passing=Passing.STALLED)), Step(200, OPEN))
    with _probe(emulator) as probe:
        before_ns = time.monotonic_ns()
        emulator.play(steps, (Step(0, OPEN),))
        probe.send(range(50), SMALL)
        came = probe.receive(50)
    waited_ms = (came[0].came_ns - before_ns) / 1e6
    measured = f"{len(came)} packets after {waited_ms:.1f} ms"
    return Row("stall", "50 after 200 ms", measured, waited_ms >= 200 and _ordered(came), waited_ms <= 230)


def blackout(emulator: Emulator) -> Row:
    """In a blackout everything is dropped; afterwards packets pass again."""
    emulator.shape(Shape(passing=Passing.DARK), OPEN)
    with _probe(emulator) as probe:
        probe.send(range(50), SMALL)
        dropped = probe.settle(50).darkened
        emulator.shape(OPEN, OPEN)
        probe.send([50], SMALL)
        came = probe.receive(1)
    right = dropped == 50 and came[0].number == 50
    return Row("blackout", "50 of 50 dropped", f"{dropped} dropped, then {len(came)} passed", right)


def address(emulator: Emulator) -> Row:
    """After a change of address a new packet carries the new one, and what is sent to the old one arrives nowhere."""
    emulator.shape(OPEN, OPEN)
    old = emulator.place(LINK.name, LINK.near).address
    new = "10.78.0.9"
    with emulator.socket_at(LINK.near, _UDP) as near, emulator.socket_at(LINK.far, _UDP) as far:
        for end in (near, far):
            end.settimeout(PATIENCE_S)
            end.bind(("0.0.0.0", 0))  # noqa: S104 -- in a namespace that leads nowhere
        emulator.readdress(LINK.name, LINK.near, new)
        there = emulator.place(LINK.name, LINK.far).address, far.getsockname()[1]
        near.sendto(b"here I am", there)
        seen = far.recvfrom(64)[1][0]
        far.sendto(b"to the old", (old, near.getsockname()[1]))
        far.sendto(b"to the new", (new, near.getsockname()[1]))
        heard = near.recv(64)
    emulator.readdress(LINK.name, LINK.near, old)
    right = seen == new and heard == b"to the new"
    return Row("change of address", f"{old} to {new}", f"seen from {seen}, heard {heard.decode()!r}", right)


def faults(emulator: Emulator) -> Row:
    """The emulation itself has dropped nothing. To be run last."""
    counts = emulator.counts(LINK.name)
    lost = sum(way.unread + way.refused for way in (counts.up, counts.down))
    return Row("dropped by the emulation itself", "0 packets", f"{lost}", lost == 0)


CHECKS: tuple[Check, ...] = (
    delay,
    delay_down,
    jitter,
    rate,
    stream,
    independent_loss,
    bursty_loss,
    order,
    queue,
    stall,
    blackout,
    address,
    faults,
)


def _loss(emulator: Emulator, what: str, shape: Shape, told: str) -> Row:
    expected = foretell(msgspec.structs.replace(shape, queue_bytes=1 << 20), _fates(), 2000, SMALL)
    emulator.shape(shape, OPEN)
    emulator.reseed(SEED)
    with _probe(emulator) as probe:
        probe.send(range(2000), SMALL)
        counts = probe.settle(2000)
        came = [arrival.number for arrival in probe.receive(counts.delivered)]
    right = came == expected and 0 < counts.lost == 2000 - len(expected)
    measured = f"{counts.lost / 2000:.2%} of 2,000, {'those of the seed' if right else 'NOT those of the seed'}"
    return Row(what, told, measured, right)


def _after_stall(emulator: Emulator, shape: Shape, count: int, size: int) -> tuple[list[Arrival], int]:
    """Send into a stall, end it, and return what comes and how many packets the queue dropped."""
    emulator.shape(msgspec.structs.replace(shape, passing=Passing.STALLED), OPEN)
    emulator.reseed(SEED)
    with _probe(emulator) as probe:
        probe.send(range(count), size)
        dropped = probe.settle(count, inside=count).overflowed
        emulator.shape(shape, OPEN)
        came = probe.receive(probe.settle(0).delivered)
    return came, dropped


def _quiet(emulator: Emulator) -> None:
    """Wait until both ends of a TCP connection have said farewell: what they say later would count in the next check."""
    before, since_s = None, time.monotonic()
    end_s = since_s + PATIENCE_S
    while time.monotonic() < min(since_s + QUIET_S, end_s):
        counts = emulator.counts(LINK.name)
        now = (counts.up.packets, counts.down.packets)
        if now != before or any(packets.inside for packets in now):
            before, since_s = now, time.monotonic()
        time.sleep(0.005)


def _one_by_one(probe: Probe, count: int) -> Sequence[Arrival]:
    came: list[Arrival] = []
    for number in range(count):
        probe.send([number], SMALL)
        came += probe.receive(1)
    return came


def _ordered(came: Sequence[Arrival]) -> bool:
    return [arrival.number for arrival in came] == list(range(len(came)))


def _sides(side: Side, shape: Shape) -> tuple[Shape, Shape]:
    return (shape, OPEN) if side == "up" else (OPEN, shape)


def _probe(emulator: Emulator, side: Side = "up") -> Probe:
    return Probe(emulator, LINK.name, LINK.near, LINK.far, side)


def _fates() -> Fates:
    return Fates(SEED, LINK.name, "up")
