"""headtail as one of the servers of a harness: how it is started, and a client of the wire protocol for its load generator.

The harness takes a module with a dict `ADAPTERS`, whose values have `server_cmd(model, port)`, `server_env(model, port)`
and `client()`; a client has `start`, `submit` and `close`, and lives in the load generator's asyncio loop
(`hil/peers/README.md`). That loop runs in an environment of its own, so that the client is made of nothing but pyzmq,
msgpack and the standard library, from `docs/protocol.md`: it is one edge with one data connection, which knows each
request's deadline. As an edge does, it asks for no more at once than it has credits for, and says itself that a request is
too late where no answer came by its deadline."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import zmq

PYTHON = os.environ.get("HEADTAIL_PYTHON", sys.executable)
"""The interpreter of the environment in which headtail is installed."""

FOLDER = Path(os.environ.get("HEADTAIL_PEERS", str(Path(tempfile.gettempdir()) / "headtail-peers")))
"""Where the server writes its bundles, and what a client must know of them."""

NODES = int(os.environ.get("HEADTAIL_PEERS_NODES", "1"))
"""Nodes that serve, at the harness's port and those behind it."""

packing: Any = importlib.import_module("msgpack")

Header = dict[str, Any]
Done = Callable[[int, int], None]

STATUS = {"expired": 504, "overload": 503, "credit": 429, "cancelled": 499, "draining": 503}
"""What a refusal is called in the words of HTTP, in which the harness counts."""

PEER = "peers"
"""Always the same edge: a load run's process ends before its good-bye has left, and as another edge each would find the
credits lent to those before it."""

PATIENCE_MS = 20_000
WAYS_BACK = 32
"""The budget that a node is told of leaves as long for the way back as the longest of so many answers took."""

AT_ONCE = 64
"""Messages that are read before the loop has its turn."""


class Headtail:
    """One node with one executor of one thread, or more of them."""

    name = "headtail"
    venv = ""
    env: ClassVar[dict[str, str]] = {}
    models = ("tiny", "id150", "id600", "mbv2", "resnet18")
    needs_group_kill = True
    ready_timeout = 60

    def server_cmd(self, model: str, port: int) -> list[str]:
        """What starts a node that serves this model, which starts the others."""
        return [PYTHON, "-m", "hil.peers.serve", model, str(port), str(FOLDER), str(NODES)]

    def server_env(self, model: str, port: int) -> dict[str, str]:
        """Nothing more is needed."""
        return {}

    def client(self) -> NodeClient:
        """A client for one load run."""
        return NodeClient()


class _Way:
    """A connection to one node."""

    def __init__(self, context: Any, port: int, incarnation: int, contract: str) -> None:
        """Connect and greet."""
        self.socket: Any = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, f"{PEER}:{incarnation}:data".encode())
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self.monitor: Any = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        hello = {"t": "hello", "protocol": 1, "peer": PEER, "incarnation": incarnation, "connection": "data"}
        self.socket.send(packing.packb(hello | {"contracts": [contract]}))
        welcome: Header = packing.unpackb(self.socket.recv())
        if welcome.get("t") != "welcome" or contract not in welcome["contracts"]:
            raise RuntimeError(f"the node answered a greeting with {welcome}")
        self.credits: int = welcome["credits"]
        self.out: set[int] = set()
        """What the node has not answered."""
        self.readers = [int(self.socket.getsockopt(zmq.FD)), int(self.monitor.getsockopt(zmq.FD))]
        self._events: int = zmq.EVENTS

    def readable(self) -> bool:
        """Whether there is something to read, of which the descriptor may say nothing after a message was sent."""
        return bool(self.socket.getsockopt(self._events) & zmq.POLLIN)

    def lost(self) -> bool:
        """Whether the connection broke since the last call. The monitor's descriptor tells the truth after it was asked."""
        return bool(self.monitor.getsockopt(self._events) & zmq.POLLIN)


