"""Large and odd graphs, built in memory: each is cut like any other, or refused by name."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, chained, classifier
from onnx import TensorProto, helper

from partitioner.graph import observe as observe_module
from partitioner.graph.cuts import CutFinder, cut_at, find_cuts
from partitioner.graph.external import save_with_weights
from partitioner.graph.load import load_model
from partitioner.graph.model import as_read
from partitioner.graph.normalise import normalise
from partitioner.graph.run import run_model, sample_inputs
from partitioner.graph.runtime import LARGE_BYTES
from partitioner.graph.split import split
from partitioner.graph.weights import write_programs
from shared.errors import ModelError

LARGE = "HEADTAIL_LARGE"


def attention_layer(net: Net, source: str, mask: str, name: str, width: int, heads: int) -> str:
    """One layer of a transformer's encoder, written out as exporters write it."""
    each = width // heads
    net.hold(f"{name}.split", np.array([0, 0, heads, each], np.int64))
    parts: dict[str, str] = {}
    for part in "qkv":
        net.add("MatMul", [source, net.weight(f"{name}.{part}.w", width, width)], f"{name}.{part}.mm")
        net.add("Add", [f"{name}.{part}.mm", net.weight(f"{name}.{part}.b", width)], f"{name}.{part}.add")
        net.add("Reshape", [f"{name}.{part}.add", f"{name}.split"], f"{name}.{part}.heads")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = net.add("Transpose", [f"{name}.{part}.heads"], f"{name}.{part}.t", perm=order)
    net.add("MatMul", [parts["q"], parts["k"]], f"{name}.scores")
    net.add("Div", [f"{name}.scores", net.hold(f"{name}.root", np.float32(np.sqrt(each)))], f"{name}.scaled")
    net.add("Add", [f"{name}.scaled", mask], f"{name}.masked")
    net.add("Softmax", [f"{name}.masked"], f"{name}.probs", axis=-1)
    net.add("MatMul", [f"{name}.probs", parts["v"]], f"{name}.context")
    net.add("Transpose", [f"{name}.context"], f"{name}.back", perm=[0, 2, 1, 3])
    net.hold(f"{name}.joinshape", np.array([0, 0, width], np.int64))
    net.add("Reshape", [f"{name}.back", f"{name}.joinshape"], f"{name}.joined")
    net.add("MatMul", [f"{name}.joined", net.weight(f"{name}.o.w", width, width)], f"{name}.o")
    net.add("Add", [f"{name}.o", source], f"{name}.res1")
    norm1 = [f"{name}.res1", net.weight(f"{name}.g1", width), net.weight(f"{name}.b1", width)]
    net.add("LayerNormalization", norm1, f"{name}.ln1", axis=-1)
    net.add("MatMul", [f"{name}.ln1", net.weight(f"{name}.f1", width, 4 * width)], f"{name}.up")
    net.add("Div", [f"{name}.up", net.hold(f"{name}.two", np.float32(np.sqrt(2)))], f"{name}.div")
    net.add("Erf", [f"{name}.div"], f"{name}.erf")
    net.add("Add", [f"{name}.erf", net.hold(f"{name}.one", np.float32(1))], f"{name}.erf1")
    net.add("Mul", [f"{name}.up", f"{name}.erf1"], f"{name}.mul")
    net.add("Mul", [f"{name}.mul", net.hold(f"{name}.half", np.float32(0.5))], f"{name}.gelu")
    net.add("MatMul", [f"{name}.gelu", net.weight(f"{name}.f2", 4 * width, width)], f"{name}.down")
    net.add("Add", [f"{name}.down", f"{name}.ln1"], f"{name}.res2")
    norm2 = [f"{name}.res2", net.weight(f"{name}.g2", width), net.weight(f"{name}.b2", width)]
    return net.add("LayerNormalization", norm2, f"{name}.out", axis=-1)


def bert(layers: int, width: int, heads: int, words: int, vocabulary: int = 64) -> Net:
    """The shape of BERT: embeddings of words, positions and types, a mask, `layers` of attention; all states and one answer
    for the sentence."""
    net = Net()
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        net.input(name, ["batch", words], TensorProto.INT64)
    net.add("Gather", [net.weight("words", vocabulary, width), "input_ids"], "e.words")
    net.add("Gather", [net.weight("types", 2, width), "token_type_ids"], "e.types")
    net.add("Add", ["e.words", "e.types"], "e.sum")
    net.add("Add", ["e.sum", net.weight("positions", 1, words, width)], "e.all")
    net.add("LayerNormalization", ["e.all", net.weight("e.g", width), net.weight("e.b", width)], "h", axis=-1)
    net.add("Unsqueeze", ["attention_mask", net.hold("axes", np.array([1, 2]))], "m.wide")
    net.add("Cast", ["m.wide"], "m.float", to=TensorProto.FLOAT)
    net.add("Sub", [net.hold("m.one", np.float32(1)), "m.float"], "m.off")
    mask = net.add("Mul", ["m.off", net.hold("m.low", np.float32(-1e4))], "mask")
    here = "h"
    for index in range(layers):
        here = attention_layer(net, here, mask, f"l{index}", width, heads)
    net.add("Gather", [here, net.hold("first", np.array(0))], "first word", axis=1)
    net.add("MatMul", ["first word", net.weight("pool", width, width)], "pool.mm")
    net.add("Tanh", ["pool.mm"], "pooled")
    net.output(here)
    net.output("pooled")
    return net


