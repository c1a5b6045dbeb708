from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.announced import MAX_STREAMS
from edge.open_streams import OpenStreams
from shared.errors import InputError
from shared.events import StreamClosed, StreamOpened, Tick


def opened(stream: int) -> StreamOpened:
    return StreamOpened("", stream, "", 1, 1, 1, 1, True)


def test_what_is_abandoned_is_told_before_the_next_event() -> None:
    streams = OpenStreams("app")
    streams.open(1)
    assert streams.told(opened(1)) == [opened(1)]
    assert not streams.concerns(Tick())
    streams.abandon(1)
    assert streams.concerns(Tick())
    assert streams.told(opened(2)) == [StreamClosed("app", 1), opened(2)]
    assert streams.told(Tick()) == [Tick()]


def test_a_stream_that_was_abandoned_before_its_opening_is_never_told() -> None:
    streams = OpenStreams("app")
    streams.open(1)
    streams.abandon(1)
    assert streams.told(Tick()) == [Tick()]
    assert streams.told(opened(1)) == []
    assert streams.waiting == 0


def test_threads_that_open_streams_at_once_never_open_one_too_many() -> None:
    streams = OpenStreams("app")

    def one(first: int) -> int:
        taken = 0
        for number in range(first, first + MAX_STREAMS):
            try:
                streams.open(number)
            except InputError:
                continue
            taken += 1
        return taken

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(one, range(0, 4 * MAX_STREAMS, MAX_STREAMS))) == MAX_STREAMS
    streams.close(next(iter(streams._open)))
    streams.open(-1)
    with pytest.raises(InputError, match="streams are open already"):
        streams.open(-2)


@given(st.data())
def test_in_whatever_order_streams_end_the_machine_knows_those_that_are_open(data: st.DataObject) -> None:
    """Calls wait in a queue for a loop that takes them when it likes; ends by the collector pass them by."""
    streams = OpenStreams("app")
    queue: list[StreamOpened | StreamClosed | Tick] = []
    open_: set[int] = set()
    known: set[int] = set()

    def turn() -> None:
        for event in streams.told(queue.pop(0)):
            if isinstance(event, StreamOpened):
                known.add(event.stream)
            elif isinstance(event, StreamClosed):
                known.remove(event.stream)

    for number in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(("open", "close", "abandon", "turn"))):
            case "open":
                streams.open(number)
                open_.add(number)
                queue.append(opened(number))
            case "turn":
                if queue:
                    turn()
            case way if open_:
                ended = data.draw(st.sampled_from(sorted(open_)))
                open_.remove(ended)
                if way == "close":
                    queue.append(StreamClosed("app", ended))
                    streams.close(ended)
                else:
                    streams.abandon(ended)
            case _:
                pass
    queue.append(Tick())
    while queue:
        turn()
    assert known == open_ == streams._open
    assert streams.waiting == 0
