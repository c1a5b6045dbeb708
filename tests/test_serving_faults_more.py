"""What others' servers got wrong and no other test of a part is about: see `test_serving_faults.py`."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from executor_rig import ROWS, Rig, Scripted, ScriptedInterrupt, identity_run
from plans import make_input, make_plan
from test_front import Joined
from tiny import make_bundle

import cloud.node
import edge.agent
from hil.pair import MS, Pair
from shared.bundle import Bundle, load_bundle
from shared.events import Arrived, Row
from shared.executors import ort
from shared.plan import RAW, SegmentRange
from shared.queue import Job
from shared.request import Answer, Array, Rejected
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Insurance, NodeAddress, NodeGroup

ROOT = Path(__file__).parent.parent
KINDS: list[type[msgspec.Struct]] = [EdgeSettings, CloudSettings]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for executor in rig.open:
        executor.close()


@pytest.fixture
def identity(tmp_path: Path) -> Bundle:
    return load_bundle(make_bundle(tmp_path, "identity", elements=4, max_batch=ROWS))


# --- deadlines and classes ---------------------------------------------------------------------------------------------


def test_class_and_deadline_go_from_the_client_to_the_agent() -> None:
    joined = Joined()
    joined.ask(deadline_ms=70, priority=2)
    (event,) = joined.bench.broker.events
    assert isinstance(event, Arrived)
    assert (event.request.priority, event.request.deadline_ns) == (2, joined.now + 70 * MS)


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Pair, list[Job]]:
    """An edge and a node, and the jobs that are handed to the node's scheduler."""
    contract, plan = make_plan()
    pair = Pair({contract: plan}, EdgeSettings(nodes=(NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)))
    pair.run(50)
    scheduler = pair.nodes["a"].machine.scheduler
    jobs: list[Job] = []
    right = scheduler.submit
    monkeypatch.setattr(scheduler, "submit", lambda job, now: (jobs.append(job), right(job, now))[1])
    return pair, jobs


def test_class_and_deadline_go_from_the_agent_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, jobs = watched(monkeypatch)
    for priority, deadline_ms in ((0, 20.0), (2, 90.0)):
        asked = pair.now
        pair.ask(make_input(), deadline_ms, priority=priority)
        pair.run(100)
        job = jobs.pop()
        assert job.priority == priority
        # The node reads the clocks in the request's favour, here by the millisecond of the way there.
        ahead_ns = job.deadline_ns - pair.nodes["a"].skew_ns - asked
        assert ahead_ns == pytest.approx((deadline_ms - 0.5 + 1.0) * MS, abs=0.1 * MS)


def test_a_node_at_which_others_wait_is_told_when_an_answer_has_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, jobs = watched(monkeypatch)
    pair.edge.machine.nodes.by_name["a"].wait_ns = 1
    asked = pair.now
    pair.ask(make_input(), 20.0)
    pair.run(100)
    # What leaves the node by then is back when the agent decides: the way back takes a millisecond here.
    ahead_ns = jobs.pop().deadline_ns - pair.nodes["a"].skew_ns - asked
    assert ahead_ns == pytest.approx((20.0 - 0.5 - 1.0) * MS, abs=0.1 * MS)


def gaps(kind: str, count: int, mean_ms: float) -> list[float]:
    """Milliseconds between requests: all equal, as of many who know nothing of each other, or mostly at once."""
    rng = random.Random(kind)
    match kind:
        case "even":
            return [mean_ms] * count
        case "poisson":
            return [rng.expovariate(1 / mean_ms) for _ in range(count)]
        case _:
            return [rng.gammavariate(1 / 16, 16 * mean_ms) for _ in range(count)]


@pytest.mark.parametrize("kind", ["even", "poisson", "bursty"])
def test_what_is_let_in_is_in_time_however_requests_come_and_the_rest_is_told_at_once(kind: str) -> None:
    contract, plan = make_plan(edge_ms=(50.0, 2.0))
    pair = Pair({contract: plan}, EdgeSettings())
    asked: dict[int, int] = {}
    for gap_ms in gaps(kind, 150, 4.0):
        now = pair.now
        asked[pair.ask(make_input(), 10)] = now
        pair.run(gap_ms)
    pair.run(50)
    answered = 0
    for sequence, at in asked.items():
        outcome = pair.outcome(sequence)
        told = pair.delivered[sequence][0][0] - at
        if isinstance(outcome, Answer):
            answered += 1
            assert told <= 10 * MS
        else:
            assert isinstance(outcome, Rejected), f"{outcome} after {told / MS:.1f} ms"
            assert told == 0
    assert answered == len(asked) if kind == "even" else answered > 0.3 * len(asked)