class NodeClient:
    """One edge on the harness's loop. Where there are more nodes it asks the first that has not been lost; what that one has
    not answered is asked of the next."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, Done, float]] = {}
        """What nobody has been told of, with its deadline."""
        self._backs: deque[float] = deque([0.0], maxlen=WAYS_BACK)
        """How long the last answers were on their way back."""
        self._guarded = False
        self._incarnation = time.time_ns()

    async def start(self, model: str, port: int, conns: int) -> None:
        """Connect and greet. `conns` is left alone: requests of one edge share a connection."""
        told: Header = packing.unpackb((FOLDER / f"{model}.told").read_bytes())
        self._loop = asyncio.get_running_loop()
        self._context: Any = zmq.Context()
        self._ways = [_Way(self._context, port + n, self._incarnation, told["contract"]) for n in range(NODES)]
        self._way = self._ways[0]
        self._frame: bytes = told["sample"]
        self._header: Header = {
            "t": "infer",
            "incarnation": self._incarnation,
            "sequence": 0,
            "attempt": 0,
            "contract": told["contract"],
            "cut": 0,
            "coding": "raw",
            "rows": 1,
            "priority": 1,
            "budget_ns": 0,
            "sent_ns": 0,
            "tensors": [["float32", [1, *told["shape"]]]],
        }
        for way in self._ways:
            self._loop.add_reader(way.readers[0], self._read, way)
            self._loop.add_reader(way.readers[1], self._look, way)
            self._look(way)

    def submit(self, tag: int, deadline: float, done: Done) -> None:
        """Send a request that must be answered by `deadline` (seconds of the monotonic clock)."""
        late = deadline <= time.monotonic()
        if late or len(self._way.out) >= self._way.credits:
            self._loop.call_soon(done, tag, STATUS["expired" if late else "credit"])
            return
        sequence = self._header["sequence"] + 1
        self._open[sequence] = (tag, done, deadline)
        if not self._guarded:
            self._guard()
        self._ask(sequence, deadline)

    def _ask(self, sequence: int, deadline: float) -> None:
        header, way, now = self._header, self._way, time.monotonic_ns()
        budget = int((deadline - max(self._backs)) * 1e9) - now
        header["sequence"], header["budget_ns"], header["sent_ns"] = sequence, budget, now
        way.out.add(sequence)
        way.socket.send_multipart([packing.packb(header), self._frame], copy=False)
        if way.readable():
            self._loop.call_soon(self._read, way)

    def _look(self, way: _Way) -> None:
        """Go over to the next node where this one was lost."""
        if way is not self._way or way.socket.closed or not way.lost():
            return
        others = self._ways[self._ways.index(way) + 1 :]
        if others:
            last = self._header["sequence"]
            self._way = others[0]
            for sequence, (_, _, deadline) in list(self._open.items()):
                self._ask(sequence, deadline)
            self._header["sequence"] = last

    def _guard(self) -> None:
        """Look again when the oldest of the open requests is too late; their deadlines are in the order of their numbers."""
        self._guarded = bool(self._open)
        if self._open:
            due = next(iter(self._open.values()))[2]
            self._loop.call_later(max(due - time.monotonic(), 0.0), self._give_up)

    def _give_up(self) -> None:
        now = time.monotonic()
        late = [sequence for sequence, (_, _, due) in self._open.items() if due <= now]
        for sequence in late:
            tag, done, _ = self._open.pop(sequence)
            done(tag, STATUS["expired"])
        self._guard()

    def _read(self, way: _Way) -> None:
        if way.socket.closed:
            return
        try:
            for _ in range(AT_ONCE):
                frames = way.socket.recv_multipart(zmq.NOBLOCK, copy=False)
                header: Header = packing.unpackb(frames[0].buffer)
                way.out.discard(header["sequence"])
                way.credits = header["load"][1]
                self._backs.append(time.monotonic() - header["sent_ns"] / 1e9)
                tag, done, _ = self._open.pop(header["sequence"], (0, _nobody, 0.0))
                done(tag, 200 if header["t"] == "reply" else STATUS.get(header["reason"], 500))
            self._loop.call_soon(self._read, way)
        except zmq.Again:
            return

    async def close(self) -> None:
        """Say good-bye."""
        for way in self._ways:
            for reader in way.readers:
                self._loop.remove_reader(reader)
            way.socket.send(packing.packb({"t": "bye", "reason": "closing"}))
            way.socket.disable_monitor()
            way.socket.close(200)


def _nobody(tag: int, status: int) -> None:
    """An answer that came too late: whoever asked has been told so."""


ADAPTERS = {"headtail": Headtail()}
