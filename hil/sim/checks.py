"""All checks together: what watches a simulation (`hil.sim.watch.Watch`) and stops it at the first rule that does not hold.

The rules, by their numbers, are in `docs/testing.md`. Each is a class of its own in `hil.sim.checks_*`; the books that they
share are in `hil.sim.books`. To run a seed with all of them:

    broken = checked_run(seed, SCENARIOS["mixed"], requests=1000)   # None, or the Broken that was found

A machine that raises is as broken as one that a check finds: as the rule that it speaks of, else as number 0, "a machine
broke a rule of its own".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from traceback import walk_tb

import msgspec

from cloud.session import Session
from edge.direct import Direct
from edge.front import Front
from edge.stub import Stub
from hil.sim import books_inside as inside
from hil.sim.author import write
from hil.sim.books import ClientBook, EdgeBook, NodeBook
from hil.sim.books_keep import close_client, open_client
from hil.sim.books_keep_edge import close_edge, open_edge
from hil.sim.books_keep_node import close_node, open_node
from hil.sim.broken import Broken
from hil.sim.checks_answers import Expected, RightAnswer, SaysWhatRan, TimesAddUp
from hil.sim.checks_base import AllEars, Check, Shelf
from hil.sim.checks_batches import FittingBatch, NobodyLeftBehind
from hil.sim.checks_limits import NothingLeft, WithinLimits
from hil.sim.checks_nodes import Credit, Offsets, OnceEach
from hil.sim.checks_outcomes import OneOutcome, OnTime, Timers
from hil.sim.checks_promises import NothingOnSuspects, PromisesKept
from hil.sim.checks_runs import InItsWindow, Leases, OneRunEach
from hil.sim.play import Run as Played
from hil.sim.play import play
from hil.sim.scenario import Scenario
from hil.sim.script import START_NS, Script
from hil.sim.shrink import shrink
from hil.sim.stamp import Stamps
from hil.sim.story import Scribe, tell
from hil.sim.watch import Seen
from shared.errors import InvariantBroken
from shared.events import Action, Event, Resolve, Run
from shared.request import Outcome, Request

OWN_STEPS = 16
"""After so many steps a machine is asked to look at itself."""

BELONGS = {"memory.py": 7, "credit.py": 11, "register.py": 2, "running.py": 5}
"""Checks by the file of the machine that found the rule broken itself."""


Books = tuple[ClientBook | None, EdgeBook | None, NodeBook | None]
"""The books of one process."""


class Checks:
    """A `Watch`. `expected` computes what an answer must be; without it its tensors are only followed from step to step.
    `scribe` is told of each step. Without `to_rest` nothing is looked at when the run is over: it was cut off."""

    def __init__(self, expected: Expected | None = None, *, scribe: Scribe | None = None, to_rest: bool = True) -> None:
        self._shelf = Shelf()
        self._scribe = scribe
        self._to_rest = to_rest
        self._resting = False
        self._at = START_NS
        self._books: dict[Seen, Books] = {}
        self._outcome = OneOutcome()
        self._window = InItsWindow()
        self._offsets = Offsets()
        self.checks: tuple[Check, ...] = (
            self._outcome,
            Timers(),
            OnTime(),
            PromisesKept(),
            OneRunEach(),
            self._window,
            Leases(),
            WithinLimits(),
            RightAnswer(expected),
            FittingBatch(),
            Credit(),
            OnceEach(),
            SaysWhatRan(),
            NobodyLeftBehind(),
            self._offsets,
            NothingOnSuspects(),
            TimesAddUp(),
            NothingLeft(),
        )
        self.ears = AllEars()
        open_client(self.ears.client)
        open_edge(self.ears.edge)
        open_node(self.ears.node)
        for check in self.checks:
            check.listen(self.ears)
        close_client(self.ears.client)
        close_edge(self.ears.edge)
        close_node(self.ears.node)

    @property
    def broken_at(self) -> int | None:
        """True time of the last step, where the run was not at rest by then."""
        return None if self._resting else self._at

    def born(self, host: Seen, at: int) -> None:
        """A process has started: a book is opened for it, two where it is a client that carries its broker."""
        machine = host.machine
        client: ClientBook | None = None
        edge: EdgeBook | None = None
        node: NodeBook | None = None
        if isinstance(machine, Session):
            node = NodeBook(host, machine)
            self._shelf.add(node)
        elif isinstance(machine, Front):
            edge = self._carries(host, machine)
        elif isinstance(machine, Stub | Direct):
            client = ClientBook(host, inside.owed(machine))
            self._shelf.add(client)
            if isinstance(machine, Direct):
                client.edge = edge = self._carries(host, machine)
        else:
            raise InvariantBroken(f"the checks do not know machines like {type(machine).__name__}")
        self._books[host] = (client, edge, node)

    def _carries(self, host: Seen, machine: Front | Direct) -> EdgeBook:
        ears = self.ears.edge

        scribe = self._scribe

        def told(event: Event, actions: Sequence[Action], now: int) -> None:
            if scribe is not None:
                scribe.note(book, event, actions, now)
            ears.hear(book, event, actions, now)

        broker = inside.spy_on(machine, told)
        book = EdgeBook(host, broker, machine if isinstance(machine, Front) else None)
        self._shelf.add(book)
        return book

    def died(self, host: Seen, at: int) -> None:
        """A process was killed: nothing is owed any more."""
        self._books.pop(host, None)
        self._shelf.remove(host)

    def asked(self, client: Seen, request: Request, at: int) -> None:
        """The application has asked."""
        book = self._books[client][0]
        if book is not None:
            book.waiting[request.sequence] = request

    def stepped(self, host: Seen, event: Event, actions: Sequence[Action], at: int) -> None:
        """A machine has taken one event."""
        self._at = at
        books = self._books.get(host)
        if books is None:
            raise Broken(0, f"{host.name} takes a step after it was killed, at {at} ns")
        client, edge, node = books
        if self._scribe is not None:
            self._write(self._scribe, books, event, actions, at)
        if node is not None:
            self.ears.node.hear(node, event, actions, host.local(at))
            self._offsets.heard(self._shelf, node, event, at)
            if not node.step % OWN_STEPS:
                node.session.validate()
            return
        if client is not None:
            self.ears.client.hear(client, event, actions, host.local(at))
        if edge is not None:
            self._offsets.heard(self._shelf, edge, event, at)
            if not edge.step % OWN_STEPS:
                edge.broker.validate()

    def _write(
        self,
        scribe: Scribe,
        books: Books,
        event: Event,
        actions: Sequence[Action],
        at: int,
    ) -> None:
        scribe.at = at
        book = books[2] or books[0]
        if book is None:
            return
        if books[1] is not None:  # What its broker did is told by the broker.
            actions = [action for action in actions if isinstance(action, Resolve)]
            if not actions:
                return
        scribe.note(book, event, actions, book.host.local(at))

    def began(self, host: Seen, run: Run, at: int) -> None:
        """An executor has begun with a run. That of a process that was killed may do so for nobody."""
        books = self._books.get(host)
        book = None if books is None else books[2] or books[1]
        if book is not None:
            self._window.began(book, run, host.local(at))

    def ended(self, client: Seen, sequence: int, outcome: Outcome, at: int) -> None:
        """The application has got an outcome."""
        book = self._books[client][0]
        if book is not None:
            self._outcome.ended(book, sequence, outcome)

    def sweep(self, at: int) -> None:
        """Look at everything."""
        if self._scribe is not None:
            self._scribe.at = at
        for check in self.checks:
            check.sweep(self._shelf, at)

    def rest(self, at: int) -> None:
        """Look at what is left."""
        if not self._to_rest:
            return
        self._resting = True
        self.sweep(at)
        for check in self.checks:
            check.rest(self._shelf, at)
        for edge in self._shelf.edges:
            edge.broker.validate()
        for node in self._shelf.nodes:
            node.session.validate()


class Found(msgspec.Struct, frozen=True):
    """What playing a script came to: `played`, or what is `broken` at true time `at` (None: at rest)."""

    played: Played | None
    broken: Broken | None = None
    at: int | None = None


def checked_play(script: Script, seed: int, *, scribe: Scribe | None = None, to_rest: bool = True) -> Found:
    """Play a script with all checks on. Raises only what the simulator or the checks themselves raise by mistake."""
    stamps = Stamps({c: p for model in script.models for c, p in zip(model.contracts, model.plans, strict=True)})
    checks = Checks(stamps.expected, scribe=scribe, to_rest=to_rest)
    try:
        return Found(play(script, seed, checks))
    except Broken as broken:
        return Found(None, broken, checks.broken_at)
    except Exception as error:  # a machine that raises anything at all is broken
        if not isinstance(error, InvariantBroken) and _of_the_rig(error):
            raise
        return Found(None, machine_broke(error), checks.broken_at)


def checked_run(seed: int, scenario: Scenario, requests: int = 1000) -> Broken | None:
    """Run one seed of a scenario with all checks on; what is broken, or None."""
    return checked_play(write(seed, scenario, requests), seed).broken


def told_failure(script: Script, seed: int, found: Found, over: Callable[[], bool]) -> str:
    """The story of what was found broken in this script, by the smallest one that breaks the same rule and was found before
    time was `over`."""
    if found.broken is None:
        raise InvariantBroken(f"seed {seed} has not failed, and is to be told")
    number = found.broken.check

    def breaks(smaller: Script) -> bool:
        broken = checked_play(smaller, seed, to_rest=found.at is None).broken
        return broken is not None and broken.check == number

    small = shrink(script, found.at, breaks, over)
    scribe = Scribe()
    again = checked_play(small, seed, scribe=scribe, to_rest=small.rest_ns == script.rest_ns).broken
    return tell(small, seed, scribe, again or found.broken)


def _of_the_rig(error: Exception) -> bool:
    """Whether it was raised in the simulator or the checks themselves."""
    places = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    return bool(places) and PurePath(places[-1]).is_relative_to(PurePath(__file__).parent)


def machine_broke(error: Exception) -> Broken:
    """What a machine's own exception is reported as; the exception is its cause."""
    files = [PurePath(frame.f_code.co_filename).name for frame, _ in walk_tb(error.__traceback__)]
    number = BELONGS.get(files[-1], 0) if isinstance(error, InvariantBroken) and files else 0
    notes = "; ".join(getattr(error, "__notes__", ()))
    broken = Broken(number, f"a machine broke its own invariant: {type(error).__name__}: {error} ({notes})")
    broken.__cause__ = error
    return broken
