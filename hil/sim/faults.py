"""What each kind of fault does to the world, and how it is mended."""

from __future__ import annotations

from hil.sim.hosts import Process
from hil.sim.net_path import Path
from hil.sim.script import EXECUTOR_FAULTS, PATH_FAULTS, Fault
from hil.sim.world import World
from shared.directory import Directory
from shared.errors import InvariantBroken
from shared.events import DirectorySeen, Draining

PPM = 1_000
LOOK_NS = 20_000_000
"""How often it is looked whether a node has left."""


class Mend:
    """The end of a fault."""

    __slots__ = ("fault", "incarnation", "world")

    def __init__(self, world: World, fault: Fault, incarnation: int) -> None:
        self.world = world
        self.fault = fault
        self.incarnation = incarnation

    def happen(self, at: int) -> None:
        """It is mended."""
        mend(self.world, self.fault, self.incarnation, at)


def begin(world: World, fault: Fault, at: int) -> None:
    """The fault begins; its end is put on the agenda. A fault of something that is not there does not take place."""
    kind = fault.kind
    incarnation = 0
    if kind in PATH_FAULTS or kind == "move":
        path = world.site.paths.get(fault.target)
        if path is None:
            return
        _trouble_path(world, path, fault, at)
    elif kind in EXECUTOR_FAULTS:
        trouble = world.site.troubles.get(fault.target)
        if trouble is None:
            return
        match kind:
            case "fail":
                trouble.fail = fault.amount
            case "bad-rows":
                trouble.bad_rows = fault.amount
            case "overrun":
                trouble.overrun = fault.amount
            case "hang":
                trouble.hang_until = at + fault.lasts_ns
            case _:
                trouble.throttle = fault.amount
    elif kind in {"suspend", "drift"}:
        host = world.site.hosts.get(fault.target)
        if host is None or (kind == "suspend" and host.clock.suspended):
            return
        if kind == "drift":
            host.clock.drift(int(fault.amount * PPM), at)
            for there in host.processes:
                if not there.frozen:
                    world.loops.set_again(there, at)
        else:
            for there in host.processes:
                world.loops.freeze(there, at)
            host.clock.suspend(at)
    else:
        process = world.site.alive(fault.target)
        if process is None:
            return
        incarnation = process.incarnation
        match kind:
            case "kill":
                world.births.kill(process, at)
                if fault.version >= 0:
                    world.site.versions[process.host.name] = fault.version
            case "drain":
                world.loops.deliver(process, Draining(), at)
            case "relist":
                _relist(world, process, int(fault.amount * 1000), at)
            case "leave":
                world.applications.leave(process, at)
            case "stop":
                world.loops.freeze(process, at)
            case "late":
                process.late = int(fault.amount)
            case _:
                raise InvariantBroken(f"a fault of the unknown kind {kind}")
    world.site.count(f"fault-{kind}")
    world.agenda.put(at + fault.lasts_ns, Mend(world, fault, incarnation))


def mend(world: World, fault: Fault, incarnation: int, at: int) -> None:
    """The fault of a process's `incarnation` (0 where it is of none) is over."""
    kind, target = fault.kind, fault.target
    if kind in PATH_FAULTS or kind == "move":
        _mend_path(world, world.site.paths[target], fault, at)
    elif kind in EXECUTOR_FAULTS:
        trouble = world.site.troubles[target]
        match kind:
            case "fail":
                trouble.fail = 0.0
            case "bad-rows":
                trouble.bad_rows = 0.0
            case "overrun":
                trouble.overrun = 1.0
            case "throttle":
                trouble.throttle = 1.0
            case _:
                trouble.hang_until = 0
                process = world.site.alive(target)
                if fault.amount and process is not None:
                    world.site.count("killed-for-hanging")
                    world.births.kill(process, at)
                    world.births.start(target, at)
    elif kind == "suspend":
        host = world.site.hosts[target]
        jumped = host.clock.resume(at)
        for there in list(host.processes):
            there.jumped += jumped
            world.loops.set_again(there, at)
            world.loops.thaw(there, at)
    elif kind in {"kill", "leave", "drain"}:
        process = world.site.alive(target)
        if kind == "drain" and process is not None and process.incarnation == incarnation:
            # It has not left yet.
            world.agenda.put(at + LOOK_NS, Mend(world, fault, incarnation))
        else:
            world.births.start(target, at)
    elif kind != "drift":
        process = world.site.alive(target)
        if process is not None and kind == "relist":
            _relist(world, process, -1, at)
        elif process is not None and process.incarnation == incarnation:
            if kind == "stop":
                world.loops.thaw(process, at)
            else:
                process.late = 1


def _relist(world: World, process: Process, left_out: int, at: int) -> None:
    """An edge finds a directory of all of its nodes but one of this number, if that is not negative."""
    device = world.site.agents.get(process.name) or world.site.clients.get(process.name)
    if device is None or process.kind == "node":
        return
    nodes = device.settings.nodes
    kept = tuple(node for index, node in enumerate(nodes) if left_out < 0 or index != left_out % len(nodes))
    world.site.epochs[process.name] = epoch = world.site.epochs.get(process.name, 0) + 1
    world.loops.deliver(process, DirectorySeen(Directory(epoch=epoch, nodes=kept)), at)


def _trouble_path(world: World, path: Path, fault: Fault, at: int) -> None:
    match fault.kind:
        case "cut":
            path.cut += 1
            world.net.sever_path(path, at)
        case "cut-data":
            world.net.sever_path(path, at, "/data")
        case "echo":
            path.echo += 1
            world.net.sever_path(path, at)
        case "move":
            world.net.move(path, at)
        case "stall":
            world.net.stall(path, at)
        case "loss":
            path.loss = fault.amount
        case "duplicate":
            path.duplicate = fault.amount
        case "disorder":
            path.disorder = fault.amount
        case "corrupt":
            path.corrupt = fault.amount
        case _:
            path.slow = fault.amount
    path.judge()


def _mend_path(world: World, path: Path, fault: Fault, at: int) -> None:
    match fault.kind:
        case "cut":
            path.cut -= 1
        case "cut-data" | "move":
            pass
        case "echo":
            path.echo -= 1
        case "stall":
            world.net.unstall(path, at)
        case "loss":
            path.loss = 0.0
        case "duplicate":
            path.duplicate = 0.0
        case "disorder":
            path.disorder = 0.0
        case "corrupt":
            path.corrupt = 0.0
        case _:
            path.slow = 1.0
    path.judge()
