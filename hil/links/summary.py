"""What a trace comes to in figures, and two traces side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hil.links.echoes import probed
from hil.links.quantiles import autocorrelation, greatest_gap, typical_ratio
from hil.links.trace import Floats, Trace, runs

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
OUTAGE_LEVELS = (0.1, 0.5, 0.9, 1.0)
LEAST_MS = 1e-3
LAGS_MS = (100.0, 500.0, 1000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a trace; NaN where the trace does not have it. `unit` is empty for a bare number."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two traces are apart in one respect: the greatest gap between their distribution functions (0 to 1; Kolmogorov
    and Smirnov), and the typical ratio of equal quantiles (1: none). NaN where one of them has no such values."""

    name: str
    greatest_gap: float
    typical_ratio: float


def summarise(trace: Trace) -> tuple[Figure, ...]:
    """A trace's figures: quantiles of delay, of small echoes (which wait for an outage's end) and rates; outages; loss;
    autocorrelations of echoes and of the logarithm of rates. Always the same figures in the same order."""
    minutes = trace.duration_us / 60e6
    series = _series(trace)
    figures = [Figure("duration", trace.duration_us / 1e6, "s")]
    for name, unit in (("round trip", "ms"), ("echo", "ms"), ("rate up", "Mbit/s"), ("rate down", "Mbit/s")):
        figures += [Figure(f"{name} {_level(level)}", _quantile(series[name], level), unit) for level in LEVELS]
    lengths = series["outage length"]
    figures += [
        Figure("outage share", 100 * float(trace.outage.mean()), "%"),
        Figure("outages", lengths.size / minutes, "/min"),
    ]
    figures += [Figure(f"outage length {_level(level)}", _quantile(lengths, level), "ms") for level in OUTAGE_LEVELS]
    closed = ~trace.outage
    for side, direction in (("up", trace.up), ("down", trace.down)):
        figures.append(Figure(f"loss {side}", 100 * _mean(direction.loss[closed]), "%"))
    echo, rate = np.log(np.maximum(probed(trace), LEAST_MS)), _logs(trace)
    for lag_ms in LAGS_MS:
        lag = round(lag_ms * 1000 / trace.step_us)
        figures.append(Figure(f"echo correlation {lag_ms:g} ms later", autocorrelation(echo, lag), ""))
    for lag_ms in LAGS_MS:
        lag = round(lag_ms * 1000 / trace.step_us)
        figures.append(Figure(f"rate correlation {lag_ms:g} ms later", autocorrelation(rate, lag), ""))
    return tuple(figures)


def distances(first: Trace, second: Trace) -> tuple[Distance, ...]:
    """How far two traces are apart in round trips, echoes, rates and outage lengths."""
    a, b = _series(first), _series(second)
    nan = float("nan")
    return tuple(
        Distance(name, greatest_gap(a[name], b[name]), typical_ratio(a[name], b[name]))
        if a[name].size and b[name].size
        else Distance(name, nan, nan)
        for name in a
    )


def _series(trace: Trace) -> dict[str, Floats]:
    free = ~trace.outage
    echo = probed(trace)
    lengths = [(end - start) * trace.step_us / 1000 for start, end in runs(trace.outage)]
    return {
        "round trip": trace.round_trip_ms[free],
        "echo": echo[~np.isnan(echo)],
        "rate up": trace.up.rate_mbit[free & (trace.up.rate_mbit > 0)],
        "rate down": trace.down.rate_mbit[free & (trace.down.rate_mbit > 0)],
        "outage length": np.array(lengths, np.float64),
    }


def _logs(trace: Trace) -> Floats:
    """Logarithm of the rate up, [steps]; NaN in an outage and where it is unlimited."""
    known = ~trace.outage & (trace.up.rate_mbit > 0)
    return np.where(known, np.log(np.where(known, trace.up.rate_mbit, 1.0)), np.nan)


def _quantile(values: Floats, level: float) -> float:
    return float(np.quantile(values, level)) if values.size else float("nan")


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _level(level: float) -> str:
    return "longest" if level == 1.0 else f"p{100 * level:g}"
