"""A link's parameter set from a trace: thresholds give the states, counting the chain, quantiles and moments the rest.

One pass of what classification EM (Celeux and Govaert 1992) iterates: since the thresholds are fixed and said in the open,
a person can see why a step is in a state, and the same trace gives the same set. Rejected: Baum and Welch's EM for a
hidden chain, whose states have no names and whose result hangs on where it starts.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from hil.links.model import LinkModel, State, check_model
from hil.links.quantiles import autocorrelation, unrounded
from hil.links.states import NAMES, Thresholds, classify, count
from hil.links.trace import Bools, Floats, Trace, runs

TAIL_SHARE = 0.02
TAIL_LEAST = 500
"""Steps below which a state's tail is not told from its body."""
CAP_FACTOR = 1.5
LEAST_MS = 1e-6
SIGMA_MOST = 5.0
FADED = 0.05
LAGS_MOST = 2000
NORMAL_95 = 1.6448536269514722


def fit(trace: Trace, name: str, thresholds: Thresholds, about: str = "", sources: tuple[str, ...] = ()) -> LinkModel:
    """The parameter set of a trace, in the trace's steps.

    States that the trace does not visit are left out. What the trace does not hold (rates, where all are 0) the set does
    not hold either.

    Raises `UserError` where nothing ever passes in the trace.
    """
    states = classify(trace, thresholds)
    visits = count(states)
    step_ms = trace.step_us / 1000
    made = tuple(
        _state(trace, states == state, visits.lengths[state], State(name=NAMES[state], dwell_ms=step_ms, next=shares))
        for state, shares in zip(visits.present, (_shares(row) for row in visits.jumps), strict=True)
    )
    up, down = (float(np.median(side.delay_ms[~trace.outage])) for side in (trace.up, trace.down))
    share = up / (up + down) if up + down > 0 else 0.5
    model = LinkModel(name=name, about=about, sources=sources, step_ms=step_ms, states=made, up_share=_tidy(share))
    check_model(model, name)
    return model


def shifted_lognormal(values: Floats) -> tuple[float, float, float]:
    """Floor, median above the floor, and deviation of the logarithm of a shifted log-normal, from the quantiles 5, 50 and
    95 % of `values` (Aitchison and Brown, The Lognormal Distribution, 1957, on the method of quantiles).

    Where the upper side is not the longer one, the floor is 0. The floor stays below the least value.
    """
    low, middle, high = (float(value) for value in np.quantile(values, (0.05, 0.5, 0.95)))
    skew = low + high - 2 * middle
    floor = (low * high - middle * middle) / skew if skew > 1e-9 * middle else 0.0
    floor = min(max(0.0, floor), 0.999 * float(np.min(values)))
    median = max(middle - floor, LEAST_MS)
    spread = math.log(max(high - floor, LEAST_MS) / max(low - floor, LEAST_MS)) / (2 * NORMAL_95)
    return floor, median, min(max(0.0, spread), SIGMA_MOST)


def hill(values: Floats, threshold: float) -> float:
    """Hill's estimate (1975) of a Pareto tail's exponent, 0.1 to 1e6, from the values above `threshold`, more than 0;
    1e6, no tail to speak of, where there is none above."""
    above = values[values > threshold]
    return min(1e6, max(0.1, 1 / float(np.mean(np.log(above / threshold))))) if above.size else 1e6


