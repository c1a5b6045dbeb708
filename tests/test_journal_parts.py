"""The parts of a journal: records, states, files. What is damaged or hostile is refused in one line."""

from __future__ import annotations

import gc
import random
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from busy import busy_pair, recorders
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.journal import NODE
from edge.broker import Broker
from edge.journal import EDGE
from hil.journals import KINDS
from hil.pair import Pair
from shared.errors import JournalError
from shared.events import Action, Event, Finished, Received, Row, RowResult, Run, Send
from shared.journal.file import FORMAT, MAGIC, head_of, pieces, read
from shared.journal.kind import MachineKind
from shared.journal.marks import Blanks, mark
from shared.journal.recorder import Frozen, Recorder
from shared.journal.records import (
    ArrivedForm,
    FinishedForm,
    ReceivedForm,
    RequestForm,
    ResultForm,
    decode_record,
    raised,
)
from shared.journal.replay import verify
from shared.journal.state import Known, read_state, write_state
from shared.request import Array, Buffer, Request

KINDS_OF_MACHINES = pytest.mark.parametrize("kind", [EDGE, NODE], ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return busy_pair()


@pytest.fixture(scope="module")
def saved(pair: Pair) -> bytes:
    frozen = recorders(busy_pair(journal=240))["edge"].frozen()
    return b"".join(pieces(head_of(frozen, reason="asked", saved="now", headtail="1", code="", python=""), frozen))


# --- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "kind"),
    [(RequestForm, Request), (ReceivedForm, Received), (FinishedForm, Finished), (ResultForm, RowResult)],
)
def test_the_forms_of_events_have_the_fields_of_the_events(form: type[msgspec.Struct], kind: type) -> None:
    assert form.__struct_fields__ == kind.__struct_fields__


def test_the_forms_that_are_written_by_hand_leave_no_field_out() -> None:
    assert ArrivedForm.__struct_fields__ == ("request",)
    assert Row.__struct_fields__ == ("job", "rows", "inputs", "decode", "encode")
    assert Send.__struct_fields__ == ("link", "message", "frames")
    assert Run.__struct_fields__ == (
        "run",
        "executor",
        "contract",
        "range",
        "rows",
        "slot",
        "latest_ns",
        "in_place",
        "generation",
    )


def mentions(hint: object, wanted: tuple[object, ...], seen: set[object]) -> bool:
    """Whether a type is, or holds, one of `wanted`."""
    if any(hint == each for each in wanted):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        seen.add(hint)
        return any(mentions(each, wanted, seen) for each in get_type_hints(hint).values())
    if get_origin(hint) is None and not isinstance(hint, UnionType):
        return False
    return any(mentions(each, wanted, seen) for each in get_args(hint))


def test_frames_and_arrays_are_only_where_the_forms_expect_them() -> None:
    both = (*get_args(Event), *get_args(Action))
    frames = {kind.__name__ for kind in both if mentions(kind, get_args(Buffer), set())}
    arrays = {kind.__name__ for kind in both if mentions(kind, (Array, np.ndarray), set())}
    assert frames == {"Received", "Finished", "Run", "Send"}
    assert arrays == {"Arrived", "Finished", "Run", "Send", "Hold", "Resolve"}


@pytest.mark.parametrize("tensor", [np.zeros((2, 3), np.uint8), np.zeros((), np.float32), b"abc", bytearray(2)])
def test_a_blank_looks_like_the_tensor_whose_mark_it_was_made_of(tensor: Array | Buffer) -> None:
    assert mark(Blanks().tensor(mark(tensor))) == mark(tensor)
    assert mark(memoryview(b"abcd")) == 4


@pytest.mark.parametrize(
    "wrong", [-1, 1 << 40, ("object", (1,)), ("uint8", (-1,)), ("uint8", (1 << 40,)), ("u1", (1,))]
)
def test_what_no_tensor_looks_like_is_refused(wrong: Any) -> None:
    with pytest.raises(JournalError):
        Blanks().tensor(wrong)


