"""One frozen tree of settings from a TOML file, for an edge agent (`EdgeSettings`) and a cloud node (`CloudSettings`).

Keys are checked at the door: an unknown key is refused with its path and the nearest known name, a key whose part is not
built yet is refused as "not yet" (`shared.settings_check`). Units are in the names, ranges in the types: the file's reader
enforces them, a constructor does not, so settings built in code go through `settings_check.check`. `configs/*.toml` comments
every key.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(min_length=1)]
Models = Annotated[tuple[Text, ...], Meta(max_length=32)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Few = Annotated[int, Meta(ge=1, le=256)]
Cores = Annotated[tuple[Annotated[int, Meta(ge=0, le=8191)], ...], Meta(max_length=8192)]
Megabytes = Annotated[int, Meta(ge=1, le=1 << 20)]
Span = Annotated[float, Meta(ge=0.0, le=60_000.0)]
Pace = Annotated[float, Meta(ge=1.0, le=60_000.0)]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class Execution(Group, frozen=True):
    """How segments run. `slowdown` makes this process stand for a device that many times slower: after each run the
    executor waits (slowdown - 1) times the profiled time. 1 is off. `in_place_us`: a run that typically takes no longer
    than this many microseconds is carried out by the loop's own thread, since waking another and being woken by it takes
    longer; 0 is never. A slowed process never does."""

    provider: Text = "CPUExecutionProvider"
    threads: Few = 1
    executors: Few = 1
    slowdown: Annotated[float, Meta(ge=1.0, le=1000.0)] = 1.0
    in_place_us: Annotated[float, Meta(ge=0.0, le=10_000.0)] = 200.0


class NodeExecution(Execution, frozen=True):
    """The same on a node, whose loop has no deadlines of its own to keep: half a millisecond in which it takes nothing in is
    less than two threads lose to each other over one interpreter."""

    in_place_us: Annotated[float, Meta(ge=0.0, le=10_000.0)] = 500.0


class Batching(Group, frozen=True):
    """`max_batch_size` bounds a launch's rows (a plan's own bound counts as well). `batch_strategy`: `adaptive` launches what
    is there the moment a device is free, as far as the earliest deadline allows; an agent has no other."""

    max_batch_size: Annotated[int, Meta(ge=1, le=4096)] = 64
    batch_strategy: Literal["adaptive", "fixed", "size_or_delay", "step"] = "adaptive"


class NodeBatching(Batching, frozen=True):
    """On a node there are the classical strategies as well, to compare (`shared.forming`): `fixed` waits for the largest
    batch; `size_or_delay` for `min_batch_size` rows (0: the largest batch), until the oldest has waited for
    `max_batch_latency_ms`; `step` finds how many rows take no longer than that. None waits beyond a latest start."""

    min_batch_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    max_batch_latency_ms: Annotated[float, Meta(ge=0.0, le=60_000.0)] = 2.0


class Memory(Group, frozen=True):
    """`preallocated_memory_mb` bounds the arena of batch-shaped input slots, allocated at start. `poison`: slots that nobody
    holds are filled with a pattern, and it is checked that nobody writes to one or comes with an old lease. For finding
    bugs."""

    reuse_strategy: Literal["pooled"] = "pooled"
    preallocated_memory_mb: Megabytes = 4096
    poison: bool = False


class Scheduling(Group, frozen=True):
    """`priority_levels` classes (0 is the most important), the soonest latest start first in each. `max_queued` bounds the
    queue."""

    scheduler_type: Literal["latency_aware"] = "latency_aware"
    priority_levels: Annotated[int, Meta(ge=1, le=16)] = 3
    max_queued: Count = 1024


class NodeScheduling(Scheduling, frozen=True):
    """Of a node. `enable_preemption`: where the whole of a launch would leave no room for what comes of more important
    classes, or where others wait at a later cut and sharing the rest is cheaper, a first part of its segments is launched,
    and the rest waits again."""

    enable_preemption: bool = True


class NodePressure(Group, frozen=True):
    """`return_ms`: a node that is pressed asks its edges to step back from it with a share of their requests, the least
    important first, where they can do without it; when it no longer is, a class is wholly back after so long. 0: it never
    asks."""

    return_ms: Span = 10_000.0


class EdgePressure(Group, frozen=True):
    """What requests do about a node that is pressed: those whose answer the device has promised step back from it, as many as
    it asks for. `from_class`: only classes from this one on. `least_agreement`: only where the promised rung agrees at
    least so much."""

    from_class: Annotated[int, Meta(ge=0, le=16)] = 1
    least_agreement: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class Insurance(Group, frozen=True):
    """`mode`: `in_flight` runs the local answer while the cloud works; `late` puts it off as long as it can, which spares
    energy where the cloud mostly answers, and risks an answer now and then. `warm_ms`: a rung that has not run for so long is
    run at once all the same.

    `guard_ms`: the agent resolves this much before the deadline. `hold_ms`: a local answer is held for a better one until
    this much before that, or the measured p99.9 of a wake-up's lateness where that is more, up to `hold_max_ms`. The client,
    which has been pushed the answer, keeps a margin of its own."""

    mode: Literal["in_flight", "late"] = "in_flight"
    warm_ms: Pace = 500.0
    guard_ms: Span = 0.5
    hold_ms: Span = 0.5
    hold_max_ms: Span = 1.0


class Link(Group, frozen=True):
    """What is known or assumed of the way to a node before it is measured, and how it is watched.

    `rate_mbit`, `rtt_ms`: the prior. `probe_interval_ms`; a link is stalled after `stall_ms` without an answer that was
    due, lost after `probe_losses` probes without answer. `return_pause_ms`: lower and upper end of the random pause before a
    node that was started anew is used, and over which one that was out of reach is trusted again. `explore_interval_ms`: how
    often a route that is predicted too late is tried all the same, while insured; up to four times less often while that
    leads to nothing. `least_chance`: a way through the cloud is taken only where its answer is in time at least so likely.
    `budget_mb_per_hour`: what requests of one stream and their answers may weigh in an hour, 0 is without a limit; what would
    be more is answered by the device. `warm_kb_per_s`: padding that keeps a connection warm for ten seconds after a request,
    0 is none; none is sent where there is a budget.
    `max_outstanding`: requests in flight on one connection. `send_buffer_kb`: the socket's.
    """

    rate_mbit: Annotated[float, Meta(ge=0.001, le=1e6)] = 200.0
    rtt_ms: Span = 2.0
    probe_interval_ms: Pace = 100.0
    probe_losses: Few = 3
    stall_ms: Pace = 40.0
    return_pause_ms: tuple[Span, Span] = (100.0, 300.0)
    explore_interval_ms: Pace = 100.0
    least_chance: Annotated[float, Meta(ge=0.001, le=1.0)] = 0.03
    budget_mb_per_hour: Annotated[float, Meta(ge=0.0, le=1e9)] = 0.0
    warm_kb_per_s: Annotated[float, Meta(ge=0.0, le=1e6)] = 64.0
    max_outstanding: Annotated[int, Meta(ge=1, le=4096)] = 4
    send_buffer_kb: Megabytes = 256


class Duplicates(Group, frozen=True):
    """Second copies of what is sent to a node that has several connections or paths, answered once. `below`: a copy goes out
    where the chance that one is answered in time is lower; 0 is never. `at_once_kb`: what is no larger goes out twice at
    once, what is larger again when its answer is overdue. `extra_bytes`: the bytes of copies are at most this share of all
    other requests' and answers'."""

    below: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.99
    at_once_kb: Annotated[int, Meta(ge=0, le=1 << 20)] = 32
    extra_bytes: Annotated[float, Meta(ge=0.0, le=3.0)] = 1.0


class Outliers(Group, frozen=True):
    """Nodes that do much worse than their peers are left alone for a while, at most half of them at once. `failures`: so many
    requests in a row that came to nothing; 0 is never. `slower`: runs that take so many times as long, against the plan, as
    those of the peers' middle; 0 is never. `pause_ms`: the first pause and the longest; each is twice the one before."""

    failures: Annotated[int, Meta(ge=0, le=1000)] = 5
    slower: Annotated[float, Meta(ge=0.0, le=1000.0)] = 3.0
    pause_ms: tuple[Pace, Pace] = (1_000.0, 60_000.0)


