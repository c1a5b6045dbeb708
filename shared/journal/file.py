"""A journal as a file, and back.

    headtail journal 1\\n     the magic line, with the format's version
    zlib stream of            frames: four bytes of length (big-endian), then that many bytes
        Head                  what was recorded, when, why, and what the machine was built from
        segment, records ...  for each segment `[first, records, state]`, then each of its records
        an empty frame        the end

It is written piece by piece, so that whoever writes it can pause in between, and compressed, since steps are alike. zlib's
checksum finds damage, the empty frame a file that was cut short. Nothing in it is believed: it is decoded with types, within
limits, and every fault is one line.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import msgspec

from shared.errors import JournalError
from shared.journal.kind import KindName, MachineKind, Setup
from shared.journal.recorder import Frozen, Segment
from shared.plan import Plan

FORMAT = 1
MAGIC = b"headtail journal "
LONGEST_MAGIC = 40
MOST_BYTES = 1 << 30
"""The most bytes of a journal once it is not compressed."""

LEVEL = 1
"""zlib's level: steps are so alike that a higher one gains little and takes several times as long."""

MOST_ROWS = 1 << 16
"""The largest batch of a plan that is believed."""

PIECE = 1 << 16


class Head(msgspec.Struct, frozen=True):
    """What stands before the segments. `reason` is why it was saved: `asked`, `signal`, `share` or `raised`. `headtail` and
    `code` (a digest of the machine's modules) tell which code made it, `saved` when (ISO 8601, UTC), `stopped` why
    recording had stopped before that."""

    kind: KindName
    name: str
    incarnation: int
    seed: int | str
    reason: str
    saved: str
    headtail: str
    code: str
    python: str
    stopped: str
    settings: msgspec.Raw
    plans: dict[str, Plan]


class Journal(msgspec.Struct, frozen=True):
    """A journal that was read: its head, what to build the machine from, and its segments, the oldest first."""

    head: Head
    kind: MachineKind
    setup: Setup
    segments: tuple[Segment, ...]

    @property
    def first(self) -> int:
        """The number of the first step that is there."""
        return self.segments[0].first

    @property
    def records(self) -> Iterator[bytes]:
        """Every step's record, in order."""
        for segment in self.segments:
            yield from segment.records


class _SegmentHead(msgspec.Struct, frozen=True, array_like=True):
    first: int
    records: int
    state: bytes


_head = msgspec.msgpack.Decoder(Head)
_segment = msgspec.msgpack.Decoder(_SegmentHead)
_encode = msgspec.msgpack.Encoder().encode


def head_of(frozen: Frozen, *, reason: str, saved: str, headtail: str, code: str, python: str) -> Head:
    """The head of what a recorder holds."""
    setup = frozen.setup
    return Head(
        kind=frozen.kind,
        name=setup.name,
        incarnation=setup.incarnation,
        seed=setup.seed,
        reason=reason,
        saved=saved,
        headtail=headtail,
        code=code,
        python=python,
        stopped=frozen.stopped,
        settings=msgspec.Raw(_encode(setup.settings)),
        plans=setup.plans,
    )


def pieces(head: Head, frozen: Frozen) -> Iterator[bytes]:
    """The file, piece by piece; each takes a fraction of a millisecond to make."""
    yield MAGIC + b"%d\n" % FORMAT
    packer = zlib.compressobj(LEVEL)
    waiting = bytearray()
    for frame in _frames(head, frozen):
        waiting += len(frame).to_bytes(4, "big")
        waiting += frame
        if len(waiting) >= PIECE:
            yield packer.compress(waiting)
            waiting.clear()
    yield packer.compress(waiting)
    yield packer.flush()


def _frames(head: Head, frozen: Frozen) -> Iterator[bytes]:
    yield _encode(head)
    for segment in frozen.segments:
        yield _encode(_SegmentHead(segment.first, len(segment.records), segment.state))
        yield from segment.records
    yield b""


def read(data: bytes, kinds: Mapping[str, MachineKind]) -> Journal:
    """The journal in a file's bytes. Raises `JournalError` where it is none, of another version, damaged or cut short."""
    frames = _unpacked(data)
    try:
        head = _head.decode(next(frames, b""))
        kind = kinds[head.kind]
        settings = msgspec.msgpack.decode(head.settings, type=kind.settings)
        setup = Setup(head.name, head.incarnation, head.seed, settings, head.plans)
        segments: list[Segment] = []
        for frame in frames:
            if not frame:
                break
            segments.append(_read_segment(frame, frames, segments))
        else:
            raise JournalError("it is cut short")
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(f"it is damaged: {error}") from None
    if not segments or next(frames, None) is not None:
        raise JournalError("it is damaged: it does not end where its end stands")
    _check_plans(head.plans)
    return Journal(head, kind, setup, tuple(segments))


def _check_plans(plans: Mapping[str, Plan]) -> None:
    """What a machine would not survive: it makes tables of a plan's size."""
    for plan in plans.values():
        if not 1 <= plan.max_batch <= MOST_ROWS:
            raise JournalError(f"plan {plan.name!r:.80} takes {plan.max_batch} rows; expected 1 to {MOST_ROWS}")
        for route in plan.routes:
            if not 0 <= route.cut < len(plan.cuts):
                raise JournalError(
                    f"plan {plan.name!r:.80} has a route at cut {route.cut}; expected 0 to {len(plan.cuts) - 1}"
                )


def _read_segment(frame: bytes, frames: Iterator[bytes], before: list[Segment]) -> Segment:
    head = _segment.decode(frame)
    expected = before[-1].first + len(before[-1].records) if before else head.first
    if head.first < 0 or head.first != expected or (head.state == b"") != (head.first == 0):
        raise JournalError(f"it is damaged: a segment begins at step {head.first}, where {expected} is expected")
    # The number is the file's word, so that what is there bounds the work, never the number.
    records: list[bytes] = []
    while len(records) < head.records:
        record = next(frames, b"")
        if not record:
            raise JournalError(
                f"it is cut short: step {head.first + len(records)} is missing, of {head.records} from {head.first}"
            )
        records.append(record)
    return Segment(head.first, head.state, records)


def _unpacked(data: bytes) -> Iterator[bytes]:
    """The frames of a file."""
    line, newline, packed = data[:LONGEST_MAGIC].partition(b"\n")
    if not line.startswith(MAGIC) or not newline:
        raise JournalError("it is no journal of headtail")
    version = line.removeprefix(MAGIC)
    if version != b"%d" % FORMAT:
        raise JournalError(f"it is of format {version.decode('ascii', 'replace')}; expected {FORMAT}")
    packed = data[len(line) + 1 :]
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise JournalError(f"it is damaged: {error}") from None
    if unpacker.unconsumed_tail:
        raise JournalError(f"it is larger than {MOST_BYTES >> 20} MiB once unpacked")
    if not unpacker.eof:
        raise JournalError("it is cut short")
    if unpacker.unused_data:
        raise JournalError("it is damaged: bytes stand behind its end")
    at = 0
    while at + 4 <= len(plain):
        length = int.from_bytes(plain[at : at + 4], "big")
        at += 4
        if at + length > len(plain):
            raise JournalError("it is cut short")
        yield plain[at : at + length]
        at += length
    if at != len(plain):
        raise JournalError("it is cut short")
