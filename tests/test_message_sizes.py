"""A plan's largest possible messages against what a transport takes, before anything is served."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tiny import make_bundle

from cloud.node import Node
from edge.front import most_rows
from shared.errors import SettingsError
from shared.message_sizes import rows_in_a_message, worst_messages
from shared.plan import PLAN_FORMAT, RAW, Coding, Cut, Plan, Program, Route, Rung, Segment
from shared.request import TensorSpec
from shared.settings import CloudLimits, CloudSettings, EdgeLimits, EdgeSettings, NodeAddress, NodeGroup
from shared.wire.messages import MAX_HEADER

SIDE = 512
RAW_BYTES = 3 * SIDE * SIDE
CODINGS = {
    "raw": RAW,
    "qoi": Coding("qoi", "qoi"),
    "full": Coding("full", "jpeg", quality=90, subsampling="444"),
}


def picture(*routes: str) -> Plan:
    """A plan of 768 KB pictures with these codings as routes."""
    x, y = TensorSpec("x", "uint8", (1, SIDE, SIDE, 3)), TensorSpec("y", "float32", (1, 4))
    return Plan(
        format=PLAN_FORMAT,
        name="picture",
        model="m",
        opset=17,
        ir_version=8,
        batchable=True,
        max_batch=4,
        cuts=(Cut("input", (x,), tuple(CODINGS.values())), Cut("output", (y,))),
        programs=(Program("whole", (Segment("s", "s.onnx", ("x",), ("y",)),)),),
        ladder=(Rung("whole", 0, 1.0),),
        routes=tuple(Route(0, name, 1.0, 1000, 100) for name in routes),
        metric="",
        chosen="",
        digests={},
    )


def edge(most_mb: int, *nodes: str) -> EdgeSettings:
    addresses = tuple(NodeAddress(name=name, endpoint="tcp://127.0.0.1:1") for name in nodes)
    return EdgeSettings(nodes=addresses, limits=EdgeLimits(max_message_mb=most_mb))


def test_compressed_pictures_count_as_large_as_they_may_be() -> None:
    sizes = dict(worst_messages(picture("raw", "qoi", "full"), 1))
    of = {name: next(n for what, n in sizes.items() if f"as {name}," in what) - MAX_HEADER for name in CODINGS}
    assert of["raw"] == RAW_BYTES
    assert of["qoi"] == pytest.approx(RAW_BYTES * 4 / 3, rel=0.01)
    assert of["full"] == pytest.approx(RAW_BYTES * 2, rel=0.01)


def test_rows_are_as_many_as_fit_by_the_worst_coding() -> None:
    assert rows_in_a_message(picture("raw"), 4, 3) == 3
    assert rows_in_a_message(picture("raw", "qoi"), 4, 3) == 2
    assert rows_in_a_message(picture("raw", "full"), 4, 3) == 1


def test_an_agent_refuses_a_route_whose_worst_frame_fits_into_no_message() -> None:
    words = (
        r"limits.max_message_mb: cut 'input' of model 'picture' as full, at its worst, .* expected at least 2, got 1"
    )
    with pytest.raises(SettingsError, match=words):
        most_rows(picture("raw", "full"), edge(1, "n1"))
    assert most_rows(picture("raw", "full"), edge(2, "n1")) == 1


def test_an_agent_without_nodes_takes_no_route_and_needs_no_room_for_any() -> None:
    assert most_rows(picture("raw", "full"), edge(1)) == 1


def test_a_long_answer_counts_as_well() -> None:
    long = msgspec.structs.replace(
        picture(), cuts=(picture().cuts[0], Cut("output", (TensorSpec("y", "float32", (1, 1 << 20)),)))
    )
    with pytest.raises(SettingsError, match=r"an answer of model 'picture' may have .* expected at least 5, got 4"):
        rows_in_a_message(long, 1, 4)


def test_a_node_refuses_the_same_before_it_can_be_reached(tmp_path: Path) -> None:
    wide = make_bundle(tmp_path, "identity", elements=300_000)
    settings = CloudSettings(
        node=NodeGroup(endpoint="tcp://127.0.0.1:*", models=(str(wide),)),
        limits=CloudLimits(max_message_mb=1),
    )
    with pytest.raises(SettingsError, match=r"limits\.max_message_mb: .* got 1"):
        Node(settings)
