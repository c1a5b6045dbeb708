"""The applications: they ask, announce streams, give requests up, and take the outcomes."""

from __future__ import annotations

import msgspec

from edge.direct import Direct
from edge.stub import Stub
from hil.sim.agenda import Agenda
from hil.sim.births import Births
from hil.sim.hosts import Process
from hil.sim.loop import Loops
from hil.sim.net import Net
from hil.sim.script import Ask, Source
from hil.sim.site import Site
from hil.sim.stamp import request_inputs
from hil.sim.trace import Trace
from hil.sim.watch import Watch
from shared.errors import InvariantBroken
from shared.events import Action, Arrived, Event, Resolve, Send, StreamClosed, StreamOpened, Withdrawn
from shared.request import Answer, Request

LAST_WORDS_NS = 50_000_000
"""How long the last messages of a process that ends may take to go out."""


class Applications:
    """What is done with the clients, and what comes of it."""

    def __init__(
        self, site: Site, agenda: Agenda, net: Net, loops: Loops, births: Births, trace: Trace, watch: Watch
    ) -> None:
        self._site = site
        self._agenda = agenda
        self._net = net
        self._loops = loops
        self._births = births
        self._trace = trace
        self._watch = watch
        self.asked = 0

    def ask(self, ask: Ask, at: int) -> None:
        """An application asks, if it is there."""
        process = self._site.alive(ask.client)
        if process is None:
            self._site.count("nobody-asked")
        elif process.frozen:
            process.asks.append(ask)
        else:
            self._ask(process, ask, at)

    def ask_late(self, process: Process, at: int) -> None:
        """What an application would have asked while it stood still, it asks now."""
        asks, process.asks = list(process.asks), type(process.asks)()
        for ask in asks:
            self._ask(process, ask, at)

    def _ask(self, process: Process, ask: Ask, at: int) -> None:
        machine = process.machine
        if not isinstance(machine, Stub | Direct):
            raise InvariantBroken(f"{process.name} is no client, and was asked")
        process.sequence += 1
        scheduled = process.clock.local(at) - ask.early_ns
        specs = self._site.newest(ask.model).inputs
        inputs = request_inputs(specs, ask.rows, ask.value)
        info = machine.models.get(ask.model)
        if machine.models and (info is None or ask.rows > info.max_batch):
            self._site.count("refused-at-the-door")
            return
        request = Request(
            process.client,
            process.sequence,
            "" if info is None else info.contract,
            inputs,
            ask.rows,
            scheduled,
            scheduled + ask.deadline_ns,
            ask.priority,
            ask.stream,
            ask.latest_wins,
        )
        self.asked += 1
        if ask.early_ns >= ask.deadline_ns:
            self._site.count("asked-late")
        process.tickets[request.sequence] = None
        self._watch.asked(process, request, at)
        if info is None:
            self._site.count("deferred")
            machine.defer(request.sequence, ask.model, {s.name: x for s, x in zip(specs, inputs, strict=True)})
            request = msgspec.structs.replace(request, inputs=(), rows=1)
        if ask.withdraw_ns:
            self._agenda.put(at + ask.withdraw_ns, Withdrawal(self, process, request.sequence))
        self._loops.deliver(process, Arrived(request), at)

    def withdraw(self, process: Process, sequence: int, at: int) -> None:
        """An application gives up a request, if it has no outcome yet."""
        if process.alive and sequence in process.tickets:
            self._site.count("withdrawn")
            del process.tickets[sequence]
            process.withdrawn[sequence] = None
            event = Withdrawn(process.client, sequence)
            if process.frozen or process.busy:
                process.arrivals.append(event)
            else:
                self._loops.turn(process, event, at)

    def open_stream(self, source: Source, at: int) -> None:
        """An application announces a stream."""
        process = self._site.alive(source.client)
        machine = process.machine if process is not None else None
        if process is None or process.frozen or not isinstance(machine, Stub | Direct):
            return
        opened = StreamOpened(
            "",
            source.stream,
            source.model,
            source.rows,
            source.period_ns,
            source.deadline_ns,
            source.priority,
            source.latest_wins,
        )
        self._site.count("stream-opened")
        self._hand_over(process, opened, at)

    def close_stream(self, source: Source, at: int) -> None:
        """An application closes a stream."""
        process = self._site.alive(source.client)
        if process is not None:
            self._hand_over(process, StreamClosed(process.client, source.stream), at)

    def _hand_over(self, process: Process, event: Event, at: int) -> None:
        if process.frozen or process.busy:
            process.arrivals.append(event)
        else:
            self._loops.turn(process, event, at)

    def leave(self, process: Process, at: int) -> None:
        """A client closes and is gone."""
        machine = process.machine
        if process.kind != "client" or process.frozen or not isinstance(machine, Stub | Direct):
            return
        actions: list[Action] = machine.close(process.clock.local(at))
        for action in actions:
            if isinstance(action, Resolve):
                self.ended(process, action, at)
            elif isinstance(action, Send):
                self._net.send(process, action, at)
        self._births.kill(process, at)

    def left(self, process: Process, at: int) -> None:
        """A node has answered all that it had: it stops, and ends when its last words have gone out."""
        self._site.count("left")
        self._loops.freeze(process, at)
        self._agenda.put(at + LAST_WORDS_NS, LastWords(self._births, process))

    def ended(self, process: Process, resolve: Resolve, at: int) -> None:
        """An outcome has reached its application."""
        sequence, outcome = resolve.sequence, resolve.outcome
        self._trace.add((at, process.number, sequence, outcome.elapsed_ns))
        if sequence in process.withdrawn:
            return
        process.tickets.pop(sequence, None)
        kind = type(outcome).__name__
        if isinstance(outcome, Answer):
            kind = f"Answer-{outcome.source}" if outcome.on_time else f"late-{outcome.source}"
        self._site.count(kind)
        self._watch.ended(process, sequence, outcome, at)


class LastWords:
    """A process ends."""

    __slots__ = ("births", "process")

    def __init__(self, births: Births, process: Process) -> None:
        self.births = births
        self.process = process

    def happen(self, at: int) -> None:
        """It is gone, unless it was killed meanwhile."""
        if self.process.alive:
            self.births.kill(self.process, at)


class Withdrawal:
    """An application loses its patience."""

    __slots__ = ("applications", "process", "sequence")

    def __init__(self, applications: Applications, process: Process, sequence: int) -> None:
        self.applications = applications
        self.process = process
        self.sequence = sequence

    def happen(self, at: int) -> None:
        """It gives the request up."""
        self.applications.withdraw(self.process, self.sequence, at)
