"""A ring of the last steps of a machine, around that machine.

    handle()  keeps the step as it is: a fraction of a microsecond
    idle()    before the loop sleeps: the steps become bytes, and where a segment is full, a snapshot begins the next one

The ring is made of segments. Each begins with a snapshot of the machine's state, the first one of a process with what the
machine was built from, so that a replay can begin at each; the oldest segment is forgotten as a whole. A snapshot of a busy
machine takes about a millisecond, so that it waits for an idle moment that is long enough, and is made without one only when
its segment has grown to twice its size.

The recorder is a pure part like the machine: it works the same in a simulation, where nobody calls `idle()`. `frozen()` may
be called from another thread while the loop goes on: what it looks at is only ever appended to or replaced as a whole.

What cannot be recorded ends the recording, with its reason, and never the serving: a process that answers requests must not
die of its own flight recorder. Only a `strict` one, for tests and simulations, lets a fault of the machine or its own go on
as the error that it is; what no journal could hold (`JournalError`) ends the recording there, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap

import msgspec

from shared.errors import JournalError
from shared.events import Action, Event
from shared.journal.kind import KindName, MachineKind, Recorded, Setup
from shared.journal.records import encode_record
from shared.journal.state import write_state

SEGMENTS = 4
"""Segments of a full ring: between three and four quarters of its size are always there."""

MOST_WAITING = 64
"""Steps that wait to become bytes, at most: so many may keep their tensors alive."""

BLOCK = 1 << 16
"""Bytes of a block of records; a record that is larger has one of its own."""

RECORD_BYTES = 512
"""What a ring has ready for each of its steps from the start: more than they typically take, so that it need not grow."""

MOST_READY = 8 << 20
"""Bytes that a ring has ready at most."""

LENGTH = struct.Struct("<I")
LENGTH_BYTES = LENGTH.size

Look = Callable[[int, Event, list[Action]], None]
"""Sees each step, soon after it: its time, the event and the actions."""


class Segment(msgspec.Struct, frozen=True):
    """Steps from number `first` on. `state` is the machine's before them; empty at its very beginning."""

    first: int
    state: bytes
    records: list[bytes]


class Records:
    """Records one behind the other, each after its length, in blocks that the kernel gives and takes back as a whole.
    Thousands of small objects that live for seconds between short-lived ones were tried, one buffer that grows, and blocks
    of the heap: all of them tear it, so that resident memory creeps up. `spare` are blocks to use before new ones."""

    __slots__ = ("_blocks", "_count", "_spare", "_used")

    def __init__(self, spare: list[mmap]) -> None:
        self._blocks: list[mmap] = []
        self._spare = spare
        self._used = BLOCK
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, record: bytes) -> None:
        """Keep one more."""
        used, length = self._used, len(record)
        first = used + LENGTH_BYTES
        if first + length > BLOCK:
            if first <= BLOCK:
                LENGTH.pack_into(self._blocks[-1], used, 0)
            used, first = 0, LENGTH_BYTES
            self._blocks.append(
                self._spare.pop() if self._spare and first + length <= BLOCK else _block(first + length)
            )
        block, end = self._blocks[-1], first + length
        block[first:end] = record
        LENGTH.pack_into(block, used, length)
        self._used = end
        self._count += 1

    def all(self) -> list[bytes]:
        """Every record so far. From any thread, as long as nobody calls `release`."""
        found: list[bytes] = []
        count = self._count
        for block in list(self._blocks):
            at = 0
            while len(found) < count and at + LENGTH.size <= len(block):
                (length,) = LENGTH.unpack_from(block, at)
                if not length:
                    break
                at += LENGTH.size + length
                found.append(block[at - length : at])
        return found

    def release(self) -> list[mmap]:
        """The blocks of the usual size, for others to use; nothing is left here."""
        blocks, self._blocks, self._count, self._used = self._blocks, [], 0, BLOCK
        return [block for block in blocks if len(block) == BLOCK]


def _block(size: int) -> mmap:
    """A block of this many bytes, and `BLOCK` at least, which is there in memory."""
    block = mmap(-1, max(size, BLOCK), flags=MAP_PRIVATE | MAP_ANONYMOUS)
    for at in range(0, len(block), PAGESIZE):
        block[at] = 0
    return block


class _Part:
    """A segment that still grows, or did."""

    __slots__ = ("first", "records", "state")

    def __init__(self, first: int, state: bytes, spare: list[mmap]) -> None:
        self.first = first
        self.state = state
        self.records = Records(spare)


class Frozen(msgspec.Struct, frozen=True):
    """What a recorder holds at one moment. `stopped` says why it records no more, where it does not."""

    kind: KindName
    setup: Setup
    segments: tuple[Segment, ...]
    stopped: str = ""


class _Waiting(msgspec.Struct, frozen=True):
    """Steps that are not bytes yet; the first of them has number `first`."""

    first: int
    steps: list[tuple[int, Event, list[Action] | str]] = []