# --- states ------------------------------------------------------------------------------------------------------------


def machines(pair: Pair) -> Iterator[tuple[MachineKind, Recorder]]:
    for name, recorder in recorders(pair).items():
        yield (EDGE if name == "edge" else NODE), recorder


def fresh_like(kind: MachineKind, recorder: Recorder) -> list[object]:
    setup = recorder.frozen().setup
    return kind.fixed_of(kind.build(setup), setup)


def test_a_machine_that_is_read_is_written_the_same_and_its_books_agree(pair: Pair) -> None:
    for kind, recorder in machines(pair):
        setup = recorder.frozen().setup
        data = write_state(recorder.machine, kind.known, kind.fixed_of(recorder.machine, setup))
        fixed = fresh_like(kind, recorder)
        machine = read_state(data, kind.known, fixed, kind.machine)
        machine.validate()
        assert write_state(machine, kind.known, fixed) == data


def test_what_a_snapshot_takes_for_fixed_does_not_change_in_a_busy_run(pair: Pair) -> None:
    for kind, recorder in machines(pair):
        fresh = kind.build(recorder.frozen().setup)
        for path in kind.fixed:
            assert attrgetter(path)(recorder.machine) == attrgetter(path)(fresh), path


class Parts:
    """One of everything that a state may be made of."""

    def __init__(self) -> None:
        self.atoms = [None, True, 3, -(1 << 63), (1 << 64) - 1, 0.5, "text"]
        self.shared: list[object] = [{"a": 1, (2, "b"): [3]}, {5, 4, 3}, frozenset({("x", 1)})]
        self.again = self.shared
        self.row = deque([1, (2, 3)], maxlen=4)
        self.ordered = OrderedDict([((1, 2), 3), ((0, 1), 2)])
        self.counted = Counter({"x": 3, "y": 0})
        self.random = random.Random(5)
        self.me = self
        self.random.random()


def test_every_kind_of_part_comes_back_and_what_was_shared_is_shared() -> None:
    known = Known(Parts)
    known.by_name, known.names = {"tests:Parts": Parts}, {Parts: "tests:Parts"}
    parts = Parts()
    found = read_state(write_state(parts, known, []), known, [], Parts)
    assert isinstance(found, Parts)
    assert found.me is found
    assert found.again is found.shared
    for name in ("atoms", "shared", "row", "ordered", "counted"):
        assert getattr(found, name) == getattr(parts, name)
        assert type(getattr(found, name)) is type(getattr(parts, name))
    assert found.row.maxlen == 4
    assert list(found.ordered) == list(parts.ordered)
    assert found.random.random() == parts.random.random()


def test_a_snapshot_leaves_nothing_for_the_collector() -> None:
    known = Known(Parts)
    known.by_name, known.names = {"tests:Parts": Parts}, {Parts: "tests:Parts"}
    parts = Parts()
    gc.collect()
    gc.disable()
    try:
        write_state(parts, known, [])
        assert gc.collect() == 0
    finally:
        gc.enable()


def snapshot(layouts: object, tree: object) -> bytes:
    return msgspec.msgpack.encode([layouts, tree])