class Fleet(Group, frozen=True):
    """Which nodes an edge knows, and how it uses them. `epoch` is that of the list `nodes` of this file. `directory`: a file
    with a newer list, looked at once a second. `follow`: whether lists that nodes tell of count. `state`: the file in which
    the last list is kept over restarts; empty is none. `subset`: for each plan so many of those that can be used, by a hash
    of the names, and of these the one that is predicted to be soonest; 0 is all."""

    epoch: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    directory: str = ""
    follow: bool = True
    state: str = ""
    subset: Annotated[int, Meta(ge=0, le=256)] = 0


class EdgeLimits(Group, frozen=True):
    """`max_open`: requests open at once. `max_clients`: clients connected. `max_streams`: announced streams of all clients.
    `max_message_mb`: the largest message taken."""

    max_open: Count = 256
    max_clients: Count = 64
    max_streams: Annotated[int, Meta(ge=1, le=4096)] = 64
    max_message_mb: Annotated[int, Meta(ge=1, le=2047)] = 64


class CloudLimits(Group, frozen=True):
    """`max_open`: requests open at once. `max_peers`: edges connected. `max_message_mb`: the largest message taken."""

    max_open: Count = 256
    max_peers: Count = 1024
    max_message_mb: Annotated[int, Meta(ge=1, le=2047)] = 64


