"""What a model file says about its weights is held against what is there, with one message that names the weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, classifier
from onnx import TensorProto, helper

from partitioner.graph.external import save_with_weights
from partitioner.graph.load import load_model, read_model
from shared.errors import ModelError

Change = Callable[[onnx.ModelProto], None]


def stored(folder: Path) -> Path:
    """A model whose weights lie in `weights.bin` beside it."""
    net = Net()
    net.input("x", ["n", 64])
    net.add("MatMul", ["x", net.weight("w", 64, 64)], "y")
    net.output("y")
    return save_with_weights(net.proto(), folder)


def changed(path: Path, key: str, value: str) -> Path:
    proto = onnx.load(str(path), load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(proto.SerializeToString())
    return path


def test_weights_in_another_file_are_read(tmp_path: Path) -> None:
    (held,) = read_model(stored(tmp_path)).proto.graph.initializer
    assert len(held.raw_data) == 64 * 64 * 4


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "inner/../../secret.bin", "."])
def test_a_path_that_leaves_the_models_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 100_000)
    (tmp_path / "model" / "inner").mkdir(parents=True)
    path = changed(stored(tmp_path / "model"), "location", location)
    with pytest.raises(ModelError, match=r"weight 'w' lies in .*, outside the model's folder"):
        load_model(path)


def test_a_link_that_leaves_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = stored(tmp_path / "model")
    (tmp_path / "model" / "weights.bin").rename(tmp_path / "secret.bin")
    (tmp_path / "model" / "weights.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelError, match=r"weight 'w' lies in weights\.bin, outside the model's folder"):
        load_model(path)


def test_a_weight_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = stored(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=rf"^{path}: weight 'w' lies in weights\.bin, and there is no such file"):
        load_model(path)


def test_a_weight_file_that_was_cut_off_is_named_with_its_size(tmp_path: Path) -> None:
    path = stored(tmp_path)
    whole = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(whole[:-1])
    with pytest.raises(ModelError, match=r"ends at byte 16,384 of weights\.bin, which has 16,383: the file is cut off"):
        load_model(path)


@pytest.mark.parametrize(("key", "value"), [("offset", "-4"), ("length", "much"), ("offset", "1e3")])
def test_a_place_that_is_no_number_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ModelError, match=r"weight 'w': offset and length in weights\.bin must be numbers"):
        load_model(changed(stored(tmp_path), key, value))


def test_a_place_beyond_the_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the file is cut off"):
        load_model(changed(stored(tmp_path), "offset", "999999999999999"))


def test_a_weight_file_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="weight 'w' lies in another file, which is not named"):
        load_model(changed(stored(tmp_path), "location", ""))


def absurd_shape(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = 1 << 40


def negative_shape(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = -3


def no_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 0


def unknown_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 4711


def few_elements(proto: onnx.ModelProto) -> None:
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0, 2.0])


def inside_a_constant(proto: onnx.ModelProto) -> None:
    tensor = helper.make_tensor("value", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor.dims[0] = 1 << 50
    proto.graph.node.append(helper.make_node("Constant", [], ["held"], value=tensor))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (absurd_shape, r"weight .* of shape \[1099511627776.* needs .* bytes, and the file has"),
        (negative_shape, "expected no size below zero"),
        (no_type, "has element type 0, which is none"),
        (unknown_type, "has element type 4711, which is none"),
        (few_elements, "needs .* elements, and the file has 2"),
        (inside_a_constant, r"weight 'value' of shape \[1125899906842624\]"),
    ],
)
def test_sizes_that_the_file_does_not_hold_are_refused(tmp_path: Path, change: Change, said: str) -> None:
    proto = classifier().proto()
    change(proto)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=said) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_however_a_file_is_cut_off_it_is_one_clear_error(tmp_path: Path) -> None:
    whole = classifier().proto().SerializeToString()
    path = tmp_path / "net.onnx"
    refused = 0
    for end in np.linspace(0, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelError, match=r"net\.onnx") as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
        refused += 1
    assert refused == 40


def test_numbers_in_every_form_that_a_file_may_hold_them_are_taken(tmp_path: Path) -> None:
    net = Net()
    net.input("x", ["n", 2])
    forms = ((TensorProto.FLOAT16, np.float16), (TensorProto.INT32, np.int32), (TensorProto.INT64, np.int64))
    total = "x"
    for elem_type, dtype in forms:
        name = np.dtype(dtype).name
        net.weights.append(helper.make_tensor(name, elem_type, [2], np.array([1, 2], dtype)))
        net.add("Cast", [name], f"{name}.cast", to=TensorProto.FLOAT)
        total = net.add("Add", [total, f"{name}.cast"], f"{name}.sum")
    net.output(total)
    assert len(load_model(net.save(tmp_path / "net.onnx")).proto.graph.initializer) == 3


def test_a_value_too_large_for_any_memory_is_one_clear_error() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("Expand", ["x", net.hold("much", np.array([1 << 20, 1 << 22, 4], np.int64))], "wide")
    net.add("ReduceMax", ["wide"], "top", keepdims=0)
    net.add("Add", ["x", "top"], "y")
    net.output("y")
    with pytest.raises(ModelError, match=r"net\.onnx: the runtime refuses it: .*") as caught:
        net.normal()
    assert "\n" not in str(caught.value)