HOSTILE = {
    "a class that is none of the machine's": ([["os:system", []]], [12, 0], "'os:system', which is no class"),
    "a class of ours that does something": ([["edge.host:Host", []]], [12, 0], "'edge.host:Host', which is no class"),
    "a function": ([["edge.insurance:insure", []]], [12, 0], "which is no class"),
    "an exception": ([["shared.errors:InvariantBroken", []]], [12, 0], "which is no class"),
    "a class that is called where only enums are": (
        [["edge.broker:Broker", []]],
        [10, 0, "x"],
        "a Broker stands where",
    ),
    "a class that is called where only structs are": (
        [["edge.broker:Broker", []]],
        [11, 0, 1],
        "a Broker stands where",
    ),
    "a struct with too many fields": ([["shared.plan:SegmentRange", []]], [11, 0, 1, 2, 3, 4], "damaged"),
    "an unknown tag": ([], [99, 1], "damaged: tag 99"),
    "a part that is not there": ([], [0, 7], "damaged"),
    "a fixed part that is not there": ([], [1, 1 << 40], "damaged"),
    "a negative place": ([], [1, -1], "damaged"),
    "an empty list": ([], [], "damaged"),
    "keys without values": ([], [4, [1, 2], [3]], "damaged"),
    "a list as a key": ([], [4, [[3]], [3]], "damaged"),
    "a generator of no state": ([], [13, 3, [1, 2], None], "damaged"),
    "a tensor of more bytes than there are": ([], [14, 1 << 62], "expected 0 to"),
    "something else than a machine": ([], [3, 1], "is of a list; expected a Broker"),
    "another of our objects": ([["edge.hold:HoldMargin", []]], [12, 0], "is of a HoldMargin; expected a Broker"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_snapshot_is_refused_in_one_line(name: str, pair: Pair) -> None:
    layouts, tree, expected = HOSTILE[name]
    fixed = fresh_like(EDGE, recorders(pair)["edge"])
    with pytest.raises(JournalError) as refused:
        read_state(snapshot(layouts, tree), EDGE.known, fixed, Broker)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_snapshot_that_is_too_deep_is_refused() -> None:
    tree: object = [3]
    for _ in range(300):
        tree = [3, tree]
    with pytest.raises(JournalError, match="damaged"):
        read_state(snapshot([], tree), EDGE.known, [], Broker)
    with pytest.raises(JournalError, match="damaged"):
        read_state(b"\x92\x90" + b"\x91" * 100_000 + b"\xc0", EDGE.known, [], Broker)


def test_a_pickle_is_no_journal() -> None:
    with pytest.raises(JournalError, match="no journal of headtail"):
        read(b"cos\nsystem\n(S'true'\ntR.", KINDS)


@KINDS_OF_MACHINES
def test_only_modules_without_input_and_output_are_part_of_a_machine(kind: MachineKind) -> None:
    house = ("edge.", "cloud.", "shared.")
    taken = {
        name
        for module in kind.known.modules
        for name, value in vars(module).items()
        if not str(getattr(value, "__module__", "")).startswith(house)
    }
    assert not taken & {"os", "socket", "subprocess", "zmq", "threading", "time", "open", "Path"}
    assert {module.__name__.partition(".")[0] for module in kind.known.modules} <= {"edge", "cloud", "shared"}


# --- files -------------------------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was(saved: bytes) -> None:
    found = read(saved, KINDS)
    assert (found.head.kind, found.head.name, found.head.reason, found.head.saved) == ("edge", "edge", "asked", "now")
    assert verify(found) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: b"", "no journal of headtail"),
        (lambda data: b"PK\x03\x04" + data, "no journal of headtail"),
        (lambda data: data.replace(b"journal 1\n", b"journal 2\n", 1), f"is of format 2; expected {FORMAT}"),
        (lambda data: data[: len(MAGIC) + 2], "cut short"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data + b"more", "bytes stand behind its end"),
        (lambda data: data[:-3] + b"\0\0\0", "damaged"),
        (lambda data: data[:200] + bytes([data[200] ^ 64]) + data[201:], "damaged"),
    ],
)
def test_a_file_that_is_damaged_or_of_another_version_is_refused_in_one_line(
    saved: bytes, change: Callable[[bytes], bytes], expected: str
) -> None:
    with pytest.raises(JournalError) as refused:
        read(change(saved), KINDS)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def unpacked(saved: bytes) -> list[bytes]:
    plain = zlib.decompress(saved.partition(b"\n")[2])
    frames: list[bytes] = []
    while plain:
        length = int.from_bytes(plain[:4], "big")
        frames.append(plain[4 : 4 + length])
        plain = plain[4 + length :]
    return frames


