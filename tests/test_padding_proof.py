"""Plans of models with an open axis: what is proven of padding, what is refused, and the answers that come of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from graphs import Net
from onnx import TensorProto
from typer.testing import CliRunner

from edge.client import Client
from hil.own_node import OwnNode
from partitioner.api import bundles, plan, verify
from partitioner.graph.run import run_model
from partitioner.padding_proof import parse_buckets, parse_pads
from partitioner.plan_cli import main
from partitioner.planned import Planned
from shared.cli import guarded
from shared.errors import ModelError, UserError
from shared.padding import CutOutput, PaddedInput
from shared.request import Answer, Array
from shared.settings import AgentGroup, EdgeSettings, Execution, NodeAddress

SIZES = (4, 8)
WAIT_MS = 20_000.0


def attending(*, mean: str = "of what counts", masked: bool = True) -> Net:
    """Attention over seq with a mask, then y at each place and z, a mean over all places that count (or over all)."""
    net = Net(seed=3)
    net.input("x", ["batch", "seq", 8])
    net.input("mask", ["batch", "seq"], TensorProto.INT64)
    net.hold("one", np.array(1.0, np.float32))
    net.hold("low", np.array(-1e9 if masked else 0.0, np.float32))
    net.hold("axis1", np.array([1], np.int64))
    net.hold("axis2", np.array([2], np.int64))
    net.add("Cast", ["mask"], "m", to=TensorProto.FLOAT)
    net.add("Sub", ["one", "m"], "gone")
    net.add("Mul", ["gone", "low"], "flat")
    net.add("Unsqueeze", ["flat", "axis1"], "bias")
    for name in "qkv":
        net.add("MatMul", ["x", net.weight(f"w{name}", 8, 8)], name)
    net.add("Transpose", ["k"], "kt", perm=[0, 2, 1])
    net.add("MatMul", ["q", "kt"], "raw")
    net.add("Add", ["raw", "bias"], "scores")
    net.add("Softmax", ["scores"], "p", axis=-1)
    net.add("MatMul", ["p", "v"], "h")
    net.add("Relu", ["h"], "r")
    net.add("MatMul", ["r", net.weight("wo", 8, 4)], "y")
    if mean == "of all":
        net.add("ReduceMean", ["y"], "z", axes=[1], keepdims=0)
    else:
        net.add("Unsqueeze", ["m", "axis2"], "m2")
        net.add("Mul", ["y", "m2"], "counted")
        net.add("ReduceSum", ["counted", "axis1"], "sum", keepdims=0)
        net.add("ReduceSum", ["m", "axis1"], "count", keepdims=1)
        net.add("Div", ["sum", "count"], "z")
    net.output("y", ["batch", "seq", 4])
    net.output("z", ["batch", 4])
    return net


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Planned]:
    """A bundle for each bucket, each with the input as its way through the cloud."""
    folder = tmp_path_factory.mktemp("buckets")
    model = attending().save(folder / "reader.onnx")
    wanted = bundles(folder / "reader.plan", "seq=4,8")
    return [plan(model, out, buckets=bucket, quick=True, force_cut="input") for out, bucket in wanted]


def asked(length: int, rows: int = 1, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng([seed, length])
    mask = np.ones((rows, length), np.int64)
    mask[:, length // 2 + 1 :] = random.integers(0, 2)
    return {"x": random.standard_normal((rows, length, 8)).astype(np.float32), "mask": mask}


def test_a_bundle_is_made_for_each_bucket_and_says_what_is_padded_and_cut(made: list[Planned]) -> None:
    assert [planned.path.name for planned in made] == ["reader-4.plan", "reader-8.plan"]
    for planned, size in zip(made, SIZES, strict=True):
        padding = planned.plan.padding
        assert padding is not None
        assert (padding.family, padding.dimension, padding.size) == ("reader", "seq", size)
        assert padding.inputs == (PaddedInput("x", 1), PaddedInput("mask", 1))
        assert padding.outputs == (CutOutput("y", 1),)
        assert [rung.name for rung in planned.plan.ladder] == ["whole"]
        assert [(route.cut, route.coding) for route in planned.plan.routes] == [(0, "raw")]
        assert verify(planned).holds
    assert any("seq of x, mask is padded to 8: at lengths 1, 2, 4, 5, 7" in note for note in made[1].record.notes)


def is_right(answer: object, inputs: dict[str, Array]) -> Answer:
    """An answer that is the model's own to these inputs, as they are."""
    assert isinstance(answer, Answer), answer
    wanted = run_model(attending().read(), inputs)
    assert {name: array.shape for name, array in answer.outputs.items()} == {n: a.shape for n, a in wanted.items()}
    for name, array in wanted.items():
        np.testing.assert_allclose(answer.outputs[name], array, rtol=1e-5, atol=1e-5)
    return answer


