"""What the kernel says of this host's addresses, what comes of it for connections, and that the kernel says it."""

from __future__ import annotations

import ipaddress
import random
import select
import struct
from contextlib import closing

import pytest
from emulated import needs_kernel

from edge.fleet import absent_sources
from edge.nodes import MS, Nodes
from edge.paths import Connection, State
from edge.redial import to_redial
from hil.emulator import namespaces
from shared.addresses import AddressWatch, is_here
from shared.events import Address, AddressesChanged, Dial
from shared.netlink import DELETED_ADDRESS, NEW_ADDRESS, Change, changes, settle
from shared.settings import EdgeSettings, NodeAddress, PathAddress
from shared.wire.messages import PROTOCOL, Welcome

OLD, NEW = "10.0.0.5", "10.0.1.7"
CONTRACT = "c" * 64


def message(kind: int, index: int, *attributes: tuple[int, bytes], flags: int = 0) -> bytes:
    body = struct.pack("=BBBBI", 2, 24, flags, 0, index)
    for name, value in attributes:
        body += struct.pack("=HH", 4 + len(value), name) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def raw(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def changed(
    came: tuple[Address, ...] = (), left: tuple[Address, ...] = (), *, missed: bool = False
) -> AddressesChanged:
    return AddressesChanged(came, left, missed)


# --- the kernel's words ------------------------------------------------------------------------------------------------


def test_addresses_that_come_and_leave_are_read_and_other_messages_passed_over() -> None:
    datagram = (
        message(NEW_ADDRESS, 3, (1, raw("10.0.0.255")), (2, raw(OLD)), (3, b"wlan0\0"))
        + message(16, 3, (1, b"xx"))
        + message(DELETED_ADDRESS, 4, (1, raw("2001:db8::7")))
    )
    assert list(changes(datagram)) == [Change(True, 3, OLD), Change(False, 4, "2001:db8::7")]


def test_an_address_that_is_not_usable_yet_is_none() -> None:
    tentative = message(NEW_ADDRESS, 3, (1, raw("2001:db8::7")), flags=0x40)
    wide = message(NEW_ADDRESS, 3, (1, raw("2001:db8::7")), (8, struct.pack("=I", 0x40 | 0x80)))
    assert list(changes(tentative + wide)) == []
    usable = message(NEW_ADDRESS, 3, (1, raw("2001:db8::7")), (8, struct.pack("=I", 0x80)), flags=0x80)
    assert list(changes(usable)) == [Change(True, 3, "2001:db8::7")]


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_what_is_cut_off_ends_the_reading(cut: int) -> None:
    whole = message(NEW_ADDRESS, 3, (2, raw(OLD)))
    assert list(changes(whole + whole[:-cut]))[:1] == [Change(True, 3, OLD)]
    assert list(changes(struct.pack("=IHHII", 3, NEW_ADDRESS, 0, 0, 0) * 3)) == []


def test_an_address_that_left_and_came_again_is_as_it_was() -> None:
    seen = [Change(False, 1, OLD), Change(True, 1, NEW), Change(True, 1, OLD), Change(False, 2, OLD)]
    assert settle(seen) == ([Change(True, 1, NEW)], [Change(False, 2, OLD)])


# --- which connections ----------------------------------------------------------------------------------------------------

FREE = Connection("a/data", "tcp://h:1", "", 0)
BOUND = Connection("a/data.1", "tcp://h:1", "wlan0", 1)
FIXED = Connection("a/data.2", "tcp://h:1", NEW, 2)
ALL = (FREE, BOUND, FIXED)


def test_a_connection_whose_own_address_has_left_is_made_anew_and_the_others_are_left_alone() -> None:
    local = {FREE.link: OLD, BOUND.link: "10.9.9.9", FIXED.link: NEW}
    assert to_redial(ALL, local, changed(left=(Address("wlan0", OLD),))) == [FREE]
    assert to_redial(ALL, local, changed(came=(Address("wlan0", NEW),))) == []


def test_connections_that_are_down_are_tried_where_an_address_that_they_may_use_has_come() -> None:
    assert to_redial(ALL, {}, changed(came=(Address("eth0", OLD),))) == [FREE]
    assert to_redial(ALL, {}, changed(came=(Address("wlan0", OLD),))) == [FREE, BOUND]
    assert to_redial(ALL, {}, changed(came=(Address("eth0", NEW),))) == [FREE, FIXED]
    assert to_redial(ALL, {}, changed(left=(Address("eth0", NEW),))) == []
    assert to_redial(ALL, {FREE.link: OLD}, changed(missed=True)) == [BOUND, FIXED]


def test_paths_whose_address_has_left_are_lost_and_dialled_and_greet_when_they_are_there() -> None:
    address = NodeAddress(name="n", endpoint="tcp://h:1", paths=(PathAddress(source="wwan0"),))
    nodes = Nodes(EdgeSettings(nodes=(address,)), (CONTRACT,), 1, random.Random(1))
    first, second = nodes.by_name["n"].paths
    for path, local in ((first, OLD), (second, "10.9.9.9")):
        nodes.connected(path.data, MS, local)
        nodes.connected(path.probe, MS, local)
        nodes.welcomed(path, Welcome(PROTOCOL, "n", 5, (CONTRACT,), 4, 32), 2 * MS)
    dials, lost = nodes.moved_house(changed((Address("wlan0", NEW),), (Address("wlan0", OLD),)))
    assert dials == [Dial("n/data", "tcp://h:1", ""), Dial("n/probe", "tcp://h:1", "")]
    assert lost == [first]
    assert (first.state, second.state) == (State.DOWN, State.UP)
    assert [type(action).__name__ for action in nodes.connected("n/data", 3 * MS, NEW)] == ["Send"]


# --- a real kernel -----------------------------------------------------------------------------------------------------


@needs_kernel
def test_the_kernel_tells_of_an_address_that_is_replaced() -> None:
    with closing(namespaces.Namespaces()) as made:
        there = made.add("moves")
        with namespaces.inside(there):
            watch = AddressWatch()
        with closing(watch):
            assert not watch.fault
            assert list(watch.drain()) == []
            namespaces.configure(
                there, [f"addr add {OLD}/32 dev lo", f"addr add {NEW}/32 dev lo", f"addr del {OLD}/32 dev lo"]
            )
            select.select([watch], [], [], 10.0)
            (event,) = watch.drain()
            assert isinstance(event, AddressesChanged)
            assert [each.address for each in event.came] == [NEW]
            assert {each.interface for each in event.came} <= {"lo", ""}
            namespaces.configure(there, [f"addr del {NEW}/32 dev lo"])
            select.select([watch], [], [], 10.0)
            (event,) = watch.drain()
            assert isinstance(event, AddressesChanged)
            assert [each.address for each in event.left] == [NEW]


@pytest.mark.parametrize(
    ("source", "here"), [("lo", True), ("127.0.0.1", True), ("nodev9", False), ("192.0.2.7", False)]
)
def test_whether_a_source_is_here_is_told(source: str, here: bool) -> None:
    assert is_here(source) is here
    node = NodeAddress(name="n", endpoint="tcp://10.0.0.9:1", connections=2, paths=(PathAddress(source=source),))
    told = [] if here else [f"nodes: this host has no {source!r} now, from where node 'n' is to be reached"]
    assert list(absent_sources(EdgeSettings(nodes=(node,)))) == told
