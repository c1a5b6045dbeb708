"""Metrics of each task, by cases small enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.agreement import METRICS, agreement, check_labels, check_metric, describe, evidence, named_metric
from partitioner.agreement.text import edit_distance
from shared.errors import UserError
from shared.request import Array, TensorSpec

Rows = list[dict[str, Array]]


def rows(name: str, *arrays: object, dtype: str = "float32") -> Rows:
    return [{name: np.asarray(array, dtype)[np.newaxis]} for array in arrays]


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, dtype, shape)


def read(symbols: Sequence[int], count: int = 5) -> dict[str, Array]:
    """One row of a reader that is sure of these symbols, one each step."""
    return {"steps": np.eye(count, dtype=np.float32)[list(symbols)][np.newaxis]}


# classification


def test_top5_asks_that_the_decision_be_among_the_five_best() -> None:
    base = rows("p", [9, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0])
    fifth, sixth = [1, 9, 8, 7, 6, 0, 0], [1, 9, 8, 7, 6, 5, 0]
    assert agreement("top5", base, rows("p", fifth, sixth)) == 0.5
    assert agreement("top1", base, rows("p", fifth, sixth)) == 0.0


def test_behind_topk_the_classes_decide_and_not_the_sorted_scores() -> None:
    def best(*classes: int) -> Rows:
        return [{"scores": np.array([[0.9, 0.1]], np.float32), "classes": np.array([classes], np.int64)}]

    assert agreement("top1", best(4, 2), best(4, 3)) == 1.0
    assert agreement("top1", best(4, 2), best(2, 4)) == 0.0


def test_a_decision_of_no_number_is_not_the_same() -> None:
    assert agreement("top1", rows("p", [1, 2]), rows("p", [0, np.nan])) == 0.0


def test_classification_needs_classes() -> None:
    with pytest.raises(
        UserError, match=r"'top1' does not fit output 'p'.*float32\[1, 1\]: expected at least 2 classes"
    ):
        check_metric("top1", [spec("p", 1, 1)])
    with pytest.raises(UserError, match=r"'top5' does not fit output 'p'.*at least 6 classes"):
        check_metric("top5", [spec("p", 1, 5)])
    with pytest.raises(UserError, match=r"'top5' does not fit output 'classes'.*at least 5"):
        check_metric("top5", [spec("scores", 1, 3), spec("classes", 1, 3, dtype="int64")])
    check_metric("top5", [spec("scores", 1, 5), spec("classes", 1, 5, dtype="int64")])


# text


def test_a_reader_joins_repeats_and_drops_blanks() -> None:
    assert evidence("text", read([0, 1, 1, 0, 1, 2, 2])) == 3.0  # 1 1 2
    assert agreement("text", [read([0, 1, 1, 0, 1, 2, 2])], [read([1, 0, 0, 1, 0, 2, 0])]) == 1.0
    assert agreement("text", [read([0, 1, 1, 0, 1, 2, 2])], [read([1, 1, 1, 1, 0, 2, 0])]) == 0.0


def test_the_blank_is_the_first_symbol_unless_it_is_named() -> None:
    left, right = [read([1, 4, 2, 4])], [read([1, 1, 2, 4])]
    assert agreement("text:blank=last", left, right) == 1.0
    assert agreement("text:blank=4", left, right) == 1.0
    assert agreement("text", left, right) == 0.0
    assert "the last symbol blank" in describe("text:blank=last")


def test_edits_are_counted_over_the_longer_string() -> None:
    base = [read([1, 2, 3, 4]), read([1, 2, 0, 0])]
    other = [read([1, 2, 3, 0]), read([1, 3, 0, 0])]  # 1 of 4 dropped, 1 of 2 changed
    assert agreement("text-edits", base, other) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert agreement("text", base, other) == 0.0


def test_steps_may_stand_before_or_behind_the_row() -> None:
    base = read([1, 2, 3])
    turned: Rows = [{"steps": base["steps"].transpose(1, 0, 2)}]
    assert agreement("text", turned, turned) == 1.0
    assert evidence("text", turned[0]) == 3.0


def test_nothing_read_at_all_is_no_evidence() -> None:
    with pytest.raises(UserError, match="neither way read anything"):
        agreement("text", [read([0, 0])], [read([0, 0])])


def test_a_reader_needs_steps_symbols_and_its_blank() -> None:
    with pytest.raises(UserError, match=r"'text' does not fit output 'p'.*at least 2 steps"):
        check_metric("text", [spec("p", 1, 40)])
    with pytest.raises(UserError, match=r"'text:blank=40' does not fit output 'p'.*a symbol 40, the blank"):
        check_metric("text:blank=40", [spec("p", 1, 20, 40)])
    check_metric("text:blank=39", [spec("p", 1, 20, 40)])


@pytest.mark.parametrize(
    "outputs",
    [
        [spec("boxes", 1, 32, 4), spec("scores", 1, 32)],
        [spec("scores", 1, 32, 2), spec("boxes", 1, 32, 4)],
        [spec("output0", 1, 300, 4), spec("output1", 1, 300, 80)],
    ],
)
@pytest.mark.parametrize("metric", ["text", "text-edits"])
def test_boxes_are_not_read_as_text(metric: str, outputs: list[TensorSpec]) -> None:
    with pytest.raises(UserError, match=rf"'{metric}' does not fit output.*of boxes it cannot judge"):
        check_metric(metric, outputs)


def test_a_reader_with_a_second_output_or_four_symbols_is_read() -> None:
    check_metric("text", [spec("p", 1, 20, 4)])
    check_metric("text", [spec("p", 1, 20, 40), spec("best", 1, 20)])


words = st.lists(st.integers(0, 3), max_size=8).map(tuple)


def by_recursion(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    table = {(i, 0): i for i in range(len(left) + 1)} | {(0, j): j for j in range(len(right) + 1)}
    for i, a in enumerate(left, start=1):
        for j, b in enumerate(right, start=1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a != b))
    return table[len(left), len(right)]


@settings(deadline=None)
@given(words, words)
def test_edit_distance_is_the_textbook_one(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert edit_distance(left, right) == by_recursion(left, right)


# segmentation


def test_areas_are_compared_by_class() -> None:
    base = rows("map", [[[1, 1, 0, 0]], [[0, 0, 1, 1]], [[0, 0, 0, 0]]])  # classes 0 0 1 1, never 2
    other = rows("map", [[[1, 0, 0, 0]], [[0, 1, 1, 1]], [[0, 0, 0, 0]]])  # classes 0 1 1 1
    assert agreement("segmentation", base, other) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_areas_are_added_up_over_rows_first() -> None:
    base, other = rows("m", [[1, 1]], [[1, 0]]), rows("m", [[1, 1]], [[1, 1]])
    # class 1: 3 of 4 places; class 0: none of 1. By rows it would be (1 + (1/2 + 0) / 2) / 2.
    assert agreement("segmentation", base, other) == pytest.approx((3 / 4 + 0) / 2)


def test_a_single_channel_is_divided_at_the_threshold() -> None:
    base, other = rows("m", [[[0.6, 0.4]]]), rows("m", [[[0.9, 0.1]]])
    assert agreement("segmentation", base, other) == 1.0
    assert agreement("segmentation:threshold=0.2", base, other) == pytest.approx((1 / 2 + 0) / 2)


def test_whole_numbers_are_classes_already() -> None:
    base, other = rows("m", [[3, 3, 7, 7]], dtype="int64"), rows("m", [[3, 3, 3, 7]], dtype="int64")
    assert agreement("segmentation", base, other) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_segmentation_needs_a_map() -> None:
    with pytest.raises(UserError, match=r"'segmentation' does not fit output 'p'.*float32\[1, 10\]: expected a map"):
        check_metric("segmentation", [spec("p", 1, 10)])


# embeddings


def test_neighbours_are_kept_by_a_rotation_and_lost_by_a_swap() -> None:
    base = rows("e", [1, 0], [1, 0.1], [0, 1], [0.1, 1])
    turned = rows("e", [0, 1], [-0.1, 1], [-1, 0], [-1, 0.1])
    swapped = rows("e", [1, 0], [0, 1], [1, 0.1], [0.1, 1])
    assert agreement("embeddings", base, turned) == 1.0
    assert agreement("embeddings", base, swapped) == 0.0


def test_a_row_of_no_numbers_has_no_neighbour() -> None:
    base = rows("e", [1, 0], [1, 0.1], [0.9, 0.4], [0.8, 0.5])
    other = rows("e", [np.nan, 0], [1, 0.1], [0.9, 0.4], [0.8, 0.5])
    # 0 has none; 1 was nearest to 0 and must take 2; 2 and 3 keep each other
    assert agreement("embeddings", base, other) == 0.5


def test_two_rows_say_nothing_of_neighbours() -> None:
    with pytest.raises(UserError, match="at least 3 held-out rows, got 2"):
        agreement("embeddings", rows("e", [1, 0], [0, 1]), rows("e", [1, 0], [0, 1]))
    with pytest.raises(UserError, match=r"'embeddings' does not fit output 'n'.*at least 2 floats"):
        check_metric("embeddings", [spec("n", 1, 8, dtype="int64")])


# all of them


def fitting(metric: str, scores: np.ndarray) -> Rows:
    """Rows of random scores (rows, 24) in a shape that the metric takes."""
    if metric.startswith("detection"):
        return [
            {
                "boxes": np.concatenate([row[:4].reshape(1, 2, 2), row[:4].reshape(1, 2, 2) + 1], axis=2),
                "scores": row[4:6],
            }
            for row in np.abs(scores) + 0.5
        ]
    if metric == "segmentation":
        return [{"y": row.reshape(1, 3, 2, 4)} for row in scores]
    if metric.startswith("text"):
        return [{"y": np.concatenate([row.reshape(1, 4, 6), [[[0, 9, 0, 0, 0, 0]]]], axis=1)} for row in scores]
    return [{"y": row.reshape(1, 24)} for row in scores]


def test_a_box_without_an_area_is_no_detection() -> None:
    flat: Rows = [{"boxes": np.array([[[1.0, 1, 1, 3]]]), "scores": np.ones((1, 1))}]
    assert evidence("detection", flat[0]) == 0.0
    with pytest.raises(UserError, match="neither way found anything"):
        agreement("detection", flat, flat)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(METRICS), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_same_is_one_and_all_else_lies_between(metric: str, seed: int, other: int) -> None:
    left, right = (fitting(metric, np.random.default_rng(s).standard_normal((4, 24))) for s in (seed, other))
    assert agreement(metric, left, left) == 1.0
    assert 0.0 <= agreement(metric, left, right) <= 1.0


def test_options_are_for_those_that_have_them() -> None:
    with pytest.raises(UserError, match=r"'top1' takes no option, not 'blank=last'"):
        named_metric("top1:blank=last")
    with pytest.raises(UserError, match=r"'text' takes the option blank=\.\.\., not 'last'"):
        named_metric("text:last")
    with pytest.raises(UserError, match=r"blank must be last or the number of a symbol, not '-2'"):
        named_metric("text:blank=-2")
    with pytest.raises(UserError, match=r"threshold must be a number, not 'inf'"):
        named_metric("segmentation:threshold=inf")


# labels


def test_by_labels_agreement_is_what_is_kept_of_the_whole_models_score() -> None:
    labels: Rows = [{"class": np.array([c])} for c in (0, 1, 1, 0)]
    whole = rows("p", [1, 0], [0, 1], [0, 1], [0, 1])  # right in 3 of 4
    other = rows("p", [1, 0], [0, 1], [1, 0], [0, 1])  # right in 2 of 4
    assert agreement("top1", whole, whole, labels) == 1.0
    assert agreement("top1", whole, other, labels) == pytest.approx(2 / 3)
    right = rows("p", [1, 0], [0, 1], [0, 1], [1, 0])  # better than the whole model counts as the same
    assert agreement("top1", whole, right, labels) == 1.0


def test_labels_of_every_task_are_scored() -> None:
    boxes: Rows = [{"boxes": np.array([[0.0, 0, 2, 2], [0, 0, 0, 0]])}]  # the second is padding
    answer: Rows = [{"boxes": np.array([[[0.0, 0, 2, 2]]]), "scores": np.ones((1, 1))}]
    empty: Rows = [{"boxes": np.array([[[0.0, 0, 2, 2]]]), "scores": np.zeros((1, 1))}]
    assert agreement("detection", answer, empty, boxes) == 0.0
    assert agreement("detection50", answer, answer, boxes) == 1.0
    text: Rows = [{"text": np.array([1, 2, -1, -1])}]
    assert agreement("text-edits", [read([1, 0, 2])], [read([1, 0, 3])], text) == pytest.approx(0.5)
    mask: Rows = [{"mask": np.array([1, 0, -1, -1])}]  # the last two places do not count
    left, right = rows("m", [[1, 0, 0, 1]]), rows("m", [[1, 1, 1, 0]])
    assert agreement("segmentation", left, right, mask) == pytest.approx((1 / 2 + 0) / 2)


def test_labels_that_the_whole_model_never_meets_judge_nothing() -> None:
    labels: Rows = [{"class": np.array([1])}]
    with pytest.raises(UserError, match="meets none of them"):
        agreement("top1", rows("p", [1, 0]), rows("p", [1, 0]), labels)
    with pytest.raises(UserError, match="expected one for each of 1 rows, got 2"):
        agreement("top1", rows("p", [1, 0]), rows("p", [1, 0]), labels * 2)
    nowhere: Rows = [{"mask": np.array([-1, -1])}]
    with pytest.raises(UserError, match="every place is -1"):
        agreement("segmentation", rows("m", [[1, 0]]), rows("m", [[1, 0]]), nowhere)


@pytest.mark.parametrize(
    ("metric", "output", "name", "value", "words"),
    [
        ("top1", spec("p", 1, 3), "class", np.array([3]), r"'class' of row 0 is class 3, expected 0 to 2"),
        ("top1", spec("p", 1, 3), "class", np.array([0.5]), r"float64\[1\], expected whole numbers, 1 a row"),
        ("text", spec("p", 1, 9, 5), "text", np.array([1, 0]), r"symbol 0, expected 0 to 4 without the blank"),
        ("segmentation", spec("p", 1, 3, 2, 2), "mask", np.array([0, 1]), r"expected signed whole numbers, 4 a row"),
        ("segmentation", spec("p", 1, 3, 2, 2), "mask", np.array([0, 1, 3, 0]), r"from 0 to 3, expected -1 to 2"),
        ("detection", spec("boxes", 1, 3, 4), "boxes", np.ones((2, 3)), r"expected numbers, 4 in the last axis"),
        ("detection", spec("boxes", 1, 3, 4), "boxes", np.array([[5.0, 0, 1, 1]]), r"end lies before its beginning"),
        ("top1", spec("p", 1, 3), "klass", np.array([0]), r"no array 'class', only klass"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    metric: str, output: TensorSpec, name: str, value: Array, words: str
) -> None:
    with pytest.raises(UserError, match=rf"labels\.npz: .*{words}"):
        check_labels(metric, [{name: value}], [output], "labels.npz")


def test_some_metrics_take_no_labels() -> None:
    with pytest.raises(UserError, match=r"'exact' cannot be judged by labels: expected one of detection, .*top5"):
        check_labels("exact", [], [spec("p", 1)], "labels.npz")
