"""One seed is one run: the script is written from it, played, and what came of it is counted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hil.sim.author import write
from hil.sim.faults import begin
from hil.sim.scenario import Scenario
from hil.sim.script import START_NS, Ask, Item, Script, Source
from hil.sim.watch import Watch
from hil.sim.world import World
from shared.journal.recorder import Recorder


class Run(msgspec.Struct, frozen=True):
    """What came of a run. `digest` stands for all that happened in it; `counters` says how often what happened."""

    seed: int
    scenario: str
    requests: int
    steps: int
    virtual_s: float
    digest: str
    counters: dict[str, int]


def record(script: Script, seed: int, events: int) -> dict[str, Recorder]:
    """Play a script and keep the last `events` steps of each broker and session, by name and incarnation (`edge0/1`)."""
    world = World(script, seed, Blind(), events)
    _unfold(world, script)
    return world.births.recorders


class Birth:
    """A process starts for the first time."""

    __slots__ = ("name", "world")

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def happen(self, at: int) -> None:
        """It starts."""
        self.world.births.start(self.name, at)


class Closing:
    """An application closes a stream."""

    __slots__ = ("source", "world")

    def __init__(self, world: World, source: Source) -> None:
        self.world = world
        self.source = source

    def happen(self, at: int) -> None:
        """It closes it."""
        self.world.applications.close_stream(self.source, at)


class Reader:
    """Lets a script's items happen, one after the other."""

    def __init__(self, world: World, items: Sequence[Item]) -> None:
        self._world = world
        self._items = sorted(items, key=lambda item: item.at)
        self._next = 0
        if self._items:
            world.agenda.put(self._items[0].at, self)

    def happen(self, at: int) -> None:
        """The next item."""
        world = self._world
        item = self._items[self._next]
        self._next += 1
        if self._next < len(self._items):
            world.agenda.put(self._items[self._next].at, self)
        if isinstance(item, Ask):
            world.applications.ask(item, at)
        elif isinstance(item, Source):
            world.applications.open_stream(item, at)
            world.agenda.put(item.until, Closing(world, item))
        else:
            begin(world, item, at)


def run(seed: int, scenario: Scenario, watch: Watch, requests: int = 1000, trace: tuple[int, ...] = ()) -> Run:
    """Write the script of this seed and play it. `trace` holds one-way times of the network (`hil.sim.author.write`)."""
    return play(write(seed, scenario, requests, trace), seed, watch)


def play(script: Script, seed: int, watch: Watch) -> Run:
    """Play a script. Raises what a machine or the watch raises, with a note that names seed and time."""
    world = World(script, seed, watch)
    try:
        _unfold(world, script)
        watch.rest(world.agenda.at)
    except Exception as error:
        error.add_note(f"seed {seed}, scenario {script.scenario}, at {world.agenda.at} ns")
        raise
    return Run(
        seed=seed,
        scenario=script.scenario,
        requests=world.applications.asked,
        steps=world.loops.steps,
        virtual_s=(world.agenda.at - START_NS) / 1e9,
        digest=world.trace.digest(),
        counters=dict(sorted(world.site.counters.items())),
    )


def _unfold(world: World, script: Script) -> None:
    stagger = world.site.random("births")
    for name in world.site.names:
        world.agenda.put(START_NS + stagger.randrange(1, 5_000_000), Birth(world, name))
    Reader(world, script.items)
    world.agenda.play(script.end)
    world.agenda.play(script.end + script.rest_ns)


class Blind:
    """A watch that looks at nothing."""

    def born(self, host: object, at: int) -> None:
        """Not looked at."""

    def died(self, host: object, at: int) -> None:
        """Not looked at."""

    def asked(self, client: object, request: object, at: int) -> None:
        """Not looked at."""

    def stepped(self, host: object, event: object, actions: object, at: int) -> None:
        """Not looked at."""

    def began(self, host: object, run: object, at: int) -> None:
        """Not looked at."""

    def ended(self, client: object, sequence: int, outcome: object, at: int) -> None:
        """Not looked at."""

    def sweep(self, at: int) -> None:
        """Not looked at."""

    def rest(self, at: int) -> None:
        """Not looked at."""