def models(made: list[Planned]) -> AgentGroup:
    return AgentGroup(models=tuple(str(planned.path) for planned in made))


def test_requests_of_every_length_are_answered_on_the_device_as_by_the_model_itself(made: list[Planned]) -> None:
    with Client.embedded(EdgeSettings(agent=models(made))) as client:
        for length in (1, 2, 3, 4, 5, 7, 8):
            inputs = asked(length, rows=2)
            assert is_right(client.infer(inputs, WAIT_MS, model="reader"), inputs).source == "edge"
        assert client.stats().padded == 5


def test_they_are_answered_by_a_node_as_well(made: list[Planned]) -> None:
    with OwnNode(made[1].path, 1) as node:
        slow = EdgeSettings(
            agent=models(made[1:]),
            nodes=(NodeAddress(name="n", endpoint=node.endpoint()),),
            execution=Execution(slowdown=1000.0),
        )
        lacking = {3, 5, 8}
        with Client.embedded(slow) as client:
            for number in range(600):
                inputs = asked((3, 5, 8)[number % 3], rows=2, seed=number)
                if is_right(client.infer(inputs, WAIT_MS, model="reader"), inputs).source == "cloud":
                    lacking.discard(inputs["x"].shape[1])
                if not lacking:
                    break
        ran = node.end()
    assert not lacking, "answers of the node to requests of each length"
    assert sum(launch.count for launch in ran.launches) >= 3


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (
            attending(mean="of all"),
            r"seq of 2 padded to 8 alone changes output 'z' by .* a model that masks its padding",
        ),
        (attending(masked=False), r"changes output 'y' by"),
    ],
)
def test_a_model_that_padding_changes_is_refused_and_nothing_is_written(tmp_path: Path, net: Net, told: str) -> None:
    model = net.save(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=told):
        plan(model, tmp_path / "m-8.plan", buckets="seq=8", quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_an_output_of_another_length_is_refused(tmp_path: Path) -> None:
    net = Net()
    net.input("x", ["batch", 2, "seq"])
    net.add("MaxPool", ["x"], "y", kernel_shape=[2], strides=[2])
    net.output("y", ["batch", 2, None])
    with pytest.raises(
        ModelError, match=r"output 'y' has shape \[1, 2, 4\] where seq is 8 and \[1, 2, 3\] where it is 7"
    ):
        plan(net.save(tmp_path / "m.onnx"), tmp_path / "m-8.plan", buckets="seq=8", quick=True)


def test_a_length_at_which_the_model_does_not_run_is_named(tmp_path: Path) -> None:
    net = Net()
    net.input("x", ["batch", 2, "seq"])
    net.add("Conv", ["x", net.weight("w", 2, 2, 5)], "c")
    net.add("ReduceMax", ["c"], "y", axes=[2])
    net.output("y", ["batch", 2, 1])
    with pytest.raises(ModelError, match="seq of 1: "):
        plan(net.save(tmp_path / "m.onnx"), tmp_path / "m-8.plan", buckets="seq=8", quick=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"buckets": "time=8"}, r"no input of m.onnx has an open axis of that name: x \(batch, seq, 8\); mask"),
        ({"buckets": "batch=8"}, r"input 'x' of m.onnx is \(batch, seq, 8\); expected it on one axis"),
        ({"buckets": "seq=4,8"}, "expected one length"),
        ({"buckets": "seq=8", "out": "m.plan"}, r"a bundle of bucket 8 is called NAME-8\.plan"),
        ({"buckets": "seq=8", "calibration": "rows.npz"}, "--calibration: leave it out beside --buckets"),
        ({"buckets": "seq=8", "rung": "int8"}, "--rung: leave it out"),
        ({"buckets": "seq=8", "pad": "y=1"}, "pad y: is not padded; expected one of x, mask"),
        ({"buckets": "seq=8", "pad": "mask=0.5"}, "input 'mask' is int64, which has no such number"),
        ({"buckets": "seq=8", "pad": "mask=5000.5"}, "input 'mask' is int64, which has no such number"),
        ({"pad": "x=1"}, "--pad x: nothing is padded without --buckets"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(tmp_path: Path, options: dict[str, str], told: str) -> None:
    model = attending().save(tmp_path / "m.onnx")
    out = tmp_path / options.pop("out", "m-8.plan")
    with pytest.raises(UserError, match=told):
        plan(model, out, quick=True, **options)  # type: ignore[arg-type]


def test_the_value_that_is_padded_with_is_the_users(tmp_path: Path) -> None:
    """A largest value over an axis is not changed by what is very small, and is by zeros."""
    net = Net()
    net.input("x", ["batch", 2, "seq"])
    net.add("ReduceMax", ["x"], "y", axes=[2], keepdims=0)
    net.output("y", ["batch", 2])
    model = net.save(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="changes output 'y'"):
        plan(model, tmp_path / "m-8.plan", buckets="seq=8", quick=True)
    made = plan(model, tmp_path / "m-8.plan", buckets="seq=8", pad="x=-1e9", quick=True)
    assert made.plan.padding is not None
    assert made.plan.padding.inputs == (PaddedInput("x", 2, -1e9),)
    assert made.plan.padding.outputs == ()


def test_the_short_forms_are_read_and_what_is_none_is_refused() -> None:
    assert parse_buckets("seq=128, 64") == ("seq", (64, 128))
    assert parse_pads(["ids=1", "bias=-1e9"]) == (("ids", 1.0), ("bias", -1e9))
    for text in ("seq", "seq=", "=64", "seq=0", "seq=1", "seq=64,64", "seq=a", "seq=64;128", f"seq={1 << 21}"):
        with pytest.raises(UserError, match="expected"):
            parse_buckets(text)
    for pads in (["ids"], ["=1"], ["ids=x"], ["ids=nan"], ["ids=inf"], ["ids=1", "ids=2"]):
        with pytest.raises(UserError, match="expected NAME=VALUE"):
            parse_pads(pads)


def test_the_command_makes_all_buckets(tmp_path: Path) -> None:
    model = attending().save(tmp_path / "m.onnx")
    app = typer.Typer()
    app.command()(guarded(main))
    asked = [str(model), "--out", str(tmp_path / "m.plan"), "--buckets", "seq=4,8", "--quick"]
    made = CliRunner().invoke(app, asked)
    assert made.exit_code == 0, made.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m-4.plan", "m-8.plan", "m.onnx"]
    assert "seq of x, mask is padded to 4" in " ".join(made.output.split())


def test_a_model_whose_output_is_as_long_as_some_of_its_lengths_is_refused_by_its_shapes(tmp_path: Path) -> None:
    """Half as long, rounded up: that of 7 is as long as that of 8, and that of 1 is not."""
    net = Net(seed=1)
    net.input("x", ["batch", 4, "seq"])
    net.add("MaxPool", ["x"], "y", kernel_shape=[2], strides=[2], ceil_mode=1)
    net.output("y", ["batch", 4, "half"])
    with pytest.raises(ModelError, match=r"changes output 'y' from shape \[1, 4, 1\] to \[1, 4, 4\]: expected a model"):
        plan(net.save(tmp_path / "pool.onnx"), tmp_path / "pool-8.plan", buckets="seq=8", quick=True)