class Process(Group, frozen=True):
    """What agent and node do to their own process; an embedded agent applies none of it. `switch_interval_us`: how long a
    thread keeps the interpreter while another waits. `realtime_priority`: SCHED_FIFO for the loop and ZeroMQ's threads, 0
    is off. `nice`: of all threads that are not real-time, 0 leaves it. `cores`, `executor_cores`: where the loop with
    ZeroMQ's threads, and all other threads, may run; none is anywhere. `slice_us`: how short a turn the loop and ZeroMQ's
    threads ask the scheduler for, which has them run sooner when they wake up on a busy host; 0 leaves it. `lock_memory`:
    nothing that was touched is paged out. `heap_reserve_mb`: by how much C's heap and the interpreter's are grown before
    serving, so that they need not be later. `required`: refuse to start where the system does not allow what is asked,
    instead of saying so and going on."""

    switch_interval_us: Annotated[float, Meta(ge=1.0, le=1_000_000.0)] = 100.0
    realtime_priority: Annotated[int, Meta(ge=0, le=99)] = 0
    nice: Annotated[int, Meta(ge=-20, le=19)] = 0
    cores: Cores = ()
    executor_cores: Cores = ()
    slice_us: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 100.0
    lock_memory: bool = False
    heap_reserve_mb: Annotated[float, Meta(ge=0.0, le=31.0)] = 4.0
    required: bool = False


class Loop(Group, frozen=True):
    """`poll_us`: where what the loop waits for usually comes within this many microseconds, it looks for it so long before it
    sleeps, since it is slow for a while after it has slept; 0 is never. It lets others have the core meanwhile. Not with
    less than two cores, by number or by quota, nor at real-time priority."""

    poll_us: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 0.0


class NodeLoop(Loop, frozen=True):
    """The same on a node, which has cores to spare; a device and an application have not."""

    poll_us: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 1_000.0


class Journal(Group, frozen=True):
    """The last steps of the machine, kept to be saved and replayed. `events`: how many are kept, 0 is none. `folder`: where
    they are saved; empty is the system's folder for temporary files, and never by themselves but when the machine breaks a
    rule of its own. `save_below`: saved when fewer than this share of the last `save_window` requests were on time, 0 is
    never; once in `save_pause_s` at most. `keep_files`: the newest that are kept."""

    events: Annotated[int, Meta(ge=0, le=1_000_000)] = 10_000
    folder: str = ""
    save_below: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.9
    save_window: Count = 100
    save_pause_s: Annotated[float, Meta(ge=0.0, le=86_400.0)] = 60.0
    keep_files: Few = 8


