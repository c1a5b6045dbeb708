"""What a plan is judged by reaches the study: labels, and a metric of the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import Net

from partitioner.agreement import describe
from partitioner.ladder import judge
from partitioner.options import PlanOptions
from partitioner.study import begin
from shared.errors import UserError


def quiet(_: str) -> None:
    """No progress is shown."""


@pytest.fixture
def asked(tmp_path: Path) -> PlanOptions:
    """A model whose decision is the largest of its 4 inputs, and 12 rows of which the largest goes round."""
    net = Net()
    net.input("x", ["n", 4])
    net.add("Mul", ["x", net.hold("two", np.array(2, np.float32))], "scores")
    net.output("scores", ["n", 4])
    rows = np.eye(4, dtype=np.float32)[np.arange(12) % 4] + np.arange(12, dtype=np.float32)[:, None]
    np.savez(tmp_path / "rows.npz", x=rows)
    return PlanOptions(
        net.save(tmp_path / "model.onnx"),
        tmp_path / "out.plan",
        shapes=("1,4",),
        calibration=tmp_path / "rows.npz",
        metric="top1",
        quick=True,
    )


def with_labels(asked: PlanOptions, classes: np.ndarray) -> PlanOptions:
    path = asked.out.parent / "labels.npz"
    np.savez(path, **{"class": classes})
    return replace(asked, labels=path)


def test_agreement_is_by_labels_where_there_are_some(asked: PlanOptions) -> None:
    wrong = np.arange(12) % 4
    wrong[:8] = (wrong[:8] + 1) % 4  # the whole model is right about the last four
    study = begin(with_labels(asked, wrong), quiet)
    assert study.agreement_of(study.reference) == 1.0
    turned = [(np.roll(answer[0], 1, axis=1),) for answer in study.reference]
    assert begin(asked, quiet).agreement_of(turned) == 0.0
    assert study.agreement_of(turned) == 1.0, "by labels it is right where the whole model is wrong"


def test_labels_are_refused_before_anything_is_judged(asked: PlanOptions) -> None:
    with pytest.raises(UserError, match=r"labels .*labels\.npz: 'class' of row 0 is class 4, expected 0 to 3"):
        begin(with_labels(asked, np.arange(12) + 4), quiet)


def test_a_metric_of_the_users_is_tried_at_the_door(
    asked: PlanOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics_of_mine.py").write_text(
        "def half(reference, other):\n    return 0.5\n\n"
        "def boxes(reference, other):\n    return reference[0]['boxes'].mean()\n\n"
        "def good(reference, other):\n    return float(reference[0]['scores'].sum() == other[0]['scores'].sum())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="'metrics_of_mine:boxes' failed: KeyError: 'boxes'"):
        begin(replace(asked, metric="metrics_of_mine:boxes"), quiet)
    with pytest.raises(UserError, match=r"gives 0\.5 for answers that are the same"):
        begin(replace(asked, metric="metrics_of_mine:half"), quiet)
    study = begin(replace(asked, metric="metrics_of_mine:good"), quiet)
    assert study.metric == "metrics_of_mine:good"
    assert "metrics_of_mine:good" in describe(study.metric)
    rung = judge(("same", study.model, study.whole), study.metric, study.reference, study.data.held_out)
    assert rung.agreement == 1.0
