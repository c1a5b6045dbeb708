"""Reading model files: what is wrong is said in one sentence that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, classifier

from partitioner.graph import runtime
from partitioner.graph.external import save_with_weights
from partitioner.graph.load import load_model, read_model
from partitioner.graph.normalise import normalise
from partitioner.graph.run import check_same, run_model, sample_inputs
from shared.errors import ModelError


def one_node(op: str, elem_type: int = onnx.TensorProto.FLOAT, domain: str = "", opset: int = 17) -> Net:
    net = Net(opset=opset)
    net.input("x", [2, 2], elem_type)
    net.add(op, ["x"], "y", domain=domain)
    net.output("y", None, elem_type)
    if domain:
        net.domains[domain] = 1
    return net


def test_a_good_file_is_read_with_its_facts(tmp_path: Path) -> None:
    model = load_model(classifier().save(tmp_path / "net.onnx"))
    assert (model.name, model.opset, model.ir_version) == ("net.onnx", 17, 8)
    assert model.inputs[0].name == "x"
    assert model.inputs[0].shape == (-1, 3, 16, 16)
    assert model.parameters == sum(int(np.prod(t.dims)) for t in model.proto.graph.initializer)
    assert model.weight_bytes == 4 * model.parameters


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        (b"", "is empty"),
        (b"a readme, not a model\n" * 20, "not an ONNX model"),
        (b"\x08\x08", "not an ONNX model"),
    ],
)
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "wrong.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a file"):
        load_model(tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = classifier().save(tmp_path / "net.onnx")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ModelError, match=r"net\.onnx"):
        load_model(path)


def test_missing_external_weights_are_named(tmp_path: Path) -> None:
    path = save_with_weights(classifier().proto(), tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        load_model(path)


def test_a_newer_opset_is_refused_before_the_first_request(tmp_path: Path) -> None:
    path = one_node("Relu", opset=onnx.defs.onnx_opset_version() + 1).save(tmp_path / "new.onnx")
    with pytest.raises(ModelError, match=r"opset .* is newer than"):
        load_model(path)


def test_a_newer_file_format_is_refused(tmp_path: Path) -> None:
    net = one_node("Relu")
    net.ir_version = onnx.IR_VERSION + 1
    with pytest.raises(ModelError, match=r"file format .* is newer than"):
        load_model(net.save(tmp_path / "new.onnx"))


def test_an_operator_that_nobody_has_is_named_with_its_domain(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"operator com\.example:Magic is unknown to every installed provider"):
        load_model(one_node("Magic", domain="com.example").save(tmp_path / "net.onnx"))


def test_an_operator_without_a_kernel_for_its_types_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no installed provider .* implements operator Det"):
        load_model(one_node("Det", onnx.TensorProto.DOUBLE).save(tmp_path / "net.onnx"))


def test_types_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the runtime refuses it"):
        load_model(one_node("Not").save(tmp_path / "net.onnx"))


def test_a_graph_without_operators_is_refused(tmp_path: Path) -> None:
    net = Net()
    net.input("x", [1])
    net.output("x", [1])
    with pytest.raises(ModelError, match="has no operators"):
        read_model(net.save(tmp_path / "net.onnx"))


def test_a_model_too_large_for_one_message_goes_to_the_runtime_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier().normal("1,3,16,16")
    wanted = run_model(model, sample_inputs(model))
    monkeypatch.setattr(runtime, "LARGE_BYTES", 100)
    written: list[Path] = []

    def spy(proto: onnx.ModelProto, folder: Path) -> Path:
        written.append(folder)
        return save_with_weights(proto, folder)

    monkeypatch.setattr(runtime, "save_with_weights", spy)
    got = run_model(model, sample_inputs(model))
    assert written
    np.testing.assert_array_equal(got["logits"], wanted["logits"])


def test_external_weights_are_read_and_the_whole_way_works_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_with_weights(classifier().proto(), tmp_path)
    monkeypatch.setattr(runtime, "LARGE_BYTES", 100)
    read = load_model(path)
    assert read.parameters == classifier().read().parameters
    straight = classifier().normal("1,3,16,16")
    model = normalise(read, {"x": (1, 3, 16, 16)})
    assert model.batchable
    assert check_same(straight, model, sample_inputs(model), 1e-6) <= 1e-6


def test_asking_for_a_provider_that_is_not_there_fails_instead_of_falling_back() -> None:
    model = classifier().normal("1,3,16,16")
    with pytest.raises(ModelError, match="CUDAExecutionProvider"):
        runtime.open_session(model, provider="CUDAExecutionProvider")
