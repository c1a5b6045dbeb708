"""For a model of any task: outputs that are nearly or exactly the same."""

from __future__ import annotations

import numpy as np

from partitioner.agreement.metric import Answer, Answers, Metric, fits_all, paired
from shared.request import Array

RELATIVE_TOLERANCE = 0.01


def relative() -> Metric:
    """Share of rows in which every output is within `RELATIVE_TOLERANCE`."""
    return Metric(
        "relative",
        f"share of rows in which every output differs by at most {RELATIVE_TOLERANCE:.0%} of its L2 norm",
        fits_all,
        _relative,
    )


def exact() -> Metric:
    """Share of rows in which every output is the same to the last bit."""
    return Metric("exact", "share of rows in which every output is the same to the last bit", fits_all, _exact)


def _relative(reference: Answers, other: Answers) -> float:
    def close(left: Answer, right: Answer) -> bool:
        return all(_relative_error(left[name], right[name]) <= RELATIVE_TOLERANCE for name in left)

    return float(np.mean([close(left, right) for left, right in paired(reference, other)]))


def _relative_error(left: Array, right: Array) -> float:
    """L2 norm of the difference over that of `left`; infinite where finiteness differs."""
    a = np.asarray(left, dtype=np.float64)
    b = np.asarray(right, dtype=np.float64)
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    error = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(a)), float(np.finfo(np.float32).tiny))
    return error if np.isfinite(error) else float("inf")


def _exact(reference: Answers, other: Answers) -> float:
    def same(left: Answer, right: Answer) -> bool:
        return all(
            left[name].dtype == right[name].dtype and left[name].tobytes() == right[name].tobytes() for name in left
        )

    return float(np.mean([same(left, right) for left, right in paired(reference, other)]))
