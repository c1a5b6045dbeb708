"""What the shaped link really is: echoes of plain sockets through the proxy, beside the same without it.

A proxy that is told 2 ms plays a little more, since it has to be woken to read and to write, and its queue and the sockets
around it have their own sizes. Predictions are made for a link as it is, as a user would measure it with ping and iperf, so
it is measured here the same way: the extra time of an echo through the proxy over one that goes straight, by bytes. Requests
come at a pace, as real ones do, and both ways take turns.

`python -m hil.link_echo` is the other end: it listens on a free port, says which, and answers each connection in turn.
"""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from hil.link_fit import Echo, fit_link
from hil.own_code import environment
from hil.phases import LinkShape
from hil.proxy_control import Proxy, RouteAddress
from partitioner.options import LinkGuess
from shared.errors import HeadtailError

SIZES = ((256, 256), (30_000, 2_000), (100_000, 2_000), (2_000, 100_000), (300_000, 2_000))
"""Bytes there and back."""

BLOCK = 4
PERIOD_S = 0.025
TIMEOUT_S = 30.0
_HEAD = struct.Struct("<II")


def measure_link(shape: LinkShape, rounds: int) -> LinkGuess:
    """The rate and the round trip that the proxy gives when it is told `shape`, by so many rounds of echoes.

    Raises `HeadtailError` where an echo fails."""
    took_us: dict[tuple[Echo, bool], list[float]] = {}
    with ExitStack() as stack:
        port = stack.enter_context(_other_end())
        proxy = stack.enter_context(Proxy((RouteAddress("echo", port),)))
        proxy.shape(shape.shape(), shape.shape())
        sockets = {
            through: stack.enter_context(_connected(at)) for through, at in ((False, port), (True, proxy.port("echo")))
        }
        for _ in range(rounds):
            for size in SIZES:
                for through, sock in sockets.items():
                    times = took_us.setdefault((Echo(*size), through), [])
                    times += [_ask(sock, *size) for _ in range(BLOCK + 1)][1:]
    extra = {
        echo: statistics.median(took_us[echo, True]) - statistics.median(took_us[echo, False])
        for echo, through in took_us
        if through
    }
    return fit_link(extra)


def serve() -> None:
    """Answer until the input of this process ends."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def answer(sock: socket.socket) -> None:
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while head := _read(sock, _HEAD.size):
                up, down = _HEAD.unpack(head)
                _read(sock, up)
                sock.sendall(bytes(down))

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


@contextmanager
def _other_end() -> Generator[int]:
    command = [sys.executable, "-m", "hil.weight", sys.executable, "-m", "hil.link_echo"]
    process = subprocess.Popen(  # noqa: S603 -- our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True, env=environment()
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line.strip().isdecimal():
            raise HeadtailError("the other end of the link's echo did not start")
        yield int(line)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _connected(port: int) -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def _ask(sock: socket.socket, up: int, down: int) -> float:
    """Microseconds of one echo, after a pause."""
    time.sleep(PERIOD_S)
    began_s = time.perf_counter()
    sock.sendall(_HEAD.pack(up, down) + bytes(up))
    if not _read(sock, down):
        raise HeadtailError("the other end of the link's echo has gone")
    return (time.perf_counter() - began_s) * 1e6


def _read(sock: socket.socket, nbytes: int) -> bytes:
    """So many bytes; none where the other end has closed."""
    data = bytearray()
    while len(data) < nbytes:
        more = sock.recv(min(1 << 16, nbytes - len(data)))
        if not more:
            return b""
        data += more
    return bytes(data)


if __name__ == "__main__":
    serve()
