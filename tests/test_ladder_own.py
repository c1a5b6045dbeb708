"""Rungs that a function of the user's makes."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from doc_blocks import DOCS, blocks_of
from graphs import classifier
from test_ladder import IMAGE, images

from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.ladder import judge, other_rungs, plan_rungs
from partitioner.running import Tensors, load_part
from shared.errors import ModelError, UserError

FAULTY = """
from pathlib import Path

def says_nothing(model, rows, folder): return None
def writes_nothing(model, rows, folder): return folder / "absent.onnx"
def fails(model, rows, folder): raise KeyError("lost")
def writes_rows(model, rows, folder): rows[0]["image"][:] = 0
def of_another_shape(model, rows, folder):
    import onnx
    net = onnx.load(model)
    net.graph.output[0].name = net.graph.node[0].output[0]
    onnx.save(net, folder / "other.onnx")
    return folder / "other.onnx"
def looks(model, rows, folder):
    assert [{name: array.shape for name, array in row.items()} for row in rows] == [{"image": (1, 16, 16, 3)}] * 3
    assert list(folder.iterdir()) == []
    return Path(model)
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Recipe]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "halved.py").write_text(blocks_of(DOCS / "python.md").files["halved.py"])
    (tmp_path / "faulty.py").write_text(FAULTY)
    yield Recipe(classifier().save(tmp_path / "whole.onnx"), ("1,3,16,16",), IMAGE)
    for name in ("halved", "faulty"):
        sys.modules.pop(name, None)


@pytest.fixture
def whole(recipe: Recipe) -> Model:
    return build(recipe)


def made(recipe: Recipe, whole: Model, name: str, fit: list[Tensors]) -> tuple[str, Model]:
    [(rung, model, _)], notes = other_rungs(plan_rungs([name]), recipe, whole, fit, must=True, threads=1)
    assert notes == []
    return rung, model


def test_a_function_makes_a_rung_that_is_judged_on_rows_that_it_has_not_seen(recipe: Recipe, whole: Model) -> None:
    name, model = made(recipe, whole, "halved:half_size", images(3, 1))
    assert name == "own-half_size"
    assert (model.inputs, model.outputs, model.batchable) == (whole.inputs, whole.outputs, whole.batchable)
    held_out, answer = images(12, 2), load_part(whole, 1)
    reference = [answer(row) for row in held_out]
    rung = judge((name, model, load_part(model, 1)), "embeddings", reference, held_out)
    assert 0.0 < rung.agreement < 1.0
    assert [node.op_type for node in model.proto.graph.node].count("AveragePool") == 1


def test_the_function_gets_the_models_own_file_the_rows_and_an_empty_folder(recipe: Recipe, whole: Model) -> None:
    assert made(recipe, whole, "faulty:looks", images(3, 1))[1].outputs == whole.outputs


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("says_nothing", UserError, "'faulty:says_nothing' returned None: expected the path of an ONNX file"),
        ("writes_nothing", UserError, "absent.onnx'\\): expected the path of an ONNX file"),
        ("fails", UserError, "'faulty:fails' failed: KeyError: 'lost'"),
        ("writes_rows", UserError, "'faulty:writes_rows' failed: ValueError: .*read-only"),
        ("of_another_shape", ModelError, "cannot stand in for whole.onnx: output 1 is"),
    ],
)
def test_what_a_function_does_wrong_is_told(
    recipe: Recipe, whole: Model, name: str, kind: type[UserError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made(recipe, whole, f"faulty:{name}", images(3, 1))


def test_a_function_needs_rows_and_must_be_there(recipe: Recipe, whole: Model) -> None:
    with pytest.raises(UserError, match="rung own-half_size needs --calibration"):
        made(recipe, whole, "halved:half_size", [])
    with pytest.raises(UserError, match="rung 'halved:absent': module 'halved' has no function 'absent'"):
        plan_rungs(["halved:absent"])
    with pytest.raises(UserError, match="rung 'nowhere:f': there is no module 'nowhere'"):
        plan_rungs(["nowhere:f"])
    with pytest.raises(UserError, match="two rungs are functions of one name"):
        other_rungs(plan_rungs(["faulty:looks"] * 2), recipe, whole, images(3, 1), must=True, threads=1)