# --- what is set is in force -------------------------------------------------------------------------------------------


def unread(kinds: list[type[msgspec.Struct]]) -> list[str]:
    """The keys of these settings that no code of agent, node or client reads, by their path. One that can have one value
    only need not be read."""
    read: set[str] = set()
    for package in ("edge", "cloud", "shared"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.startswith("settings"):
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found: list[str] = []

    def look(kind: type[msgspec.Struct], path: str) -> None:
        for name, hint in get_type_hints(kind).items():
            inner = [part for part in (hint, *get_args(hint)) if isinstance(part, type)]
            groups = [part for part in inner if issubclass(part, msgspec.Struct)]
            for group in groups:
                look(group, f"{path}{name}.")
            if groups:
                continue
            if name not in read and not (get_origin(hint) is Literal and len(get_args(hint)) == 1):
                found.append(path + name)

    for kind in kinds:
        look(kind, "")
    return found


def test_every_setting_that_is_taken_is_read_by_somebody() -> None:
    assert unread(KINDS) == []


def test_agent_and_node_tell_the_settings_in_force(tmp_path: Path) -> None:
    bundle = str(make_bundle(tmp_path, "identity", elements=4, max_batch=ROWS))
    of_node = CloudSettings(node=NodeGroup(endpoint=f"ipc://{tmp_path}/node", models=(bundle,), drain_ms=17.0))
    with closing(cloud.node.Node(of_node)) as node:
        assert node.stats().settings == of_node
    insurance = Insurance(guard_ms=0.25)
    group = AgentGroup(endpoint=f"ipc://{tmp_path}/agent", models=(bundle,))
    of_agent = EdgeSettings(agent=group, insurance=insurance)
    with closing(edge.agent.Agent(of_agent)) as agent:
        assert agent.stats().settings == of_agent


# --- executors ---------------------------------------------------------------------------------------------------------


class Bound(Exception):
    """The endpoint would be bound now."""


def make_node(bundle: str) -> None:
    """A node that serves this bundle."""
    cloud.node.Node(CloudSettings(node=NodeGroup(models=(bundle,))))


def make_agent(bundle: str) -> None:
    """An agent that serves this bundle."""
    edge.agent.Agent(EdgeSettings(agent=AgentGroup(models=(bundle,))))


@pytest.mark.parametrize("make", [make_node, make_agent])
def test_an_endpoint_is_bound_only_once_the_models_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], None]
) -> None:
    bundle = str(make_bundle(tmp_path, "identity", elements=4, max_batch=ROWS))
    ran: list[SegmentRange] = []
    right = ort.OrtPrograms.run

    def run(self: ort.OrtPrograms, part: SegmentRange, *rest: object) -> tuple[Array, ...]:
        ran.append(part)
        return right(self, part, *rest)  # type: ignore[arg-type]

    def bind(*_: object, **__: object) -> None:
        raise Bound

    monkeypatch.setattr(ort.OrtPrograms, "run", run)
    for module in (cloud.node, edge.agent):
        monkeypatch.setattr(module, "Router", bind)
    with pytest.raises(Bound):
        make(bundle)
    assert ran


def test_the_runtime_meets_no_shape_but_the_plans_own(rig: Rig, identity: Bundle) -> None:
    """Whatever is asked: a runtime keeps memory for every shape that it has met."""
    met: set[tuple[int, ...]] = set()

    def note(feeds: Mapping[str, Array], _: ScriptedInterrupt) -> tuple[Array, ...]:
        met.add(feeds["x"].shape)
        return (feeds["x"] * 2,)

    executor = rig.make(identity, Scripted(identity, note))
    rng = random.Random(1)
    for run in range(200):
        rows = rng.randint(1, 6)
        shape = (rows, 4) if rng.random() < 0.5 else (rows, rng.randint(0, 9))
        given: Array = np.ones(shape, np.float32)
        executor.submit(identity_run(identity, Row(1, rows, (given,), RAW), run=run))
        rig.next()
    assert met == {(rows, 4) for rows in range(1, ROWS + 1)}
