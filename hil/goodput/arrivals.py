"""When requests come: seeded, the same for every policy, in the order of time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hil.goodput.case import Case, Model
from shared.errors import UserError

Times = NDArray[np.float64]


class Offered(msgspec.Struct, frozen=True):
    """Requests in the order in which they reach the devices. `sent_ns`, `came_ns`: when each left the edge and came;
    `model`: whose it is, an index into `Case.each`; `due_ns`: when its launch must have ended to be in time at the edge."""

    sent_ns: list[int]
    came_ns: list[int]
    model: list[int]
    due_ns: list[int]


def offer(case: Case, rate_per_s: float, requests: int, seed: int) -> Offered:
    """About `requests` requests at this rate: all that come until the time in which so many are expected, not counting models
    that have rates of their own, where there are others. Each model's are drawn from a stream of its own, so that they do not
    depend on the other models."""
    models = case.each
    shares = sum(m.share for m in models if m.rate_per_s is None)
    rates = [m.rate_per_s if m.rate_per_s is not None else rate_per_s * m.share / shares for m in models]
    span_s = requests / (rate_per_s if shares else sum(rates))
    children = np.random.SeedSequence(seed).spawn(len(models) + 1)
    per_model = [
        times(model, rate, span_s, np.random.default_rng(child))
        for model, rate, child in zip(models, rates, children, strict=False)
    ]
    sent = np.concatenate(per_model)
    owner = np.concatenate([np.full(len(t), i) for i, t in enumerate(per_model)])
    order = np.argsort(sent, kind="stable")
    sent, owner = sent[order], owner[order]
    network = case.network
    came = sent + network.up_ms / 1e3
    if network.jitter_ms:
        came += np.random.default_rng(children[-1]).exponential(network.jitter_ms / 1e3, len(sent))
    deadline = np.array([m.deadline_ms / 1e3 for m in models])[owner]
    due = sent + deadline - network.down_ms / 1e3
    order = np.argsort(came, kind="stable")
    whole = [np.rint(column[order] * 1e9).astype(np.int64).tolist() for column in (sent, came, due)]
    return Offered(sent_ns=whole[0], came_ns=whole[1], model=owner[order].tolist(), due_ns=whole[2])


def times(model: Model, rate_per_s: float, span_s: float, rng: np.random.Generator) -> Times:
    """When one model's requests are sent, in seconds, rising, below `span_s`."""
    if rate_per_s <= 0.0:
        return np.empty(0)
    how = model.arrivals
    period = 1.0 / rate_per_s
    if how.process == "trace":
        return _stretched(Path(how.file), rate_per_s, span_s)
    phase = rng.random() * period
    if how.process == "periodic":
        even = phase + period * np.arange(max(0, int(np.ceil((span_s - phase) / period))))
        return np.sort(even + how.jitter * period * rng.random(len(even)))
    found: list[Times] = []
    at = phase
    while at < span_s:
        some = max(64, int((span_s - at) / period * 1.2))
        if how.process == "poisson" or how.cv == 1.0:
            gaps = rng.exponential(period, some)
        else:
            shape = 1.0 / how.cv**2
            gaps = rng.gamma(shape, period / shape, some)
        found.append(at + np.concatenate(([0.0], np.cumsum(gaps)[:-1])))
        at += float(gaps.sum())
    whole = np.concatenate(found) if found else np.empty(0)
    return whole[whole < span_s]


def _stretched(path: Path, rate_per_s: float, span_s: float) -> Times:
    """A trace's times at another rate, again from its start where it is over."""
    try:
        seconds = np.array([float(line) for line in path.read_text().split()])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read arrival times, one number of seconds a line: {error}") from error
    if (
        len(seconds) < 2
        or not np.all(np.isfinite(seconds))
        or np.any(np.diff(seconds) < 0)
        or seconds[-1] <= seconds[0]
    ):
        raise UserError(f"{path}: expected at least two finite times in seconds that do not fall")
    seconds = seconds - seconds[0]
    scale = (len(seconds) - 1) / seconds[-1] / rate_per_s
    lap = (seconds[-1] * len(seconds) / (len(seconds) - 1)) * scale
    laps = int(np.ceil(span_s / lap))
    whole = np.concatenate([seconds * scale + i * lap for i in range(laps)])
    return whole[whole < span_s]
