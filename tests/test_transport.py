"""Real sockets on loopback: messages both ways, connections lost and found, bad peers among good ones."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zmq

from shared.driver import Driver, Mailbox
from shared.errors import InvariantBroken, UserError
from shared.events import TOGETHER, Action, Event, LinkDown, LinkUp, Received, Send
from shared.transport import BURST, VIEW_BYTES, Dealers, Router
from shared.wire.codec import array_of, decode_edge, decode_node, encode, tensor_of
from shared.wire.messages import MAX_TENSORS, Bye, Cancel, Infer, Load, ProbeReply, Reply, Tensor

BOUND_S = 30.0
LINK = "n1/data"
ANY = "tcp://127.0.0.1:*"


class Loop:
    """Waits on transports as the driver does and keeps what they gave."""

    def __init__(self, *transports: Router | Dealers) -> None:
        self.transports = transports
        self.given: dict[Router | Dealers, list[Event]] = {transport: [] for transport in transports}
        self.poll = select.poll()
        for transport in transports:
            self.poll.register(transport.fileno(), select.POLLIN)

    def until(self, there: Callable[[], bool]) -> None:
        """Turn until `there()` holds; a bound ends a test that would hang."""
        end_s = time.monotonic() + BOUND_S
        while True:
            for transport in self.transports:
                self.given[transport].extend(transport.drain())
            if there():
                return
            if not any(transport.pending() for transport in self.transports):
                self.poll.poll(max(0.0, end_s - time.monotonic()) * 1_000)
            assert time.monotonic() < end_s, self.given

    def received(self, transport: Router | Dealers) -> list[Received]:
        return [event for event in self.given[transport] if isinstance(event, Received)]


@pytest.fixture
def router() -> Iterator[Router]:
    with closing(Router(ANY, decode_edge, max_message_mb=2)) as made:
        yield made


@pytest.fixture
def dealers() -> Iterator[Dealers]:
    with closing(Dealers("car", 7, decode_node)) as made:
        yield made


@pytest.fixture
def stranger(router: Router) -> Iterator[zmq.Socket[bytes]]:
    """A raw DEALER beside ours."""
    context = zmq.Context[zmq.Socket[bytes]]()
    with context.socket(zmq.DEALER) as made:
        made.linger = 0
        made.sndtimeo = made.rcvtimeo = int(BOUND_S * 1_000)
        made.connect(router.endpoint)
        yield made
    context.term()


def infer(*arrays: np.ndarray, sequence: int = 1) -> Send:
    tensors = tuple(tensor_of(array) for array in arrays)
    return Send(LINK, Infer(7, sequence, 0, "c" * 64, 0, "raw", 1, 1, 10, 20, tensors), arrays)


def connected(router: Router, dealers: Dealers) -> Loop:
    loop = Loop(router, dealers)
    dealers.connect(LINK, router.endpoint)
    loop.until(lambda: any(isinstance(event, LinkUp) for event in loop.given[dealers]))
    return loop


@pytest.mark.parametrize("nbytes", [0, 4_096, VIEW_BYTES, 600_000])
def test_a_message_and_its_reply_cross_with_their_tensors(router: Router, dealers: Dealers, nbytes: int) -> None:
    loop = connected(router, dealers)
    array = np.random.default_rng(0).integers(0, 255, nbytes, dtype=np.uint8)
    assert dealers.send(infer(array))
    loop.until(lambda: bool(loop.received(router)))
    asked = loop.received(router)[0]
    assert asked.link == f"car:7:{LINK}"
    assert isinstance(asked.message, Infer)
    assert asked.message == infer(array).message
    entry = asked.message.tensors
    reply = Reply(7, 1, 0, "c" * 64, 0, "raw", 1, entry, {}, 5, Load(0, 4))
    assert router.send(Send(asked.link, reply, asked.frames))
    loop.until(lambda: bool(loop.received(dealers)))
    answered = loop.received(dealers)[0]
    assert answered.link == LINK
    assert answered.message == reply
    assert np.array_equal(array_of(entry[0], answered.frames[0]), array)


def test_received_frames_stay_as_they_were_while_others_come(router: Router, dealers: Dealers) -> None:
    loop = connected(router, dealers)
    for value in range(8):
        assert dealers.send(infer(np.full(VIEW_BYTES + 1, value, dtype=np.uint8), sequence=value))
        loop.until(lambda value=value: len(loop.received(router)) == value + 1)
    kept = [received.frames[0] for received in loop.received(router)]
    loop.given[router].clear()
    dealers.disconnect(LINK)
    assert [bytes(frame) for frame in kept] == [bytes([value]) * (VIEW_BYTES + 1) for value in range(8)]


def test_memory_may_be_reused_as_soon_as_a_send_returns(router: Router, dealers: Dealers) -> None:
    loop = connected(router, dealers)
    array = np.full(500_000, 1, dtype=np.uint8)
    assert dealers.send(infer(array))
    array[:] = 2
    loop.until(lambda: bool(loop.received(router)))
    assert bytes(loop.received(router)[0].frames[0]) == bytes([1]) * 500_000


def test_a_link_that_is_not_connected_refuses_at_once(dealers: Dealers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        dealers.connect(LINK, f"tcp://127.0.0.1:{mute.getsockname()[1]}")
        assert not dealers.send(infer())
    assert not dealers.send(Send("unknown", Bye("closing")))


def test_an_edge_sees_its_node_go_and_come_back(dealers: Dealers) -> None:
    router = Router(ANY, decode_edge)
    endpoint = router.endpoint
    loop = connected(router, dealers)
    router.close()
    loop = Loop(dealers)
    loop.until(lambda: LinkDown(LINK) in loop.given[dealers])
    assert not dealers.send(infer())
    with closing(Router(endpoint, decode_edge)) as router:
        again = Loop(router, dealers)
        again.until(lambda: any(isinstance(event, LinkUp) for event in again.given[dealers]))
        assert dealers.send(infer(sequence=9))
        again.until(lambda: bool(again.received(router)))
        assert [r.message for r in again.received(router)] == [infer(sequence=9).message]


def test_what_a_lost_connection_had_not_sent_does_not_come_later(dealers: Dealers) -> None:
    """Old requests must not surprise a node that has come back."""
    router = Router(ANY, decode_edge, receive_mark=1)
    endpoint = router.endpoint
    connected(router, dealers)
    block = np.zeros(1_000_000, dtype=np.uint8)
    sent = 0
    while dealers.send(infer(block, sequence=sent)):
        sent += 1
    assert sent > 0
    router.close()
    loop = Loop(dealers)
    loop.until(lambda: LinkDown(LINK) in loop.given[dealers])
    with closing(Router(endpoint, decode_edge)) as router:
        again = Loop(router, dealers)
        again.until(lambda: any(isinstance(event, LinkUp) for event in again.given[dealers]))
        assert dealers.send(infer(sequence=1_000))
        again.until(lambda: bool(again.received(router)))
        assert [r.message for r in again.received(router)] == [infer(sequence=1_000).message]


def test_sending_to_an_unknown_peer_is_refused(router: Router) -> None:
    assert not router.send(Send("nobody", Bye("closing")))


def test_a_peer_that_takes_nothing_is_refused_and_others_are_served(
    dealers: Dealers, stranger: zmq.Socket[bytes], router: Router
) -> None:
    loop = connected(router, dealers)
    stranger.rcvhwm = 1
    stranger.send(encode(Bye("closing"))[0])
    loop.until(lambda: bool(loop.received(router)))
    silent = loop.received(router)[0].link
    block = np.zeros(1_000_000, dtype=np.uint8)
    full = Reply(7, 1, 0, "c", 0, "raw", 1, (tensor_of(block),), {}, 5, Load(0, 4))
    sent = 0
    while router.send(Send(silent, full, (block,))):
        sent += 1
        assert sent < 2_000
    assert router.send(Send(f"car:7:{LINK}", Bye("closing")))
    loop.until(lambda: bool(loop.received(dealers)))


GOOD = encode(Cancel(1, 2, 3))[0]
TENSOR = encode(infer(np.zeros(4, dtype=np.uint8)).message)[0]
HALF = encode(infer(np.zeros(1_500_000, dtype=np.uint8), np.zeros(1_500_000, dtype=np.uint8)).message)[0]
BAD = [
    ([b""], "header"),
    ([b"nonsense"], "header"),
    ([b"", GOOD], "header"),  # a REQ socket's delimiter
    ([GOOD, b"more"], "frames"),
    ([TENSOR], "frames"),
    ([b"\x91" * 4_096], "header"),
    ([b"\x91" * 1_000_000], "header"),
    ([GOOD] * (MAX_TENSORS + 2), "frames"),
    ([GOOD] * 5_000, "frames"),
    ([encode(Infer(7, 1, 0, "c", 0, "raw", 1, 1, 10, 20, (Tensor("uint8", (-4,)),)))[0], b"1234"], "shape"),
    ([HALF, bytes(1_500_000), bytes(1_500_000)], "size"),
]


@pytest.mark.parametrize(("frames", "reason"), BAD)
def test_bad_messages_are_counted_while_others_are_served(
    router: Router, dealers: Dealers, stranger: zmq.Socket[bytes], frames: list[bytes], reason: str
) -> None:
    loop = connected(router, dealers)
    for _ in range(3):
        stranger.send_multipart(frames)
        stranger.send(GOOD)
        assert dealers.send(infer())
    loop.until(lambda: len(loop.received(router)) == 6 and bool(router.counters))
    assert router.counters == {reason: 3}


def test_a_frame_over_the_limit_ends_that_connection_only(
    router: Router, dealers: Dealers, stranger: zmq.Socket[bytes]
) -> None:
    loop = connected(router, dealers)
    monitor = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    stranger.send(bytes((2 << 20) + 1))
    assert monitor.poll(BOUND_S * 1_000)
    stranger.disable_monitor()
    assert dealers.send(infer())
    loop.until(lambda: len(loop.received(router)) == 1)
    assert LinkDown(LINK) not in loop.given[dealers]


def test_bytes_that_are_not_zeromq_disturb_nobody(router: Router, dealers: Dealers) -> None:
    loop = connected(router, dealers)
    port = int(router.endpoint.rpartition(":")[2])
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, struct.pack(">BQB", 0xFF, 1 << 62, 0x7F), b""):
        with socket.create_connection(("127.0.0.1", port), BOUND_S) as plain:
            plain.sendall(noise)
    assert dealers.send(infer())
    loop.until(lambda: bool(loop.received(router)))
    assert router.counters == {}


def test_a_talkative_peer_cannot_starve_a_turn(router: Router, stranger: zmq.Socket[bytes]) -> None:
    count = BURST * 3
    for _ in range(count):
        stranger.send(GOOD)
    taken = 0
    loop = Loop(router)
    while taken < count:
        if not router.pending():
            assert loop.poll.poll(BOUND_S * 1_000)
        events = list(router.drain())
        assert len(events) <= BURST
        marks = [isinstance(event, Received) and event.more for event in events]
        assert marks == [(place + 1) % TOGETHER > 0 and place + 1 < len(events) for place in range(len(events))]
        taken += len(events)
    assert not router.pending()


def test_nothing_stays_unseen_when_sends_and_receives_interleave(router: Router, dealers: Dealers) -> None:
    """A send may swallow ZeroMQ's notice of a message: a loop that then sleeps on the descriptor would never see it."""
    connected(router, dealers)
    rounds = 2_000

    def reflect(event: Event, _: int) -> list[Action]:
        if isinstance(event, Received) and isinstance(event.message, Cancel):
            reply = ProbeReply(event.message.sequence, 0, 0, 0, Load(0, 0))
            return [Send(event.link, reply), Send(event.link, reply)]
        return []

    asked = [0]
    answered = [0]
    driver: Driver

    def ask(event: Event, _: int) -> list[Action]:
        if not isinstance(event, LinkUp):
            if not isinstance(event, Received) or not isinstance(event.message, ProbeReply):
                return []
            answered[0] += 1
            if answered[0] == 2 * rounds:
                driver.stop()
            if answered[0] % 2:
                return []
        asked[0] += 1
        return [Send(LINK, Cancel(1, asked[0], 0))] if asked[0] <= rounds else []

    class Both:
        def handle(self, event: Event, now: int) -> list[Action]:
            return [*reflect(event, now), *ask(event, now)]

    def perform(action: Action) -> Event | None:
        assert isinstance(action, Send)
        assert (dealers if action.link == LINK else router).send(action)
        return None

    start = Mailbox()
    start.put(LinkUp(LINK))
    driver = Driver(Both(), perform, transports=[router, dealers], arrivals=[start])
    driver.run()
    driver.close()
    assert answered[0] == 2 * rounds


