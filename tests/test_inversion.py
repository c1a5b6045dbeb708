"""How well a private input is rebuilt from what crosses: what is as good as sent is said to be, and what is noise is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import Net, classifier
from test_plan import write_images

from partitioner.build import make
from partitioner.demands.pins import find_pins
from partitioner.explanations.cli import main as explain
from partitioner.graph.copies import copies_of_inputs
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.inversions import inversion
from partitioner.inversions.cli import main as invert
from partitioner.inversions.decoders import look, rebuilt_shape, shrink
from partitioner.inversions.inversion import check_inversion
from partitioner.options import LinkGuess, PlanOptions
from partitioner.records.file import read_record
from shared.errors import Unsatisfiable, UserError
from shared.plan import REPORT_FILE
from shared.request import Array

PICTURE = (1, 40, 48, 3)


def pictures(rows: int, seed: int) -> list[Array]:
    """Smooth pictures of random blobs."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : PICTURE[1], 0 : PICTURE[2]]
    made: list[Array] = []
    for _ in range(rows):
        centres = rng.uniform(0, 40, (4, 2))
        blobs = [np.exp(-((y - a) ** 2 + (x - b) ** 2) / 60) for a, b in centres]
        colours = rng.uniform(0, 120, (4, 3))
        made.append(np.einsum("khw,kc->hwc", blobs, colours).clip(0, 255).astype(np.uint8)[None])
    return made


def found(send: object, fit: int = 24, judged: int = 8) -> inversion.Inversion:
    """The check of what a function makes of each picture."""
    assert callable(send)
    rows = (pictures(fit, 0), pictures(judged, 1))
    return check_inversion("cut", "raw", rows, ([look(send(r)) for r in rows[0]], [look(send(r)) for r in rows[1]]))


def mixed(row: Array) -> tuple[Array, ...]:
    """What an early layer may send: every channel a mixture of the colours, at half the size, cut off at 0."""
    mixing = np.random.default_rng(5).standard_normal((6, 3))
    maps = np.einsum("kc,hwc->khw", mixing, row[0, ::2, ::2].astype(np.float64))
    return (np.concatenate([maps, -maps])[None].clip(0).astype(np.float32),)


def test_an_early_layer_gives_the_input_away_and_it_is_said_so() -> None:
    check = found(mixed)
    assert check.decoder == "by place"
    assert check.shape == (32, 32, 3)
    assert check.explained > 0.9
    assert check.psnr_db > check.mean_psnr_db + 10
    assert "The input is as good as sent" in inversion.words(check)


def test_noise_gives_nothing_away_and_that_is_no_proof() -> None:
    rng = np.random.default_rng(3)
    check = found(lambda _: (rng.standard_normal((1, 6, 20, 24)).astype(np.float32),))
    assert check.explained < 0.1
    assert abs(check.psnr_db - check.mean_psnr_db) < 1.0
    assert "which proves nothing" in inversion.words(check)


def test_what_is_no_map_is_rebuilt_by_row() -> None:
    turn = np.random.default_rng(7).standard_normal((64, PICTURE[1] * PICTURE[2] * 3)) / 500
    check = found(lambda row: ((turn @ row.reshape(-1).astype(np.float64))[None].astype(np.float32),), fit=120)
    assert check.decoder == "by row"
    assert 0.3 < check.explained < 1.0


def test_a_coarse_map_of_many_channels_gives_the_detail_inside_its_places_away() -> None:
    def folded(row: Array) -> tuple[Array, ...]:
        parts = row[0].astype(np.float32).reshape(8, 5, 8, 6, 3).transpose(1, 3, 4, 0, 2)
        return (parts.reshape(1, 90, 8, 8),)

    assert found(folded, fit=48).explained > 0.9


def test_an_input_that_is_no_picture_is_rebuilt_at_fewer_values() -> None:
    assert rebuilt_shape(np.zeros((1, 5000), np.float32)) == (1024,)
    assert rebuilt_shape(np.zeros((1, 3, 64, 80), np.float32)) == (32, 32, 3)
    assert rebuilt_shape(np.zeros((1, 20, 64, 80), np.float32)) == (1024,)
    assert shrink(np.array([[1.0, 3.0, 5.0, 7.0]], np.float32), (2,)).tolist() == [2.0, 6.0]