def packed(frames: list[bytes]) -> bytes:
    plain = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    return MAGIC + b"%d\n" % FORMAT + zlib.compress(plain)


def test_a_file_that_was_made_anew_is_read(saved: bytes) -> None:
    assert verify(read(packed(unpacked(saved)), KINDS)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda frames: frames[:-1],
        lambda frames: [*frames, b"more"],
        lambda frames: frames[:1],
        lambda frames: frames[1:],
        lambda frames: [frames[0], b""],
        lambda frames: [frames[0], *frames[2:]],
        lambda frames: [*frames[:2], *frames[3:]],
    ],
)
def test_a_file_whose_frames_do_not_add_up_is_refused(
    saved: bytes, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    with pytest.raises(JournalError):
        read(packed(change(unpacked(saved))), KINDS)


class FramesThatEnd:
    """The frames of a file that is over, which fails whoever goes on asking."""

    def __init__(self, frames: list[bytes]) -> None:
        self._left = iter(frames)
        self._asked_for_nothing = 0

    def __iter__(self) -> FramesThatEnd:
        return self

    def __next__(self) -> bytes:
        for frame in self._left:
            return frame
        self._asked_for_nothing += 1
        assert self._asked_for_nothing < 100, "asked again and again for frames of a file that is over"
        raise StopIteration


@pytest.mark.parametrize("records", [1_000, 1 << 62])
@pytest.mark.parametrize("rest", [[], [b""], [b"one", b"two", b""]])
def test_a_segment_that_says_more_records_than_are_there_is_refused_at_the_first_that_is_missing(
    saved: bytes, records: int, rest: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = FramesThatEnd([unpacked(saved)[0], msgspec.msgpack.encode([0, records, b""]), *rest])
    monkeypatch.setattr("shared.journal.file._unpacked", lambda data: frames)
    there = len([frame for frame in rest if frame])
    with pytest.raises(JournalError, match=f"cut short: step {there} is missing, of {records} from 0"):
        read(b"", KINDS)


def test_a_plan_with_a_route_at_a_cut_that_it_does_not_have_is_refused(saved: bytes) -> None:
    frames = unpacked(saved)
    head = msgspec.msgpack.decode(frames[0])
    for plan in head["plans"].values():
        plan["routes"][0]["cut"] = 20_000
    with pytest.raises(JournalError, match="has a route at cut 20000; expected 0 to "):
        read(packed([msgspec.msgpack.encode(head), *frames[1:]]), KINDS)


@cache
def small() -> tuple[bytes, ...]:
    """The frames of a small journal with two segments."""
    frozen = recorders(busy_pair(journal=80, requests=60))["edge"].frozen()
    assert len(frozen.segments) == 2
    data = b"".join(pieces(head_of(frozen, reason="asked", saved="", headtail="", code="", python=""), frozen))
    return tuple(unpacked(data))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_whatever_a_file_holds_is_refused_or_replayed_and_nothing_else(
    changes: list[tuple[float, float, int]],
) -> None:
    frames = list(small())
    for place, at, value in changes:
        number = int(place * (len(frames) - 2))
        frame = bytearray(frames[number])
        frame[int(at * (len(frame) - 1))] = value
        frames[number] = bytes(frame)
    with suppress(JournalError):
        verify(read(packed(frames), KINDS))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_refused(noise: bytes) -> None:
    with pytest.raises(JournalError):
        decode_record(noise, Blanks())
    with pytest.raises(JournalError):
        raised(noise)


def test_a_journal_of_one_kind_with_settings_of_the_other_is_refused(saved: bytes, pair: Pair) -> None:
    node = recorders(pair)["a"].frozen()
    edge = recorders(pair)["edge"].frozen()
    mixed = Frozen("edge", msgspec.structs.replace(edge.setup, settings=node.setup.settings), edge.segments)
    head = head_of(mixed, reason="asked", saved="", headtail="", code="", python="")
    with pytest.raises(JournalError):
        verify(read(b"".join(pieces(head, mixed)), KINDS))
