"""Dead letters: requests that ended without an answer in time, or were refused, in a bounded ring. Pure.

An agent and a node keep one each (`edge.letters`, `cloud.letters` see what becomes of requests) and tell it to whoever asks
and may (`shared.letter_box`, `headtail deadletters`). What a request held is private and is kept only where a setting says
so; what was kept can be asked once more. The ring outlives the journal's, which forgets a failure as soon as a few thousand
further steps went well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from shared.request import Array, Buffer, Stages
from shared.wire.codec import raw_frame, tensor_of
from shared.wire.messages import Tensor

LETTER_BYTES = 1024
"""What a letter counts for beside its inputs: no less than it takes."""

MOST_DETAIL = 200
"""Characters of a detail that are kept."""


class Letter(msgspec.Struct, frozen=True):
    """A request that came to nothing. `number` counts those of its process from 1.

    `who` is the client's connection at an agent, the edge's name at a node; `incarnation` and `attempt` are 0 at an agent.
    `came_ns`, `due_ns` and `ended_ns` are of the process's CLOCK_MONOTONIC. `reason` is `missed`, `late`, `gone` (whoever
    asked has left), or the word that it was refused with. `stages` say where the time went, as far as that is known here.
    `tensors` are its inputs where they were kept: at a node as frames in the coding.
    """

    who: str
    incarnation: int
    sequence: int
    attempt: int
    model: str
    contract: str
    priority: int
    rows: int
    cut: int
    coding: str
    came_ns: int
    due_ns: int
    ended_ns: int
    reason: str
    detail: str
    stages: Stages
    number: int = 0
    tensors: tuple[Tensor, ...] = ()


class LetterList(msgspec.Struct, frozen=True):
    """The letters of a process, the oldest first, at `now_ns` of its clock. `forgotten`: so many more had to make room."""

    name: str
    kind: Literal["agent", "node"]
    incarnation: int
    now_ns: int
    forgotten: int
    letters: tuple[Letter, ...]


class Letters:
    """The last letters of one process: at most `keep` of them and `keep_bytes` in all, each `LETTER_BYTES` and its inputs.
    The oldest make room. Inputs that alone would take more are not kept."""

    def __init__(self, keep: int, keep_bytes: int) -> None:
        self._keep = keep
        self._most = keep_bytes
        self._ring: deque[tuple[Letter, tuple[Buffer, ...]]] = deque()
        self._bytes = 0
        self._last = 0

    def add(self, letter: Letter, inputs: Sequence[Array | Buffer] = (), tensors: Iterable[Tensor] = ()) -> None:
        """One more. `inputs` are kept as they are; `tensors` says what they are where they are frames."""
        self._last += 1
        frames: tuple[Buffer, ...] = tuple(i if isinstance(i, Buffer) else raw_frame(i) for i in inputs)
        size = _nbytes(frames)
        if LETTER_BYTES + size > self._most:
            frames, size = (), 0
        told = tuple(tensors) or tuple(tensor_of(i) for i in inputs if not isinstance(i, Buffer))
        letter = msgspec.structs.replace(
            letter, number=self._last, detail=letter.detail[:MOST_DETAIL], tensors=told if frames else ()
        )
        self._ring.append((letter, frames))
        self._bytes += LETTER_BYTES + size
        while len(self._ring) > self._keep or self._bytes > self._most:
            _, forgotten = self._ring.popleft()
            self._bytes -= LETTER_BYTES + _nbytes(forgotten)

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def nbytes(self) -> int:
        """What they count for."""
        return self._bytes

    @property
    def forgotten(self) -> int:
        """How many had to make room."""
        return self._last - len(self._ring)

    def all(self) -> tuple[Letter, ...]:
        """Those that are kept, the oldest first."""
        return tuple(letter for letter, _ in self._ring)

    def find(self, number: int) -> tuple[Letter, tuple[Buffer, ...]] | None:
        """A letter and the frames of its inputs, none where they were not kept; None where it is not here any more."""
        return next((entry for entry in self._ring if entry[0].number == number), None)


def _nbytes(frames: Iterable[Buffer]) -> int:
    return sum(f.nbytes if isinstance(f, memoryview) else len(f) for f in frames)
