"""Segmentation: intersection over union of the areas of each class, averaged over the classes.

The first output is taken as (1, classes, ...places): the largest class of each place. A single class, or an output without
that axis (1, ...places), counts as one class and the rest, divided at a threshold of 0.5 (`segmentation:threshold=0` for a
model that gives logits). Whole numbers are classes already. Areas are added up over all rows first, and a class that occurs
on neither side does not count, as in the benchmark of PASCAL VOC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partitioner.agreement.metric import Answer, Answers, LabelForm, Metric, first, misfit, paired
from shared.errors import UserError
from shared.request import TensorSpec

LABEL = "mask"
IGNORED = -1

_Mask = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Areas:
    """Reads areas and compares them. `threshold` divides a single channel: at or above it is class 1."""

    name: str
    threshold: float

    def metric(self) -> Metric:
        """These areas as a metric."""
        return Metric(
            self.name,
            "mean over classes of the intersection over union of their areas, added up over all rows (first output: "
            f"largest of axis 1, or a single channel at {self.threshold:g})",
            self.check,
            self.judge,
            labels=LabelForm(
                (LABEL,),
                f"the right class of each place, signed whole numbers; {IGNORED} for places that do not count",
                self.label_fault,
                self.score,
            ),
        )

    def check(self, outputs: Sequence[TensorSpec]) -> None:
        """Refuse a first output that is no map with `UserError`."""
        spec = outputs[0]
        if len(spec.shape) < 3 or math.prod(_places(spec)) < 2:
            raise misfit(self.name, spec, "a map: (1, classes, height, width) or (1, height, width)")

    def read(self, answer: Answer) -> _Mask:
        """The class of each place of one row."""
        array = first(answer)
        if array.dtype.kind in "iub":
            return np.asarray(array, np.int64).reshape(-1)
        if array.ndim >= 4 and array.shape[1] > 1:
            return np.asarray(array.argmax(axis=1), np.int64).reshape(-1)
        return (np.asarray(array, np.float64) >= self.threshold).reshape(-1).astype(np.int64)

    def judge(self, reference: Answers, other: Answers) -> float:
        """Agreement of two ways' answers."""
        return self._mean([(self.read(left), self.read(right)) for left, right in paired(reference, other)])

    def score(self, labels: Answers, answers: Answers) -> float:
        """How well answers meet labels, 0 to 1. Raises `UserError` where every place is one that does not count."""
        pairs: list[tuple[_Mask, _Mask]] = []
        for label, answer in zip(labels, answers, strict=True):
            wanted = np.asarray(label[LABEL], np.int64).reshape(-1)
            counts = wanted != IGNORED
            pairs.append((wanted[counts], self.read(answer)[counts]))
        if not sum(len(wanted) for wanted, _ in pairs):
            raise UserError(f"labels {LABEL!r}: every place is {IGNORED}, so that nothing can be judged")
        return self._mean(pairs)

    def label_fault(self, label: Answer, outputs: Sequence[TensorSpec]) -> str | None:
        """What is wrong with one row's label."""
        array, spec = label[LABEL], outputs[0]
        places = math.prod(_places(spec))
        if array.dtype.kind != "i" or array.size != places:
            return f"{array.dtype}{list(array.shape)}, expected signed whole numbers, {places} a row"
        classes = _classes(spec)
        if int(array.min()) < IGNORED or (classes and int(array.max()) >= classes):
            return f"classes from {array.min()} to {array.max()}, expected {IGNORED} to {classes - 1}"
        return None

    def _mean(self, pairs: Sequence[tuple[_Mask, _Mask]]) -> float:
        left = np.concatenate([pair[0] for pair in pairs])
        right = np.concatenate([pair[1] for pair in pairs])
        both, left_areas, right_areas = (_areas(mask) for mask in (left[left == right], left, right))
        present = set(left_areas) | set(right_areas)
        shares = [
            both.get(number, 0) / (left_areas.get(number, 0) + right_areas.get(number, 0) - both.get(number, 0))
            for number in sorted(present)
        ]
        return float(np.mean(shares))


def _areas(mask: _Mask) -> dict[int, int]:
    numbers, counts = np.unique(mask, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _has_classes(spec: TensorSpec) -> bool:
    return np.dtype(spec.dtype).kind == "f" and len(spec.shape) >= 4


def _places(spec: TensorSpec) -> tuple[int, ...]:
    return spec.shape[2:] if _has_classes(spec) else spec.shape[1:]


def _classes(spec: TensorSpec) -> int:
    """How many classes there can be; 0 where the output does not say."""
    if np.dtype(spec.dtype).kind != "f":
        return 0
    return max(2, spec.shape[1]) if _has_classes(spec) else 2
