"""A profile that a running node or agent measures where it serves: of the very model, as it is served, beside its work."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from processes import ANY_PORT, PATIENCE_S, ServiceProcess, cloud_settings, edge_settings
from test_light_imports import HEAVY, PROGRAM
from test_plan import SIDE, options, write_images, write_model
from test_profiles_cli import call

from edge.client import Client
from partitioner.build import Made, make
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.recipe import Recipe, build
from partitioner.profiles import through
from partitioner.profiles.file import load_profile
from partitioner.profiles.inside import BatchRuns, Inside, Stops, Undisturbed
from partitioner.profiles.lookup import times_for, whole_us
from partitioner.profiles.measure import Asked
from shared.errors import UserError
from shared.events import Received, Send
from shared.measurer import Order
from shared.request import Answer
from shared.transport import Dealers
from shared.wire.codec import decode_node
from shared.wire.messages import PROTOCOL, Bye, Measure, Measured

SHAPE = ("--shape", f"1,3,{SIDE},{SIDE}", "--preprocess", "image:mean=128,std=64")
QUICK = ("--as", "cloud", "--cadence", "1000", "--seconds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("through")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    return folder


def recipe(place: Path) -> Recipe:
    return Recipe(place / "small.onnx", (f"1,3,{SIDE},{SIDE}",), "image:mean=128,std=64")


@pytest.fixture(scope="module")
def made(place: Path) -> Made:
    """A plan of several segments."""
    return make(options(place, "small.plan", force_cuts=("r1", "r2")))


@pytest.fixture(scope="module")
def node(place: Path, made: Made) -> Iterator[ServiceProcess]:
    settings = cloud_settings([made.path]).replace("[memory]", "allow_profile = true\n[memory]")
    with ServiceProcess("cloud", place, settings, "--endpoint", ANY_PORT) as process:
        yield process


def measured(where: str, place: Path, out: Path, *more: object) -> str:
    status, said = call(place / "small.onnx", *SHAPE, *QUICK, "--through", where, "-o", out, *more)
    assert status == 0, said
    return said


def test_a_node_measures_the_model_that_it_serves(
    node: ServiceProcess, place: Path, made: Made, tmp_path: Path
) -> None:
    said = measured(node.endpoint, place, tmp_path / "node.profile", "--batch", "1,2")
    assert "small.onnx, cloud: measured" in said
    assert "segments of its bundle" in said
    profile = load_profile(tmp_path / "node.profile")
    assert profile.buckets[0].digest == made.plan.model
    assert "through n1" in profile.origin.how
    assert profile.machine.versions["onnxruntime"][0].isdigit()
    groups = find_groups(CutFinder(build(recipe(place))))
    for batch in (1, 2):
        found = times_for(profile, groups, batch)
        assert set(found) == set(range(len(groups.nodes)))
        assert sum(found.values()) == pytest.approx(whole_us(profile, batch))
    assert all(times.runs >= 16 and times.guessed_share < 0.5 for times in profile.buckets[0].batches)
    status, said = call("diff", tmp_path / "node.profile", tmp_path / "node.profile")
    assert status == 0, said


def test_an_agent_that_has_work_is_measured_in_between_and_answers_all_of_it(
    place: Path, made: Made, tmp_path: Path
) -> None:
    endpoint = f"ipc://{tmp_path}/agent"
    frame = np.zeros((1, SIDE, SIDE, 3), np.uint8)
    outcomes: list[object] = []
    over = threading.Event()

    def ask() -> None:
        with Client(endpoint) as client:
            assert client.wait_attached(PATIENCE_S)
            while not over.wait(0.005):
                outcomes.append(client.infer(frame, 10_000.0))

    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [made.path])):
        asker = threading.Thread(target=ask)
        asker.start()
        try:
            said = measured(endpoint, place, tmp_path / "edge.profile", "--batch", "1")
        finally:
            over.set()
            asker.join()
    assert "through edge" in said
    assert len(outcomes) > 10
    assert all(isinstance(outcome, Answer) for outcome in outcomes)


def test_a_process_that_may_not_is_not_measured(place: Path, made: Made, tmp_path: Path) -> None:
    with ServiceProcess("cloud", tmp_path, cloud_settings([made.path]), "--endpoint", ANY_PORT) as process:
        out = tmp_path / "x.profile"
        status, said = call(place / "small.onnx", *SHAPE, *QUICK, "--through", process.endpoint, "-o", out)
    assert status == 2
    assert "node.allow_profile is false" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--shape", "1,3,32,32"), "no plan of this model is served"),
        ((*SHAPE, "--threads", "2"), "those with which the process serves"),
        ((*SHAPE, "--host", "someone@somewhere"), "give one of them"),
        ((*SHAPE, "--shape", "1,3,32,32"), "one set of shapes"),
        ((*SHAPE, "--batch", "5000"), "batch 5000: expected"),
    ],
)
def test_what_cannot_be_asked_this_way_is_refused(
    node: ServiceProcess, place: Path, tmp_path: Path, more: tuple[object, ...], words: str
) -> None:
    out = tmp_path / "x.profile"
    status, said = call(place / "small.onnx", *QUICK, *more, "--through", node.endpoint, "-o", out)
    assert status == 2
    assert words in " ".join(said.split())
    assert not out.exists()


def test_where_nobody_answers_is_said(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through, "REACH_S", 0.2)
    status, said = call(
        place / "small.onnx", *SHAPE, *QUICK, "--through", f"ipc://{tmp_path}/nobody", "-o", tmp_path / "x.profile"
    )
    assert status == 1
    assert "cannot be reached" in said
    status, said = call(place / "small.onnx", *SHAPE, *QUICK, "--through", "somewhere", "-o", tmp_path / "x.profile")
    assert status == 2
    assert "somewhere" in said


class Wish:
    """A wish that is said again until the child of the node runs."""

    def __init__(self, endpoint: str, model: str) -> None:
        self._wish = Measure(PROTOCOL, 1, model, (1,), 100.0, 60.0)
        self._link = Dealers("wish", time.monotonic_ns(), decode_node)
        self._link.connect("measure", endpoint)

    def child_of(self, node: int) -> int:
        """The child that measures, once it runs."""
        end_s = time.monotonic() + PATIENCE_S
        children = Path(f"/proc/{node}/task")
        while time.monotonic() < end_s:
            self.say(self._wish)
            select.select([self._link], [], [], 0.05)
            said = [event.message for event in self._link.drain() if isinstance(event, Received)]
            if any(isinstance(message, Measured) and message.share > 0.0 for message in said):
                found = [pid for task in children.iterdir() for pid in (task / "children").read_text().split()]
                assert len(found) == 1
                return int(found[0])
        raise AssertionError("nothing is measured")

    def say(self, message: Measure | Bye) -> None:
        self._link.send(Send("measure", message))

    def close(self) -> None:
        self._link.close()


def ends(child: int) -> bool:
    """Whether the process behind this descriptor ends; the descriptor is closed."""
    try:
        return bool(select.select([child], [], [], PATIENCE_S)[0])
    finally:
        os.close(child)


def test_the_child_ends_with_the_wish(node: ServiceProcess, made: Made) -> None:
    wish = Wish(node.endpoint, made.plan.model)
    child = os.pidfd_open(wish.child_of(node.pid))
    wish.say(Bye("closing"))
    assert ends(child)
    wish.close()


@pytest.mark.parametrize("killed", [True, False])
def test_the_child_ends_with_the_process(place: Path, made: Made, tmp_path: Path, killed: bool) -> None:
    settings = cloud_settings([made.path]).replace("[memory]", "allow_profile = true\n[memory]")
    with ServiceProcess("cloud", tmp_path, settings, "--endpoint", ANY_PORT) as process:
        wish = Wish(process.endpoint, made.plan.model)
        child = os.pidfd_open(wish.child_of(process.pid))
        if killed:
            process.kill()
        else:
            assert process.end()[0] == 0
        assert ends(child)
        wish.close()


# What the child does, without one


def test_what_measures_needs_no_more_than_a_device_has() -> None:
    heavy = [name for name in HEAVY if name != "partitioner"]
    program = PROGRAM.format(heavy=heavy, modules=("partitioner.profiles.inside",))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_that_were_stopped_and_those_after_do_not_count() -> None:
    stops = iter([0, 0, 1, 1, 1, 3, 3, 3])
    samples = Undisturbed(lambda: next(stops))
    for time_us in range(7):
        samples.add(("whole", 1), float(time_us), disturbed=False)
    assert samples.runs["whole", 1] == [0.0, 3.0, 6.0]
    assert samples.stopped == 4


def test_stops_are_counted_as_they_were_written() -> None:
    reading, writing = os.pipe()
    try:
        stops = Stops(reading)
        assert stops.count() == 0
        os.write(writing, b"hh")
        assert stops.count() == 2
        os.write(writing, b"h")
        assert stops.count() == 3
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contract": "another"}, "was replaced since it is served"),
        ({"bundle": "/nowhere/x.plan"}, "there is no bundle"),
    ],
)
def test_a_bundle_that_changed_since_it_is_served_is_not_measured(
    made: Made, changes: dict[str, str], words: str
) -> None:
    order = Order(str(made.path), "c", "CPUExecutionProvider", 1, 1.0, (1,), 1000.0, 0.0, "n1")
    text = msgspec.json.encode(msgspec.structs.replace(order, **changes)).decode()
    done = subprocess.run(
        [sys.executable, "-m", "partitioner.profiles.inside", text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("broke ")
    assert words in done.stdout


# What comes back


def inside(**changes: object) -> Inside:
    batch = BatchRuns(1, [10.0, 12.0], True, [{"a": [5.0, 6.0]}], [0, 1])
    fields = {"batches": (batch,), "slowdown": 1.0} | changes
    return Inside(
        name="n1",
        device="a processor",
        provider="CPUExecutionProvider",
        threads=1,
        cadence_hz=30.0,
        segments=1,
        versions={},
        clocks=(),
        power=(),
        disturbed_share=0.0,
        stopped=0,
        **fields,
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no zlib", "cannot be read"),
        (zlib.compress(b"{}"), "cannot be read"),
        (zlib.compress(bytes(1 << 20)), "larger than"),
        (zlib.compress(msgspec.json.encode(inside(batches=()))), "holds no times"),
        (zlib.compress(msgspec.json.encode(inside(batches=(BatchRuns(1, [], True, [], []),)))), "contradicts itself"),
        (zlib.compress(msgspec.json.encode(inside(batches=(BatchRuns(1, [1.0], True, [{}], []),)))), "holds no times"),
        (
            zlib.compress(msgspec.json.encode(inside(batches=(BatchRuns(1, [1.0], True, [{"a": [1.0]}], [1]),)))),
            "contradicts itself",
        ),
    ],
)
def test_what_cannot_be_a_measurement_is_one_clear_error(
    content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(through, "MOST_BYTES", 1 << 19)
    with pytest.raises(UserError, match=f"^tcp://there:1: .*{words}"):
        through.decode_inside(content, "tcp://there:1")


def test_a_process_that_stands_for_a_slower_device_gives_the_profile_of_that_one(place: Path) -> None:
    groups = find_groups(CutFinder(build(recipe(place))))
    asked = Asked(Path("small.onnx"), "edge")
    slow, here = (through.profile_of(inside(slowdown=factor), groups, asked) for factor in (4.0, 1.0))
    assert whole_us(slow) == pytest.approx(4.0 * whole_us(here))
    assert (here.origin.kind, slow.origin.kind) == ("measured", "scaled")
    assert "stands for a slower device" in slow.origin.how
