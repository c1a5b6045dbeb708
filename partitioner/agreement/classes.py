"""Classification: is it the same decision, or at least among the five best?

A decision is the largest value of the first output's last axis; every other axis counts decisions. Behind the
post-processing `topk` (outputs `scores` and `classes`) the classes are read as they stand, since the largest of sorted
scores is always the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from partitioner.agreement.metric import Answer, Answers, LabelForm, Metric, first, misfit, paired
from shared.request import Array, TensorSpec

RANKED = "classes"
"""Output of the post-processing `topk` that names the best classes, falling."""
LABEL = "class"

_Indices = npt.NDArray[np.int64]


def classification(name: str, depth: int) -> Metric:
    """`top1` at a depth of 1: share of decisions that are the same. Deeper: share in which the reference's decision is among
    so many best of the other."""
    counted = "that are the same" if depth == 1 else f"that are among the {depth} best of the other way"
    return Metric(
        name,
        f"share of decisions (largest value of the first output's last axis) {counted}",
        partial(_check, name, depth),
        partial(_judge, depth),
        labels=LabelForm(
            (LABEL,),
            "the right class of each decision, whole numbers",
            _label_fault,
            partial(_score, depth),
        ),
    )


def _check(name: str, depth: int, outputs: Sequence[TensorSpec]) -> None:
    ranked = _ranked_spec(outputs)
    spec = ranked or outputs[0]
    least = depth if ranked else depth + 1
    if not spec.shape or spec.shape[-1] < least:
        raise misfit(name, spec, f"at least {least} classes in its last axis")


def _ranked_spec(outputs: Sequence[TensorSpec]) -> TensorSpec | None:
    found = {spec.name: spec for spec in outputs}
    return found[RANKED] if {"scores", RANKED} == set(found) else None


def _is_ranked(answer: Answer) -> bool:
    return {"scores", RANKED} == set(answer)


def _best(answer: Answer, depth: int) -> _Indices:
    """The best classes (decisions, depth), best first."""
    if _is_ranked(answer):
        table = np.asarray(answer[RANKED], np.int64)
        return table.reshape(-1, table.shape[-1])[:, :depth]
    scores = _scores(answer)
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth].astype(np.int64)


def _scores(answer: Answer) -> npt.NDArray[np.float64]:
    array: Array = np.atleast_1d(first(answer))
    return np.asarray(array, np.float64).reshape(-1, array.shape[-1])


def _broken(answer: Answer) -> npt.NDArray[np.bool_]:
    """Whether each decision rests on something that is no number."""
    array = answer["scores"] if _is_ranked(answer) else first(answer)
    flat = np.asarray(np.atleast_1d(array), np.float64)
    return np.asarray(np.isnan(flat.reshape(-1, flat.shape[-1])).any(axis=1), np.bool_)


def _judge(depth: int, reference: Answers, other: Answers) -> float:
    shares: list[float] = []
    for left, right in paired(reference, other):
        same = _met(_best(left, 1), _best(right, depth)) & np.equal(_broken(left), _broken(right))
        shares.append(float(np.mean(same)))
    return float(np.mean(shares))


def _score(depth: int, labels: Answers, answers: Answers) -> float:
    shares = [
        float(np.mean(_met(np.asarray(label[LABEL], np.int64).reshape(-1, 1), _best(answer, depth)) & ~_broken(answer)))
        for label, answer in zip(labels, answers, strict=True)
    ]
    return float(np.mean(shares))


def _met(wanted: _Indices, found: _Indices) -> npt.NDArray[np.bool_]:
    return np.asarray(np.equal(wanted, found).any(axis=1), np.bool_)


def _label_fault(label: Answer, outputs: Sequence[TensorSpec]) -> str | None:
    ranked = _ranked_spec(outputs)
    spec = ranked or outputs[0]
    array = label[LABEL]
    decisions = math.prod(spec.shape[:-1])
    if array.dtype.kind not in "iu" or array.size != decisions:
        return f"{array.dtype}{list(array.shape)}, expected whole numbers, {decisions} a row"
    limit = np.iinfo(np.int64).max if ranked else spec.shape[-1]
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= limit:
        return f"class {low if low < 0 else high}, expected 0 to {limit - 1}"
    return None