def test_a_port_in_use_is_named(router: Router) -> None:
    with pytest.raises(UserError) as refused:
        Router(router.endpoint, decode_edge)
    assert router.endpoint in str(refused.value)
    assert "in use" in str(refused.value)


@pytest.mark.parametrize(
    "endpoint", ["tcp://192.0.2.1:7711", "tcp://no-such-device:7711", "tcp://127.0.0.1", "nonsense"]
)
def test_an_endpoint_that_cannot_be_bound_is_named(endpoint: str) -> None:
    with pytest.raises(UserError) as refused:
        Router(endpoint, decode_edge)
    assert endpoint in str(refused.value)


def test_a_path_in_use_is_not_stolen_and_is_free_after_closing(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/agent"
    with closing(Router(endpoint, decode_edge)) as router, closing(Dealers("app", 1, decode_node)) as dealers:
        with pytest.raises(UserError) as refused:
            Router(endpoint, decode_edge)
        assert endpoint in str(refused.value)
        loop = connected(router, dealers)
        assert dealers.send(infer())
        loop.until(lambda: bool(loop.received(router)))
    Router(endpoint, decode_edge).close()
    assert list(tmp_path.iterdir()) == []


def test_names_too_long_for_a_routing_id_are_refused() -> None:
    with closing(Dealers("car" * 100, 7, decode_node)) as dealers, pytest.raises(UserError):
        dealers.connect(LINK, "tcp://127.0.0.1:7711")


def test_a_link_is_opened_once(dealers: Dealers) -> None:
    dealers.connect(LINK, "tcp://127.0.0.1:7711")
    with pytest.raises(InvariantBroken):
        dealers.connect(LINK, "tcp://127.0.0.1:7711")
    assert dealers.links == (LINK,)
    dealers.disconnect(LINK)
    assert dealers.links == ()


def test_no_heartbeat_of_zeromq_is_asked_for_and_the_kernel_finds_dead_hosts(router: Router, dealers: Dealers) -> None:
    """A heartbeat that is due on a connection that has just failed ends the process, inside the library."""
    dealers.connect("n2/data", router.endpoint)
    sockets = [peered.socket for made in (router, dealers) for peered in made._by_fd.values()]
    assert len(sockets) >= 2
    for each in sockets:
        assert each.getsockopt(zmq.HEARTBEAT_IVL) == 0
        assert each.getsockopt(zmq.TCP_KEEPALIVE) == 1
        assert each.getsockopt(zmq.TCP_KEEPALIVE_IDLE) == 10
