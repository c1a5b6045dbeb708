"""A journal run again: the same events at the same times into a machine of the same build, and are its actions the same?

Actions are compared as bytes. Where a further segment begins, the whole state is compared as well, so that a machine that
went another way unseen is found out before it acts. At the first difference a replay ends: what the world did next was an
answer to other actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from shared.errors import JournalError
from shared.events import Action, Event
from shared.journal.file import Journal, head_of, pieces, read
from shared.journal.kind import MachineKind, Recorded
from shared.journal.marks import Blanks
from shared.journal.recorder import Frozen, Segment
from shared.journal.records import decode_step, encode_record, raised, told
from shared.journal.state import read_state, write_state


class Difference(msgspec.Struct, frozen=True):
    """Where a replay first went another way: at step `number` (of the process's life, from 0), in its `actions`, in what it
    `raised`, or in its `state` before that step. `expected` is what the journal says, `got` what the machine did."""

    number: int
    what: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"step {self.number}: other {self.what}: expected {self.expected}; got {self.got}"


class Replayed(msgspec.Struct, frozen=True, gc=False):
    """One step that was run again and was the same. `raised` is what the machine raised, as it did then."""

    number: int
    now_ns: int
    event: Event
    actions: tuple[Action, ...]
    raised: str


class Replay:
    """Runs a journal through a machine, step by step. `machine` may be looked into between steps.

    `difference` is the first one, once the steps were run, and `parted` the step as the machine took it where its actions
    or its end were other ones. Without `states` snapshots are not compared.

    Raises `JournalError` where no machine can be built from the journal, or put into the state that it begins with.
    """

    def __init__(self, journal: Journal, *, states: bool = True) -> None:
        self.journal = journal
        self.difference: Difference | None = None
        self.parted: Replayed | None = None
        self._states = states
        self._fresh = _build(journal)
        self._fixed = journal.kind.fixed_of(self._fresh, journal.setup)
        self.machine = self._at(journal.segments[0])

    def steps(self) -> Iterator[Replayed]:
        """Every step up to the first difference."""
        blanks = Blanks()
        for segment in self.journal.segments:
            compare = self._states and segment is not self.journal.segments[0]
            if compare and not self._same_state(segment):
                return
            for number, record in enumerate(segment.records, segment.first):
                step = self._step(number, record, blanks)
                if step is None:
                    return
                yield step

    def _step(self, number: int, record: bytes, blanks: Blanks) -> Replayed | None:
        step = decode_step(number, record, blanks)
        error = ""
        actions: list[Action] = []
        try:
            actions = self.machine.handle(step.event, step.now_ns)
        except Exception as raised_:  # whatever it is, it is compared with what was raised then
            error = f"{type(raised_).__name__}: {raised_}"
        got = encode_record(step.now_ns, step.event, error or actions)
        done = Replayed(number, step.now_ns, step.event, tuple(actions), error)
        if got == record:
            return done
        self.difference, self.parted = _difference(number, record, got), done
        return None

    def _at(self, segment: Segment) -> Recorded:
        if not segment.state:
            return self._fresh
        kind = self.journal.kind
        return cast(Recorded, read_state(segment.state, kind.known, self._fixed, kind.machine))

    def _same_state(self, segment: Segment) -> bool:
        got = write_state(self.machine, self.journal.kind.known, self._fixed)
        if got == segment.state:
            return True
        try:
            expected_tree = msgspec.msgpack.decode(segment.state, type=object)
            got_tree = msgspec.msgpack.decode(got, type=object)
        except (msgspec.DecodeError, RecursionError) as error:
            raise JournalError(f"a snapshot is damaged: {error}") from None
        where, expected, found = _first_other(expected_tree, got_tree, "")
        self.difference = Difference(segment.first, "state", f"{where} {expected!r:.200}", f"{found!r:.200}")
        return False


def verify(journal: Journal) -> Difference | None:
    """Run a whole journal again; the first difference, None where every action is the same byte for byte."""
    replay = Replay(journal)
    for _ in replay.steps():
        pass
    return replay.difference


def journal_of(frozen: Frozen, kinds: Mapping[str, MachineKind]) -> Journal:
    """What a recorder holds as a journal that was written and read again, without a file."""
    head = head_of(frozen, reason="asked", saved="", headtail="", code="", python="")
    return read(b"".join(pieces(head, frozen)), kinds)


def _build(journal: Journal) -> Recorded:
    try:
        return journal.kind.build(journal.setup)
    except (
        Exception
    ) as error:  # settings and plans of a file are not to be trusted; whatever they lead to is their fault
        raise JournalError(
            f"no {journal.kind.name} can be built from its settings and plans: {type(error).__name__}: {error}"
        ) from None


def _difference(number: int, expected: bytes, got: bytes) -> Difference:
    if raised(expected) or raised(got):
        return Difference(number, "end", raised(expected) or "no error", raised(got) or "no error")
    then, now = (cast(list[tuple[str, object]], told(record)) for record in (expected, got))
    for place, (one, other) in enumerate(zip(then, now, strict=False)):
        if one != other:
            return Difference(number, f"action {place + 1}", _shown(one), _shown(other))
    if len(then) == len(now):
        return Difference(number, "event", "the event as it was recorded", "another once it was read and written again")
    longer = then if len(then) > len(now) else now
    extra = _shown(longer[min(len(then), len(now))])
    place = min(len(then), len(now)) + 1
    nothing = "nothing"
    return Difference(number, f"action {place}", *((extra, nothing) if longer is then else (nothing, extra)))


def _shown(action: tuple[str, object]) -> str:
    name, fields = action
    return f"{name} {fields!r:.400}"


def _first_other(one: object, other: object, where: str) -> tuple[str, object, object]:
    for place, (a, b) in enumerate(zip(_items(one), _items(other), strict=False)):
        if a != b:
            return _first_other(a, b, f"{where}.{place}")
    return where or "the whole", one, other


def _items(tree: object) -> list[object]:
    return cast(list[object], tree) if isinstance(tree, list) else []
