"""Plays a scenario on its stage: both arms' frames when they are due, faults on a thread of their own.

Frames are counted from when they were due, whatever the sender was late by. Faults have their own thread because some take a
while (a process that is ended in good order), and nothing that happens to the processes may slow the sender down.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass

import msgspec

from edge.client import Client
from edge.client_stream import Stream
from edge.tickets import OutcomeFuture
from hil.ledger import Entry, Ledger
from hil.player import LAST_S, Switch
from hil.scenarios.known import MODEL, Known
from hil.scenarios.scenario import AGENT, CONTROL, STANDBY, Scenario
from hil.scenarios.stage import Stage
from hil.scenarios.timeline import ARMS, SECOND_NS, Arm, Struck, frames, steps
from hil.stalls import Seen
from hil.tap import tapped_client
from shared.errors import HeadtailError
from shared.request import Answer, Outcome

LEAD_NS = 100_000_000
ATTACH_S = 30.0
WARM_S = 6.0
WARM_LEAST_S = 1.5
WARM_ANSWERS = 15
"""How long each arm is asked before the first frame, and how many answers in a row end that."""

AGENT_OF: Mapping[Arm, str] = {"test": AGENT, "control": CONTROL}
SOURCE_OF: Mapping[Arm, str] = {"test": "cloud", "control": "edge"}


@dataclass(frozen=True, slots=True)
class Played:
    """What a run left behind. `entries` of each arm in the order of their frames; `hung` requests whose futures never ended;
    `traces` is how far into its trace each link was at the first frame's time, in nanoseconds."""

    began_ns: int
    entries: Mapping[Arm, list[Entry]]
    hung: int
    struck: tuple[Struck, ...]
    seen: Seen
    traces: Mapping[str, int]
    warmed: bool
    sums: tuple[str, ...]


class Player:
    """The application: one client for each arm. Use it as a context manager; `node` is the latest node that answered."""

    def __init__(self, scenario: Scenario, known: Known) -> None:
        self._scenario = scenario
        self._known = known
        self._clients: dict[Arm, Client] = {}
        self._switches: dict[Arm, Switch] = {arm: Switch() for arm in ARMS}
        self.node = ""

    def attach(self, stage: Stage) -> None:
        """Connect to the agents. Raises `HeadtailError` where one cannot be reached."""
        for arm in ARMS:
            agent = AGENT_OF[arm]
            standby = stage.endpoint(STANDBY) if arm == "test" and self._scenario.fleet.standby else None
            client = tapped_client(
                stage.endpoint(agent), f"hil-{arm}", self._switches[arm], standby, stage.device.watch()
            )
            self._clients[arm] = client
            if not client.wait_attached(ATTACH_S):
                raise HeadtailError(f"the agent {agent!r} cannot be reached at {stage.endpoint(agent)}")

    def close(self) -> None:
        """Let go of the clients."""
        for client in self._clients.values():
            client.close()

    def warm(self) -> bool:
        """Ask until each arm is answered by whom it ought to be; False where that takes too long, as over a bad link."""
        warmed = [self._warm(arm) for arm in ARMS]
        return all(warmed)

    def play(self, stage: Stage, warmed: bool) -> Played:
        """Play everything; returns when every frame has its outcome or can have none any more."""
        scenario = self._scenario
        stream = scenario.stream
        ledgers: dict[Arm, Ledger] = {arm: Ledger() for arm in ARMS}
        futures: list[tuple[Arm, OutcomeFuture]] = []
        self._switches["test"].lead_to(self._noting(ledgers["test"].delivered))
        self._switches["control"].lead_to(ledgers["control"].delivered)
        periods: dict[Arm, float] = {
            "test": 1e3 / stream.rate_hz,
            "control": 1e3 / stream.rate_hz * (1 if stream.block_s else stream.control_every),
        }
        planned = frames(scenario)
        begun = stage.begin_links()
        stage.seen()
        gc.collect()
        gc.disable()
        faults = _Faults(stage, scenario)
        try:
            with self._stream("test", periods["test"]) as test, self._stream("control", periods["control"]) as control:
                streams: dict[Arm, Stream] = {"test": test, "control": control}
                began_ns = time.monotonic_ns() + LEAD_NS
                faults.start(began_ns)
                for frame in planned:
                    due_ns = began_ns + frame.at_ns
                    time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                    image = frame.number % len(self._known.images)
                    future = streams[frame.arm].submit(self._known.images[image], scheduled_ns=due_ns)
                    ledgers[frame.arm].asked(future.sequence, image, due_ns)
                    futures.append((frame.arm, future))
                # Looking at so many futures keeps the interpreter: only when the last of them ought to be over.
                last_ns = began_ns + planned[-1].at_ns + round(stream.deadline_ms * 1e6) + LEAD_NS
                time.sleep(max(0.0, (last_ns - time.monotonic_ns()) / 1e9))
                wait([future for _, future in futures], timeout=LAST_S)
                seen = stage.seen()
                faults.finish()
        finally:
            gc.enable()
            faults.end()
            for switch in self._switches.values():
                switch.lead_to(None)
        hanging = [(ledgers[arm], future) for arm, future in futures if not future.done()]
        for ledger, future in hanging:
            ledger.unresolved(future.sequence)
        return Played(
            began_ns=began_ns,
            entries={arm: ledgers[arm].close(self._known.references) for arm in ARMS},
            hung=len(hanging),
            struck=faults.struck,
            seen=seen,
            traces={name: began_ns - at_ns for name, at_ns in begun.items()},
            warmed=warmed,
            sums=tuple(self._sums()),
        )

    def _stream(self, arm: Arm, period_ms: float) -> Stream:
        deadline_ms = self._scenario.stream.deadline_ms
        return self._clients[arm].stream(period_ms=period_ms, deadline_ms=deadline_ms, latest_wins=False, model=MODEL)

    def _noting(self, deliver: Callable[[int, Outcome, int], None]) -> Callable[[int, Outcome, int], None]:
        def note(sequence: int, outcome: Outcome, now: int) -> None:
            if isinstance(outcome, Answer) and outcome.node:
                self.node = outcome.node
            deliver(sequence, outcome, now)

        return note

    def _warm(self, arm: Arm) -> bool:
        period_ns = round(1e9 / self._scenario.stream.rate_hz)
        due_ns = began_ns = time.monotonic_ns()
        end_ns, least_ns = began_ns + round(WARM_S * 1e9), began_ns + round(WARM_LEAST_S * 1e9)
        in_a_row = number = 0
        with self._stream(arm, period_ns / 1e6) as stream:
            while due_ns < least_ns or (in_a_row < WARM_ANSWERS and due_ns < end_ns):
                time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                image = self._known.images[number % len(self._known.images)]
                outcome = stream.submit(image, scheduled_ns=due_ns).result()
                right = isinstance(outcome, Answer) and outcome.source == SOURCE_OF[arm]
                in_a_row = in_a_row + 1 if right else 0
                due_ns, number = stream.next_due_ns(due_ns), number + 1
        return in_a_row >= WARM_ANSWERS

    def _sums(self) -> list[str]:
        """Where a client's own sums do not add up, in words."""
        found: list[str] = []
        for arm, client in self._clients.items():
            counts = client.stats()
            outcomes = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded
            if (counts.asked, counts.open, counts.withdrawn) != (outcomes, 0, 0):
                found.append(f"the client of the {arm} arm counts otherwise: {counts}")
        return found


