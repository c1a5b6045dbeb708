from __future__ import annotations

import numpy as np
import pytest

from partitioner.agreement import agreement, check_metric, default_metric, describe, evidence
from shared.errors import UserError
from shared.request import Array


def found(*boxes: tuple[float, float, float, float, float], room: int = 4) -> dict[str, Array]:
    table = np.zeros((1, room, 4), np.float32)
    scores = np.zeros((1, room), np.float32)
    for index, (*box, score) in enumerate(boxes):
        table[0, index] = box
        scores[0, index] = score
    return {"boxes": table, "scores": scores}


FACE = (10.0, 10.0, 30.0, 30.0, 0.9)
OTHER = (50.0, 50.0, 80.0, 90.0, 0.8)


def test_the_same_detections_agree_fully() -> None:
    answers = [found(FACE, OTHER), found()]
    assert agreement("detection", answers, answers) == 1.0


def test_detection_is_f1_pooled_over_rows() -> None:
    # wanted 2, found 1, matched 1: F1 = 2 * 1 / 3
    assert agreement("detection", [found(FACE, OTHER)], [found(FACE)]) == pytest.approx(2 / 3)


def test_a_box_is_matched_once() -> None:
    assert agreement("detection", [found(FACE)], [found(FACE, FACE)]) == pytest.approx(2 / 3)


def test_a_box_below_half_overlap_is_no_match() -> None:
    moved = (20.0, 10.0, 40.0, 30.0, 0.9)  # overlap 200 of 600
    assert agreement("detection", [found(FACE)], [found(moved)]) == 0.0


def test_a_box_that_slid_agrees_in_part() -> None:
    moved = (12.0, 10.0, 32.0, 30.0, 0.9)  # overlap 360 of 440: IoU 0.818, matched at 0.5 to 0.8, seven of ten
    assert agreement("detection", [found(FACE)], [found(moved)]) == pytest.approx(0.7)


def test_a_score_below_the_threshold_is_no_detection() -> None:
    weak = (*FACE[:4], 0.49)
    assert agreement("detection", [found(FACE)], [found(weak)]) == 0.0
    assert evidence("detection", found(FACE, weak)) == 1.0


def test_no_detection_at_all_is_no_evidence() -> None:
    with pytest.raises(UserError, match="neither way found anything"):
        agreement("detection", [found()], [found()])


def test_top1_is_the_share_of_same_decisions() -> None:
    left: list[dict[str, Array]] = [{"p": np.array([[0.1, 0.9]])}, {"p": np.array([[0.8, 0.2]])}]
    right: list[dict[str, Array]] = [{"p": np.array([[0.4, 0.6]])}, {"p": np.array([[0.1, 0.9]])}]
    assert agreement("top1", left, right) == 0.5


def test_relative_is_the_share_of_rows_within_the_tolerance() -> None:
    base: list[dict[str, Array]] = [{"y": np.array([1.0, 1.0])}, {"y": np.array([1.0, 1.0])}]
    near: list[dict[str, Array]] = [{"y": np.array([1.005, 1.0])}, {"y": np.array([1.2, 1.0])}]
    assert agreement("relative", base, near) == 0.5


def test_relative_never_calls_a_nan_close_to_a_number() -> None:
    base: list[dict[str, Array]] = [{"y": np.array([1.0])}]
    broken: list[dict[str, Array]] = [{"y": np.array([np.nan])}]
    assert agreement("relative", base, broken) == 0.0
    assert agreement("relative", broken, broken) == 1.0


def test_exact_sees_one_bit() -> None:
    one = np.array([1.0], np.float32)
    base: list[dict[str, Array]] = [{"y": one}]
    assert agreement("exact", base, [{"y": one.copy()}]) == 1.0
    assert agreement("exact", base, [{"y": np.nextafter(one, np.float32(2))}]) == 0.0


def test_an_unknown_metric_lists_the_known_and_the_near() -> None:
    with pytest.raises(UserError, match=r"detection, exact, relative, top1.*did you mean 'detection'"):
        agreement("detections", [found(FACE)], [found(FACE)])
    with pytest.raises(UserError, match="unknown"):
        check_metric("f1", ["boxes"])


def test_detection_wants_boxes_and_scores() -> None:
    with pytest.raises(UserError, match="boxes and scores"):
        check_metric("detection", ["heatmap"])
    assert default_metric(["heatmap"]) == "relative"
    assert default_metric(["scores", "boxes", "landmarks"]) == "detection"


def test_answers_must_pair_up() -> None:
    with pytest.raises(UserError, match="as many answers"):
        agreement("exact", [{"y": np.ones(1)}], [])
    with pytest.raises(UserError, match="'y' is missing"):
        agreement("exact", [{"y": np.ones(1)}], [{"z": np.ones(1)}])


def test_every_metric_is_described() -> None:
    for name in ("detection", "top1", "relative", "exact"):
        assert describe(name)
