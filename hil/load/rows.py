"""What was noted of each request of a run, as columns. Pure: times are handed in.

Whatever a target says is judged by the sender's own clock: on time is what came no later than the deadline, counted from the
scheduled time, and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hil.stalls import Stall
from shared.errors import InvariantBroken

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

KINDS = ("on_time", "late", "missed", "rejected", "superseded", "silent")
"""How a request ended: answered on time or later, without an answer for one of three reasons, or without a word."""

ON_TIME, LATE, MISSED, REJECTED, SUPERSEDED, SILENT = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry for each request in every column, nanoseconds of one clock. `kind` indexes `KINDS`, `word` indexes `words`:
    the longest stage of a late answer, the stage of a miss, the reason of a refusal, empty for the others. `ended_ns` is 0
    for a silent one."""

    source: Whole
    scheduled_ns: Whole
    due_ns: Whole
    sent_ns: Whole
    ended_ns: Whole
    kind: Whole
    word: Whole
    words: tuple[str, ...]
    doubled: int = 0

    def __len__(self) -> int:
        return len(self.kind)

    def only(self, which: Flags) -> Rows:
        """Some of the rows."""
        return Rows(
            self.source[which],
            self.scheduled_ns[which],
            self.due_ns[which],
            self.sent_ns[which],
            self.ended_ns[which],
            self.kind[which],
            self.word[which],
            self.words,
            self.doubled,
        )

    def of(self, source: int) -> Rows:
        """The rows of one source."""
        return self.only(self.source == source)

    def since(self, at_ns: int) -> Rows:
        """The rows that were scheduled then or later."""
        return self.only(self.scheduled_ns >= at_ns)

    def held_up(self, stalls: Sequence[Stall]) -> Flags:
        """Which of them were under way, or should have been, while the machine stood still: from the scheduled time to the
        end or the deadline, whichever is later."""
        ordered = sorted((stall.due_ns, stall.due_ns + stall.late_ns) for stall in stalls)
        if not ordered:
            return np.zeros(len(self), np.bool_)
        began = np.array([begin for begin, _ in ordered])
        over = np.maximum.accumulate(np.array([end for _, end in ordered]))
        first = np.searchsorted(over, self.scheduled_ns, "left")
        until = np.maximum(self.ended_ns, self.due_ns)
        return (first < len(ordered)) & (began[np.minimum(first, len(ordered) - 1)] <= until)


class Recorder:
    """Notes requests as they are sent and end. A request is named by its place."""

    def __init__(self) -> None:
        self._source = array("q")
        self._scheduled = array("q")
        self._due = array("q")
        self._sent = array("q")
        self._ended = array("q")
        self._kind = array("q")
        self._word = array("q")
        self._words: dict[str, int] = {"": 0}
        self.doubled = 0
        """Ends that came for requests which had ended."""

    def __len__(self) -> int:
        return len(self._kind)

    def asked(self, source: int, scheduled_ns: int, due_ns: int, sent_ns: int) -> int:
        """One more request is about to be sent; its place."""
        self._source.append(source)
        self._scheduled.append(scheduled_ns)
        self._due.append(due_ns)
        self._sent.append(sent_ns)
        self._ended.append(0)
        self._kind.append(SILENT)
        self._word.append(0)
        return len(self._kind) - 1

    def answered(self, place: int, stages: Mapping[str, int], now: int) -> bool:
        """An answer came, whose time went into `stages` as far as the target says; what it does not say of is called `way`.
        False where it had ended before."""
        late = now > self._due[place]
        return self._end(place, LATE if late else ON_TIME, self._longest(place, stages, now) if late else "", now)

    def refused(self, place: int, kind: int, word: str, now: int) -> bool:
        """It ended without an answer, as one of `KINDS`. False where it had ended before."""
        if kind not in (MISSED, REJECTED, SUPERSEDED):
            raise InvariantBroken(f"kind {kind} is an answer's, or none")
        return self._end(place, kind, word, now)

    def open(self, place: int) -> bool:
        """Whether nothing has been said of it yet."""
        return self._ended[place] == 0

    def source_of(self, place: int) -> int:
        """Whose request it is."""
        return self._source[place]

    def due_ns(self, place: int) -> int:
        """When its outcome is due."""
        return self._due[place]

    def rows(self) -> Rows:
        """All that was noted."""
        return Rows(
            _column(self._source),
            _column(self._scheduled),
            _column(self._due),
            _column(self._sent),
            _column(self._ended),
            _column(self._kind),
            _column(self._word),
            tuple(self._words),
            self.doubled,
        )

    def _end(self, place: int, kind: int, word: str, now: int) -> bool:
        if self._ended[place]:
            self.doubled += 1
            return False
        self._ended[place] = max(now, 1)
        self._kind[place] = kind
        self._word[place] = self._words.setdefault(word, len(self._words))
        return True

    def _longest(self, place: int, stages: Mapping[str, int], now: int) -> str:
        """Where most of a late answer's time went: into sending it, a stage, or what nobody accounts for."""
        account = dict(stages)
        account["sending"] = max(0, self._sent[place] - self._scheduled[place])
        account["way"] = now - self._scheduled[place] - sum(account.values())
        return max(account, key=lambda stage: account[stage])


def _column(values: array[int]) -> Whole:
    return np.array(values, np.int64)
