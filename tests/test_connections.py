"""Many callers on one node, as one machine on virtual time: every request is counted once."""

from __future__ import annotations

import io

import msgspec
from plans import make_input, make_plan
from rich.console import Console

from hil.callers import PATIENCE_NS, Callers
from hil.connections import Connections, show
from shared.events import Action, Event, LinkDown, LinkUp, Received, Send, SendFailed, Tick, WakeAt
from shared.lateness import LatenessFigures
from shared.memory import ArenaFigures
from shared.wire.messages import PROTOCOL, Hello, Infer, Load, Refusal, Reply, Welcome

MS = 1_000_000
CONTRACT, PLAN = make_plan()
FRAME = make_input()[0].tobytes()
LOAD = Load(0, 1)


class Stage:
    """Callers, and a node that greets at once and answers as a test says."""

    def __init__(self, connections: int = 3, each: int = 2) -> None:
        self.now = 0
        self.wake_ns: int | None = None
        self.sent: list[tuple[int, str, Infer]] = []
        self.callers = Callers(CONTRACT, PLAN, FRAME, connections, each, 300 * MS, 50 * MS)

    def do(self, event: Event) -> None:
        self._take(self.callers.handle(event, self.now))

    def _take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case WakeAt():
                    self.wake_ns = action.at_ns
                case Send(message=Hello()):
                    self.do(Received(action.link, Welcome(PROTOCOL, "node", 7, (CONTRACT,), 1, 1)))
                case Send(message=Infer() as message):
                    self.sent.append((self.now, action.link, message))
                case _:
                    pass

    def connect(self) -> None:
        for link in self.callers.links:
            self.do(LinkUp(link))

    def until(self, now: int) -> None:
        while self.wake_ns is not None and self.wake_ns <= now:
            self.now, self.wake_ns = max(self.now, self.wake_ns), None
            self.do(Tick())
        self.now = now

    def reply(self, link: str, message: Infer) -> None:
        ids = (message.incarnation, message.sequence, message.attempt)
        of = (message.contract, message.cut, message.coding, message.rows)
        self.do(Received(link, Reply(*ids, *of, message.tensors, {}, self.now, LOAD)))

    def refuse(self, link: str, message: Infer, reason: str) -> None:
        ids = (message.incarnation, message.sequence, message.attempt)
        self.do(Received(link, Refusal(*ids, reason, "", self.now, LOAD)))


def test_callers_begin_together_spread_over_a_period_and_ask_at_a_steady_pace() -> None:
    stage = Stage()
    stage.connect()
    stage.until(1_000 * MS)
    assert [(at // MS, link, message.sequence) for at, link, message in stage.sent] == [
        (0, "edge-0", 1),
        (100, "edge-1", 1),
        (200, "edge-2", 1),
        (300, "edge-0", 2),
        (400, "edge-1", 2),
        (500, "edge-2", 2),
    ]


def test_nothing_is_asked_until_all_are_there() -> None:
    stage = Stage()
    for link in stage.callers.links[:2]:
        stage.do(LinkUp(link))
    stage.until(1_000 * MS)
    assert stage.sent == []
    assert not stage.callers.done


def test_every_request_is_counted_once_whatever_becomes_of_it() -> None:
    stage = Stage(connections=6, each=1)
    stage.connect()
    stage.until(300 * MS)
    answered, refused, unsent, lost, twice, late = ((link, message) for _, link, message in stage.sent)
    stage.reply(*answered)
    stage.refuse(*refused, "overload")
    stage.do(SendFailed(unsent[0], unsent[1]))
    stage.reply(*twice)
    stage.reply(*twice)
    stage.until(1_000 * MS)
    assert not stage.callers.done
    assert stage.callers.figures().lost == 2, "two are open"
    stage.until(1_000 * MS + PATIENCE_NS)
    assert stage.callers.done
    stage.reply(*late)
    figures = stage.callers.figures()
    assert (figures.connections, figures.asked, figures.answered, figures.refused) == (6, 6, 2, {"overload": 1})
    assert (figures.unsent, figures.lost, figures.again, figures.broken) == (1, 2, 2, 0)
    assert figures.round_trips.count == 2
    assert lost[1].sequence == 1


def test_a_connection_that_breaks_is_counted() -> None:
    stage = Stage()
    stage.connect()
    stage.do(LinkDown("edge-1"))
    assert stage.callers.figures().broken == 1


def found(**changes: object) -> Connections:
    stage = Stage(connections=1, each=1)
    stage.connect()
    stage.until(300 * MS)
    stage.reply(*stage.sent[0][1:])
    callers = msgspec.structs.replace(stage.callers.figures(), **changes)
    late = LatenessFigures(10, 0.1, 0.4, 0.5, 2.0, 0.0)
    return Connections(1.0, callers, late, late, ArenaFigures(slots=2, leases=1, high_water=1), late)


def test_a_lost_request_is_over_the_limit_and_a_refused_one_is_not() -> None:
    said = io.StringIO()
    console = Console(file=said, width=400)
    assert show(found(), console)
    assert "The node's loop stalled for 0.100 ms (p50), 0.400 ms (p99)" in said.getvalue()
    assert show(found(answered=0, refused={"credit": 1}), console)
    for changes in ({"lost": 1, "answered": 0}, {"again": 1}, {"unsent": 1, "answered": 0}, {"broken": 1}):
        assert not show(found(**changes), console)
