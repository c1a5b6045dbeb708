"""Who and what there is in a run: hosts, paths, the processes that live, and a generator of its own for everything random.

A generator is seeded by the run's seed and the name of what it is for, so that leaving one item out of a script disturbs
the rest little.
"""

from __future__ import annotations

import random

from hil.sim import times
from hil.sim.clock import HostClock
from hil.sim.device import Trouble
from hil.sim.hosts import Host, Process
from hil.sim.net_path import Path
from hil.sim.script import START_NS, Device, Place, Quartz, Script
from shared.plan import Plan

IPC_NS = 30_000
"""Median time of a message between a client and its agent."""


class Site:
    """The script's people and places, by name."""

    def __init__(self, script: Script, seed: int) -> None:
        self._seed = seed
        self._models = {model.name: model for model in script.models}
        self.places: dict[str, Place] = {place.name: place for place in script.nodes}
        self.agents = {device.name: device for device in script.devices if not device.embedded}
        self.spares = {device.spare: device for device in script.devices if device.standby}
        self.clients: dict[str, Device] = {name: device for device in script.devices for name in device.clients}
        self.hosts = {d.name: _host(d.name, d.clock) for d in script.devices}
        self.hosts |= {n.name: _host(n.name, n.clock) for n in script.nodes}
        self.paths: dict[str, Path] = {}
        for road in script.roads:
            self.paths[road.name] = self._path(road.name, road.times, road.one_way_ns, road.per_byte_ns)
        for device in script.devices:
            self.paths[device.name] = self._path(device.name, "wired", IPC_NS, 0.0, local=True)
        self.versions = {d.name: d.version for d in script.devices} | {n.name: n.version for n in script.nodes}
        """Which version of its models each host serves from the next start on."""
        self.processes: dict[str, Process] = {}
        """The last incarnation of each process, dead or alive."""
        self.troubles = {name: Trouble() for name in self.names}
        self.epochs: dict[str, int] = {}
        """Of the last directory that each edge found."""
        self.counters: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every process there is to be, in the order in which they start."""
        return (*self.places, *self.agents, *self.spares, *self.clients)

    def random(self, *names: object) -> random.Random:
        """A generator of its own for whatever these names name."""
        return random.Random(self.seed(*names))

    def seed(self, *names: object) -> str:
        """What that generator is seeded with."""
        return "/".join(map(str, (self._seed, *names)))

    def alive(self, name: str) -> Process | None:
        """The living process of this name."""
        process = self.processes.get(name)
        return process if process is not None and process.alive else None

    def count(self, what: str, amount: int = 1) -> None:
        """Count something that happened."""
        self.counters[what] = self.counters.get(what, 0) + amount

    def plans(self, models: tuple[str, ...], version: int) -> dict[str, Plan]:
        """The plans of these models in this version, by contract digest."""
        return dict(self._models[name].version(version) for name in models)

    def newest(self, model: str) -> Plan:
        """Any plan of this model: all of its versions take the same tensors."""
        return self._models[model].plans[-1]

    def _path(
        self, name: str, kind: str | tuple[int, ...], one_way_ns: int, per_byte_ns: float, *, local: bool = False
    ) -> Path:
        rng = self.random("path", name)
        return Path(name, times.one_way(rng, kind, one_way_ns), per_byte_ns, rng, local=local)


def _host(name: str, quartz: Quartz) -> Host:
    return Host(name, HostClock(quartz.local_ns, START_NS, quartz.rate_ppb))
