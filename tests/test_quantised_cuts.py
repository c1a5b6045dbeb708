"""Where a model is quantised itself, its own 8-bit tensors cross a cut as they are, and head and tail equal the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import chained, classifier
from test_plan import write_images

from partitioner.build import make
from partitioner.costs.cost import HEADER_BYTES
from partitioner.graph.cuts import CutFinder
from partitioner.graph.model import Model
from partitioner.graph.quantise import quantise
from partitioner.options import LinkGuess, PlanOptions
from partitioner.records.file import read_record
from shared.plan import RAW

STEM = "stem_QuantizeLinear_Output"
ACROSS = "block.a_QuantizeLinear_Output"


@pytest.fixture(scope="module")
def model() -> Model:
    """A residual classifier as the runtime's own library quantises it."""
    whole = classifier().normal("1,3,16,16")
    rng = np.random.default_rng(0)
    rows = [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    return quantise(whole, {node.name for node in whole.proto.graph.node}, rows)


@pytest.mark.parametrize("rows", [1, 3])
def test_every_cut_of_a_quantised_model_sends_bytes_and_is_bit_exact(model: Model, rows: int) -> None:
    finder = CutFinder(model)
    places = finder.places()
    assert {STEM, ACROSS} <= set(places)
    for name in places:
        cut = finder.at(name)
        assert {spec.dtype for spec in cut.tensors} == {"uint8"}, name
        assert cut.raw_bytes == sum(int(np.prod(spec.shape)) for spec in cut.tensors)
        assert chained(model, [cut], rows) == 0.0, name


def test_a_quantised_skip_connection_crosses_beside_the_tensor_in_bytes_too(model: Model) -> None:
    assert [spec.name for spec in CutFinder(model).at(ACROSS).tensors] == [STEM, ACROSS]


def test_a_plan_sends_quantised_tensors_raw_counts_their_bytes_and_proves_them_exact(
    model: Model, tmp_path: Path
) -> None:
    path = tmp_path / "int8.onnx"
    onnx.save(model.proto, str(path))
    options = PlanOptions(
        model=path,
        out=tmp_path / "int8.plan",
        calibration=write_images(tmp_path / "images"),
        shapes=("1,3,16,16",),
        preprocess="image",
        link=LinkGuess(10.0, 1.0),
        force_cuts=(STEM, ACROSS),
        lower_rungs=False,
        quick=True,
    )
    plan = make(options).plan
    sent = {cut.name: cut for cut in plan.cuts}
    assert {spec.dtype for name in (STEM, ACROSS) for spec in sent[name].tensors} == {"uint8"}
    assert sent[STEM].codings == sent[ACROSS].codings == (RAW,)
    _, record = read_record(options.out)
    nbytes = {way.cut: way.bytes_up - HEADER_BYTES for way in record.ways if way.kind == "split"}
    assert (nbytes[STEM], nbytes[ACROSS]) == (8 * 8 * 8, 2 * 8 * 8 * 8)
    proofs = {proof.what: proof for proof in record.proofs}
    assert {proofs[STEM].value, proofs[ACROSS].value} == {0.0}
    assert proofs[STEM].exact
