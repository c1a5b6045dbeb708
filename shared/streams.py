"""Sources of requests that were announced: when their next frames are expected, and what each of those is promised.

A stream that is granted a way to be answered (a `WorkKey`: a rung of its plan) has its next frames in the forward schedule
before they come, so that no long job is begun which would make one late. Frames are expected a period after the last one
was scheduled, as late as they came of late; a stream whose frames stay away is not waited for.

Grants are given anew whenever a stream comes or goes or the device's speed has changed: first every stream, the important
first, gets its cheapest way where the whole set stays feasible, then, in the same order, a better one. So that a lesser
stream is answered well only where no stream as important goes unanswered, and loses its promise first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from shared.latency import Latency, WorkKey
from shared.reserve import Periodic, Promise, streams_fit

StreamId = tuple[str, int]
"""Client and the client's number of the stream."""

FRAMES_AHEAD = 8
"""Frames of one stream that are looked ahead at most."""

MISSED_FRAMES = 3
"""After so many frames that did not come a stream counts as paused until the next one comes."""

LATENESSES = 32


class Source(msgspec.Struct, frozen=True, gc=False):
    """What was announced. `deadline_ns` is from a frame's scheduled time to when its work must be done. `ways` are the
    works that could answer a frame, the best first."""

    id: StreamId
    rows: int
    period_ns: int
    deadline_ns: int
    priority: int
    ways: tuple[WorkKey, ...]


class _Stream:
    """A source, what it is granted (an index of its ways; None: nothing), and when its frames came."""

    __slots__ = ("came", "due_ns", "granted", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.granted: int | None = None
        self.due_ns: int | None = None
        self.came: deque[int] = deque(maxlen=LATENESSES)


class Streams:
    """At most `limit` streams."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streams: dict[StreamId, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, stream: StreamId) -> bool:
        return stream in self._streams

    def open(self, source: Source) -> bool:
        """A source is announced, or announced anew; False where there are too many. It is granted nothing yet."""
        known = self._streams.get(source.id)
        if known is not None:
            known.source = source
            return True
        if len(self._streams) >= self._limit:
            return False
        self._streams[source.id] = _Stream(source)
        return True

    def close(self, stream: StreamId) -> bool:
        """No more frames of it will come; False where it is not known."""
        return self._streams.pop(stream, None) is not None

    def forget_times(self) -> None:
        """The clock stood still for a while: when frames are due is found out anew."""
        for stream in self._streams.values():
            stream.due_ns = None
            stream.came.clear()

    def of_client(self, client: str) -> list[StreamId]:
        """The streams of a client."""
        return [stream for stream in self._streams if stream[0] == client]

    def arrived(self, stream: StreamId, scheduled_ns: int, now: int) -> None:
        """A frame has come that was due at `scheduled_ns`. Streams that were not announced are ignored."""
        known = self._streams.get(stream)
        if known is not None and (known.due_ns is None or scheduled_ns > known.due_ns):
            known.due_ns = scheduled_ns
            known.came.append(max(0, now - scheduled_ns))

    def granted(self, stream: StreamId) -> WorkKey | None:
        """The way that each frame of this stream can count on."""
        known = self._streams.get(stream)
        return None if known is None or known.granted is None else known.source.ways[known.granted]

    def grant(self, latency: Latency, executors: int) -> list[tuple[StreamId, WorkKey | None]]:
        """Find out anew what each stream is promised; those for which it has changed, in order."""
        order = sorted(self._streams.values(), key=lambda s: (s.source.priority, s.source.id))
        before = {s.source.id: self.granted(s.source.id) for s in order}
        chosen: dict[StreamId, int] = {}
        for stream in order:
            ways = len(stream.source.ways)
            if ways and self._fit({**chosen, stream.source.id: ways - 1}, latency, executors):
                chosen[stream.source.id] = ways - 1
        for stream in order:
            for way in range(chosen.get(stream.source.id, 0)):
                if self._fit({**chosen, stream.source.id: way}, latency, executors):
                    chosen[stream.source.id] = way
                    break
        for stream in order:
            stream.granted = chosen.get(stream.source.id)
        after = {s.source.id: self.granted(s.source.id) for s in order}
        return [(id_, way) for id_, way in after.items() if way != before[id_]]

    def _fit(self, chosen: dict[StreamId, int], latency: Latency, executors: int) -> bool:
        """Whether the streams chosen can be kept, each beside those that are as important: lesser work never blocks them,
        since none is begun before an expected frame that it would make late."""
        sources = [(self._streams[id_].source, way) for id_, way in chosen.items()]
        for level in sorted({source.priority for source, _ in sources}):
            works = [(s, way) for s, way in sources if s.priority <= level]
            periodic = [Periodic(s.period_ns, s.deadline_ns, _duration(s, way, latency)) for s, way in works]
            if not streams_fit(periodic, executors):
                return False
        return True

    def expected(self, latency: Latency, priority: int, until_ns: int, now: int, free_ns: int = 0) -> list[Promise]:
        """Frames that are due before `until_ns` and have not come, of granted streams of class `priority` and of more
        important ones. A frame is expected as long as it would typically still be in time, and not to begin before an
        executor is free at `free_ns`."""
        found: list[Promise] = []
        for stream in self._streams.values():
            source = stream.source
            if stream.granted is None or stream.due_ns is None or source.priority > priority:
                continue
            duration = _duration(source, stream.granted, latency)
            late = max(stream.came)
            for due in self._dues(stream, latency, now):
                if due + late >= until_ns:
                    break
                release = max(now, due + late, free_ns)
                # A frame that comes so late that it cannot be done in time must not make the whole set infeasible.
                deadline = max(due + source.deadline_ns, release + duration)
                found.append(Promise(-1 - len(found), duration, deadline, release, source.priority))
        return found

    def next_lapse(self, latency: Latency, now: int) -> int | None:
        """When the next expected frame will be expected no longer, so that what waits for it may begin."""
        lapses: list[int] = []
        for stream in self._streams.values():
            if stream.granted is not None and stream.due_ns is not None:
                typical = latency.typical(stream.source.ways[stream.granted], stream.source.rows)
                due = next(iter(self._dues(stream, latency, now)), None)
                if due is not None:
                    lapses.append(due + stream.source.deadline_ns - typical + 1)
        return min(lapses, default=None)

    def _dues(self, stream: _Stream, latency: Latency, now: int) -> Iterator[int]:
        """When the next frames are due that may still come in time."""
        source, last = stream.source, stream.due_ns
        if last is None or stream.granted is None:
            return
        typical = latency.typical(source.ways[stream.granted], source.rows)
        first = max(1, -(-(now + typical - source.deadline_ns - last) // source.period_ns))
        if first > MISSED_FRAMES:
            return
        for count in range(first, first + FRAMES_AHEAD):
            yield last + count * source.period_ns


def _duration(source: Source, way: int, latency: Latency) -> int:
    """How long a frame may take: as for a single request, a way above the cheapest counts as slow as it was at its worst."""
    slow = latency.pessimistic if way == len(source.ways) - 1 else latency.worst
    return slow(source.ways[way], source.rows)
