"""The world: processes with the real machines in them, the network between them, and what happens to them in time.

It lets things happen and checks nothing: a `Watch` looks on.
"""

from __future__ import annotations

from hil.sim.agenda import Agenda
from hil.sim.applications import Applications
from hil.sim.births import Births
from hil.sim.hosts import Process
from hil.sim.loop import Loops
from hil.sim.net import Net
from hil.sim.script import START_NS, Script
from hil.sim.site import Site
from hil.sim.stamp import Stamps
from hil.sim.trace import Trace
from hil.sim.watch import Watch
from shared.events import Event


class World:
    """All that there is in one run, put together."""

    def __init__(self, script: Script, seed: int, watch: Watch, journal: int = 0) -> None:
        """`journal` is how many steps of each broker and session are kept, none where it is 0."""
        self.agenda = Agenda(START_NS)
        self.trace = Trace()
        self.site = site = Site(script, seed)
        self.loops = Loops(self.agenda, watch, self.trace, site.counters)
        self.net = Net(self.agenda, self, self.trace, site.counters)
        stamps = Stamps({c: p for m in script.models for c, p in zip(m.contracts, m.plans, strict=True)})
        self.births = Births(site, self.agenda, self.net, self.loops, stamps, watch, journal)
        self.applications = Applications(site, self.agenda, self.net, self.loops, self.births, self.trace, watch)
        self.loops.join(self.net, self.applications)

    def turn(self, process: Process, event: Event, at: int) -> None:
        """Let a process take an event now."""
        self.loops.turn(process, event, at)

    def router(self, name: str) -> Process | None:
        """The living process of this name."""
        return self.site.alive(name)
