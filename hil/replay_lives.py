"""The life of each request in a journal: what happened to it when, and where its time went.

It is read off a replay, step by step, so that what no message says (which launch worked for whom) can be asked of the machine
itself. What edge and node have in common is here; `hil.replay_edge` and `hil.replay_node` know the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from shared.events import Abort, Failed, Finished, Received, Run
from shared.journal.replay import Replayed
from shared.request import Array, Buffer, Stage, Stages

End = Literal["answer", "missed", "rejected", "superseded", "withdrawn", "reply", "refused", "gone", "open"]
"""How a life ended; `open` where it had not when the journal was saved."""


class Moment(msgspec.Struct, frozen=True):
    """Something that happened to a request, `at_ns` after its beginning."""

    at_ns: int
    what: str


class Life(msgspec.Struct):
    """One request at an edge, whose time counts from when it was due, or one attempt at a node, from when it came in.

    `began_ns` is that time on the machine's clock, `arrived_ns` when the machine heard of it, `budget_ns` what there was from
    the beginning to the deadline, `took_ns` from the beginning to the end. `by` is who answered, `detail` why nobody did,
    `stages` where the time went, as far as it is known. `number` is what nodes know a request of an edge by.
    """

    id: str
    about: str
    began_ns: int
    arrived_ns: int
    budget_ns: int
    number: int = 0
    end: End = "open"
    took_ns: int | None = None
    on_time: bool | None = None
    by: str = ""
    detail: str = ""
    stages: Stages = {}
    moments: list[Moment] = []

    def saw(self, now_ns: int, what: str) -> None:
        """Note a moment."""
        self.moments.append(Moment(now_ns - self.began_ns, what))

    def spent(self, stage: Stage, span_ns: int) -> None:
        """Note that time went to a stage."""
        if span_ns:
            self.stages[stage] = self.stages.get(stage, 0) + span_ns

    def ended(self, now_ns: int, end: End, *, on_time: bool | None = None, by: str = "", detail: str = "") -> None:
        """Note how and when it ended."""
        self.took_ns = now_ns - self.began_ns
        self.end, self.on_time, self.by, self.detail = end, on_time, by, detail


class Lives(Protocol):
    """Reads lives off the steps of a replay."""

    all: list[Life]
    """Every life so far, in the order in which they began."""

    def see(self, step: Replayed) -> None:
        """Take the next step. The machine is as it was after that step."""
        ...


class Runs:
    """The runs that are out, and the lives that they work for."""

    def __init__(self) -> None:
        self._out: dict[int, tuple[Run, list[Life]]] = {}

    def launched(self, run: Run, lives: Iterable[Life], now_ns: int) -> None:
        """A run was launched for these."""
        workers = list(lives)
        self._out[run.run] = (run, workers)
        rows = sum(row.rows for row in run.rows)
        where = "the loop itself" if run.in_place else f"executor {run.executor}"
        for life in workers:
            life.saw(now_ns, f"run {run.run} launched on {where}: {_range(run)}, {rows} row{'s' * (rows != 1)}")

    def aborted(self, abort: Abort, now_ns: int) -> None:
        """A run is asked to stop."""
        for life in self._out[abort.run][1] if abort.run in self._out else ():
            life.saw(now_ns, f"run {abort.run} asked to stop")

    def finished(self, event: Finished, now_ns: int) -> list[Life]:
        """A run ended by itself; for whom it was."""
        lives = self._out.pop(event.run)[1] if event.run in self._out else []
        for life in lives:
            began, took = ms(event.began_ns - life.began_ns), ms(event.ended_ns - event.began_ns)
            life.saw(now_ns, f"run {event.run} done: it began at {began} and took {took} ms")
        return lives

    def failed(self, event: Failed, now_ns: int) -> list[Life]:
        """A run came to nothing; for whom it was."""
        lives = self._out.pop(event.run)[1] if event.run in self._out else []
        for life in lives:
            life.saw(now_ns, f"run {event.run} came to nothing: {event.detail or event.reason}")
        return lives


def nbytes(tensors: Sequence[Array | Buffer]) -> int:
    """Bytes of some tensors."""
    return sum(len(tensor) if isinstance(tensor, bytes | bytearray) else tensor.nbytes for tensor in tensors)


def came(event: Received, sender: str) -> str:
    """How a message that came in is told."""
    return f"{type(event.message).__name__} from {sender}, {nbytes(event.frames)} bytes"


def ms(span_ns: int) -> str:
    """Milliseconds, to the microsecond."""
    return f"{span_ns / 1e6:.3f}"


def _range(run: Run) -> str:
    span = run.range
    if span.empty:
        return f"the coding of cut {span.first}"
    return f"program {span.program}, cut {span.first} to {span.last}"
