"""Embeddings: does each row keep its nearest neighbour?

What an embedding is for is to be compared with others, so it is judged by that: among the held-out rows, the nearest other
one by cosine. Distances alone would call a rotation of the whole space a failure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partitioner.agreement.metric import Answers, Metric, first, misfit, paired
from shared.errors import UserError
from shared.request import TensorSpec

NAME = "embeddings"
FEWEST = 3
"""With two rows each is the other's nearest, whatever they are."""


def embeddings() -> Metric:
    """Share of rows whose nearest other row by cosine is the same by both ways (first output, flattened)."""
    return Metric(
        NAME,
        "share of rows whose nearest other row, by cosine of the first output, is the same",
        _check,
        _judge,
    )


def _check(outputs: Sequence[TensorSpec]) -> None:
    spec = outputs[0]
    if np.dtype(spec.dtype).kind != "f" or math.prod(spec.shape) < 2:
        raise misfit(NAME, spec, "at least 2 floats a row")


def _judge(reference: Answers, other: Answers) -> float:
    paired(reference, other)
    if len(reference) < FEWEST:
        raise UserError(f"metric {NAME!r}: expected at least {FEWEST} held-out rows, got {len(reference)}")
    wanted, got = _nearest(reference), _nearest(other)
    return float(np.mean(np.equal(wanted, got)))


def _nearest(answers: Answers) -> npt.NDArray[np.int64]:
    """Index of the nearest other row of each row; its own where the row is not finite. The first of several."""
    table = np.stack([np.asarray(first(answer), np.float64).reshape(-1) for answer in answers])
    finite = np.asarray(np.isfinite(table).all(axis=1), np.bool_)
    table = np.where(finite[:, np.newaxis], table, 0.0)
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    unit = table / np.where(norms > 0.0, norms, 1.0)
    cosines = unit @ unit.T
    cosines[:, ~finite] = -np.inf
    np.fill_diagonal(cosines, -np.inf)
    own = np.arange(len(table), dtype=np.int64)
    return np.where(finite, cosines.argmax(axis=1), own).astype(np.int64)
