"""What the runtime really runs, mapped back to the groups of the model: small nets, run with the runtime's own profile."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from graphs import Net, centre_detector, classifier
from onnx import TensorProto, helper

from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.graph.kernels import Kernel, Watched, read_kernels
from partitioner.graph.model import Model
from partitioner.graph.run import sample_inputs
from partitioner.profiles.mapping import assign, charge
from partitioner.profiles.work import origins_of
from shared.errors import ModelError

RUNS = 3


def event(name: str, start: int, duration: int, cat: str = "Node") -> dict[str, object]:
    name = f"{name}_kernel_time" if cat == "Node" else name
    return {"cat": cat, "name": name, "ts": start, "dur": duration, "ph": "X", "pid": 1, "args": {"op_name": "Op"}}


def read(*events: dict[str, object]) -> tuple[Kernel, ...]:
    graph = helper.make_graph([], "g", [], [])
    graph.node.extend(
        [helper.make_node("If", ["c"], ["a"], name="if"), helper.make_node("Relu", ["a"], ["b"], name="r")]
    )
    return read_kernels(graph, json.dumps(events).encode(), "net")


def test_each_run_has_its_own_times_and_half_of_what_was_cut_off() -> None:
    runs = [event("model_run", start, 90, "Session") for start in (100, 200)]
    found = read(
        event("r", 20, 5), *runs, event("if", 101, 8), event("r", 110, 5), event("r", 211, 7), event("if", 201, 9)
    )
    assert [(kernel.name, kernel.times_us) for kernel in found] == [("if", (8.5, 9.5)), ("r", (5.5, 7.5))]
    assert (found[0].inputs, found[0].outputs, found[1].op_type) == (("c",), ("a",), "Relu")


def test_kernels_inside_a_body_are_not_counted_twice() -> None:
    inside = [event("r", 102, 3), event("again", 106, 4), event("r", 110, 0)]
    found = read(event("model_run", 100, 90, "Session"), *inside, event("if", 101, 12), event("r", 113, 5))
    assert [(kernel.name, kernel.times_us) for kernel in found] == [("if", (12.5,)), ("r", (5.5,))]


def test_a_kernel_that_the_saved_graph_lacks_comes_last_without_values() -> None:
    found = read(event("model_run", 100, 90, "Session"), event("odd", 101, 3), event("r", 110, 5))
    assert found[-1] == Kernel("odd", "", (), (), (3.5,))


@pytest.mark.parametrize("text", [b"", b"[{}]", b'[{"name": 3}]', b"[]"])
def test_a_profile_that_cannot_be_read_is_one_clear_error(text: bytes) -> None:
    with pytest.raises(ModelError, match="net: the runtime's profile"):
        read_kernels(helper.make_graph([], "g", [], []), text, "net")


def attention() -> Net:
    """Two products with what the runtime joins between them, a 16-bit cast, and an output that is finished early."""
    net = Net(seed=5)
    net.input("x", ["batch", 16, 32])
    net.add("MatMul", ["x", net.weight("wq", 32, 32)], "q")
    net.add("MatMul", ["x", net.weight("wk", 32, 32)], "k")
    net.add("Transpose", ["k"], "kt", perm=[0, 2, 1])
    net.add("MatMul", ["q", "kt"], "scores")
    net.add("Mul", ["scores", net.weight("scale", 1)], "scaled")
    net.add("Softmax", ["scaled"], "weights", axis=-1)
    net.add("MatMul", ["weights", "x"], "mixed")
    net.add("Cast", ["mixed"], "half", to=TensorProto.FLOAT16)
    net.add("Cast", ["half"], "wide", to=TensorProto.FLOAT)
    net.add("Relu", ["wide"], "y")
    net.output("weights", ["batch", 16, 16])
    net.output("y", ["batch", 16, 32])
    return net


def watched(model: Model) -> tuple[Groups, tuple[Kernel, ...]]:
    with Watched(model) as session:
        for seed in range(RUNS):
            session.run(sample_inputs(model, seed=seed))
        return find_groups(CutFinder(model)), session.kernels()


@pytest.mark.parametrize(
    ("net", "shape"), [(classifier, "1,3,16,16"), (centre_detector, "1,3,32,32"), (attention, "1,16,32")]
)
def test_every_kernel_of_a_net_finds_the_group_whose_values_it_makes(net: Callable[[], Net], shape: str) -> None:
    groups, kernels = watched(net().normal(shape))
    origins = origins_of(groups)
    assigned = assign(kernels, origins)
    assert None not in assigned
    for kernel, group in zip(kernels, assigned, strict=True):
        assert {origins.values[name] for name in kernel.outputs if name in origins.values} <= {group}
    charged = charge(kernels, assigned, len(groups.nodes), range(RUNS))
    assert charged.guessed_share == 0.0
    assert sum(map(sum, charged.groups_us)) == pytest.approx(sum(sum(kernel.times_us) for kernel in kernels))
    assert all(len(kernel.times_us) == RUNS and min(kernel.times_us) > 0.0 for kernel in kernels)


def test_layouts_that_the_runtime_put_in_are_among_the_kernels() -> None:
    groups, kernels = watched(classifier().normal("1,3,16,16"))
    names = {node.name for node in groups.finder.model.proto.graph.node}
    assert {kernel.name for kernel in kernels} - names, "the runtime renamed nothing, so that mapping was not tried"


def test_a_model_that_the_runtime_refuses_is_an_error() -> None:
    model = classifier().read()
    model.proto.graph.node[0].op_type = "Nonsense"
    with pytest.raises(ModelError, match="Nonsense"):
        Watched(model)
