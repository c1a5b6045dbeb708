"""The floor that the bench measures against: the same payload there and back with nothing but pyzmq and msgpack.

A ROUTER in a process of its own (`python -m hil.echo ENDPOINT`) that decodes a small header, encodes another, and returns
the payload; a DEALER that asks. Both copy when they send, which is faster than not copying at the sizes measured.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# msgpack has no types.

from __future__ import annotations

import sys
from typing import Self, cast

import msgpack
import zmq

HEADER = {"v": 1, "id": 1, "model": "identity", "dl": 123456.789, "pr": 0, "shape": [1, 64, 24, 24], "dt": "<f4"}


def serve(endpoint: str) -> None:
    """Echo until the input of this process ends or it is told to stop by an empty payload."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(endpoint)
    while True:
        routing, header, payload = socket.recv_multipart(copy=False)
        if len(payload.buffer) == 0:
            return
        asked = msgpack.unpackb(header.buffer)
        answer = {"id": asked["id"], "st": 0, "shape": asked["shape"], "dt": asked["dt"], "tm": [0.1, 0.2]}
        socket.send_multipart([routing, cast(bytes, msgpack.packb(answer)), payload.buffer], copy=True)


class EchoClient:
    """Asks the echo and waits for its answer."""

    def __init__(self, endpoint: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.connect(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, payload: bytes | memoryview) -> None:
        """One round trip."""
        self._socket.send_multipart([cast(bytes, msgpack.packb(HEADER)), payload], copy=True)
        header, _ = self._socket.recv_multipart(copy=False)
        msgpack.unpackb(header.buffer)

    def close(self) -> None:
        """Tell the server to end, and close."""
        self._socket.send_multipart([b"", b""])
        self._socket.close()


if __name__ == "__main__":
    serve(sys.argv[1])
