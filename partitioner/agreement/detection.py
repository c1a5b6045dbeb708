"""Detection: F1 of boxes that were matched one to one, best score first.

`detection` matches at ten overlaps and not at one: at 0.5 alone (`detection50`), a box that slid by a third of its width
counts as the same, and a network at two thirds of its resolution looks as good as itself. The overlaps are those over which
COCO averages its precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from partitioner.agreement.metric import Answer, Answers, LabelForm, Metric, misfit
from shared.errors import UserError
from shared.request import TensorSpec

IOUS = tuple(step / 100 for step in range(50, 100, 5))
"""Overlaps at which boxes are matched: from 0.5, the same thing found, to 0.95, found at the same place."""
DETECTION_THRESHOLD = 0.5

_Floats = npt.NDArray[np.float64]


def detection(name: str, ious: Sequence[float]) -> Metric:
    """F1 of boxes, averaged over these overlaps, for outputs `boxes` (..., 4: x1, y1, x2, y2) and `scores`."""
    how = (
        f"averaged over matching at an overlap (IoU) of {ious[0]:g} to {ious[-1]:g} in steps of 0.05"
        if len(ious) > 1
        else f"matched at an overlap (IoU) of {ious[0]:g} or more"
    )
    return Metric(
        name,
        f"F1 of boxes with a score of {DETECTION_THRESHOLD:g} or more, {how}",
        partial(_check, name),
        partial(_f1, name, ious),
        lambda answer: float(len(_detections(name, answer)[0])),
        LabelForm(
            ("boxes",),
            "the right boxes of a row (n, 4: x1, y1, x2, y2) in the units of the output; those without an area are padding",
            _label_fault,
            partial(_score, name, ious),
        ),
    )


def _check(name: str, outputs: Sequence[TensorSpec]) -> None:
    found = {spec.name: spec for spec in outputs}
    if not {"boxes", "scores"} <= set(found):
        raise UserError(
            f"metric {name!r} needs outputs named boxes and scores, the model gives {', '.join(found)}: "
            "use --postprocess peaks, or another metric"
        )
    boxes, scores = found["boxes"], found["scores"]
    if not boxes.shape or boxes.shape[-1] != 4:
        raise misfit(name, boxes, "4 numbers in its last axis: x1, y1, x2, y2")
    if math.prod(scores.shape) * 4 != math.prod(boxes.shape):
        raise misfit(name, scores, f"one for each of the {math.prod(boxes.shape) // 4} boxes")


def _f1(name: str, ious: Sequence[float], reference: Answers, other: Answers) -> float:
    return _pooled(name, ious, [_detections(name, answer)[0] for answer in reference], other)


def _score(name: str, ious: Sequence[float], labels: Answers, answers: Answers) -> float:
    return _pooled(name, ious, [_labelled(label) for label in labels], answers)


def _pooled(name: str, ious: Sequence[float], wanted: Sequence[_Floats], other: Answers) -> float:
    matched = found = 0
    for boxes, right in zip(wanted, other, strict=True):
        others, scores = _detections(name, right)
        matched += sum(_matches(boxes, others, scores, iou) for iou in ious)
        found += len(others)
    total = sum(len(boxes) for boxes in wanted) + found
    if total == 0:
        raise UserError(
            f"metric {name!r}: neither way found anything, a box (x1, y1, x2, y2) with an area, at a score of "
            f"{DETECTION_THRESHOLD} or more; give calibration data that show what the model looks for"
        )
    return 2.0 * matched / len(ious) / total


def _detections(name: str, answer: Answer) -> tuple[_Floats, _Floats]:
    """Boxes (n, 4) and scores (n) of one row at or above the threshold. A box without an area overlaps nothing, not even
    itself, and is none."""
    try:
        boxes = np.asarray(answer["boxes"], dtype=np.float64).reshape(-1, 4)
        scores = np.asarray(answer["scores"], dtype=np.float64).reshape(-1)
    except (KeyError, ValueError) as error:
        raise UserError(
            f"metric {name!r}: expected outputs boxes (..., 4) and scores, as many of them; "
            f"got {', '.join(f'{output} {array.shape}' for output, array in answer.items())}"
        ) from error
    if len(boxes) != len(scores):
        raise UserError(f"metric {name!r}: expected as many boxes as scores, got {len(boxes)} and {len(scores)}")
    keep = (scores >= DETECTION_THRESHOLD) & (_areas(boxes) > 0.0)
    return boxes[keep], scores[keep]


def _labelled(label: Answer) -> _Floats:
    boxes = np.asarray(label["boxes"], np.float64).reshape(-1, 4)
    return np.compress(_areas(boxes) > 0.0, boxes, axis=0)


def _label_fault(label: Answer, _: Sequence[TensorSpec]) -> str | None:
    boxes = label["boxes"]
    if boxes.dtype.kind not in "fiu" or boxes.ndim < 2 or boxes.shape[-1] != 4:
        return f"{boxes.dtype}{list(boxes.shape)}, expected numbers, 4 in the last axis"
    numbers = np.asarray(boxes, np.float64).reshape(-1, 4)
    if not bool(np.isfinite(numbers).all()) or bool((numbers[:, 2:] < numbers[:, :2]).any()):
        return "a box whose end lies before its beginning or is no number, expected x1, y1, x2, y2"
    return None


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
    union = _areas(boxes) + float(np.prod(np.clip(box[2:] - box[:2], 0.0, None))) - shared
    return np.where(union > 0.0, shared / np.where(union > 0.0, union, 1.0), 0.0)


def _areas(boxes: _Floats) -> _Floats:
    return np.asarray(np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None), axis=1), np.float64)
