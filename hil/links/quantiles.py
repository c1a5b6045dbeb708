"""Quantiles and correlations of measured series."""

from __future__ import annotations

import numpy as np

from hil.links.trace import Floats


def unrounded(values: Floats) -> Floats:
    """`values`, sorted, with those that a coarse clock made equal spread evenly over the clock's step (the smallest
    difference between two different values), so that quantiles of whole milliseconds do not jump. The mean is kept."""
    ordered = np.sort(values)
    different, first, counts = np.unique(ordered, return_index=True, return_counts=True)
    if different.size < 2:
        return ordered
    step = float(np.min(np.diff(different)))
    ranks = np.arange(ordered.size) - np.repeat(first, counts)
    return np.maximum(ordered + step * ((ranks + 0.5) / np.repeat(counts, counts) - 0.5), 0.0)


def autocorrelation(values: Floats, lag: int) -> float:
    """Correlation of a series [steps] with itself `lag` steps later, pairs with a NaN left out; NaN where it is shorter or
    does not vary."""
    if not 0 < lag < values.size:
        return float("nan")
    first, second = values[:-lag], values[lag:]
    both = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    if first.size < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def greatest_gap(first: Floats, second: Floats) -> float:
    """Kolmogorov and Smirnov's distance: the most by which the shares of values up to any x differ, 0 to 1."""
    a, b = unrounded(first), unrounded(second)
    grid = np.concatenate((a, b))
    return float(
        np.max(np.abs(np.searchsorted(a, grid, "right") / a.size - np.searchsorted(b, grid, "right") / b.size))
    )


def typical_ratio(first: Floats, second: Floats) -> float:
    """How far apart equal quantiles are, as a factor of 1 or more: exp of the mean over the quantiles 0.5 % to 99.5 % of
    |ln(a / b)| (the Wasserstein distance of logarithms). NaN where a quantile is 0."""
    levels = np.linspace(0.005, 0.995, 199)
    a, b = np.quantile(unrounded(first), levels), np.quantile(unrounded(second), levels)
    if np.any(a <= 0) or np.any(b <= 0):
        return float("nan")
    return float(np.exp(np.mean(np.abs(np.log(a / b)))))