def memory_ms(values: Floats, here: Bools, step_ms: float) -> float:
    """The time in which a series' correlation falls to 1/e, were it an AR(1), by its autocorrelations r among steps that are
    `here`; 0 where it has no memory, and at most the length of the series.

    From r_0 to the last before r_K, the first below `FADED`, they sum to (1 - r_K) / (1 - r_1) for an AR(1): the integral
    time scale. Of a series that has more than one memory this gives the middle, of which r_1 alone sees the shortest.
    """
    masked = np.where(here, values, np.nan)
    total, last = 1.0, 0.0
    for lag in range(1, max(2, min(LAGS_MOST, values.size // 4))):
        last = autocorrelation(masked, lag)
        if not last >= FADED:
            break
        total += last
    kept = 1 - (1 - (0.0 if math.isnan(last) else last)) / total
    return -step_ms / math.log(min(kept, math.exp(-1 / values.size))) if kept > 0 else 0.0


def _state(trace: Trace, here: Bools, lengths: Floats, state: State) -> State:
    """`state` with its stay from the `lengths` of visits in steps, and the rest from the steps that are `here`."""
    step_ms = trace.step_us / 1000
    stay = _tidy(float(lengths.mean()) * step_ms)
    if trace.outage[here].any():
        spread = _tidy(min(float(np.log(lengths).std()), SIGMA_MOST))
        return replace(state, dwell_ms=stay, dwell="lognormal", dwell_sigma=spread, outage=True)
    delay = trace.round_trip_ms
    spread_out = unrounded(delay[here])
    floor, median, sigma = shifted_lognormal(spread_out)
    state = replace(state, dwell_ms=stay, floor_ms=_tidy(floor), median_ms=_tidy(median), sigma=_tidy(sigma))
    joint = float(np.quantile(spread_out, 1 - TAIL_SHARE))
    if spread_out.size >= TAIL_LEAST and sigma > 0 and joint > 0:
        cap = max(CAP_FACTOR * float(spread_out[-1]), floor + 2 * median)
        state = replace(state, tail_share=TAIL_SHARE, tail_alpha=_tidy(hill(spread_out, joint)), cap_ms=_tidy(cap))
    sides = (trace.up, trace.down)
    (up_rate, up_sigma), (down_rate, down_sigma) = (_rate(side.rate_mbit, here) for side in sides)
    rate_memory = max(memory_ms(np.log(np.maximum(side.rate_mbit, 1e-3)), here, step_ms) for side in sides)
    state = replace(
        state,
        delay_memory_ms=_tidy(memory_ms(np.log(np.maximum(delay - floor, 1e-3 * median)), here, step_ms)),
        rate_mbit=_pair(up_rate, down_rate),
        rate_sigma=_pair(up_sigma, down_sigma),
        rate_memory_ms=_tidy(rate_memory),
    )
    return _with_losses(state, trace, here)


def _rate(rates: Floats, here: Bools) -> tuple[float, float]:
    """Median and deviation of the logarithm of the limited rates; 0 and 0 where most steps have no limit."""
    limited = rates[here & (rates > 0)]
    if 2 * limited.size <= int(here.sum()):
        return 0.0, 0.0
    logs = np.log(limited)
    return math.exp(float(logs.mean())), min(float(logs.std()), SIGMA_MOST)


def _with_losses(state: State, trace: Trace, here: Bools) -> State:
    """Bursts are the steps whose loss is more than half of the state's highest. Where that is most of them, or where the
    highest is not twice the mean, loss is even, without bursts."""
    up, down = trace.up.loss, trace.down.loss
    loss = np.maximum(up, down)
    highest = float(loss[here].max())
    inside = here & (loss > highest / 2)
    share = float(inside.sum() / here.sum())
    if highest <= 0 or share >= 0.5 or highest <= 2 * float(loss[here].mean()):
        return replace(state, other_loss=_pair(float(up[here].mean()), float(down[here].mean())))
    lengths = [end - start for start, end in runs(inside)]
    outside = here & ~inside
    return replace(
        state,
        burst_share=_tidy(share),
        burst_ms=_tidy(float(np.mean(lengths)) * trace.step_us / 1000),
        burst_loss=_pair(float(up[inside].mean()), float(down[inside].mean())),
        other_loss=_pair(float(up[outside].mean()), float(down[outside].mean())),
    )


def _pair(up: float, down: float) -> tuple[float, float]:
    return _tidy(up), _tidy(down)


def _shares(values: Floats) -> tuple[float, ...]:
    return tuple(_tidy(value, 9) for value in values.tolist())


def _tidy(value: float, digits: int = 6) -> float:
    """A number with so many significant digits, as a person may read it."""
    return float(f"{value:.{digits}g}")
