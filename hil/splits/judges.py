"""How the answers of the study's models are held against the whole model's: functions of the form `Judge`.

Boxes are judged as an application sees them, after those that overlap better ones were dropped; the other forms are what
the models' post-processing leaves (`hil.splits.posts`), brought to what a metric of headtail's own takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from partitioner.agreement import Answer, Answers, agreement
from shared.request import Array

OVERLAP = 0.4
"""Two boxes that share more than this of their union are of one thing."""
LEAST_SCORE = 0.5
DECISION = 0.5

_Floats = npt.NDArray[np.float64]


def boxes(reference: Answers, other: Answers) -> float:
    """F1 of boxes at overlaps of 0.5 to 0.95, without duplicates. Outputs `boxes` (1, n, 4) and `scores` (1, n)."""
    return _by("detection", _distinct, reference, other)


def text_map(reference: Answers, other: Answers) -> float:
    """Mean of the overlaps of text and of background, over all pixels. Output `text`: eight pixels in a byte."""
    return _by("segmentation", _pixels, reference, other)


def letters(reference: Answers, other: Answers) -> float:
    """1 minus the edit distance of what was read over the longer string's length. Output `letters` (1, steps), blank 0."""
    pairs = [_tables(left, right) for left, right in zip(reference, other, strict=True)]
    return agreement("text-edits", [left for left, _ in pairs], [right for _, right in pairs])


def turn_ends(reference: Answers, other: Answers) -> float:
    """Share of rows in which the same is said of whether the turn is over. Output `logits` (1, 1), a probability."""
    return _by("exact", _decision, reference, other)


def _by(metric: str, read: Callable[[Answer], Mapping[str, Array]], reference: Answers, other: Answers) -> float:
    return agreement(metric, [read(answer) for answer in reference], [read(answer) for answer in other])


def _distinct(answer: Answer) -> Mapping[str, Array]:
    """The boxes that overlap no better one, best first (greedy non-maximum suppression)."""
    found = np.asarray(answer["boxes"], np.float64).reshape(-1, 4)
    scores = np.asarray(answer["scores"], np.float64).reshape(-1)
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if scores[index] >= LEAST_SCORE and all(_overlap(found[index], found[better]) <= OVERLAP for better in kept):
            kept.append(int(index))
    return {"boxes": found[kept], "scores": scores[kept]}


def _overlap(one: _Floats, other: _Floats) -> float:
    sides = np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0.0, None)
    shared = float(np.prod(sides))
    both = float(np.prod(np.clip(one[2:] - one[:2], 0.0, None)) + np.prod(np.clip(other[2:] - other[:2], 0.0, None)))
    return shared / (both - shared) if both > shared else 0.0


def _pixels(answer: Answer) -> Mapping[str, Array]:
    return {"text": np.unpackbits(np.asarray(answer["text"], np.uint8), axis=-1)}


def _tables(left: Answer, right: Answer) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Two readings as the tables of scores that a metric of readers takes, over the symbols that occur in either."""
    steps = [np.asarray(answer["letters"], np.int64).reshape(-1) for answer in (left, right)]
    symbols = np.unique(np.concatenate([[0, 1], *steps]))
    first, second = (np.eye(len(symbols))[np.searchsorted(symbols, read)][np.newaxis] for read in steps)
    return {"letters": first}, {"letters": second}


def _decision(answer: Answer) -> Mapping[str, Array]:
    return {"over": np.asarray(np.asarray(answer["logits"], np.float64) >= DECISION, np.int64)}
