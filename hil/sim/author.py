"""Writes the script of a seed: who is there, what is asked, what goes wrong. Everything is drawn up front.

The parts have generators of their own, so that a change of one does not turn the others over.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

from msgspec.structs import replace

from hil.sim.plans import Model, make_model
from hil.sim.scenario import Scenario
from hil.sim.script import (
    EXECUTOR_FAULTS,
    PATH_FAULTS,
    START_NS,
    Ask,
    Device,
    Fault,
    FaultKind,
    Item,
    Place,
    Quartz,
    Road,
    Script,
    Source,
)
from hil.sim.times import make_trace
from shared.settings import (
    AgentGroup,
    Batching,
    CloudLimits,
    CloudSettings,
    Duplicates,
    EdgeLimits,
    EdgeSettings,
    Execution,
    Insurance,
    Link,
    NodeAddress,
    NodeBatching,
    NodeExecution,
    NodeGroup,
    NodeScheduling,
    PathAddress,
    Scheduling,
)
from shared.slots import rows_bound

MS = 1_000_000
SHORTEST_NS = 150 * MS
DENSEST_NS = 400_000
"""Traffic goes on at least so long, and so much longer for each request, so that there is time for things to go wrong."""

FULL_PPB = 100_000
VERSIONS = 2

DEADLINES_MS = (5, 10, 10, 20, 33, 50, 100)
LONG_DEADLINES_MS = (20, 33, 50, 100)


def write(seed: int, scenario: Scenario, requests: int, trace: tuple[int, ...] = ()) -> Script:
    """The script of one run: `requests` of them, as far as the clients are there to ask. `trace` holds one-way times of the
    network in nanoseconds (`hil.sim.times.read_trace`); without it they are drawn."""
    site = random.Random(f"{seed}/{scenario.name}/site")
    models = tuple(
        _model(site, f"m{i}", weak=site.random() < scenario.weak, calm=scenario.calm)
        for i in range(site.choice((1, 1, 2, 3)))
    )
    nodes = tuple(_place(site, scenario, f"node{i}", models) for i in range(site.randint(*scenario.nodes)))
    pieces = random.Random(f"{seed}/{scenario.name}/pieces")
    nodes = tuple(_all_in_one(place) if pieces.random() < 0.2 else place for place in nodes)
    devices = tuple(_device(site, scenario, f"edge{i}", models, nodes) for i in range(site.randint(*scenario.devices)))
    roads = tuple(_road(site, scenario, d.name, n.name, trace) for d in devices for n in d.settings.nodes)
    ways = random.Random(f"{seed}/{scenario.name}/paths")
    devices = tuple(_with_paths(ways, d) if ways.random() < scenario.paths else d for d in devices)
    more = [(d.name, n.name, 1 + way) for d in devices for n in d.settings.nodes for way in range(len(n.paths))]
    roads += tuple(replace(_road(ways, scenario, edge, node, trace), way=way) for edge, node, way in more)
    first = START_NS + (1_000 if scenario.calm else site.choice((10, 150))) * MS
    traffic = _traffic(random.Random(f"{seed}/{scenario.name}/traffic"), scenario, devices, models, first, requests)
    last = max((item.at for item in traffic), default=first)
    sources = [item for item in traffic if isinstance(item, Source)]
    faults = _faults(random.Random(f"{seed}/{scenario.name}/faults"), scenario, devices, nodes, roads, first, last)
    end = max([last, *(s.until for s in sources), *(f.at + f.lasts_ns for f in faults)]) + 1
    items: list[Item] = sorted([*traffic, *faults], key=lambda item: item.at)
    return Script(scenario.name, models, devices, nodes, roads, tuple(items), end, scenario.rest_ms * MS)


# --- who is there -------------------------------------------------------------------------------------------------------


def _model(rng: random.Random, name: str, *, weak: bool, calm: bool) -> Model:
    model = make_model(rng, name, VERSIONS, weak=weak)
    while calm and not model.plans[0].ladder:
        model = make_model(rng, name, VERSIONS, weak=weak)
    return model


def _quartz(rng: random.Random) -> Quartz:
    return Quartz(rng.randrange(1, 1 << 45), rng.randint(-FULL_PPB, FULL_PPB))


def _sigma(rng: random.Random, scenario: Scenario) -> float:
    return 0.03 if scenario.calm else rng.choice((0.03, 0.06, 0.06, 0.2))


def _late_us(rng: random.Random, scenario: Scenario) -> float:
    return 20.0 if scenario.calm else rng.choice((20.0, 50.0, 100.0))


def _served(rng: random.Random, models: Sequence[Model]) -> tuple[str, ...]:
    served = tuple(m.name for m in models if rng.random() < 0.85)
    return served or (models[0].name,)


def _place(rng: random.Random, scenario: Scenario, name: str, models: Sequence[Model]) -> Place:
    settings = CloudSettings(
        node=NodeGroup(name=name, credits=rng.randint(*scenario.credits)),
        execution=NodeExecution(
            executors=1 if scenario.weak == 1.0 else rng.choice((1, 1, 2, 3)), in_place_us=rng.choice((0.0, 200.0))
        ),
        batching=NodeBatching(max_batch_size=rng.choice((1, 4, 8, 64))),
        scheduling=NodeScheduling(max_queued=rng.choice((4, 32, 1024))),
        limits=CloudLimits(max_peers=1024 if scenario.calm else rng.choice((2, 1024, 1024))),
    )
    version = 1 if not scenario.calm and rng.random() < 0.1 else 0
    return Place(
        name, _quartz(rng), settings, _served(rng, models), version, _sigma(rng, scenario), _late_us(rng, scenario)
    )


def _all_in_one(place: Place) -> Place:
    """The same node, which runs nothing in pieces."""
    scheduling = replace(place.settings.scheduling, enable_preemption=False)
    return replace(place, settings=replace(place.settings, scheduling=scheduling))


def _device(
    rng: random.Random, scenario: Scenario, name: str, models: Sequence[Model], nodes: Sequence[Place]
) -> Device:
    embedded = rng.random() < scenario.embedded
    count = 1 if embedded else rng.randint(*scenario.clients)
    served = _served(rng, models)
    # A standby needs a rung of every model.
    standby = not embedded and rng.random() < scenario.standby and all(m.plans[0].ladder for m in models)
    calm = scenario.calm
    settings = EdgeSettings(
        agent=AgentGroup(name=name),
        nodes=tuple(NodeAddress(name=n.name, endpoint=f"tcp://{n.name}:7711") for n in nodes if rng.random() < 0.9),
        execution=Execution(
            executors=rng.choice((1, 1, 1, 2, 3)),
            in_place_us=rng.choice((0.0, 200.0, 1000.0)),
            slowdown=rng.choice((1.0, 1.0, 1.0, 1.5)),
        ),
        batching=Batching(max_batch_size=rng.choice((1, 2, 8))),
        scheduling=Scheduling(max_queued=256 if calm else rng.choice((2, 8, 256))),
        insurance=Insurance(
            mode="in_flight" if calm or rng.random() < 0.7 else "late",
            warm_ms=rng.choice((50.0, 500.0)),
            guard_ms=rng.choice((0.3, 0.5, 1.0)),
            hold_ms=rng.choice((0.0, 0.5)),
            hold_max_ms=rng.choice((0.5, 1.0)),
        ),
        link=Link(
            rate_mbit=rng.choice((20.0, 200.0)),
            rtt_ms=rng.choice((1.0, 2.0, 8.0)),
            probe_interval_ms=rng.choice((50.0, 100.0, 250.0, 250.0, 500.0)),
            probe_losses=rng.choice((2, 3)),
            stall_ms=rng.choice((10.0, 40.0)),
            return_pause_ms=rng.choice(((0.0, 0.0), (20.0, 80.0), (100.0, 300.0))),
            explore_interval_ms=rng.choice((50.0, 250.0)),
            max_outstanding=rng.choice((1, 2, 4, 8)),
        ),
        limits=EdgeLimits(
            max_open=256 if calm else rng.choice((4, 32, 256)),
            max_clients=64 if calm or rng.random() < 0.9 else 2,
            max_streams=64 if calm else rng.choice((1, 64)),
        ),
    )
    return Device(
        name=name,
        clock=_quartz(rng),
        settings=settings,
        models=served,
        version=0,
        clients=tuple(f"{name}.c{i}" for i in range(count)),
        embedded=embedded,
        standby=standby,
        max_open=256 if calm else rng.choice((8, 64, 256)),
        sigma=_sigma(rng, scenario),
        late_us=_late_us(rng, scenario),
    )


def _with_paths(rng: random.Random, device: Device) -> Device:
    """The same device with several paths to some of its nodes."""
    nodes = tuple(
        replace(
            node,
            connections=rng.choice((1, 2, 2)),
            paths=(PathAddress(source="10.0.0.2"),) if rng.random() < 0.4 else (),
        )
        for node in device.settings.nodes
    )
    duplicates = Duplicates(
        below=rng.choice((0.5, 0.99, 1.0)),
        at_once_kb=rng.choice((0, 1, 32)),
        extra_bytes=rng.choice((0.1, 1.0, 3.0)),
    )
    return replace(device, settings=replace(device.settings, nodes=nodes, duplicates=duplicates))


def _road(rng: random.Random, scenario: Scenario, edge: str, node: str, trace: tuple[int, ...]) -> Road:
    one_way_ms = rng.choice((0.2, 0.4, 0.4, 0.8, 0.8, 2.0, 6.0))
    per_byte_ns = 8_000.0 / rng.choice((2.0, 20.0, 200.0))
    if trace:
        return Road(edge, node, trace, int(one_way_ms * MS), per_byte_ns)
    if not scenario.calm and rng.random() < 0.2:
        return Road(edge, node, make_trace(rng, 400, 2 * one_way_ms), int(one_way_ms * MS), per_byte_ns)
    kind = "steady" if scenario.calm else rng.choice(("steady", "wired", "wired", "wifi", "cellular"))
    return Road(edge, node, kind, int(one_way_ms * MS), per_byte_ns)


# --- what is asked ------------------------------------------------------------------------------------------------------


def _cost_ns(device: Device, model: Model) -> float:
    """What an answer of the device costs it: its cheapest rung, or the head of a model that it cannot run."""
    plan = model.plans[0]
    profile = plan.profile("edge")
    program = plan.ladder[-1].program if plan.ladder else 0
    segments = len(plan.programs[program].segments)
    found = profile.time(program, 0, segments) if profile is not None else None
    return (1e6 if found is None else found.p50_us * 1_000) * device.settings.execution.slowdown


def _slowest_ns(device: Device, model: Model) -> float:
    profile = model.plans[0].profile("edge")
    longest = max((r.p99_us for r in profile.ranges), default=0.0) if profile is not None else 0.0
    return longest * 1_000 * device.settings.execution.slowdown


def _traffic(
    rng: random.Random,
    scenario: Scenario,
    devices: Sequence[Device],
    models: Sequence[Model],
    first: int,
    requests: int,
) -> list[Item]:
    known = {model.name: model for model in models}
    plans: list[tuple[Device, str, Model, float]] = []
    for device in devices:
        load = rng.uniform(*scenario.load) * device.settings.execution.executors
        for client in device.clients:
            model = known[rng.choice(device.models)]
            # Requests a second.
            plans.append((device, client, model, load / len(device.clients) / _cost_ns(device, model) * 1e9))
    total = sum(rate for *_, rate in plans)
    shortest = SHORTEST_NS * rng.choice((1, 2, 4)) + requests * DENSEST_NS
    slower = min(1.0, requests / total / (shortest / 1e9)) if total else 1.0
    sources: list[Source] = []
    asks: list[Iterator[Ask]] = []
    until = first + int(requests / (total * slower) * 1e9)
    for device, client, model, rate in plans:
        own = random.Random(rng.getrandbits(64))
        asks.append(_client(own, scenario, device, client, model, rate * slower, first, until, sources))
    picked = list(islice(merge(*asks, key=lambda ask: ask.at), requests))
    last = picked[-1].at if picked else first
    return [*picked, *(s for s in sources if s.at <= last)]


def _client(
    rng: random.Random,
    scenario: Scenario,
    device: Device,
    client: str,
    model: Model,
    rate: float,
    first: int,
    until: int,
    sources: list[Source],
) -> Iterator[Ask]:
    """Endless requests of one client, in the order of their times."""
    if rng.random() < scenario.streams:
        return _stream(rng, scenario, device, client, model, rate, first, until, sources)
    burst = rng.randint(4, 24) if rng.random() < scenario.bursts else 1
    return _singles(rng, scenario, device, client, model, rate, burst, first)


def _deadline_ns(rng: random.Random, scenario: Scenario, device: Device, model: Model) -> int:
    if scenario.calm:
        return int(20 * MS + 6 * _slowest_ns(device, model))
    if rng.random() < 0.005:
        return rng.choice((1, 2_000)) * MS
    if model.weak:
        return rng.choice(LONG_DEADLINES_MS) * MS
    return rng.choice(DEADLINES_MS) * MS


def _priority(rng: random.Random, scenario: Scenario) -> int:
    if not scenario.calm and rng.random() < 0.003:
        return 9
    return rng.choice((0, 1, 1, 2))


def _rows(rng: random.Random, scenario: Scenario, device: Device, model: Model) -> int:
    most = rows_bound(model.plans[0], device.settings.batching.max_batch_size)
    return 1 if scenario.calm or rng.random() < 0.85 else rng.randint(1, most)


def _ask(rng: random.Random, scenario: Scenario, device: Device, client: str, model: Model, at: int) -> Ask:
    deadline = _deadline_ns(rng, scenario, device, model)
    early = 0
    if rng.random() < scenario.late:
        early = rng.randrange(2 * deadline)
    return Ask(
        at=at,
        client=client,
        model=model.name,
        rows=_rows(rng, scenario, device, model),
        value=rng.getrandbits(56),
        deadline_ns=deadline,
        priority=_priority(rng, scenario),
        early_ns=early,
        withdraw_ns=rng.randrange(1, deadline) if rng.random() < scenario.withdrawn else 0,
    )


def _singles(
    rng: random.Random,
    scenario: Scenario,
    device: Device,
    client: str,
    model: Model,
    rate: float,
    burst: int,
    first: int,
) -> Iterator[Ask]:
    at = float(first)
    while True:
        at += rng.expovariate(rate / burst) * 1e9
        for _ in range(burst):
            at += rng.randrange(1, 20_000) if burst > 1 else 0
            yield _ask(rng, scenario, device, client, model, int(at))


def _stream(
    rng: random.Random,
    scenario: Scenario,
    device: Device,
    client: str,
    model: Model,
    rate: float,
    first: int,
    until: int,
    sources: list[Source],
) -> Iterator[Ask]:
    period = int(1e9 / rate)
    deadline = _deadline_ns(rng, scenario, device, model)
    priority = _priority(rng, scenario)
    rows = _rows(rng, scenario, device, model)
    latest = rng.random() < 0.5 and not scenario.calm
    jitter = rng.choice((1, 100_000, 2 * MS))
    start = first + rng.randrange(period)
    sources.append(
        Source(
            at=max(first, start - MS),
            until=max(start, until),
            client=client,
            stream=1,
            model=model.name,
            rows=rows,
            period_ns=period,
            deadline_ns=deadline,
            priority=priority,
            latest_wins=latest,
        )
    )
    return _frames(rng, scenario, client, model, start, period, deadline, priority, rows, latest, jitter)


def _frames(
    rng: random.Random,
    scenario: Scenario,
    client: str,
    model: Model,
    start: int,
    period: int,
    deadline: int,
    priority: int,
    rows: int,
    latest: bool,
    jitter: int,
) -> Iterator[Ask]:
    at = last = start
    while True:
        early = rng.randrange(jitter)
        last = max(last + 1, at + early)
        yield Ask(
            at=last,
            client=client,
            model=model.name,
            rows=rows,
            value=rng.getrandbits(56),
            deadline_ns=deadline,
            priority=priority,
            early_ns=last - at,
            stream=1,
            latest_wins=latest,
            withdraw_ns=rng.randrange(1, deadline) if rng.random() < scenario.withdrawn else 0,
        )
        at += period


# --- what goes wrong ----------------------------------------------------------------------------------------------------


def _faults(
    rng: random.Random,
    scenario: Scenario,
    devices: Sequence[Device],
    nodes: Sequence[Place],
    roads: Sequence[Road],
    first: int,
    last: int,
) -> list[Fault]:
    clients = [c for d in devices for c in d.clients if not d.embedded]
    loops = [n.name for n in nodes] + [d.name if not d.embedded else d.clients[0] for d in devices]
    loops += [d.spare for d in devices if d.standby]
    hosts = [n.name for n in nodes] + [d.name for d in devices]
    ways = [road.name for road in roads]
    targets: dict[FaultKind, list[str]] = {
        **dict.fromkeys((*PATH_FAULTS, "move"), ways),
        "kill": loops + clients,
        "stop": loops + loops + clients,
        "late": loops + clients,
        "drain": [n.name for n in nodes],
        "relist": [d.name if not d.embedded else d.clients[0] for d in devices if d.settings.nodes],
        "leave": [c for d in devices for c in d.clients],
        "suspend": hosts,
        "drift": hosts,
        **dict.fromkeys(EXECUTOR_FAULTS, loops),
    }
    carriers = {d.name: d.clients[0] if d.embedded else d.name for d in devices}
    faults: list[Fault] = []
    for kind in scenario.faults:
        if targets[kind] and rng.random() < scenario.chance:
            for _ in range(rng.randint(1, scenario.often)):
                fault = _fault(rng, kind, rng.choice(targets[kind]), rng.randrange(first - 5 * MS, last + 1))
                faults.append(fault)
                if kind == "echo" and rng.random() < 0.5:
                    # What an earlier start of the edge had asked is answered once more to the next.
                    carrier = carriers[fault.target.partition(">")[0]]
                    faults.append(Fault(fault.at + MS, "kill", carrier, 5 * MS))
    return faults


def _fault(rng: random.Random, kind: FaultKind, target: str, at: int) -> Fault:
    lasts = int(rng.choice((3, 20, 60, 150, 400)) * rng.uniform(0.5, 1.5) * MS)
    amount = 0.0
    version = -1
    match kind:
        case "stall":
            lasts = int(rng.choice((20, 60, 200, 2_500, 2_500)) * rng.uniform(0.5, 1.5) * MS)
        case "relist":
            amount = rng.random()
        case "loss" | "duplicate" | "disorder" | "corrupt" | "fail" | "bad-rows":
            amount = rng.choice((0.02, 0.1, 0.3, 1.0))
        case "echo":
            lasts = 600 * MS
        case "slow":
            amount = rng.choice((3.0, 10.0))
        case "hang":
            lasts = int(rng.choice((20, 200, 1_000, 4_000)) * rng.uniform(0.5, 1.5) * MS)
            amount = rng.choice((0.0, 1.0))
        case "kill":
            version = rng.choice((-1, -1, 0, 1))
        case "late":
            amount = rng.choice((5.0, 25.0, 100.0))
        case "suspend":
            lasts = int(rng.choice((20, 80, 500, 3_000)) * rng.uniform(0.5, 1.5) * MS)
        case "drift":
            amount = rng.uniform(-100.0, 100.0)
        case "overrun":
            amount = rng.choice((3.0, 10.0))
        case "throttle":
            amount = rng.choice((1.3, 2.0, 4.0))
        case _:
            pass
    return Fault(at, kind, target, lasts, amount, version)
