"""Scales for the quantised kinds, from samples of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from shared.codecs.int8 import LIMIT
from shared.codecs.intn import LEAST_BITS, MOST_BITS, limit_of
from shared.errors import UserError
from shared.request import Array

CLIPS = (1.0, 0.9999, 0.999, 0.995, 0.99, 0.98, 0.96, 0.92, 0.86, 0.78, 0.68)
"""Where the range may end: quantiles of the magnitudes that are not 0, the widest first."""

MOST_VALUES = 1 << 20
"""Values that all channels together are judged by."""
LEAST_VALUES = 1 << 10
"""Values that a channel is judged by however many channels there are (where it has so many)."""

LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""A scale that float32 cannot hold would be 0 on the wire's other side."""

GOLDEN = (math.sqrt(5) - 1) / 2

Values = npt.NDArray[np.float64]


def calibrate_int8(arrays: Iterable[Array]) -> tuple[float, ...]:
    """Scales of one tensor from samples of it, each of shape (rows, channels, ...): the largest finite magnitude of a
    channel over all samples, divided by 127. A channel that is always 0 gets 1.

    Raises `UserError` where there is no sample or their channels differ.
    """
    return _scales(_peak([_largest(values) for values in map(by_channel, arrays)], "int8"), LIMIT)


def calibrate_intn(samples: Sequence[Array], bits: int, *, per_channel: bool = True) -> tuple[float, ...]:
    """Scales of one tensor for steps of `bits` bits, from samples of it, each of shape (rows, channels, ...): one for each
    channel, or one for all. A channel that is always 0 gets 1; what is not finite counts as 0.

    Each range ends at the quantile of `CLIPS` at which the sum of squared differences between the values and what is read
    of them is least: with few bits, cutting off a few large values costs less than coarser steps for all. That is the
    clipping of least mean squared error of Choukroun, Kravchik, Yang and Kisilev, *Low-bit Quantization of Neural Networks
    for Efficient Inference* (2019, arXiv:1902.06822), searched over percentiles as those of Wu, Judd, Zhang, Isaev and
    Micikevicius, *Integer Quantization for Deep Learning Inference* (2020, arXiv:2004.09602). Channels of many values are
    judged by some of them, spread evenly.

    Raises `UserError` where there is no sample, their channels differ, or `bits` is not one of 2 to 8.
    """
    if not LEAST_BITS <= bits <= MOST_BITS:
        raise UserError(f"{bits} bits: expected {LEAST_BITS} to {MOST_BITS}")
    limit = limit_of(bits)
    largest: list[Values] = []
    some: list[Values] = []
    for values in map(by_channel, samples):
        rows = values if per_channel else values.reshape(1, -1)
        largest.append(_largest(rows))
        some.append(some_of(rows, max(LEAST_VALUES, MOST_VALUES // max(1, rows.shape[0])) // len(samples)))
    peak = _peak(largest, "intn")
    magnitudes = np.abs(np.concatenate(some, axis=1))
    magnitudes.sort(axis=1)
    best, least = peak, np.full(peak.shape, np.inf)
    for clip in CLIPS:
        end = peak if clip == 1.0 else np.minimum(_quantile(magnitudes, clip), peak)
        step = np.maximum(end / limit, LEAST_SCALE)[:, None]
        steps = magnitudes / step
        np.rint(steps, out=steps)
        np.minimum(steps, limit, out=steps)
        steps *= step
        steps -= magnitudes
        error = np.einsum("ij,ij->i", steps, steps)
        best, least = np.where((error < least) & (end > 0), end, best), np.minimum(error, least)
    return _scales(best, limit)


def by_channel(sample: Array) -> Values:
    """A sample's values as float64, of shape (channels, values), with 0 in place of what is not finite. A sample of fewer
    than two axes is one channel."""
    wide = sample.astype(np.float64)
    if wide.ndim < 2:
        rows = wide.reshape(1, -1)
    else:
        rows = np.moveaxis(wide, 1, 0).reshape(wide.shape[1], math.prod((wide.shape[0], *wide.shape[2:])))
    return np.where(np.isfinite(rows), rows, 0.0)


def _largest(values: Values) -> Values:
    largest: Values = np.max(np.abs(values), axis=1, initial=0.0)
    return largest


def _peak(largest: Sequence[Values], what: str) -> Values:
    """The largest magnitude of each channel over all samples. Raises `UserError` where there is no sample, or
    their channels differ."""
    if not largest:
        raise UserError(f"{what} scales need at least one sample")
    for other in largest:
        if other.size != largest[0].size:
            raise UserError(f"samples of one tensor have {largest[0].size} and {other.size} channels")
    peak: Values = np.max(np.stack(largest), axis=0)
    return peak


def some_of(values: Values, most: int) -> Values:
    """At most `most` columns, but one at least, by the multiples of the golden ratio: evenly spread, and in step with no
    width of a map. `values` is of shape (channels, values)."""
    count = values.shape[1]
    if count <= most:
        return values
    most = max(1, most)
    return values[:, (np.arange(1, most + 1) * GOLDEN % 1.0 * count).astype(np.intp)]


def _quantile(magnitudes: Values, share: float) -> Values:
    """By channel, the least magnitude that `share` of those above 0 do not exceed; 0 where there is none. Each row of
    `magnitudes` is sorted."""
    width = magnitudes.shape[1]
    if width == 0:
        return np.zeros(len(magnitudes))
    above: npt.NDArray[np.intp] = np.count_nonzero(magnitudes, axis=1)
    place = width - above + np.ceil(share * above).astype(np.intp) - 1
    found: Values = magnitudes[np.arange(magnitudes.shape[0]), np.clip(place, 0, width - 1)]
    return found


def _scales(ends: Values, limit: int) -> tuple[float, ...]:
    return tuple(1.0 if end == 0.0 else max(end / limit, LEAST_SCALE) for end in ends.tolist())
