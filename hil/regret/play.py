"""One trace replayed: a stream of requests under a policy, or under the oracle, and what came of each."""

from __future__ import annotations

import random

import msgspec

from edge.cloud_way import BEST, DEVICE, name
from hil.emulator.shape import MAX_DELAY_MS
from hil.links.trace import Trace
from hil.regret.oracle import Asked, Choice, Ways, best
from hil.regret.predicted import Predicted, Predictions
from hil.regret.subject import subject
from hil.regret.tcp import MS, Access, Agenda, Connection, Happen
from hil.regret.timeline import Timeline
from hil.regret.world import Channel, World
from shared.errors import UserError
from shared.events import Resolve
from shared.plan import Plan, contract_digest
from shared.request import Answer, Missed
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, NodeAddress, NodeGroup
from shared.wire.messages import Message

EDGE, NODE = "edge", "cloud"
FIRST_NS = 100 * MS
"""When the first request comes, after the edge was started."""

QUEUE_BYTES = 256 * 1024
"""The link's queue in each direction, as in the emulator."""

ORACLE = "oracle"

LEAST_MBIT = 0.001
"""The lowest rate that is replayed: a packet takes 12 s."""


class Case(msgspec.Struct, frozen=True):
    """A trace to replay, and the requests: one each `period_ns`, due `deadline_ns` after it came. `settings` are the edge's;
    its name and nodes are the rig's."""

    name: str
    trace: Trace
    plan: Plan
    deadline_ns: int
    period_ns: int
    seconds: float
    seed: int = 1
    settings: EdgeSettings = EdgeSettings()

    @property
    def requests(self) -> int:
        """How many there are."""
        return max(1, int(self.seconds * 1e9) // self.period_ns)


class Ended(msgspec.Struct, frozen=True, gc=False):
    """What came of one request: by which way it was answered (`none`: not at all), whether in time, and how well. `at_ms` is
    when it came, `took_ms` until its outcome."""

    at_ms: float
    took_ms: float
    way: str
    on_time: bool
    agreement: float
    exact: bool


class Played(msgspec.Struct, frozen=True):
    """What came of a case under a policy. Bytes are those on the link, with headers, of every message and every copy."""

    policy: str
    ended: tuple[Ended, ...]
    bytes_up: int = 0
    bytes_down: int = 0
    predictions: dict[str, Predicted] = {}
    counters: dict[str, int] = {}

    @property
    def on_time(self) -> float:
        """Share of the requests that were answered in time."""
        return sum(e.on_time for e in self.ended) / len(self.ended)

    @property
    def exact(self) -> float:
        """Share of the requests that were answered in time and exactly."""
        return sum(e.on_time and e.exact for e in self.ended) / len(self.ended)

    @property
    def agreement(self) -> float:
        """Mean agreement over all requests; one without an answer in time counts nothing."""
        return sum(e.agreement for e in self.ended if e.on_time) / len(self.ended)


def usual_deadline_ms(trace: Trace) -> float:
    """A deadline that somebody might ask of this link: the least of 10, 20, 50, 100 and 200 ms that is at least four times
    its median round trip."""
    ranked = sorted(trace.round_trip_ms.tolist())
    wanted = 4 * ranked[len(ranked) // 2]
    return next((ms for ms in (10.0, 20.0, 50.0, 100.0) if ms >= wanted), 200.0)


def case_of(
    name: str,
    trace: Trace,
    *,
    hz: float,
    seconds: float,
    deadline_ms: float | None = None,
    plan: Plan | None = None,
    seed: int = 1,
    settings: EdgeSettings | None = None,
) -> Case:
    """A case with what is usual where nothing else is asked. Raises `UserError` where the trace is of a link over which
    nothing can be replayed: what waits for an hour would be followed through all of it."""
    for side, way in (("up", trace.up), ("down", trace.down)):
        delay_ms, slow = float(way.delay_ms.max()), way.rate_mbit[(way.rate_mbit > 0.0) & (way.rate_mbit < LEAST_MBIT)]
        if delay_ms > MAX_DELAY_MS:
            raise UserError(f"{name}: a delay {side} of {delay_ms:g} ms; expected at most {MAX_DELAY_MS:g}")
        if slow.size:
            raise UserError(
                f"{name}: a rate {side} of {slow.min():g} Mbit/s; expected {LEAST_MBIT:g} or more, or 0 for any"
            )
    deadline = deadline_ms if deadline_ms is not None else usual_deadline_ms(trace)
    period_ms = 1000.0 / hz
    length = min(seconds, trace.duration_us / 1e6)
    return Case(
        name, trace, plan or subject(deadline, period_ms), int(deadline * MS), int(period_ms * MS), length, seed,
        settings or EdgeSettings(),
    )  # fmt: skip


def fixed_routes(plan: Plan) -> tuple[str, ...]:
    """The policies that do not choose: all on the device, and each route of the plan."""
    return (DEVICE, *(name(route) for route in plan.routes))


def play(case: Case, policy: str = BEST) -> Played:
    """Replay a case under the edge's setting `route`."""
    contract = contract_digest(case.plan)
    agenda = Agenda(0)
    watch = _Watch(case)
    network = _OneLink(agenda, case)
    world = World({contract: case.plan}, network, agenda, watch, case.seed)
    world.add_node(CloudSettings(node=NodeGroup(name=NODE)))
    settings = msgspec.structs.replace(
        case.settings, agent=AgentGroup(name=EDGE), nodes=(NodeAddress(NODE, "tcp://127.0.0.1:1"),), route=policy
    )
    world.add_edge(settings)
    broker = world.edges[EDGE].broker
    watch.predictions.look(broker)

    def ask(at: int) -> None:
        sequence = len(watch.asked) + 1
        watch.asked.append(at)
        world.ask(EDGE, sequence, contract, case.deadline_ns)
        if sequence < case.requests:
            agenda.put(FIRST_NS + sequence * case.period_ns, ask)

    agenda.put(FIRST_NS, ask)
    agenda.play(FIRST_NS + case.requests * case.period_ns + case.deadline_ns + 1_000 * MS)
    ended = tuple(watch.ended[sequence] for sequence in range(1, case.requests + 1))
    return Played(
        policy, ended, network.up.nbytes, network.down.nbytes, watch.predictions.told(), dict(broker.counters)
    )


def oracle(case: Case) -> Played:
    """The most that any policy could have had of a case, in each figure by itself: which requests are in time is that of the
    sequence with the most of them, which are exact that of the one with the most of those, and so on. Bytes are those of the
    sequence of the highest agreement."""
    asked = asked_of(case)
    up = Timeline(case.trace.up, case.trace.step_us)
    in_time = best(asked, up, _one).chosen
    exact = best(asked, up, _exact).chosen
    agreeing = best(asked, up, _agreement).chosen
    ended = tuple(
        Ended(
            request.at / 1e6,
            0.0,
            "none" if high is None else high.name,
            timely is not None,
            0.0 if high is None else high.agreement,
            exactly is not None,
        )
        for request, timely, exactly, high in zip(asked, in_time, exact, agreeing, strict=True)
    )
    return Played(ORACLE, ended, sum(c.nbytes for c in agreeing if c is not None))


def asked_of(case: Case) -> list[Asked]:
    """The requests of a case with what each could choose."""
    contract = contract_digest(case.plan)
    up, down = (Timeline(side, case.trace.step_us) for side in (case.trace.up, case.trace.down))
    ways = Ways(case.plan, contract, up, down)
    world = World({contract: case.plan}, _OneLink(Agenda(0), case), Agenda(0), _Watch(case), case.seed)
    guard_ns = int(case.settings.insurance.guard_ms * MS)
    asked: list[Asked] = []
    for sequence in range(1, case.requests + 1):
        at = FIRST_NS + (sequence - 1) * case.period_ns
        factors = world.factor("edge", EDGE, sequence), world.factor("cloud", EDGE, sequence)
        asked.append(ways.asked(at, at + case.deadline_ns - guard_ns, *factors))
    return asked


def _one(choice: Choice) -> float:
    del choice
    return 1.0


def _exact(choice: Choice) -> float:
    return float(choice.exact)


def _agreement(choice: Choice) -> float:
    return choice.agreement


class _OneLink:
    """A `Network`: every connection of the one edge goes over the case's link."""

    def __init__(self, agenda: Agenda, case: Case) -> None:
        self._agenda = agenda
        self._buffer = case.settings.link.send_buffer_kb << 10
        up, down = (Timeline(side, case.trace.step_us) for side in (case.trace.up, case.trace.down))
        self.up = Access(up, QUEUE_BYTES, random.Random(f"up {case.seed}"))
        self.down = Access(down, QUEUE_BYTES, random.Random(f"down {case.seed}"))

    def connect(self, edge: str, node: str, link: str, up: Happen, down: Happen) -> Channel:
        """A connection over the link."""
        del edge, node, link
        return Connection(self._agenda, self.up, self.down, self._buffer, up, down)


class _Watch:
    """Keeps what came of each request."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.asked: list[int] = []
        self.ended: dict[int, Ended] = {}
        self.predictions = Predictions()

    def resolved(self, edge: str, action: Resolve, now: int) -> None:
        """A request has its outcome."""
        del edge
        asked = self.asked[action.sequence - 1]
        outcome = action.outcome
        took = now - asked
        at_ms, took_ms = asked / 1e6, took / 1e6
        if not isinstance(outcome, Answer):
            way = f"missed:{outcome.stage}" if isinstance(outcome, Missed) else type(outcome).__name__.lower()
            self.ended[action.sequence] = Ended(at_ms, took_ms, way, False, 0.0, False)
            return
        way = outcome.rung if outcome.source == "edge" else f"{outcome.cut}/{_coding(outcome)}"
        exact = outcome.fidelity.kind == "exact"
        self.ended[action.sequence] = Ended(
            at_ms, took_ms, way, took <= self._case.deadline_ns, outcome.agreement, exact
        )

    def sent(self, edge: str, link: str, message: Message, now: int) -> None:
        """The edge has sent something."""
        del edge
        self.predictions.sent(link, message, now)

    def received(self, edge: str, link: str, message: Message, now: int) -> None:
        """The edge has got something."""
        del edge
        self.predictions.received(link, message, now)


def _coding(answer: Answer) -> str:
    return answer.fidelity.name or "raw"
