"""Which state of a link each step of a trace is in, by thresholds, and how the states follow each other, by counting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hil.links.trace import Floats, Trace, runs
from shared.errors import UserError

NAMES = ("good", "congested", "cell_edge", "hand_over", "outage")
GOOD, CONGESTED, EDGE, HAND_OVER, OUTAGE = range(5)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where one state ends and the next begins.

    A step's level is the moving median of the round trip over `window_ms`, and its loss the moving mean. Up to
    `congested_factor` times the trace's lowest usual round trip (its 10 % quantile) a step is good, up to `edge_factor`
    times it is congested, beyond that, or with a loss of more than `edge_loss`, it is at the cell's edge. Where nothing
    passes for at most `hand_over_ms` it is a hand-over, else an outage.
    Good, congested or cell edge, a state of fewer than `least_steps` in all counts as the most frequent of the three.
    """

    window_ms: float = 1000.0
    congested_factor: float = 1.6
    edge_factor: float = 2.5
    edge_loss: float = 0.05
    hand_over_ms: float = 1000.0
    least_steps: int = 20


DEFAULT = Thresholds()


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The states that a trace visits, `present` (indices into `NAMES`), how long each visit lasts in steps, by state, and
    the share with which each state is followed by each, [present, present]."""

    present: tuple[int, ...]
    lengths: dict[int, Floats]
    jumps: Floats


def classify(trace: Trace, thresholds: Thresholds) -> NDArray[np.intp]:
    """The state of each step, [steps], as an index into `NAMES`.

    Raises `UserError` where nothing ever passes.
    """
    out = trace.outage
    if out.all():
        raise UserError("the trace is one outage from start to end; expected steps in which something passes")
    step_ms = trace.step_us / 1000
    width = max(1, round(thresholds.window_ms / step_ms))
    open_steps = np.flatnonzero(~out)
    delay = trace.round_trip_ms[open_steps]
    loss = np.maximum(trace.up.loss, trace.down.loss)[open_steps]
    level = np.median(_windows(delay, width), axis=1)
    lossy = _windows(loss, width).mean(axis=1) > thresholds.edge_loss
    usual = float(np.quantile(delay, 0.1))
    states = np.full(trace.steps, OUTAGE, np.intp)
    open_states = np.where(level > thresholds.congested_factor * usual, CONGESTED, GOOD)
    open_states = np.where(lossy | (level > thresholds.edge_factor * usual), EDGE, open_states)
    steps_of = np.bincount(open_states, minlength=3)
    rare = np.flatnonzero(steps_of < thresholds.least_steps)
    states[open_steps] = np.where(np.isin(open_states, rare), int(np.argmax(steps_of)), open_states)
    for start, end in runs(out):
        if (end - start) * step_ms <= thresholds.hand_over_ms:
            states[start:end] = HAND_OVER
    return states


def count(states: NDArray[np.intp]) -> Visits:
    """Visits and jumps of a series of states [steps].

    The series is closed to a ring: its end is followed by its start. So every state that occurs is left as often as it is
    entered, and the long-run shares of time that the counts imply are exactly those of the series.
    """
    starts = np.flatnonzero(states != np.roll(states, 1))
    if not starts.size:
        only = int(states[0])
        return Visits((only,), {only: np.array([float(states.size)])}, np.ones((1, 1)))
    sequence = states[starts]
    lengths = np.diff(np.append(starts, starts[0] + states.size)).astype(np.float64)
    present = tuple(int(state) for state in np.unique(states))
    places = np.searchsorted(np.array(present), sequence)
    jumps = np.zeros((len(present), len(present)))
    np.add.at(jumps, (places, np.roll(places, -1)), 1.0)
    jumps /= jumps.sum(axis=1, keepdims=True)
    return Visits(present, {state: lengths[sequence == state] for state in present}, jumps)


def _windows(values: Floats, width: int) -> Floats:
    """The `width` values around each of `values` [steps], [steps, width]; the ends are filled by repetition."""
    width = min(width, values.size)
    before = width // 2
    padded = np.pad(values, (before, width - 1 - before), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, width)