class _Faults:
    """The faults' thread."""

    def __init__(self, stage: Stage, scenario: Scenario) -> None:
        self._stage = stage
        last_ns = round(scenario.stream.seconds * SECOND_NS)
        self._steps = [step for step in steps(scenario) if step.at_ns <= last_ns]
        self._restarts = [fault.kind == "restart" for fault in scenario.faults]
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._began_ns = 0
        self._thread = threading.Thread(target=self._run, name="hil-faults", daemon=True)
        self._found: dict[tuple[int, int], Struck] = {}

    @property
    def struck(self) -> tuple[Struck, ...]:
        """What happened, in order of the beginnings."""
        return tuple(sorted(self._found.values(), key=lambda one: one.begin_ms))

    def start(self, began_ns: int) -> None:
        """Times count from `began_ns`."""
        self._began_ns = began_ns
        self._thread.start()

    def finish(self) -> None:
        """Wait until all that is to happen in the scenario's time has happened. Raises whatever ended the thread."""
        self._thread.join()
        self.end()

    def end(self) -> None:
        """Let no more begin. What has begun is left, as the stage is. Raises whatever ended the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for step in self._steps:
                due_ns = self._began_ns + step.at_ns
                if self._ended.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9)):
                    return
                self._take(step.fault, step.turn, step.begins)
        except BaseException as error:
            self._error = error

    def _take(self, fault: int, turn: int, begins: bool) -> None:
        at_ms = (time.monotonic_ns() - self._began_ns) / 1e6
        if begins:
            victims = self._stage.strikes.begin(fault, turn)
            over = self._restarts[fault]
            ended_ms = (time.monotonic_ns() - self._began_ns) / 1e6 if over else None
            self._found[fault, turn] = Struck(fault, at_ms, ended_ms, victims)
            return
        self._stage.strikes.end(fault, turn)
        # What ends when the process goes on is over from here on; what ends with its start takes until it serves.
        ended_ms = (time.monotonic_ns() - self._began_ns) / 1e6
        self._found[fault, turn] = msgspec.structs.replace(self._found[fault, turn], end_ms=ended_ms)
