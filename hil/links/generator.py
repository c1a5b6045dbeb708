"""Synthetic links: a trace from a model and a seeded generator. Same model, length and seed: same trace.

Markov-modulated delay and rate are how radio links are modelled since Gilbert and Elliott (Bell System Technical Journal,
1960 and 1963); for a chain with other than geometric sojourns see Howard, Dynamic Probabilistic Systems, vol. 2 (1971).
Correlation in time is an AR(1) process of standard normals whose marginal law is then bent (Cario and Nelson,
"Autoregressive to anything", 1996), so that heavy tails and memory do not disturb each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hil.links.model import LinkModel, State, time_shares
from hil.links.trace import MAX_STEPS, Bools, Direction, Floats, Trace
from shared.errors import UserError


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A synthetic trace and the index of the model's state in each step, [steps]."""

    trace: Trace
    states: NDArray[np.intp]


def generate(model: LinkModel, duration_ms: float, rng: np.random.Generator) -> Made:
    """A trace of at least `duration_ms` in the model's steps.

    The first state is drawn by its share of time and begins there. Within an outage delay and rate keep the laws of the
    open state before it (of the first open state, where none was), so that they are sensible when it ends. Delays are
    rounded to a microsecond, rates to a kbit/s.

    Raises `UserError` where the length is not more than 0, or has too many steps.
    """
    steps = math.ceil(duration_ms / model.step_ms) if math.isfinite(duration_ms) else MAX_STEPS + 1
    if not 1 <= steps <= MAX_STEPS:
        raise UserError(f"{duration_ms / 1000:g} s of steps of {model.step_ms:g} ms: expected 1 to {MAX_STEPS} steps")
    path, lengths = _walk(model, steps, rng)
    states = np.repeat(path, lengths)[:steps]
    bursts = _bursts(model, path, lengths, rng)[:steps]
    laws = _laws(model, states)
    memory = np.array([state.delay_memory_ms for state in model.states])[laws]
    delay = _delays(model, laws, _correlated(rng, memory, model.step_ms))
    outage = np.array([state.outage for state in model.states])[states]
    up = _direction(model, laws, rng, 0, delay * model.up_share, bursts, outage)
    down = _direction(model, laws, rng, 1, delay * (1 - model.up_share), bursts, outage)
    return Made(Trace(model.step_us, up, down), states)


def round_trips(state: State, normals: Floats) -> Floats:
    """The round trips in ms that standard normals stand for in a state: the log-normal body, and past its quantile
    1 - `tail_share` a Pareto tail that joins it there and is cut off at `cap_ms`. Shapes are kept."""
    body = state.floor_ms + state.median_ms * np.exp(state.sigma * normals)
    if state.tail_share <= 0:
        return body
    border = NormalDist().inv_cdf(1 - state.tail_share)
    joint = state.floor_ms + state.median_ms * math.exp(state.sigma * border)
    tail = normals > border
    above = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in normals[tail].tolist()])
    body[tail] = np.minimum(joint * (above / state.tail_share) ** (-1 / state.tail_alpha), max(state.cap_ms, joint))
    return body


def _walk(model: LinkModel, steps: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """States in order and how many steps each lasts; together at least `steps`."""
    many = len(model.states)
    path: list[int] = []
    lengths: list[int] = []
    total = 0
    now = int(rng.choice(many, p=time_shares(model)))
    jumps = [np.array(state.next) / sum(state.next) for state in model.states]
    while total < steps:
        length = _dwell(model.states[now], model.step_ms, rng)
        path.append(now)
        lengths.append(length)
        total += length
        now = int(rng.choice(many, p=jumps[now]))
    return np.array(path), np.array(lengths)


def _dwell(state: State, step_ms: float, rng: np.random.Generator) -> int:
    mean = state.dwell_ms / step_ms
    if state.dwell == "geometric":
        return int(rng.geometric(min(1.0, 1 / mean)))
    spread = state.dwell_sigma
    return max(1, round(float(mean * np.exp(spread * rng.standard_normal() - spread * spread / 2))))


def _bursts(model: LinkModel, path: NDArray[np.intp], lengths: NDArray[np.intp], rng: np.random.Generator) -> Bools:
    """Whether each step lies in a burst of loss. Each visit to a state starts from the burst chain's stationary law."""
    parts: list[Bools] = []
    visits: list[tuple[int, int]] = list(zip(path.tolist(), lengths.tolist(), strict=True))
    for index, length in visits:
        state = model.states[index]
        if state.burst_share <= 0 or state.outage:
            parts.append(np.zeros(length, np.bool_))
            continue
        leave = min(1.0, model.step_ms / state.burst_ms)
        enter = min(1.0, leave * state.burst_share / (1 - state.burst_share))
        inside = bool(rng.random() < enter / (enter + leave))
        flags: list[bool] = []
        while len(flags) < length:
            flags += [inside] * int(rng.geometric(leave if inside else enter))
            inside = not inside
        parts.append(np.array(flags[:length]))
    return np.concatenate(parts)


def _laws(model: LinkModel, states: NDArray[np.intp]) -> NDArray[np.intp]:
    """Whose delays and rates hold in each step: the state's own, or in an outage those of the open state before."""
    is_open = np.array([not state.outage for state in model.states])
    seen = np.maximum.accumulate(np.where(is_open[states], np.arange(states.size), -1))
    first = int(np.flatnonzero(is_open)[0])
    return np.where(seen < 0, first, states[np.maximum(seen, 0)])


def _correlated(rng: np.random.Generator, memory_ms: Floats, step_ms: float) -> Floats:
    """Standard normals whose correlation from one step to the next is exp(-step / memory), [steps]."""
    keep = np.where(memory_ms > 0, np.exp(-step_ms / np.maximum(memory_ms, 1e-9)), 0.0)
    fresh = rng.standard_normal(memory_ms.size)
    value = fresh.item(0)
    values = [value]
    for kept, added in zip(keep[1:].tolist(), (fresh * np.sqrt(1 - keep**2))[1:].tolist(), strict=True):
        value = kept * value + added
        values.append(value)
    return np.array(values)


def _delays(model: LinkModel, laws: NDArray[np.intp], normals: Floats) -> Floats:
    delay = np.zeros(laws.size)
    for index, state in enumerate(model.states):
        here = laws == index
        if here.any():
            delay[here] = round_trips(state, normals[here])
    return delay


def _direction(
    model: LinkModel,
    laws: NDArray[np.intp],
    rng: np.random.Generator,
    side: int,
    delay: Floats,
    bursts: Bools,
    outage: Bools,
) -> Direction:
    def of(values: list[float]) -> Floats:
        return np.array(values)[laws]

    normals = _correlated(rng, of([state.rate_memory_ms for state in model.states]), model.step_ms)
    median = of([state.rate_mbit[side] for state in model.states])
    rate = median * np.exp(of([state.rate_sigma[side] for state in model.states]) * normals)
    rate = np.where(median > 0, np.maximum(np.round(rate, 3), 0.001), 0.0)
    inside, outside = of([s.burst_loss[side] for s in model.states]), of([s.other_loss[side] for s in model.states])
    loss = np.where(outage, 0.0, np.where(bursts, inside, outside))
    return Direction(np.round(delay, 3), rate, loss, outage)