class Recorder:
    """A machine like the one inside it, of which it keeps the last `events` steps.

    `clock` (nanoseconds) measures how long snapshots take; without one they are taken to take no time. `look` sees each
    step. `rescue` is called with what the machine raises, before it leaves `handle`, and `gave_up` with the reason where
    recording stops; neither may raise. `strict` is for tests and simulations: whatever else than a `JournalError` goes wrong
    with recording is raised.
    """

    def __init__(
        self,
        machine: Recorded,
        kind: MachineKind,
        setup: Setup,
        *,
        events: int,
        clock: Callable[[], int] | None = None,
        look: Look | None = None,
        strict: bool = True,
    ) -> None:
        """`machine` has just been built from `setup`, which is `kind.normal`. Raises `JournalError` where its state holds
        what a snapshot cannot."""
        self.machine = machine
        self.rescue: Callable[[Exception], None] | None = None
        self.gave_up: Callable[[str], None] | None = None
        self.stopped = ""
        self.longest_ns = 0
        """The longest that a snapshot took of late."""
        self._handle = machine.handle
        self._kind = kind
        self._setup = setup
        self._fixed = kind.fixed_of(machine, setup)
        self._most = events
        self._full = max(1, events // SEGMENTS)
        self._clock = clock
        self._look = look
        self._ends: type[Exception] = JournalError if strict else Exception
        self._waiting = _Waiting(0)
        self._append = self._waiting.steps.append
        self._spare = [_block(BLOCK) for _ in range(-(-min(events * RECORD_BYTES, MOST_READY) // BLOCK))]
        self._readers: list[None] = []
        self._segments: tuple[_Part, ...] = (_Part(0, b"", self._spare),)
        self._state()

    def handle(self, event: Event, now: int) -> list[Action]:
        """The machine's own `handle`; the step is kept."""
        try:
            actions = self._handle(event, now)
        except Exception as error:
            self._append((now, event, f"{type(error).__name__}: {error}"))
            if self.rescue is not None:
                self.rescue(error)
            raise
        self._append((now, event, actions))
        if len(self._waiting.steps) >= MOST_WAITING:
            self._flush()
            if len(self._segments[-1].records) >= 2 * self._full:
                self._begin()
        return actions

    def validate(self) -> None:
        """The machine's own check of its books."""
        self.machine.validate()

    def idle(self, slack_ns: int) -> None:
        """The loop is about to sleep, for up to `slack_ns`: do what was put off."""
        if self._waiting.steps:
            self._flush()
            full = self._waiting.first - self._segments[-1].first
            if full >= self._full and (slack_ns >= 2 * self.longest_ns or full >= 2 * self._full):
                self._begin()

    def frozen(self) -> Frozen:
        """All that is kept. From any thread."""
        # Whoever reads says so before looking at the segments: no block of a segment that is seen is used again meanwhile.
        self._readers.append(None)
        try:
            waiting = self._waiting
            steps = list(waiting.steps)
            segments = [Segment(s.first, s.state, s.records.all()) for s in self._segments]
        finally:
            self._readers.pop()
        last = segments[-1]
        stopped = self.stopped
        # Steps that became bytes meanwhile are there already.
        for step in steps[last.first + len(last.records) - waiting.first :]:
            try:
                last.records.append(encode_record(*step))
            except self._ends as error:
                stopped = stopped or _reason(error)
                break
        return Frozen(self._kind.name, self._setup, tuple(segments), stopped)

    def let_go(self) -> None:
        """Tell nobody of anything any more. The machine is over: each would keep the other until the collector comes."""
        self.rescue = self.gave_up = self._look = None

    def _flush(self) -> None:
        steps = self._waiting.steps
        records = self._segments[-1].records
        look = self._look
        try:
            for now, event, done in steps:
                records.append(encode_record(now, event, done))
                if look is not None and not isinstance(done, str):
                    look(now, event, done)
        except self._ends as error:
            self._stop(error)
            return
        last = self._waiting.first + len(steps)
        self._waiting = waiting = _Waiting(last)
        self._append = waiting.steps.append
        while len(self._segments) > 1 and last - self._segments[0].first > self._most:
            forgotten, *rest = self._segments
            self._segments = tuple(rest)
            if not self._readers:
                self._spare += forgotten.records.release()

    def _begin(self) -> None:
        """Begin a segment with the state as it is now."""
        began = 0 if self._clock is None else self._clock()
        try:
            part = _Part(self._waiting.first, self._state(), self._spare)
        except self._ends as error:
            self._stop(error)
            return
        if self._clock is not None:
            self.longest_ns = max(self._clock() - began, self.longest_ns * 7 // 8)
        self._segments = (*self._segments, part)

    def _stop(self, error: Exception) -> None:
        """Record no more: a step that is missing would make all that follows useless. What is there stays."""
        self.stopped = _reason(error)
        self._append = _forget
        last = self._segments[-1]
        self._waiting = _Waiting(last.first + len(last.records))
        if self.gave_up is not None:
            self.gave_up(self.stopped)

    def _state(self) -> bytes:
        return write_state(self.machine, self._kind.known, self._fixed)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, JournalError) else f"{type(error).__name__}: {error}"


def _forget(step: tuple[int, Event, list[Action] | str]) -> None:
    del step