class DeadLetters(Group, frozen=True):
    """Requests that ended without an answer in time, or were refused, kept to be listed and asked again; not by an embedded
    agent. `keep`: so many, 0 is none; `keep_mb`: in all so much, each counting as 1 KiB and its inputs. `inputs`: whether
    with what they held."""

    keep: Annotated[int, Meta(ge=0, le=10_000)] = 256
    keep_mb: Megabytes = 16
    inputs: bool = False


class PathAddress(Group, frozen=True):
    """A further way to a node: another of its addresses (empty: the same one), left from another local address or interface
    (empty: as the system routes)."""

    endpoint: str = ""
    source: str = ""


class NodeAddress(Group, frozen=True):
    """A cloud node that an edge may use. `source` is the local address or the interface that its connections leave from;
    empty is as the system routes. `paths`: further ways to the same node, over another link for instance. `connections`: on
    each way so many, beside each other; each carries requests, or second copies of them."""

    name: Name
    endpoint: Text
    source: str = ""
    connections: Annotated[int, Meta(ge=1, le=4)] = 1
    paths: Annotated[tuple[PathAddress, ...], Meta(max_length=7)] = ()


class AgentGroup(Group, frozen=True):
    """The agent itself. `endpoint` is where clients find it (`ipc://...`). A `standby` holds the cheapest rung of each model
    only, uses no nodes, and answers while the agent beside it is away. `allow_profile`: whoever may connect may have its
    device measured while it is idle (`shared.measuring`); that is this host's own users, who could run anything anyway.
    `show_dead_letters`: they may see its dead letters."""

    name: Name = "edge"
    endpoint: Text = "ipc:///tmp/headtail-edge"
    models: Models = ()
    standby: bool = False
    allow_profile: bool = True
    show_dead_letters: bool = True


class NodeGroup(Group, frozen=True):
    """The node itself. `credits` is how many requests it lends out in all. `allow_profile`: whoever may connect may have its
    device measured while it is idle (`shared.measuring`). Not by default: a node is one for many, none of whom owns it.
    `drain_ms`: a node that is told to leave lets nothing more in and answers what is there, for so long at most.
    `directory`: a file with the nodes of the fleet, of which this node tells its edges; empty is none. `show_dead_letters`:
    whoever may connect may see its dead letters, which are those of all edges."""

    name: Name = "cloud"
    endpoint: Text = "tcp://127.0.0.1:7711"
    models: Models = ()
    credits: Count = 64
    allow_profile: bool = False
    drain_ms: Span = 2_000.0
    directory: str = ""
    show_dead_letters: bool = False


class EdgeSettings(Group, frozen=True):
    """All of an edge agent's file. `balance` names how the agent picks among nodes. `route` is `best`, which chooses for each
    request, or fixes the way of all: `device`, or a route of every plan as CUT/CODING (`0/jpeg90`), taken whatever is
    predicted of it. The device's own answer is insured all the same."""

    agent: AgentGroup = AgentGroup()
    nodes: tuple[NodeAddress, ...] = ()
    balance: Literal["least_predicted_finish"] = "least_predicted_finish"
    route: Text = "best"
    execution: Execution = Execution()
    batching: Batching = Batching(max_batch_size=8)
    memory: Memory = Memory(preallocated_memory_mb=256)
    scheduling: Scheduling = Scheduling(max_queued=256)
    insurance: Insurance = Insurance()
    pressure: EdgePressure = EdgePressure()
    link: Link = Link()
    duplicates: Duplicates = Duplicates()
    outliers: Outliers = Outliers()
    fleet: Fleet = Fleet()
    limits: EdgeLimits = EdgeLimits()
    process: Process = Process()
    loop: Loop = Loop()
    journal: Journal = Journal()
    dead_letters: DeadLetters = DeadLetters()


class CloudSettings(Group, frozen=True):
    """All of a cloud node's file."""

    node: NodeGroup = NodeGroup()
    execution: NodeExecution = NodeExecution()
    batching: NodeBatching = NodeBatching()
    memory: Memory = Memory()
    scheduling: NodeScheduling = NodeScheduling()
    pressure: NodePressure = NodePressure()
    limits: CloudLimits = CloudLimits()
    process: Process = Process()
    loop: NodeLoop = NodeLoop()
    journal: Journal = Journal()
    dead_letters: DeadLetters = DeadLetters()
