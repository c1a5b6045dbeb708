"""A model of a link: states that follow each other at random, and what delay, rate and loss are like in each.

The states form a semi-Markov chain: a state lasts a random time, then the next one is drawn by `next`. Ordinary states
last a geometric number of steps, which makes them a Markov chain; outages and hand-overs last a log-normal time, since a
hand-over has a typical length and no memoryless one. In each open state the round trip is a shifted log-normal body with
a Pareto tail, the rate a log-normal, each correlated in time; losses come in bursts (Gilbert 1960, Elliott 1963).
Rejected: one hidden Markov model with Gaussian emissions (tails too light), and playing back resampled pieces of measured
traces (a trace is then shipped, and no knob turns).
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from hil.links.trace import Floats
from shared.errors import UserError

MAX_STATES = 16


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One state of a link. Pairs are (up, down).

    `dwell_ms`: mean time in the state. `dwell`: how it is spread, `geometric` or `lognormal`; `dwell_sigma`: standard
    deviation of the logarithm of a log-normal one. `next`: probability of each of the model's states to come next, in
    their order. `outage`: nothing passes; all that follows is then left out.

    Round trip: `floor_ms` + exp(normal of mean ln `median_ms` and deviation `sigma`), correlated over `delay_memory_ms`
    (the time in which correlation falls to 1/e); the share `tail_share` of longest ones follows a Pareto law of exponent
    `tail_alpha` instead, cut off at `cap_ms`. `rate_mbit` (0: unlimited), `rate_sigma`, `rate_memory_ms`: likewise.

    `burst_share` of the time is spent in bursts of loss of mean length `burst_ms`; a packet is lost with `burst_loss`
    inside them, `other_loss` outside. Bursts meet both directions at once.
    """

    name: str
    dwell_ms: float
    next: tuple[float, ...]
    dwell: Literal["geometric", "lognormal"] = "geometric"
    dwell_sigma: float = 0.0
    outage: bool = False
    floor_ms: float = 0.0
    median_ms: float = 0.0
    sigma: float = 0.0
    delay_memory_ms: float = 0.0
    tail_share: float = 0.0
    tail_alpha: float = 2.0
    cap_ms: float = 0.0
    rate_mbit: tuple[float, float] = (0.0, 0.0)
    rate_sigma: tuple[float, float] = (0.0, 0.0)
    rate_memory_ms: float = 0.0
    burst_share: float = 0.0
    burst_ms: float = 0.0
    burst_loss: tuple[float, float] = (0.0, 0.0)
    other_loss: tuple[float, float] = (0.0, 0.0)

    @property
    def mean_loss(self) -> tuple[float, float]:
        """Probability that a packet is lost in this state, up and down."""
        share = self.burst_share
        up, down = (share * b + (1 - share) * o for b, o in zip(self.burst_loss, self.other_loss, strict=True))
        return up, down


class LinkModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link's parameter set. `step_ms`: what it is played in. `up_share`: part of the round trip that lies on the way up.
    `about` and `sources` say in words what it stands for and where its numbers come from."""

    name: str
    about: str
    sources: tuple[str, ...]
    step_ms: float
    states: tuple[State, ...]
    up_share: float = 0.5

    @property
    def step_us(self) -> int:
        """The step in microseconds."""
        return round(self.step_ms * 1000)


def check_model(model: LinkModel, name: str) -> None:
    """Raises `UserError` that begins with `name` and the field where a model's value is out of range or does not fit."""
    _within(f"{name}: step_ms", model.step_ms, 1.0, 1000.0)
    _within(f"{name}: up_share", model.up_share, 0.0, 1.0)
    if not 1 <= len(model.states) <= MAX_STATES:
        raise UserError(f"{name}: {len(model.states)} states; expected 1 to {MAX_STATES}")
    if len({state.name for state in model.states}) < len(model.states):
        raise UserError(f"{name}: two states have the same name")
    if all(state.outage for state in model.states):
        raise UserError(f"{name}: every state is an outage; expected one in which something passes")
    for state in model.states:
        _check_state(state, len(model.states), f"{name}: state {state.name!r}: ", model.step_ms)
    if not _irreducible(model):
        raise UserError(f"{name}: some state is never reached from another by `next`; expected every one to be")


def visit_shares(model: LinkModel) -> Floats:
    """Long-run share of each state among the states visited, [states]: the stationary vector of `next`."""
    many = len(model.states)
    jumps = np.array([state.next for state in model.states])
    equations = np.vstack((jumps.T - np.eye(many), np.ones(many)))
    solved = np.linalg.lstsq(equations, np.append(np.zeros(many), 1.0), rcond=None)[0]
    shares: Floats = np.maximum(solved, 0.0).astype(np.float64)
    return shares


def time_shares(model: LinkModel) -> Floats:
    """Long-run share of time in each state, [states]: visits weighted by mean dwell (renewal reward; Ross, Stochastic
    Processes, 2nd ed., 4.8)."""
    weights = visit_shares(model) * np.array([state.dwell_ms for state in model.states])
    shares: Floats = weights / weights.sum()
    return shares


def _check_state(state: State, many: int, place: str, step_ms: float) -> None:
    if len(state.next) != many:
        raise UserError(f"{place}next has {len(state.next)} entries; expected {many}, one a state")
    for value in state.next:
        _within(f"{place}next", value, 0.0, 1.0)
    if abs(sum(state.next) - 1.0) > 1e-6:
        raise UserError(f"{place}next sums to {sum(state.next):g}; expected 1")
    _within(f"{place}dwell_ms", state.dwell_ms, step_ms, 1e9)
    _within(f"{place}dwell_sigma", state.dwell_sigma, 0.0, 5.0)
    if state.outage:
        return
    _within(f"{place}floor_ms", state.floor_ms, 0.0, 1e5)
    _within(f"{place}median_ms", state.median_ms, 1e-6, 1e5)
    _within(f"{place}sigma", state.sigma, 0.0, 5.0)
    _within(f"{place}tail_share", state.tail_share, 0.0, 0.5)
    _within(f"{place}burst_share", state.burst_share, 0.0, 1.0 - 1e-9)
    if state.tail_share > 0:
        _within(f"{place}tail_alpha", state.tail_alpha, 0.1, 1e6)
        _within(f"{place}cap_ms", state.cap_ms, state.floor_ms + state.median_ms, 1e6)
    if state.burst_share > 0:
        _within(f"{place}burst_ms", state.burst_ms, step_ms, 1e6)
    for field, value in (("delay_memory_ms", state.delay_memory_ms), ("rate_memory_ms", state.rate_memory_ms)):
        _within(place + field, value, 0.0, 1e9)
    for side in (0, 1):
        _within(f"{place}rate_mbit", state.rate_mbit[side], 0.0, 1e6)
        _within(f"{place}rate_sigma", state.rate_sigma[side], 0.0, 5.0)
        _within(f"{place}burst_loss", state.burst_loss[side], 0.0, 1.0)
        _within(f"{place}other_loss", state.other_loss[side], 0.0, 1.0)


def _within(place: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise UserError(f"{place} is {value:g}; expected a number from {least:g} to {most:g}")


def _irreducible(model: LinkModel) -> bool:
    reach = np.array([state.next for state in model.states]) > 0
    reach |= np.eye(len(model.states), dtype=np.bool_)
    for _ in model.states:
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return bool(reach.all())
