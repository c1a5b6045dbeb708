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
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import zmq

PYTHON = os.environ.get("HEADTAIL_PYTHON", sys.executable)
"""The interpreter of the environment in which headtail is installed."""

FOLDER = Path(os.environ.get("HEADTAIL_PEERS", str(Path(tempfile.gettempdir()) / "headtail-peers")))
"""Where the server writes its bundles, and what a client must know of them."""

packing: Any = importlib.import_module("msgpack")

Header = dict[str, Any]
Done = Callable[[int, int], None]

STATUS = {"expired": 504, "overload": 503, "credit": 429, "cancelled": 499, "draining": 503}
"""What a refusal is called in the words of HTTP, in which the harness counts."""

PEER = "peers"
"""Always the same edge: a load run's process ends before its good-bye has left, and as another edge each would find the
credits lent to those before it."""

PATIENCE_MS = 20_000
AT_ONCE = 64
"""Messages that are read before the loop has its turn."""


class Headtail:
    """One node with one executor of one thread."""

    name = "headtail"
    venv = ""
    env: ClassVar[dict[str, str]] = {}
    models = ("tiny", "id150", "id600", "mbv2", "resnet18")
    needs_group_kill = True
    ready_timeout = 60

    def server_cmd(self, model: str, port: int) -> list[str]:
        """What starts a node that serves this model."""
        return [PYTHON, "-m", "hil.peers.serve", model, str(port), str(FOLDER)]

    def server_env(self, model: str, port: int) -> dict[str, str]:
        """Nothing more is needed."""
        return {}

    def client(self) -> NodeClient:
        """A client for one load run."""
        return NodeClient()


class NodeClient:
    """One edge on the harness's loop."""

    def __init__(self) -> None:
        self._out: set[int] = set()
        """What the node has not answered,"""
        self._open: dict[int, tuple[int, Done, float]] = {}
        """and of it what nobody has been told of, with its deadline."""
        self._credits = 0
        self._guarded = False
        self._incarnation = time.time_ns()

    async def start(self, model: str, port: int, conns: int) -> None:
        """Connect and greet. `conns` is left alone: requests of one edge share a connection."""
        told: Header = packing.unpackb((FOLDER / f"{model}.told").read_bytes())
        self._loop = asyncio.get_running_loop()
        self._context: Any = zmq.Context()
        self._socket: Any = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, f"{PEER}:{self._incarnation}:data".encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        self._socket.send(
            packing.packb(
                {
                    "t": "hello",
                    "protocol": 1,
                    "peer": PEER,
                    "incarnation": self._incarnation,
                    "connection": "data",
                    "contracts": [told["contract"]],
                }
            )
        )
        welcome: Header = packing.unpackb(self._socket.recv())
        if welcome.get("t") != "welcome" or told["contract"] not in welcome["contracts"]:
            raise RuntimeError(f"the node answered a greeting with {welcome}")
        self._credits = welcome["credits"]
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
        self._events: int = zmq.EVENTS
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._read)

    def submit(self, tag: int, deadline: float, done: Done) -> None:
        """Send a request that must be answered by `deadline` (seconds of the monotonic clock)."""
        now = time.monotonic_ns()
        budget = int(deadline * 1e9) - now
        if budget <= 0 or len(self._out) >= self._credits:
            self._loop.call_soon(done, tag, STATUS["expired" if budget <= 0 else "credit"])
            return
        header = self._header
        sequence = header["sequence"] + 1
        header["sequence"], header["budget_ns"], header["sent_ns"] = sequence, budget, now
        self._out.add(sequence)
        self._open[sequence] = (tag, done, deadline)
        if not self._guarded:
            self._guard()
        self._socket.send_multipart([packing.packb(header), self._frame], copy=False)
        if self._socket.getsockopt(self._events) & zmq.POLLIN:
            self._loop.call_soon(self._read)

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

    def _read(self) -> None:
        if self._socket.closed:
            return
        try:
            for _ in range(AT_ONCE):
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
                header: Header = packing.unpackb(frames[0].buffer)
                self._out.discard(header["sequence"])
                self._credits = header["load"][1]
                tag, done, _ = self._open.pop(header["sequence"], (0, _nobody, 0.0))
                done(tag, 200 if header["t"] == "reply" else STATUS.get(header["reason"], 500))
            self._loop.call_soon(self._read)
        except zmq.Again:
            return

    async def close(self) -> None:
        """Say good-bye."""
        self._loop.remove_reader(self._fd)
        self._socket.send(packing.packb({"t": "bye", "reason": "closing"}))
        self._socket.close(200)


def _nobody(tag: int, status: int) -> None:
    """An answer that came too late: whoever asked has been told so."""


ADAPTERS = {"headtail": Headtail()}
