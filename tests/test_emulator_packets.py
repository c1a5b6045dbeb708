"""Real packets between real namespaces, and what is left of them afterwards. Skipped where the machine cannot do it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from emulated import needs_kernel

from hil.emulator import checks, cost, namespaces
from hil.emulator.handle import Emulator
from hil.emulator.messages import Build, Link, Reply
from hil.emulator.probe import Probe
from hil.emulator.shape import Shape
from hil.emulator.tun import DEVICE_QUEUE
from shared.errors import HeadtailError, UserError

PATIENCE_S = 30.0
AIR = checks.LINK


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator((AIR,)) as running:
        yield running


def left_of(namespace: str) -> list[str]:
    """The namespaces that there are with the same owner as this one."""
    prefix = namespace.rpartition("-")[0]
    return [name for name in namespaces.listed() if name.startswith(prefix)]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        select.select([], [], [], 0.01)


@needs_kernel
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_real_packets_meet_what_was_told(emulator: Emulator, check: checks.Check) -> None:
    row = check(emulator)
    assert row.right, row


@needs_kernel
def test_a_check_finds_an_emulator_that_does_something_else() -> None:
    class Other(Emulator):
        def reseed(self, seed: int, link: str | None = None) -> None:
            super().reseed(seed + 1, link)

        def shape(self, up: Shape | None = None, down: Shape | None = None, link: str | None = None) -> None:
            assert up is not None
            other = msgspec.structs.replace(up, delay_ms=up.delay_ms / 2, queue_bytes=up.queue_bytes + 1000)
            super().shape(other, down, link)

    with Other((AIR,)) as other:
        for check in (checks.delay, checks.bursty_loss, checks.order, checks.queue):
            assert not check(other).right


@needs_kernel
def test_links_of_one_site_are_shaped_apart() -> None:
    links = (Link("cell", "edge", "near"), Link("wifi", "edge", "far"))
    with Emulator(links) as running:
        running.shape(Shape(loss=1.0), link="cell")
        with Probe(running, "wifi", "edge", "far") as wifi, Probe(running, "cell", "edge", "near") as cell:
            cell.send(range(10), 100)
            wifi.send(range(10), 100)
            assert [arrival.number for arrival in wifi.receive(10)] == list(range(10))
            assert (cell.settle(10).lost, wifi.settle(10).delivered) == (10, 10)


@needs_kernel
def test_what_the_emulation_itself_drops_is_counted_apart_from_the_link() -> None:
    with Emulator((AIR,)) as running, Probe(running, "air", "edge", "cloud") as probe:
        os.kill(running.pid, signal.SIGSTOP)
        probe.send(range(DEVICE_QUEUE + 500), 100)
        os.kill(running.pid, signal.SIGCONT)
        read = len(probe.receive(DEVICE_QUEUE))
        up = running.counts("air").up
        assert (read, up.packets.offered, up.packets.delivered, up.unread) == (DEVICE_QUEUE,) * 3 + (500,)
        assert not checks.faults(running).right


@needs_kernel
def test_a_stamped_packet_counts_as_received_when_the_kernel_has_it_not_when_it_is_read(emulator: Emulator) -> None:
    emulator.shape(Shape(), Shape())
    with Probe(emulator, "air", "edge", "cloud", stamped=True) as probe:

        def came_before_it_was_read() -> bool:
            (sent_ns,) = probe.send([0], 100)
            probe.settle(1)
            before_ns = time.monotonic_ns()
            return sent_ns < probe.receive(1)[0].came_ns < before_ns

        # The kernel may take a moment until it stamps.
        wait_until(came_before_it_was_read)


@needs_kernel
def test_a_command_runs_at_its_site(emulator: Emulator) -> None:
    shown = subprocess.run(
        emulator.command_at("cloud", ["ip", "-o", "addr", "show", "dev", emulator.place("air", "cloud").device]),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout
    assert emulator.place("air", "cloud").address in shown


@needs_kernel
@pytest.mark.parametrize(
    ("do", "word"),
    [
        (lambda e: e.shape(Shape(), link="sea"), "sea"),
        (lambda e: e.readdress("air", "edge", "10.77.0.2"), "in use"),
        (lambda e: e.readdress("air", "edge", "somewhere"), "somewhere"),
        (lambda e: e.readdress("air", "edge", "224.0.0.1"), "224"),
        (lambda e: e.readdress("air", "moon", "10.1.1.1"), "moon"),
        (lambda e: e.namespace("moon"), "moon"),
    ],
)
def test_what_is_not_there_is_refused_by_name_and_the_emulator_goes_on(
    emulator: Emulator, do: Callable[[Emulator], object], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        do(emulator)
    assert not emulator.ended
    emulator.report()


@pytest.mark.parametrize(
    ("links", "word"),
    [((), "0 links"), ((Link("a"), Link("a")), "twice"), ((Link("a", "x", "x"),), "itself"), ((Link("A b"),), "A b")],
)
def test_links_that_make_no_network_are_refused_before_anything_is_made(links: tuple[Link, ...], word: str) -> None:
    with pytest.raises(UserError, match=word):
        Emulator(links)


@needs_kernel
def test_nothing_is_left_when_it_is_closed() -> None:
    with Emulator() as running:
        name = running.namespace("edge")
        assert len(left_of(name)) == 2
    assert left_of(name) == []


@needs_kernel
def test_nothing_is_left_when_it_is_asked_to_end() -> None:
    with Emulator() as running:
        name = running.namespace("edge")
        os.kill(running.pid, signal.SIGTERM)
        wait_until(lambda: running.ended)
        assert left_of(name) == []
        with pytest.raises(HeadtailError, match=r"hil\.emulator\.loop"):
            running.report()


@needs_kernel
def test_nothing_is_left_when_it_is_killed_and_the_rig_closes_it() -> None:
    with Emulator() as running:
        name = running.namespace("edge")
        os.kill(running.pid, signal.SIGKILL)
    assert left_of(name) == []


@needs_kernel
def test_what_a_killed_one_leaves_is_removed_by_the_next_which_leaves_the_living_alone(emulator: Emulator) -> None:
    with Emulator() as running:
        name = running.namespace("edge")
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: running.ended)
        assert len(left_of(name)) == 2
        with Emulator():
            assert left_of(name) == []
            assert len(left_of(emulator.namespace("edge"))) == 2


@needs_kernel
def test_nothing_is_left_when_the_rig_is_killed() -> None:
    rig = """