def test_a_bert_of_24_layers_is_cut_between_any_two_with_its_mask_travelling_along() -> None:
    model = bert(24, 32, 4, 8).normal(*(f"{n}=1,8" for n in ("input_ids", "attention_mask", "token_type_ids")))
    assert model.batchable
    finder = CutFinder(model)
    for layer in (0, 11, 22):
        cut = finder.at(f"l{layer}.out")
        names = [spec.name for spec in cut.tensors]
        assert len(names) == 2
        assert names[1] == f"l{layer}.out"
        assert chained(model, [cut], 2) <= 1e-5
    cuts = [finder.at(f"l{layer}.out") for layer in (3, 9, 17)]
    assert chained(model, cuts) <= 1e-5


def resnet(blocks: tuple[int, ...], width: int, side: int) -> Net:
    """The shape of ResNet-50: bottlenecks in four stages."""
    net = Net()
    net.input("x", ["n", 3, side, side])
    net.add("Relu", [net.conv("x", "stem.conv", (3, width), 7, strides=[2, 2])], "stem")
    here = net.add("MaxPool", ["stem"], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    have = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            name, step = f"s{stage}b{block}", 2 if stage and not block else 1
            a = net.add("Relu", [net.conv(here, f"{name}.a.c", (have, inner), 1)], f"{name}.a")
            b = net.add("Relu", [net.conv(a, f"{name}.b.c", (inner, inner), 3, strides=[step, step])], f"{name}.b")
            c = net.conv(b, f"{name}.c", (inner, 4 * inner), 1)
            side_way = here if block else net.conv(here, f"{name}.d", (have, 4 * inner), 1, strides=[step, step])
            net.add("Add", [c, side_way], f"{name}.sum")
            here, have = net.add("Relu", [f"{name}.sum"], name), 4 * inner
    net.add("GlobalAveragePool", [here], "pooled")
    net.add("Flatten", ["pooled"], "flat", axis=1)
    net.add("MatMul", ["flat", net.weight("fc", have, 10)], "logits")
    net.output("logits")
    return net


def test_a_resnet_of_50_layers_is_cut_after_every_block() -> None:
    model = resnet((3, 4, 6, 3), 4, 32).normal("1,3,32,32")
    found = {cut.name: cut for cut in find_cuts(model)}
    blocks = [f"s{stage}b{block}" for stage, count in enumerate((3, 4, 6, 3)) for block in range(count)]
    assert set(blocks) <= set(found)
    for name in (blocks[0], blocks[7], blocks[-1]):
        assert chained(model, [found[name]], 2) <= 1e-4


def ladder(rungs: int) -> Net:
    """Three thousand operators and more: products and a residual over each two of them."""
    net = Net()
    net.input("x", ["n", 4])
    here = "x"
    for index in range(rungs):
        net.add("MatMul", [here, net.weight(f"w{index}", 4, 4)], f"m{index}")
        net.add("Softmax", [f"m{index}"], f"s{index}")
        here = net.add("Add", [f"s{index}", here], f"r{index}")
    net.output(here)
    return net


def test_three_thousand_operators_are_looked_at_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how often values are asked for, and how often the graph is run, must not grow with its square."""
    looked: Counter[int] = Counter()
    runs: Counter[int] = Counter()
    rungs = 0
    right_run, right_inputs = observe_module.run_session, observe_module.node_outputs

    def counted_run(*args: object) -> object:
        runs[rungs] += 1
        return right_run(*args)

    def counted(node: onnx.NodeProto) -> list[str]:
        looked[rungs] += 1
        return right_inputs(node)

    monkeypatch.setattr(observe_module, "run_session", counted_run)
    for module in ("cuts", "fusion", "observe", "walk"):
        monkeypatch.setattr(f"partitioner.graph.{module}.node_outputs", counted)
    for rungs in (100, 1000):
        model = ladder(rungs).normal()
        assert len(model.proto.graph.node) == 3 * rungs
        cuts = find_cuts(model)
        assert len(cuts) == 2 + rungs - 1
    assert looked[1000] <= 11 * looked[100]
    assert runs[1000] <= 3 * runs[100]
    cut = cuts[len(cuts) // 2]
    head, tail = split(model, [cut]).parts
    assert len(head.proto.graph.node) + len(tail.proto.graph.node) == 3000


def test_weights_that_head_and_tail_share_are_held_once_in_a_bundle(tmp_path: Path) -> None:
    net = Net()
    for name in ("ids", "next_ids"):
        net.input(name, ["n", 6], TensorProto.INT64)
    net.weight("words", 50, 32)
    net.add("Gather", ["words", "ids"], "e")
    net.add("MatMul", ["e", net.weight("w", 32, 32)], "h")
    net.add("Softmax", ["h"], "s")
    net.add("Gather", ["words", "next_ids"], "next")
    net.add("Mul", ["s", "next"], "y")
    net.output("y")
    model = net.normal("ids=1,6", "next_ids=1,6")
    cut = cut_at(model, "s")
    chain = split(model, [cut])
    head, tail = ({t.name for t in part.proto.graph.initializer} for part in chain.parts)
    assert len(head & tail) == 1
    write_programs({"whole": chain}, tmp_path)
    table, product = 50 * 32 * 4, 32 * 32 * 4
    assert table + product <= (tmp_path / "weights.bin").stat().st_size < 2 * table + product
    assert chained(model, [cut], 2) == 0.0


def test_state_that_the_caller_holds_is_an_input_and_an_output_on_either_side_of_a_cut() -> None:
    net = Net()
    net.input("frame", [1, 1, 16])
    net.input("h", [1, 1, 8])
    net.input("c", [1, 1, 8])
    net.add("MatMul", ["frame", net.weight("in", 16, 12)], "features")
    lstm = ["features", net.weight("w", 1, 32, 12), net.weight("r", 1, 32, 8), "", "", "h", "c"]
    net.nodes.append(helper.make_node("LSTM", lstm, ["all", "h.next", "c.next"], hidden_size=8))
    net.add("Squeeze", ["all", net.hold("axis", np.array([1]))], "flat")
    net.add("MatMul", ["flat", net.weight("out", 8, 3)], "y")
    for name in ("y", "h.next", "c.next"):
        net.output(name)
    model = net.normal()
    assert not model.batchable
    early, late = cut_at(model, "features"), cut_at(model, "flat")
    assert {spec.name for spec in early.tensors} == {"features", "h", "c"}
    assert {spec.name for spec in late.tensors} == {"flat", "h.next", "c.next"}
    state = {name: np.zeros((1, 1, 8), np.float32) for name in ("h", "c")}
    held = dict(state)
    for seed in range(3):  # what comes back goes in again, as a caller does it
        frame = sample_inputs(model, seed=seed)["frame"]
        wanted = run_model(model, {"frame": frame, **state})
        got: dict[str, np.ndarray] = {"frame": frame, **held}
        for part in split(model, [early, late]).parts:
            got = run_model(part, got)
        np.testing.assert_array_equal(got["y"], wanted["y"])
        state = {"h": wanted["h.next"], "c": wanted["c.next"]}
        held = {"h": got["h.next"], "c": got["c.next"]}


def looped() -> Net:
    """A `Loop` that adds a captured tensor to what it carries."""
    net = Net()
    net.input("x", ["n", 4])
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "step")
    net.add("Softmax", ["step"], "start")
    net.hold("times", np.array(3, np.int64))
    net.hold("go", np.array(True))
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on.next"]), helper.make_node("Add", ["sum", "step"], ["sum.next"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on.next", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum.next", TensorProto.FLOAT, None),
        ],
    )
    net.add("Loop", ["times", "go", "start"], "total", body=body)
    net.add("MatMul", ["total", net.weight("v", 4, 2)], "y")
    net.output("y")
    return net


def test_what_a_loop_captures_crosses_with_what_it_carries() -> None:
    model = looped().normal()
    cut = cut_at(model, "start")
    assert {spec.name for spec in cut.tensors} == {"step", "start"}
    assert chained(model, [cut, cut_at(model, "total")], 2) == 0.0


def test_a_sequence_is_never_a_border() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("SequenceConstruct", ["h", "x"], "pair")
    net.add("ConcatFromSequence", ["pair"], "y", axis=1)
    net.output("y")
    model = net.normal()
    assert "pair" not in [cut.name for cut in find_cuts(model)]
    with pytest.raises(ModelError, match="'pair' would cross, which is no tensor of numbers"):
        cut_at(model, "pair")
    assert chained(model, [cut_at(model, "h")], 2) == 0.0


def test_an_operator_of_the_users_own_is_refused_by_name_where_nothing_runs_it() -> None:
    net = classifier()
    net.domains["com.example"] = 1
    net.nodes[-1].op_type, net.nodes[-1].domain = "Magic", "com.example"
    with pytest.raises(ModelError, match=r"operator com\.example:Magic is unknown to every installed provider"):
        net.normal("1,3,16,16")


def test_a_graph_behind_an_operator_of_the_runtimes_own_is_cut_by_what_a_run_shows() -> None:
    net = Net()
    net.domains["com.microsoft"] = 1
    net.input("x", ["n", 8])
    net.add("MatMul", ["x", net.weight("w", 8, 8)], "h")
    net.add("QuickGelu", ["h"], "g", domain="com.microsoft")
    net.add("MatMul", ["g", net.weight("v", 8, 8)], "k")
    net.add("Softmax", ["k"], "s")
    net.add("MatMul", ["s", net.weight("u", 8, 4)], "y")
    net.output("y")
    model = net.normal()
    cut = cut_at(model, "s")
    assert [(spec.name, spec.dtype, spec.shape) for spec in cut.tensors] == [("s", "float32", (1, 8))]
    assert chained(model, [cut], 2) <= 1e-6


def test_functions_of_the_file_are_cut_through() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("Soft", ["h"], "s", domain="local")
    net.add("MatMul", ["s", net.weight("v", 4, 4)], "y")
    net.output("y", ["n", 4])
    net.domains["local"] = 1
    proto = net.proto()
    body = [helper.make_node("Softmax", ["a"], ["p"]), helper.make_node("Add", ["p", "a"], ["b"])]
    proto.functions.append(helper.make_function("local", "Soft", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    model = normalise(as_read(proto, "f.onnx"), {})
    assert {spec.name for spec in cut_at(model, "s").tensors} == {"s"}
    inner = next(node.output[0] for node in model.proto.graph.node if node.op_type == "Softmax")
    assert {spec.name for spec in cut_at(model, inner).tensors} == {"h", inner}
    for name in ("s", inner):
        assert chained(model, [cut_at(model, name)], 2) <= 1e-6


def test_16_bit_floats_are_cut_and_cross_in_16_bits() -> None:
    net = Net()
    net.input("x", ["n", 16], TensorProto.FLOAT16)
    here = "x"
    for index in range(3):
        net.hold(f"w{index}", (net.random.standard_normal((16, 16)) / 4).astype(np.float16))
        here = net.add("Softmax", [net.add("MatMul", [here, f"w{index}"], f"m{index}")], f"s{index}")
    net.output(here, None, TensorProto.FLOAT16)
    model = net.normal()
    cut = cut_at(model, "s1")
    assert [(spec.name, spec.dtype) for spec in cut.tensors] == [("s1", "float16")]
    assert chained(model, [cut], 2) <= 2e-3


@pytest.mark.skipif(not os.environ.get(LARGE), reason=f"takes some 15 GB of memory; {LARGE}=1 runs it")
def test_a_model_above_two_gigabytes_is_read_cut_and_written(tmp_path: Path) -> None:
    net = Net()
    side = 16_384
    net.input("x", ["n", side])
    for index in range(2):
        net.add("Tanh", [net.add("MatMul", ["x" if index == 0 else "t0", f"w{index}"], f"m{index}")], f"t{index}")
    net.output("t1")
    proto = net.proto()
    for index in range(2):
        block = np.random.default_rng(index).standard_normal((64, side), np.float32) / np.float32(np.sqrt(side))
        array = np.concatenate([np.roll(block, shift, axis=1) for shift in range(side // 64)])
        held = proto.graph.initializer.add(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[side, side])
        held.raw_data = array.tobytes()
        del array
    path = save_with_weights(proto, tmp_path)
    del proto
    read = load_model(path)
    assert read.weight_bytes == 2 * side * side * 4 > LARGE_BYTES
    model = normalise(read, {"x": (1, side)})
    del read
    cut = cut_at(model, "t0")
    programs = tmp_path / "programs"
    programs.mkdir()
    write_programs({"whole": split(model, [cut])}, programs)
    assert (programs / "weights.bin").stat().st_size >= model.weight_bytes
    inputs = sample_inputs(model)
    wanted = run_model(model, inputs)
    values: dict[str, np.ndarray] = dict(inputs)
    for index in range(2):
        values = run_model(load_model(programs / f"whole-{index}.onnx"), values)
    np.testing.assert_array_equal(values["t1"], wanted["t1"])
