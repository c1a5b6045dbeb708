"""An agent or a node that suffers on order: `python -m hil.scenarios.subject edge --config FILE`, or `cloud`.

It is `headtail edge` or `headtail cloud`, but for what `hil.scenarios.orders` tells it: a device that is slower than it was,
clocks that jump, a wire on which its messages are damaged. Nothing tells agent or node, which have to find out. All of it is
put in place before they are imported, so that every reading of a clock and every timer of theirs is ours; the host's clocks
are left alone. The monotonic clock is moved for a node only: a client and its agent share their host's.
"""

from __future__ import annotations

import importlib
import random
import signal
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hil.scenarios.orders import CHANGED, Orders, read_orders
from shared.cli import endings

if TYPE_CHECKING:
    from hil.scenarios.scenario import What
    from shared.request import Array, Buffer
    from shared.timer import Timer
    from shared.wire.messages import Message

PROGRAM = (sys.executable, "-m", "hil.scenarios.subject")
"""What to start in place of the command `headtail`."""


class Clocks:
    """The clocks of this process: the host's, and how far ahead of them these are."""

    def __init__(self) -> None:
        self.boot_ns = self.clock_ns = self.wall_ns = 0
        self.timers: weakref.WeakSet[MovedTimer] = weakref.WeakSet()

    def install(self) -> None:
        """Take the place of the module `time`'s functions. To be called before anything else has taken them."""
        monotonic_ns, clock_gettime_ns, time_ns = time.monotonic_ns, time.clock_gettime_ns, time.time_ns

        def read_ns(which: int) -> int:
            ahead = self.wall_ns if which == time.CLOCK_REALTIME else self.clock_ns
            return clock_gettime_ns(which) + ahead + (self.boot_ns if which == time.CLOCK_BOOTTIME else 0)

        def read_s(which: int) -> float:
            return read_ns(which) / 1e9

        functions: dict[str, Callable[..., float]] = {
            "monotonic_ns": lambda: monotonic_ns() + self.clock_ns,
            "monotonic": lambda: (monotonic_ns() + self.clock_ns) / 1e9,
            "time_ns": lambda: time_ns() + self.wall_ns,
            "time": lambda: (time_ns() + self.wall_ns) / 1e9,
            "clock_gettime_ns": read_ns,
            "clock_gettime": read_s,
        }
        time.__dict__.update(functions)
        timers = importlib.import_module("shared.timer")
        make: Callable[[], Timer] = timers.make_timer
        timers.__dict__["make_timer"] = lambda: MovedTimer(make(), self)

    def move(self, orders: Orders) -> None:
        """Be as far ahead as the orders say. Timers that wait go on to the same time of the moved clock."""
        self.boot_ns, self.wall_ns = orders.boot_ns, orders.wall_ns
        if self.clock_ns != orders.clock_ns:
            self.clock_ns = orders.clock_ns
            for timer in tuple(self.timers):
                timer.moved()


class MovedTimer:
    """A timer of `Clocks`."""

    def __init__(self, timer: Timer, clocks: Clocks) -> None:
        self._timer = timer
        self._clocks = clocks
        self._at_ns: int | None = None
        clocks.timers.add(self)

    def fileno(self) -> int:
        """As the timer's."""
        return self._timer.fileno()

    def set(self, at_ns: int | None) -> None:
        """Fire when this process's clock reads `at_ns`."""
        self._at_ns = at_ns
        self._timer.set(None if at_ns is None else max(1, at_ns - self._clocks.clock_ns))

    def moved(self) -> None:
        """The clock was moved."""
        self.set(self._at_ns)

    def ack(self) -> None:
        """As the timer does."""
        self._timer.ack()

    def close(self) -> None:
        """As the timer does."""
        self._timer.close()


class Wire:
    """What this process puts on the wire towards nodes or edges."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._rng = random.Random(orders.seed)

    def install(self) -> None:
        """Take the place of the transport's encoder, and of the sending where a node says nothing."""
        from hil.scenarios.meddling import meddled
        from shared import transport
        from shared.events import Send
        from shared.wire.codec import encode
        from shared.wire.messages import EdgeMessage, NodeMessage, Reply

        kinds = (*get_args(EdgeMessage), *get_args(NodeMessage))
        send = transport.Router.send

        def meddling(message: Message, tensors: Sequence[Array | Buffer] = ()) -> list[bytes | memoryview]:
            loud: list[What] = [what for what in self.orders.what if what != "mute"]
            if loud and isinstance(message, kinds) and self._rng.random() < self.orders.share:
                return meddled(self._rng.choice(loud), message, tensors, encode, self._rng)
            return encode(message, tensors)

        def sending(router: transport.Router, one: Send) -> bool:
            mute = "mute" in self.orders.what and isinstance(one.message, Reply)
            return True if mute and self._rng.random() < self.orders.share else send(router, one)

        transport.__dict__["encode"] = meddling
        setattr(transport.Router, "send", sending)  # noqa: B010 -- the class is another's


def install_heat(orders: Orders) -> Callable[[Orders], None]:
    """Have the executors be slowed as the orders say; what tells them of new ones."""
    from shared.executors import build
    from shared.executors.slowness import Slowness
    from shared.plan import Plan
    from shared.slots import Side

    made: list[tuple[Slowness, float]] = []

    class Heated(Slowness):
        def __init__(self, factor: float, plans: Mapping[str, Plan], side: Side) -> None:
            super().__init__(factor, plans, side)
            made.append((self, factor))
            heat(orders)

    def heat(now: Orders) -> None:
        for slowness, factor in made:
            slowness.factor = factor * now.times

    build.__dict__["Slowness"] = Heated
    return heat


def main() -> None:
    """Run the agent or node until SIGTERM."""
    verb, _, name = sys.argv[1:]
    config = Path(name)
    clocks = Clocks()
    clocks.install()
    orders = read_orders(config)
    clocks.move(orders)
    wire = Wire(orders)
    wire.install()
    heat = install_heat(orders)

    def changed(number: int, frame: object) -> None:
        del number, frame
        wire.orders = new = read_orders(config)
        heat(new)
        clocks.move(new)

    signal.signal(CHANGED, changed)
    importlib.import_module({"edge": "edge.agent", "cloud": "cloud.node"}[verb]).main(config)


if __name__ == "__main__":
    with endings():  # what the agent or node refuses is told in one line
        main()
