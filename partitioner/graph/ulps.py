"""How far two arrays are apart, counted in steps of their own type.

Relative and absolute tolerances hide whether a difference is a rounding: 1e-5 is a hundred roundings in 32 bits and a
hundredth of one in 16. A step (a unit in the last place) is the spacing between neighbouring numbers of the type.
"""

from __future__ import annotations

import numpy as np

from shared.request import Array


def ulps_apart(wanted: Array, got: Array) -> float:
    """The largest difference in steps; 0 where both are the same bit for bit, infinite where shapes or types differ.

    The step of an element is the spacing of its type at the element or at the root mean square of `wanted`, whichever is
    larger: an element is a sum of terms of about that size, and one that came out near zero knows its last digits no better
    than its neighbours do. For integers and truth values a step is one. Equal NaNs and infinities do not count.
    """
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return float("inf")
    if wanted.size == 0 or np.array_equal(wanted, got):
        return 0.0
    wide, other = wanted.astype(np.float64), got.astype(np.float64)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wide - other) / _steps(wanted)
    return float(np.nan_to_num(np.where(same, 0.0, apart), nan=np.inf, posinf=np.inf).max())


def _steps(wanted: Array) -> Array:
    """The step of each element, as float64."""
    if wanted.dtype.kind != "f":
        return np.ones(wanted.shape)
    limits = np.finfo(wanted.dtype.name)
    finite = np.where(np.isfinite(wanted), wanted, 0).astype(np.float64)
    scale = np.sqrt(np.mean(np.square(finite)))
    magnitude = np.clip(np.maximum(np.abs(finite), scale), float(limits.tiny), float(limits.max))
    exponents = np.floor(np.log2(magnitude))
    return np.asarray(np.exp2(exponents - limits.nmant))
