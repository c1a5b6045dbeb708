"""A cut that changes answers is never shipped: where head and tail are not the whole, there is no plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from graphs import Net
from onnx import numpy_helper

from partitioner.build import make_plan
from partitioner.graph.cuts import CandidateCut
from partitioner.graph.split import Chain, Splitter
from partitioner.options import PlanOptions
from shared.errors import ModelError


def options(folder: Path) -> PlanOptions:
    net = Net()
    net.input("x", ["n", 16])
    net.add("MatMul", ["x", net.weight("w", 16, 16)], "h")
    net.add("Softmax", ["h"], "s")
    net.add("MatMul", ["s", net.weight("v", 16, 4)], "y")
    net.output("y")
    model = net.save(folder / "net.onnx")
    return PlanOptions(model=model, out=folder / "net.plan", force_cuts=("s",), lower_rungs=False, quick=True)


def test_a_tail_that_gives_other_answers_stops_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One weight of each tail is moved by a ten-thousandth, as a wrong rounding at a border would."""
    right = Splitter.split

    def shifted(self: Splitter, cuts: Sequence[CandidateCut]) -> Chain:
        chain = right(self, cuts)
        if len(chain.parts) > 1:
            held = chain.parts[-1].proto.graph.initializer[0]
            moved = numpy_helper.to_array(held) + np.float32(1e-4)
            held.CopyFrom(numpy_helper.from_array(moved, held.name))
        return chain

    monkeypatch.setattr(Splitter, "split", shifted)
    with pytest.raises(ModelError, match=r"cut '(input|s)' as raw: head and tail differ from the whole model by"):
        make_plan(options(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_the_same_plan_with_the_right_tail_is_shipped(tmp_path: Path) -> None:
    assert make_plan(options(tmp_path)) == tmp_path / "net.plan"
