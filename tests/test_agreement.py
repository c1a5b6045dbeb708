from __future__ import annotations

import numpy as np
import pytest

from partitioner.agreement import (
    METRICS,
    Answers,
    Judge,
    agreement,
    check_metric,
    custom_metric,
    default_metric,
    describe,
    evidence,
    try_metric,
)
from shared.errors import UserError
from shared.request import Array, TensorSpec


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, dtype, shape)


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
    with pytest.raises(UserError, match=r"detection, detection50, .*top5.*module:function.*did you mean 'detection'"):
        agreement("detections", [found(FACE)], [found(FACE)])
    with pytest.raises(UserError, match="unknown"):
        check_metric("f1", [spec("boxes", 1, 4)])


def test_detection_wants_boxes_and_scores() -> None:
    with pytest.raises(UserError, match="boxes and scores"):
        check_metric("detection", [spec("heatmap", 1, 8)])
    with pytest.raises(UserError, match=r"does not fit output 'boxes'.*float32\[1, 4, 5\]: expected 4 numbers"):
        check_metric("detection", [spec("boxes", 1, 4, 5), spec("scores", 1, 4)])
    with pytest.raises(UserError, match=r"does not fit output 'scores'.*one for each of the 4 boxes"):
        check_metric("detection50", [spec("boxes", 1, 4, 4), spec("scores", 1, 3)])
    check_metric("detection", [spec("boxes", 1, 4, 4), spec("scores", 1, 4)])


def test_the_outputs_suggest_a_metric() -> None:
    assert default_metric(["heatmap"]) == "relative"
    assert default_metric(["scores", "boxes", "landmarks"]) == "detection"
    assert default_metric(["scores", "classes"]) == "top1"


def test_answers_must_pair_up() -> None:
    with pytest.raises(UserError, match="as many answers"):
        agreement("exact", [{"y": np.ones(1)}], [])
    with pytest.raises(UserError, match="'y' is missing"):
        agreement("exact", [{"y": np.ones(1)}], [{"z": np.ones(1)}])
    with pytest.raises(UserError, match=r"'y' is \[1\] on one side and \[2\]"):
        agreement("relative", [{"y": np.ones(1)}], [{"y": np.ones(2)}])


def test_every_metric_is_described() -> None:
    assert len({describe(name) for name in METRICS}) == len(METRICS)


def test_detection50_asks_only_for_half_an_overlap() -> None:
    moved = (12.0, 10.0, 32.0, 30.0, 0.9)  # IoU 0.818
    assert agreement("detection50", [found(FACE)], [found(moved)]) == 1.0


def mean_of_first(reference: Answers, other: Answers) -> float:
    return float(np.mean([left["y"] == right["y"] for left, right in zip(reference, other, strict=True)]))


def broken(reference: Answers, other: Answers) -> float:
    raise KeyError("heat")


def test_a_function_of_the_user_is_a_metric() -> None:
    metric = custom_metric("mine:mean", mean_of_first)
    base: list[dict[str, Array]] = [{"y": np.array([1])}, {"y": np.array([2])}]
    other: list[dict[str, Array]] = [{"y": np.array([1])}, {"y": np.array([3])}]
    assert agreement(metric, base, other) == 0.5
    assert "mine:mean" in describe(metric)
    try_metric(metric, base)


def writing(reference: Answers, other: Answers) -> float:
    other[0]["y"][:] = reference[0]["y"]
    return 1.0


def writing_first(reference: Answers, other: Answers) -> float:
    return writing(other, reference)


@pytest.mark.parametrize("judge", [writing, writing_first])
def test_a_function_of_the_user_cannot_write_into_the_answers(judge: Judge) -> None:
    base: list[dict[str, Array]] = [{"y": np.array([1])}]
    other: list[dict[str, Array]] = [{"y": np.array([3])}]
    with pytest.raises(UserError, match=r"metric 'mine:writing' failed: ValueError: .*read-only"):
        agreement(custom_metric("mine:writing", judge), base, other)
    assert (base[0]["y"].item(), other[0]["y"].item()) == (1, 3)
    base[0]["y"][:] = 2  # the owner still may


def test_what_a_function_of_the_user_does_wrong_is_one_error() -> None:
    base: list[dict[str, Array]] = [{"y": np.array([1])}]
    with pytest.raises(UserError, match=r"metric 'mine:broken' failed: KeyError: 'heat'"):
        agreement(custom_metric("mine:broken", broken), base, base)
    with pytest.raises(UserError, match=r"'mine:big' returned 2: expected 0 to 1"):
        agreement(custom_metric("mine:big", lambda left, right: 2.0), base, base)
    with pytest.raises(UserError, match=r"returned nan"):
        agreement(custom_metric("mine:nan", lambda left, right: float("nan")), base, base)
    with pytest.raises(UserError, match=r"'mine:half' gives 0.5 for answers that are the same"):
        try_metric(custom_metric("mine:half", lambda left, right: 0.5), base)
