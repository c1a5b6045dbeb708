"""How much two ways of running a model agree: one number from 0 to 1 that is measured, never assumed.

Agreement is between answers, not tensors: an int8 boundary can move a logit by a tenth and change no decision, or move
it by a thousandth and flip one. So the metric belongs to the task, and is named in the plan. Mean squared error was
rejected: it has no scale that a user could set a least value on.

Boxes are matched at ten overlaps and not at one: at 0.5 alone, a box that slid by a third of its width counts as the same,
and a network at two thirds of its resolution looks as good as itself.

A metric gets the answers of the whole model (`reference`) and those of the other way, row by row, as mappings from the
outputs' names to arrays of one row.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shared.errors import UserError
from shared.request import Array

Answers = Sequence[Mapping[str, Array]]
"""One mapping from output names to arrays for each row."""

IOUS = tuple(step / 100 for step in range(50, 100, 5))
"""Overlaps at which boxes are matched: from 0.5, the same thing found, to 0.95, found at the same place."""
DETECTION_THRESHOLD = 0.5
RELATIVE_TOLERANCE = 0.01

_Floats = npt.NDArray[np.float64]


def agreement(metric: str, reference: Answers, other: Answers) -> float:
    """Agreement of `other` with `reference` by the metric of this name, 0 to 1.

    Raises `UserError` for an unknown metric, for answers that the metric cannot judge, and where there is nothing to
    judge by (no rows, or no detection in either).
    """
    judge = _judge(metric)
    if not reference or len(reference) != len(other):
        raise UserError(
            f"metric {metric!r}: expected as many answers on both sides, got {len(reference)} and {len(other)}"
        )
    return judge(reference, other)


def check_metric(metric: str, outputs: Sequence[str]) -> None:
    """Refuse an unknown metric, or one that these outputs do not suit, with `UserError`."""
    _judge(metric)
    if metric == "detection" and not {"boxes", "scores"} <= set(outputs):
        raise UserError(
            f"metric 'detection' needs outputs named boxes and scores, the model gives {', '.join(outputs)}: "
            "use --postprocess peaks, or another metric"
        )


def default_metric(outputs: Sequence[str]) -> str:
    """`detection` for a model that gives boxes and scores, otherwise `relative`."""
    return "detection" if {"boxes", "scores"} <= set(outputs) else "relative"


def evidence(metric: str, answer: Mapping[str, Array]) -> float:
    """How much this answer of the whole model lets the metric judge: detections for `detection`, else 1."""
    if metric != "detection":
        return 1.0
    return float(len(_detections(answer)[0]))


def describe(metric: str) -> str:
    """One sentence for a person: what the metric counts."""
    _judge(metric)
    return _DESCRIPTIONS[metric]


def _judge(metric: str) -> Callable[[Answers, Answers], float]:
    judge = _METRICS.get(metric)
    if judge is None:
        near = difflib.get_close_matches(metric, _METRICS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"metric {metric!r} is unknown: expected one of {', '.join(sorted(_METRICS))}{hint}")
    return judge


def _detection(reference: Answers, other: Answers) -> float:
    matched = found = wanted = 0
    for left, right in zip(reference, other, strict=True):
        boxes, _ = _detections(left)
        others, scores = _detections(right)
        matched += sum(_matches(boxes, others, scores, iou) for iou in IOUS)
        wanted += len(boxes)
        found += len(others)
    if wanted + found == 0:
        raise UserError(
            f"metric 'detection': neither way found anything at a score of {DETECTION_THRESHOLD} or more; give "
            "calibration data that show what the model looks for"
        )
    return 2.0 * matched / len(IOUS) / (wanted + found)


def _detections(answer: Mapping[str, Array]) -> tuple[_Floats, _Floats]:
    """Boxes (n, 4) and scores (n) of one row at or above the threshold."""
    try:
        boxes = np.asarray(answer["boxes"], dtype=np.float64).reshape(-1, 4)
        scores = np.asarray(answer["scores"], dtype=np.float64).reshape(-1)
    except (KeyError, ValueError) as error:
        raise UserError(
            "metric 'detection': expected outputs boxes (..., 4) and scores, as many of them; "
            f"got {', '.join(f'{name} {array.shape}' for name, array in answer.items())}"
        ) from error
    if len(boxes) != len(scores):
        raise UserError(f"metric 'detection': expected as many boxes as scores, got {len(boxes)} and {len(scores)}")
    keep = scores >= DETECTION_THRESHOLD
    return boxes[keep], scores[keep]


def _matches(boxes: _Floats, others: _Floats, scores: _Floats, iou: float) -> int:
    """How many of `others`, best score first, meet a box of their own at an overlap of `iou` or more."""
    free = np.ones(len(boxes), dtype=bool)
    count = 0
    for index in np.argsort(-scores, kind="stable"):
        overlaps = np.where(free, _iou(boxes, others[index]), 0.0)
        if overlaps.size and float(overlaps.max()) >= iou:
            free[int(overlaps.argmax())] = False
            count += 1
    return count


def _iou(boxes: _Floats, box: _Floats) -> _Floats:
    """Intersection over union of each of `boxes` (n, 4: x1, y1, x2, y2) with `box` (4)."""
    low = np.maximum(boxes[:, :2], box[:2])
    high = np.minimum(boxes[:, 2:], box[2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
    areas = np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None), axis=1)
    union = areas + float(np.prod(np.clip(box[2:] - box[:2], 0.0, None))) - shared
    return np.where(union > 0.0, shared / np.where(union > 0.0, union, 1.0), 0.0)


def _top1(reference: Answers, other: Answers) -> float:
    name = next(iter(reference[0]))
    same = [np.equal(_best(left[name]), _best(right[name])) for left, right in _pairs(reference, other)]
    return float(np.mean([float(np.mean(rows)) for rows in same]))


def _best(scores: Array) -> npt.NDArray[np.int64]:
    """Index of the largest value of the last axis."""
    return np.asarray(np.atleast_1d(scores).argmax(axis=-1), dtype=np.int64)


def _relative(reference: Answers, other: Answers) -> float:
    def close(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
        return all(_relative_error(left[name], right[name]) <= RELATIVE_TOLERANCE for name in left)

    return float(np.mean([close(left, right) for left, right in _pairs(reference, other)]))


def _relative_error(left: Array, right: Array) -> float:
    """L2 norm of the difference over that of `left`; infinite where shapes or finiteness differ."""
    if left.shape != right.shape:
        return float("inf")
    a = np.asarray(left, dtype=np.float64)
    b = np.asarray(right, dtype=np.float64)
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    error = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(a)), float(np.finfo(np.float32).tiny))
    return error if np.isfinite(error) else float("inf")


def _exact(reference: Answers, other: Answers) -> float:
    def same(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
        return all(
            left[name].dtype == right[name].dtype and left[name].tobytes() == right[name].tobytes() for name in left
        )

    return float(np.mean([same(left, right) for left, right in _pairs(reference, other)]))


def _pairs(reference: Answers, other: Answers) -> list[tuple[Mapping[str, Array], Mapping[str, Array]]]:
    pairs = list(zip(reference, other, strict=True))
    for left, right in pairs:
        missing = set(left) - set(right)
        if missing:
            raise UserError(f"answers cannot be compared: output {sorted(missing)[0]!r} is missing on one side")
    return pairs


_METRICS: Mapping[str, Callable[[Answers, Answers], float]] = {
    "detection": _detection,
    "top1": _top1,
    "relative": _relative,
    "exact": _exact,
}

_DESCRIPTIONS: Mapping[str, str] = {
    "detection": f"F1 of boxes with a score of {DETECTION_THRESHOLD:g} or more, averaged over matching at an overlap (IoU) "
    f"of {IOUS[0]:g} to {IOUS[-1]:g} in steps of 0.05",
    "top1": "share of decisions (largest value of the first output's last axis) that are the same",
    "relative": f"share of rows in which every output differs by at most {RELATIVE_TOLERANCE:.0%} of its L2 norm",
    "exact": "share of rows in which every output is the same to the last bit",
}
