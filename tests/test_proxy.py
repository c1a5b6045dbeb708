"""The proxy as a real process on loopback: what it is told, it does. How fast is the shaping core's test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from hil.proxy_control import Proxy, RouteAddress
from hil.shaping import Shape
from shared.errors import HeadtailError

BOUND_S = 30


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND_S)
        yield server


@pytest.fixture
def proxy(target: socket.socket) -> Iterator[Proxy]:
    with Proxy((RouteAddress("way", target.getsockname()[1]),)) as running:
        yield running


def connect(proxy: Proxy, route: str = "way") -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port(route)), timeout=BOUND_S)


def read(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part, "the connection ended early"
        data += part
    return bytes(data)


def fill(sock: socket.socket) -> int:
    """Send until the kernel takes no more; how many bytes it took."""
    sent = 0
    while sent < 100_000_000:
        try:
            sent += sock.send(bytes(65536))
        except BlockingIOError:
            return sent
    raise AssertionError("a stalled link takes everything")


def test_bytes_pass_unchanged_in_both_directions(proxy: Proxy, target: socket.socket) -> None:
    proxy.shape(Shape(rate_mbit=400, delay_ms=1), Shape(rate_mbit=400, delay_ms=1))
    message = bytes(range(256)) * 2000
    with connect(proxy) as near:
        far, _ = target.accept()
        with far:
            far.settimeout(BOUND_S)
            sender = threading.Thread(target=near.sendall, args=(message,))
            sender.start()
            assert read(far, len(message)) == message
            sender.join()
            far.sendall(b"answer")
            assert read(near, 6) == b"answer"
    counts = proxy.report().routes["way"]
    assert (counts.bytes_up, counts.bytes_down, counts.accepted) == (len(message), 6, 1)


def test_a_stalled_link_fills_and_goes_on_where_it_stopped(proxy: Proxy, target: socket.socket) -> None:
    with connect(proxy) as near:
        far, _ = target.accept()
        with far:
            proxy.stall(True)
            near.setblocking(False)
            sent = fill(near)
            far.setblocking(False)
            with pytest.raises(BlockingIOError):
                far.recv(1)
            proxy.stall(False)
            far.settimeout(BOUND_S)
            assert read(far, sent) == bytes(sent)


def test_the_end_of_the_target_ends_the_client_after_its_last_words(proxy: Proxy, target: socket.socket) -> None:
    proxy.shape(Shape(), Shape(rate_mbit=10, delay_ms=1))
    with connect(proxy) as near:
        far, _ = target.accept()
        far.sendall(b"last words")
        far.close()
        assert read(near, 10) == b"last words"
        assert near.recv(1) == b""


def test_a_cut_closes_what_is_open_and_nothing_else(proxy: Proxy, target: socket.socket) -> None:
    with connect(proxy) as near:
        far, _ = target.accept()
        proxy.cut("way")
        assert near.recv(1) == b""
        assert far.recv(1) == b""
        far.close()
    with connect(proxy) as near:
        far, _ = target.accept()
        far.sendall(b"again")
        assert read(near, 5) == b"again"
        far.close()


def test_an_absent_target_is_a_connection_closed_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    with Proxy((RouteAddress("nowhere", port),)) as proxy:
        # The reset may come before the connection is even seen to be made.
        with pytest.raises(ConnectionResetError), connect(proxy, "nowhere") as near:
            near.recv(1)
        assert proxy.report().routes["nowhere"].refused == 1


def test_an_unknown_route_is_refused_and_the_proxy_serves_on(proxy: Proxy) -> None:
    with pytest.raises(HeadtailError, match="elsewhere"):
        proxy.stall(True, "elsewhere")
    assert proxy.report().routes["way"].open == 0


def test_a_closed_proxy_refuses_with_one_clear_error(proxy: Proxy) -> None:
    proxy.close()
    with pytest.raises(HeadtailError, match=r"hil\.proxy"):
        proxy.report()