def test_too_few_rows_are_refused() -> None:
    rows = pictures(7, 0)
    sights = [look((row,)) for row in rows]
    with pytest.raises(UserError, match="needs 8 rows to fit to and one to judge by: there are 7 and 7"):
        check_inversion("cut", "raw", (rows, rows), (sights, sights))


# --- what is the input in other numbers -----------------------------------------------------------------------------


def dressed() -> Net:
    """An input that is normalised and quantised before the first convolution."""
    net = Net(seed=5)
    net.input("x", ["n", 3, 8, 8])
    net.add("Sub", ["x", net.hold("mean", np.float32(0.5))], "centred")
    net.add("QuantizeLinear", ["centred", net.hold("s", np.float32(0.03)), net.hold("z", np.uint8(128))], "q")
    net.add("DequantizeLinear", ["q", "s", "z"], "dq")
    net.add("Relu", [net.conv("dq", "c1", (3, 8))], "r1")
    net.add("Relu", [net.conv("r1", "c2", (8, 8))], "r2")
    net.add("GlobalAveragePool", ["r2"], "y")
    net.output("y")
    return net


def test_an_input_in_other_numbers_is_the_input_and_what_mixes_places_is_not() -> None:
    model = dressed().normal("1,3,8,8")
    assert {"x", "centred", "q", "dq"} <= copies_of_inputs(model)
    assert not {"c1", "r1", "y"} & copies_of_inputs(model)


def test_a_private_input_pins_what_uses_it_in_other_numbers_to_the_device() -> None:
    finder = CutFinder(dressed().normal("1,3,8,8"))
    assert "q" in {cut.name for cut in finder.single()}
    groups = find_groups(finder)
    graph = finder.model.proto.graph
    first = next(g for g, nodes in enumerate(groups.nodes) if any("r1" in graph.node[i].output for i in nodes))
    assert first in find_pins((), groups, private_input=True).edge
    assert not find_pins((), groups, private_input=False).edge
    with pytest.raises(Unsatisfiable, match="--private-input and --pin r1=cloud leave no cut"):
        find_pins(("r1=cloud",), groups, private_input=True)


def test_a_forced_cut_at_the_quantised_input_is_refused_where_the_input_is_private(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((20, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    options = PlanOptions(
        model=dressed().save(tmp_path / "net.onnx"),
        out=tmp_path / "net.plan",
        calibration=tmp_path / "rows.npz",
        shapes=("1,3,8,8",),
        force_cuts=("q",),
        private_input=True,
        quick=True,
    )
    with pytest.raises(Unsatisfiable, match="--private-input"):
        make(options)


# --- from a plan ------------------------------------------------------------------------------------------------------


def test_a_plan_with_a_private_input_says_how_well_it_was_rebuilt_and_invert_says_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = write_images(tmp_path / "images", 12)
    options = PlanOptions(
        model=classifier(64).save(tmp_path / "net.onnx"),
        out=tmp_path / "net.plan",
        calibration=images,
        shapes=("1,3,64,64",),
        preprocess="image",
        link=LinkGuess(10.0, 1.0),
        force_cuts=("stem",),
        private_input=True,
        lower_rungs=False,
        quick=True,
    )
    record = make(options).record
    sent = {(record.ways[place].cut, record.ways[place].coding) for place in record.routes}
    assert {(found.cut, found.coding) for found in record.inversions} == sent
    page = (options.out / REPORT_FILE).read_text("utf-8")
    assert "What can be seen of the input" in page
    assert "early activations can be inverted" in page
    invert(options.out, images, seed=1)
    told = capsys.readouterr().out
    _, again = read_record(options.out)
    assert [inversion.words(found) for found in again.inversions] == told.splitlines()
    assert again.inversions != record.inversions
    explain(options.out)
    assert "a small linear decoder" in " ".join(capsys.readouterr().out.split())