import sys
from hil.emulator.handle import Emulator
emulator = Emulator()
print(emulator.namespace("edge"), flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", rig], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        name = process.stdout.readline().strip()
        assert len(left_of(name)) == 2
        process.kill()
        process.wait(PATIENCE_S)
        wait_until(lambda: left_of(name) == [])


@needs_kernel
def test_a_second_build_and_a_line_that_is_none_are_refused(emulator: Emulator) -> None:
    again = msgspec.json.decode(emulator.ask(msgspec.json.encode(Build((AIR,)))), type=Reply)
    assert "already" in again.error
    assert "JSON" in msgspec.json.decode(emulator.ask(b"what"), type=Reply).error
    assert "loss" in msgspec.json.decode(emulator.ask(b'{"type":"shape","up":{"loss":2}}'), type=Reply).error


@needs_kernel
def test_a_socket_stays_at_its_site_and_the_caller_where_it_was(emulator: Emulator) -> None:
    home = Path("/proc/thread-self/ns/net").readlink()
    with emulator.socket_at("edge", socket.SOCK_DGRAM) as near:
        assert Path("/proc/thread-self/ns/net").readlink() == home
        near.bind((emulator.place("air", "edge").address, 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here, pytest.raises(OSError, match="assign"):
            here.bind((emulator.place("air", "edge").address, 0))


@needs_kernel
def test_the_cost_is_measured_with_every_packet_accounted_for() -> None:
    found = cost.measure(turns=1, packets=20)
    assert min(found.plain_pps, found.full_pps) > 0
    assert 0 < found.plain_p50_ms <= found.plain_p99_ms
    assert 0 < found.delayed_p50_ms <= found.delayed_p99_ms


def test_what_is_missing_is_said_in_one_sentence_that_names_the_other_way(tmp_path: Path) -> None:
    with pytest.raises(UserError) as told:
        namespaces.check_able("CapEff:\t0000000000000000\n", tmp_path / "tun", str(tmp_path))
    sentence = str(told.value)
    assert "\n" not in sentence
    for word in ("root", "tmp", "tun", "ip (iproute2)", "hil/proxy.py"):
        assert word in sentence


def test_rights_without_root_suffice(tmp_path: Path) -> None:
    (tmp_path / "tun").touch()
    (tmp_path / "ip").touch(0o755)
    both = 1 << namespaces.CAP_NET_ADMIN | 1 << namespaces.CAP_SYS_ADMIN
    namespaces.check_able(f"CapEff:\t{both:x}\n", tmp_path / "tun", str(tmp_path))
    for one in (namespaces.CAP_NET_ADMIN, namespaces.CAP_SYS_ADMIN):
        with pytest.raises(UserError, match="root"):
            namespaces.check_able(f"CapEff:\t{1 << one:x}\n", tmp_path / "tun", str(tmp_path))
