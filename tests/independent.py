"""An edge, and a client, made from docs/protocol.md alone: pyzmq, msgpack and the standard library, nothing of headtail.

It is what somebody else would write, so it shares no code and no definitions with what it talks to.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import msgpack
import zmq

PATIENCE_MS = 30_000
Header = dict[str, Any]


def contract_of(bundle: Path) -> tuple[str, Header]:
    """The contract digest of a bundle, and its plan."""
    plan: Header = json.loads((bundle / "plan.json").read_bytes())
    parts = [plan[key] for key in ("format", "model", "batchable", "cuts", "programs", "ladder")]
    parts.append(sorted([route["cut"], route["coding"], route["agreement"]] for route in plan["routes"]))
    parts.append(sorted([name, digest] for name, digest in plan["digests"].items()))
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest(), plan


class IndependentEdge:
    """One edge with its two connections to one node."""

    def __init__(self, endpoint: str, peer: str = "other", incarnation: int = 1) -> None:
        self.peer, self.incarnation = peer, incarnation
        self._context: Any = zmq.Context()
        self.data = self._connect(endpoint, "data")
        self.probe = self._connect(endpoint, "probe")

    def _connect(self, endpoint: str, link: str) -> Any:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.ROUTING_ID, f"{self.peer}:{self.incarnation}:{link}".encode())
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        socket.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
        socket.connect(endpoint)
        return socket

    def greet(self, contracts: list[str], connection: str = "data", **changes: Any) -> Header:
        """Say hello and return the welcome."""
        hello: Header = {
            "t": "hello",
            "protocol": 1,
            "peer": self.peer,
            "incarnation": self.incarnation,
            "connection": connection,
            "contracts": contracts,
        }
        socket = self.probe if connection == "probe" else self.data
        self.say(socket, {**hello, **changes})
        return self.hear(socket)[0]

    def infer(
        self, sequence: int, contract: str, tensors: list[list[Any]], frames: list[bytes], **changes: Any
    ) -> None:
        """Send a request of 10 s budget."""
        self.say(self.data, {**self.header(sequence, contract, tensors), **changes}, frames)

    def header(self, sequence: int, contract: str, tensors: list[list[Any]]) -> Header:
        """The header of such a request."""
        return {
            "t": "infer",
            "incarnation": self.incarnation,
            "sequence": sequence,
            "attempt": 0,
            "contract": contract,
            "cut": 0,
            "coding": "raw",
            "rows": 1,
            "priority": 1,
            "budget_ns": 10_000_000_000,
            "sent_ns": time.monotonic_ns(),
            "tensors": tensors,
        }

    def say(self, socket: Any, header: Header, frames: list[bytes] | None = None) -> None:
        """Send one message."""
        socket.send_multipart([msgpack.packb(header), *(frames or [])])

    def hear(self, socket: Any = None) -> tuple[Header, list[bytes]]:
        """The next message."""
        header, *frames = (socket or self.data).recv_multipart()
        return msgpack.unpackb(header), frames

    def close(self) -> None:
        """Say good-bye."""
        for socket in (self.data, self.probe):
            self.say(socket, {"t": "bye", "reason": "closing"})
            socket.close(1_000)
        self._context.term()


class IndependentClient:
    """One application on the agent's host."""

    def __init__(self, endpoint: str, name: str = "foreign", incarnation: int = 1) -> None:
        self.name, self.incarnation = name, incarnation
        self._context: Any = zmq.Context()
        self._socket: Any = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, f"{name}:{incarnation}:agent".encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self._socket.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
        self._socket.connect(endpoint)

    def say(self, header: Header, frames: list[bytes] | None = None) -> None:
        """Send one message."""
        self._socket.send_multipart([msgpack.packb(header), *(frames or [])])

    def hear(self, kind: str) -> tuple[Header, list[bytes]]:
        """The next message of this kind; what comes before it is thrown away."""
        while True:
            header, *frames = self._socket.recv_multipart()
            message: Header = msgpack.unpackb(header)
            if message["t"] == kind:
                return message, frames

    def attach(self) -> Header:
        """Greet the agent; what it says of itself."""
        self.say({"t": "attach", "protocol": 1, "client": self.name, "incarnation": self.incarnation})
        return self.hear("attached")[0]

    def open(self, stream: int, model: str, **changes: Any) -> Header:
        """Announce a stream of 10 requests a second, and wait for what is promised."""
        header: Header = {
            "t": "open",
            "stream": stream,
            "model": model,
            "rows": 1,
            "period_ns": 100_000_000,
            "deadline_ns": 5_000_000_000,
            "priority": 0,
            "latest_wins": False,
        }
        self.say({**header, **changes})
        return self.hear("stream")[0]

    def submit(
        self, sequence: int, model: str, tensors: list[list[Any]], frames: list[bytes], **changes: Any
    ) -> tuple[Header, list[bytes]]:
        """Ask with 10 s to the deadline, and wait for the final answer."""
        now = time.monotonic_ns()
        header: Header = {
            "t": "submit",
            "sequence": sequence,
            "model": model,
            "rows": 1,
            "scheduled_ns": now,
            "deadline_ns": now + 10_000_000_000,
            "priority": 0,
            "stream": 0,
            "latest_wins": False,
            "tensors": tensors,
        }
        self.say({**header, **changes}, frames)
        return self.hear("final")

    def close(self) -> None:
        """Say good-bye."""
        self.say({"t": "bye", "reason": "closing"})
        self._socket.close(1_000)
        self._context.term()
