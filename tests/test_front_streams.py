from __future__ import annotations

import pytest
from test_front import MS, NOW, SETTINGS, Bench, submit

from edge.front import QUIET_NS
from shared.events import (
    Action,
    ClientGone,
    Event,
    Granted,
    Received,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Tick,
)
from shared.wire.messages import Attach, Bye, CloseStream, OpenStream, StreamState, Submit

LIMIT = SETTINGS.limits.max_streams


def opened(stream: int = 1, model: str = "double", **changes: int) -> OpenStream:
    fields: dict[str, int] = {"rows": 1, "period_ns": 33 * MS, "deadline_ns": 10 * MS, "priority": 0, **changes}
    return OpenStream(stream, model, latest_wins=True, **fields)  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.attach()
    return bench


def told(bench: Bench) -> list[Event]:
    """What the broker heard of streams."""
    return [e for e in bench.broker.events if isinstance(e, StreamOpened | StreamClosed | ClientGone)]


@pytest.mark.parametrize("model", ["double", "c1"])
def test_an_announced_stream_reaches_the_broker_as_its_connections_own(bench: Bench, model: str) -> None:
    assert bench.say("a", opened(model=model)) == []
    assert told(bench) == [StreamOpened("a", 1, "c1", 1, 33 * MS, 10 * MS, 0, True)]
    assert bench.front.streams == 1


def test_what_the_broker_grants_goes_to_the_client_each_time_that_it_changes(bench: Bench) -> None:
    bench.reply = [Granted("a", 1, "whole")]
    assert bench.say("a", opened()) == [Send("a", StreamState(1, "whole", ""))]
    bench.reply = [Granted("a", 1, "", "overload")]
    assert bench.front.handle(Tick(), NOW) == [Send("a", StreamState(1, "", "overload"))]


def test_a_closed_stream_is_closed_at_the_broker_once_and_told_nothing_more(bench: Bench) -> None:
    bench.say("a", opened())
    bench.say("a", CloseStream(1))
    bench.say("a", CloseStream(1))
    assert told(bench)[1:] == [StreamClosed("a", 1)]
    bench.reply = [Granted("a", 1, "whole")]
    assert bench.front.handle(Tick(), NOW) == []
    assert bench.front.streams == 0


def test_a_stream_may_be_announced_anew(bench: Bench) -> None:
    bench.say("a", opened())
    bench.say("a", opened(period_ns=10 * MS))
    assert [e.period_ns for e in told(bench) if isinstance(e, StreamOpened)] == [33 * MS, 10 * MS]
    assert bench.front.streams == 1


@pytest.mark.parametrize(
    "bad",
    [
        opened(model="other"),
        opened(model=""),
        opened(0),
        opened(rows=5),
        opened(priority=3),
        opened(period_ns=10),
        opened(deadline_ns=0),
        opened(deadline_ns=1 << 50),
    ],
)
def test_what_no_stream_may_be_is_promised_nothing_and_the_broker_never_hears_of_it(
    bench: Bench, bad: OpenStream
) -> None:
    assert bench.say("a", bad) == [Send("a", StreamState(bad.stream, "", "input"))]
    assert told(bench) == []
    assert bench.front.refused == {"input": 1}


def test_a_bad_announcement_voids_the_one_before(bench: Bench) -> None:
    bench.say("a", opened())
    assert bench.say("a", opened(priority=9)) == [Send("a", StreamState(1, "", "input"))]
    assert told(bench)[1:] == [StreamClosed("a", 1)]


def test_one_stream_too_many_of_all_clients_is_refused_until_another_ends(bench: Bench) -> None:
    bench.attach("b")
    for number in range(1, LIMIT + 1):
        bench.say("a" if number % 2 else "b", opened(number))
    assert bench.say("b", opened(500)) == [Send("b", StreamState(500, "", "full"))]
    assert bench.say("a", opened(1, period_ns=5 * MS)) == []
    bench.say("a", CloseStream(1))
    assert bench.say("b", opened(500)) == []
    assert bench.front.streams == LIMIT
    assert bench.front.refused == {"full": 1}


@pytest.mark.parametrize("ending", [Bye("closing"), None])
def test_a_client_that_goes_takes_its_streams_along(bench: Bench, ending: Bye | None) -> None:
    bench.attach("b")
    bench.say("a", opened(1))
    bench.say("a", opened(2))
    bench.say("b", opened(1))
    if ending is None:
        bench.front.handle(SendFailed("a", StreamState(1, "")), NOW)
    else:
        bench.say("a", ending)
    assert told(bench)[3:] == [ClientGone("a")]
    assert bench.front.streams == 1
    bench.reply = [Granted("a", 1, "whole")]
    assert bench.front.handle(Tick(), NOW) == []


def test_who_has_not_greeted_announces_nothing() -> None:
    bench = Bench()
    assert bench.say("a", opened()) == [Send("a", Bye("hello"))]
    assert bench.broker.events == []


def test_a_greeting_that_only_asks_for_life_leaves_streams_as_they_are(bench: Bench) -> None:
    bench.say("a", opened())
    bench.say("a", Attach(1, "app", 1))
    assert told(bench)[1:] == []


def sends(actions: list[Action]) -> list[tuple[str, object]]:
    return [(action.link, action.message) for action in actions if isinstance(action, Send)]


def test_clients_with_streams_that_are_quiet_are_looked_for_and_the_dead_lose_them(bench: Bench) -> None:
    bench.attach("b")
    bench.reply = [Granted("a", 1, "whole")]
    bench.say("a", opened())
    later = NOW + QUIET_NS
    assert sends(bench.front.handle(Tick(), later - 1)) == []
    assert sends(bench.front.handle(Tick(), later)) == [("a", StreamState(1, "whole", ""))]
    assert sends(bench.front.handle(Tick(), later)) == []
    bench.front.handle(SendFailed("a", StreamState(1, "whole")), later)
    assert told(bench)[1:] == [ClientGone("a")]
    assert bench.front.streams == 0


def test_a_client_that_talks_is_not_looked_for(bench: Bench) -> None:
    bench.say("a", opened())
    later = NOW + QUIET_NS
    message, frames = submit(scheduled_ns=later, deadline_ns=later + MS)
    assert isinstance(message, Submit)
    assert sends(bench.front.handle(Received("a", message, frames), later)) == []
