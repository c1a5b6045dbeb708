"""The table of rungs: what a squeezed reader reads, and that what is shown is what was measured."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import cast

import numpy as np
from graphs import Net
from rich.console import Console

from hil import ladder_rows
from hil.ladders import CASES, Ladder, RungFigures, show
from partitioner.graph.load import load_model
from partitioner.graph.normalise import normalise
from partitioner.graph.run import run_model
from partitioner.ladder import plan_rungs

HEIGHT, WIDTH = 8, 64
STEPS = WIDTH // 4


def reader(path: Path) -> Path:
    """A line of text (1, 3, 8, width) to a score for each of five symbols at every fourth column."""
    net = Net(seed=2)
    net.input("x", ["n", 3, HEIGHT, "w"])
    net.conv("x", "c", (3, 5), strides=[1, 4])
    net.add("ReduceMean", ["c"], "columns", axes=[2], keepdims=0)
    net.add("Transpose", ["columns"], "steps", perm=[0, 2, 1])
    net.output("steps")
    return net.save(path)


def test_a_squeezed_reader_gives_as_many_steps_as_the_whole_and_each_of_its_own_in_order(tmp_path: Path) -> None:
    path = reader(tmp_path / "reader.onnx")
    rows = [{"x": np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)}]
    shape = (1, 3, HEIGHT, WIDTH)
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    whole = normalise(load_model(path), {"x": shape})
    for make, steps in ((ladder_rows.three_quarters, 12), (ladder_rows.half, 8)):
        folder = tmp_path / make.__name__
        folder.mkdir()
        made = normalise(load_model(make(path, rows, folder)), {"x": shape})
        assert made.inputs == whole.inputs
        assert made.outputs == whole.outputs
        answer = run_model(made, {"x": image})["steps"]
        places = np.arange(STEPS) * steps // STEPS
        first = [int(np.argmax(places == step)) for step in range(steps)]
        assert np.array_equal(answer, answer[:, first][:, places])
        assert len(np.unique(answer[0, :, 0])) == steps


def test_a_model_with_one_answer_for_a_line_keeps_its_answers_form(tmp_path: Path) -> None:
    net = Net(seed=4)
    net.input("x", ["n", 3, HEIGHT, "w"])
    net.add("GlobalAveragePool", [net.conv("x", "c", (3, 4))], "pooled")
    net.add("Flatten", ["pooled"], "y", axis=1)
    net.output("y")
    path = net.save(tmp_path / "which.onnx")
    rows = [{"x": np.zeros((1, HEIGHT, WIDTH, 3), np.uint8)}]
    made = normalise(load_model(ladder_rows.half(path, rows, tmp_path)), {"x": (1, 3, HEIGHT, WIDTH)})
    assert [spec.shape for spec in made.outputs] == [(1, 4)]


def test_every_case_names_rungs_that_there_are() -> None:
    assert {case.what for case in CASES} == {"detector", "classifier", "reader"}
    for case in CASES:
        assert plan_rungs(case.rungs)
        assert len(case.rungs) + len(case.resolutions) >= 3


def test_the_table_shows_each_rung_with_its_share_of_the_wholes_time() -> None:
    rungs = (RungFigures("whole", 8.0, 9.0, 1.0, True), RungFigures("int8", 6.0, 7.0, 0.93, False))
    ladder = Ladder("detector", "faces", "detection", 48, 30, 0.0, rungs, ("no rung res-32: too small",))
    console = Console(file=StringIO(), width=140)
    assert show([ladder], console)
    told = cast(StringIO, console.file).getvalue()
    row = next(line for line in told.splitlines() if "int8" in line)
    assert all(part in row for part in ("6.00", "7.00", "0.75", "0.930", "no"))
    assert "no rung res-32: too small" in told
