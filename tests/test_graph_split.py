"""Parts hold only what is theirs, and every weight is written once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, centre_detector, chained, classifier
from onnx import helper, numpy_helper

from partitioner.graph.cuts import cut_at, find_cuts
from partitioner.graph.external import WeightFile
from partitioner.graph.fusion import surviving_values
from partitioner.graph.run import open_session, run_model, run_session, sample_inputs
from partitioner.graph.split import split
from partitioner.graph.weights import write_programs
from shared.errors import ModelError


def test_no_cut_gives_the_whole_as_one_part() -> None:
    model = classifier().normal("1,3,16,16")
    chain = split(model, [])
    assert [cut.name for cut in chain.cuts] == ["input", "output"]
    assert len(chain.parts) == 1
    assert chained(model, []) == 0.0


def test_cuts_are_sorted_and_repeated_or_outer_ones_do_not_matter() -> None:
    model = classifier().normal("1,3,16,16")
    found = find_cuts(model)
    chain = split(model, [*reversed(found), found[1]])
    assert [cut.name for cut in chain.cuts] == [cut.name for cut in found]
    assert len(chain.parts) == len(found) - 1


def test_parts_carry_the_tensors_of_their_cuts_by_name_type_and_shape() -> None:
    model = centre_detector().normal("1,3,32,32")
    chain = split(model, [cut_at(model, "c3"), cut_at(model, "neck")])
    for part, before, after in zip(chain.parts, chain.cuts, chain.cuts[1:], strict=False):
        assert (part.inputs, part.outputs) == (before.tensors, after.tensors)
        assert [value.name for value in part.proto.graph.input] == [spec.name for spec in before.tensors]
        assert [value.name for value in part.proto.graph.output] == [spec.name for spec in after.tensors]
        assert part.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
        onnx.checker.check_model(part.proto)


def test_each_weight_is_in_the_one_part_that_uses_it() -> None:
    model = centre_detector().normal("1,3,32,32")
    chain = split(model, find_cuts(model))
    held = [t.name for part in chain.parts for t in part.proto.graph.initializer]
    assert len(held) == len(set(held)) == len(model.proto.graph.initializer)


def test_cuts_that_cross_each_other_are_refused() -> None:
    model = centre_detector().normal("1,3,32,32")
    with pytest.raises(ModelError, match="are not nested"):
        split(model, [cut_at(model, "size"), cut_at(model, "offset")])


def test_parts_of_an_optimised_graph_can_be_optimised_again() -> None:
    model = centre_detector().normal("1,3,32,32")
    for part in split(model, find_cuts(model)).parts:
        names = [t.name for t in part.proto.graph.initializer]
        assert all(name.startswith("weight_") for name in names)
        assert surviving_values(part)


def test_equal_weights_of_one_part_are_held_once() -> None:
    net = Net()
    net.input("x", ["n", 24])
    same = net.random.standard_normal((24, 24)).astype(np.float32)
    net.add("MatMul", ["x", net.hold("one", same)], "a")
    net.add("MatMul", ["a", net.hold("two", same)], "y")
    net.output("y")
    (part,) = split(net.normal(), []).parts
    assert len(part.proto.graph.initializer) == 1
    assert chained(net.normal(), []) == 0.0


def test_an_output_that_is_a_weight_is_still_given() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("Softmax", ["h"], "y")
    net.add("Relu", [net.weight("bias", 1, 4)], "table")
    net.output("y")
    net.output("table")
    model = net.normal()
    (part,) = split(model, []).parts
    inputs = sample_inputs(model)
    np.testing.assert_array_equal(run_model(part, inputs)["table"], run_model(model, inputs)["table"])


def test_an_input_that_is_also_an_output_passes_through() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("MatMul", ["h", net.weight("v", 4, 4)], "y")
    net.output("y")
    net.output("x", ["n", 4])
    model = net.normal()
    assert [spec.name for spec in cut_at(model, "h").tensors] == ["x", "h"]
    assert chained(model, [cut_at(model, "h")], 2) == 0.0


def names_of(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def big() -> Net:
    """Layers whose weights are above the size that stays inline."""
    net = Net()
    net.input("x", ["n", 64])
    for index in range(4):
        net.add("MatMul", ["x" if index == 0 else f"s{index - 1}", net.weight(f"w{index}", 64, 64)], f"m{index}")
        net.add("Softmax", [f"m{index}"], f"s{index}")
    net.output("s3")
    return net


def test_written_parts_give_what_the_whole_gives(tmp_path: Path) -> None:
    model = big().normal()
    chain = split(model, find_cuts(model))
    (program,) = write_programs({"whole": chain}, tmp_path)
    values = inputs = sample_inputs(model, 2)
    for segment in program.segments:
        session = open_session(tmp_path / segment.file)
        given = {name: values[name] for name in segment.inputs}
        values = run_session(session, segment.file, list(segment.outputs), given)
    np.testing.assert_allclose(values["s3"], run_model(model, inputs)["s3"], atol=1e-6)


def test_programs_share_one_file_of_weights(tmp_path: Path) -> None:
    model = big().normal()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_programs({"whole": split(model, [])}, tmp_path / "one")
    programs = write_programs({"whole": split(model, find_cuts(model)), "again": split(model, [])}, tmp_path / "two")
    assert [program.name for program in programs] == ["whole", "again"]
    alone, shared = ((tmp_path / name / "weights.bin").stat().st_size for name in ("one", "two"))
    assert alone == shared == 4 * 64 * 64 * 4
    assert all(file.stat().st_size < 4000 for file in (tmp_path / "two").glob("*.onnx"))


def test_writing_again_gives_the_same_files_and_appends_nothing(tmp_path: Path) -> None:
    model = big().normal()
    chains = {"whole": split(model, find_cuts(model))}
    write_programs(chains, tmp_path)
    first = names_of(tmp_path)
    write_programs(chains, tmp_path)
    assert names_of(tmp_path) == first
    assert set(first) == {"weights.bin", *(f"whole-{i}.onnx" for i in range(len(chains["whole"].parts)))}


def interrupted(path: Path) -> None:
    with WeightFile(path) as weights:
        weights.place(numpy_helper.from_array(np.ones(1000, np.float32), "w"))
        raise KeyboardInterrupt


def test_an_interrupted_weight_file_leaves_the_old_one_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_weights_lie_where_they_can_be_mapped(tmp_path: Path) -> None:
    with WeightFile(tmp_path / "weights.bin") as weights:
        weights.place(numpy_helper.from_array(np.ones(300, np.float32), "odd"))
        large = weights.place(numpy_helper.from_array(np.arange(50_000, dtype=np.float32), "large"))
    entries = {entry.key: entry.value for entry in large.external_data}
    assert int(entries["offset"]) % 4096 == 0
    content = (tmp_path / "weights.bin").read_bytes()[int(entries["offset"]) :]
    np.testing.assert_array_equal(np.frombuffer(content, np.float32), np.arange(50_000, dtype=np.float32))


def test_a_body_that_hides_a_name_keeps_its_own() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.weight("w", 4, 4)
    net.add("MatMul", ["x", "w"], "h")
    net.add("ReduceMax", ["h"], "top", keepdims=0)
    net.add("Greater", ["top", net.hold("limit", np.float32(0))], "flag")

    def body(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{op}.out", onnx.TensorProto.FLOAT, None)
        inner = numpy_helper.from_array(np.full((4, 4), 2, np.float32), f"{op}.w")
        nodes = [
            helper.make_node("MatMul", ["h", f"{op}.w"], [f"{op}.a"]),
            helper.make_node(op, [f"{op}.a", "w"], [f"{op}.b"]),
            helper.make_node("ReduceSum", [f"{op}.b"], [f"{op}.s"], keepdims=0),
            helper.make_node("Mul", ["h", f"{op}.s"], [f"{op}.out"]),
        ]
        return helper.make_graph(nodes, op, [], [out], [inner])

    net.add("If", ["flag"], "y", then_branch=body("Add"), else_branch=body("Sub"))
    net.output("y")
    model = net.normal("4,4")
    assert chained(model, [cut_at(model, "h")]) <= 1e-6
