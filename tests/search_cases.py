"""Random models to be cut, and the answers of brute force, over all downward-closed sets at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from partitioner.search.conditions import NO_PINS, Conditions, Limits, Pins
from partitioner.search.problem import Choice, Group, Problem, Value


def random_problem(rng: np.random.Generator, most_groups: int = 14, least_choices: int = 1) -> Problem:
    """Up to `most_groups` groups in a random order, one to three inputs, values with several consumers, codings and
    outputs."""
    count = int(rng.integers(1, most_groups + 1))
    names = rng.permutation(count)
    groups = tuple(Group(f"g{i}", _time(rng, 3.0), _time(rng, 1.0), int(rng.integers(0, 1000))) for i in range(count))
    values: list[Value] = []
    rank = [*([None] * int(rng.integers(1, 4))), *range(count), *rng.integers(0, count, int(rng.integers(0, 3)))]
    for producer in rank:
        later = np.arange(0 if producer is None else producer + 1, count)
        wanted = int(min(len(later), rng.choice([0, 1, 1, 1, 2, 3])))
        near = np.exp(-0.5 * np.arange(len(later)))
        consumers = rng.choice(later, wanted, replace=False, p=near / near.sum()) if wanted else []
        output = bool(rng.random() < (0.5 if not wanted else 0.1)) and (producer is not None or rng.random() < 0.3)
        values.append(
            Value(
                f"v{len(values)}",
                None if producer is None else int(names[producer]),
                tuple(int(names[c]) for c in consumers),
                tuple(_choice(rng, k) for k in range(int(rng.integers(least_choices, 4)))),
                output,
            )
        )
    return Problem(groups, tuple(values[i] for i in rng.permutation(len(values))))


def random_conditions(rng: np.random.Generator) -> Conditions:
    """Anything from a free link to one that costs far more than all work, and as for the rest."""
    return Conditions(
        slowdown=float(rng.choice([0.0, 1.0, rng.uniform(0.2, 8.0)])),
        us_per_byte=float(rng.choice([0.0, 1.0, 10.0 ** rng.uniform(-3, 3)])),
        cloud_factor=float(rng.choice([1.0, rng.uniform(0.1, 3.0)])),
        constant_us=float(rng.choice([0.0, rng.uniform(0.0, 2000.0)])),
        least_agreement=float(rng.choice([0.0, 0.5, 0.9])),
    )


def random_pins(rng: np.random.Generator, problem: Problem) -> Pins:
    """Some groups pinned, often in ways that contradict each other."""
    groups = range(len(problem.groups))
    return Pins(
        frozenset(g for g in groups if rng.random() < 0.08),
        frozenset(g for g in groups if rng.random() < 0.08),
        bool(rng.random() < 0.4),
    )


def _time(rng: np.random.Generator, factor: float) -> float:
    return float(rng.choice([0.0, 10.0, rng.uniform(1.0, 300.0)], p=[0.1, 0.2, 0.7]) * factor)


def _choice(rng: np.random.Generator, index: int) -> Choice:
    nbytes = int(rng.choice([0, 100, rng.integers(1, 2000)], p=[0.05, 0.2, 0.75]))
    if index == 0:
        return Choice("raw", nbytes, _time(rng, 0.02), _time(rng, 0.02))
    return Choice(f"c{index}", nbytes // 2, _time(rng, 0.1), _time(rng, 0.1), float(rng.choice([0.4, 0.7, 0.95])))


@dataclass(frozen=True, slots=True)
class Brute:
    """All downward-closed sets of a problem as rows of `inside` (bools, sets x groups), and which values cross by each."""

    problem: Problem
    inside: np.ndarray
    crosses: np.ndarray
    whole: np.ndarray
    device_us: np.ndarray
    cloud_us: np.ndarray
    memory: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> Brute:
        """Enumerate them."""
        count = len(problem.groups)
        masks = np.arange(1 << count)
        closed = np.ones(1 << count, dtype=bool)
        for value in problem.values:
            for consumer in value.consumers if value.producer is not None else ():
                closed &= (masks >> value.producer & 1) >= (masks >> consumer & 1)
        masks = masks[closed]
        inside = (masks[:, None] >> np.arange(count) & 1).astype(bool)
        whole = inside.all(axis=1)
        crosses = np.zeros((len(masks), len(problem.values)), dtype=bool)
        for index, value in enumerate(problem.values):
            made = np.ones(len(masks), dtype=bool) if value.producer is None else inside[:, value.producer]
            used = np.zeros(len(masks), dtype=bool) | value.output
            for consumer in value.consumers:
                used = used | ~inside[:, consumer]
            crosses[:, index] = made & used & ~whole
        device = np.array([group.device_us for group in problem.groups])
        share = inside @ device / device.sum() if device.sum() else np.ones(len(masks))
        return cls(
            problem,
            inside,
            crosses,
            whole,
            inside @ device,
            ~inside @ np.array([group.cloud_us for group in problem.groups]),
            inside @ np.array([group.weight_bytes for group in problem.groups]),
            share,
        )

    def costs(self, conditions: Conditions) -> np.ndarray:
        """The cost of each set (floats, sets), infinite where a value that crosses has no admissible coding."""
        prices = np.array(
            [
                min(
                    (price_us(c, conditions) for c in value.choices if c.agreement >= conditions.least_agreement),
                    default=np.inf,
                )
                for value in self.problem.values
            ]
        )
        finite = np.isfinite(prices)
        sent = self.crosses[:, finite] @ prices[finite]
        sent[self.crosses[:, ~finite].any(axis=1)] = np.inf
        work = conditions.slowdown * self.device_us + conditions.cloud_factor * self.cloud_us
        return work + sent + np.where(self.whole, 0.0, conditions.constant_us)

    def allowed(self, pins: Pins) -> np.ndarray:
        """Which sets obey the pins (bools, sets)."""
        good = self.inside[:, sorted(pins.edge)].all(axis=1) & ~self.inside[:, sorted(pins.cloud)].any(axis=1)
        if pins.private_input:
            inputs = [value.producer is None for value in self.problem.values]
            good &= ~self.crosses[:, inputs].any(axis=1)
        return np.asarray(good)

    def best(self, conditions: Conditions, pins: Pins = NO_PINS) -> float:
        """The least cost, infinite where nothing is allowed."""
        return float(np.min(self.costs(conditions)[self.allowed(pins)], initial=np.inf))

    def best_within(self, conditions: Conditions, pins: Pins, limits: Limits) -> float:
        """The least cost of all sets in all codings that keep the limits, infinite where nothing is allowed."""
        good = self.allowed(pins)
        if limits.memory_bytes is not None:
            good &= self.memory <= limits.memory_bytes
        if limits.least_share is not None:
            good &= self.share >= limits.least_share - 1e-12
        base = conditions.slowdown * self.device_us + conditions.cloud_factor * self.cloud_us
        base += np.where(self.whole, 0.0, conditions.constant_us)
        most = math.inf if limits.bytes_up is None else limits.bytes_up
        return min((base[row] + self._sending(row, conditions, most) for row in np.flatnonzero(good)), default=math.inf)

    def _sending(self, row: int, conditions: Conditions, most_bytes: float) -> float:
        """The least cost of sending what crosses in at most so many bytes, by the frontier of bytes against cost."""
        front = [(0, 0.0)]
        for value in np.flatnonzero(self.crosses[row]):
            choices = [c for c in self.problem.values[value].choices if c.agreement >= conditions.least_agreement]
            sums = sorted((n + c.nbytes, cost + price_us(c, conditions)) for n, cost in front for c in choices)
            front = []
            for nbytes, cost in sums:
                if nbytes <= most_bytes and (not front or cost < front[-1][1]):
                    front.append((nbytes, cost))
        return min((cost for _, cost in front), default=math.inf)


def price_us(choice: Choice, conditions: Conditions) -> float:
    """The price of one coding."""
    work_us = conditions.slowdown * choice.encode_us + conditions.cloud_factor * choice.decode_us
    return work_us + conditions.us_per_byte * choice.nbytes


def random_limits(rng: np.random.Generator, problem: Problem) -> Limits:
    """Each limit in half of the cases, from impossible to idle."""
    memory = sum(group.weight_bytes for group in problem.groups)
    return Limits(
        float(rng.uniform()) if rng.random() < 0.5 else None,
        int(memory * rng.uniform()) if rng.random() < 0.6 else None,
        int(rng.integers(0, 2500)) if rng.random() < 0.6 else None,
    )


def chain(*device_us: float, sizes: tuple[int, ...], cloud_us: float = 1.0) -> Problem:
    """Groups in a line; `sizes` are the bytes of the input, of each value between, and of the output."""
    count = len(device_us)
    groups = tuple(Group(f"g{i}", time, cloud_us, 100) for i, time in enumerate(device_us))
    values = tuple(
        Value(f"v{i}", i - 1 if i else None, (i,) if i < count else (), (Choice("raw", size),), i == count)
        for i, size in enumerate(sizes)
    )
    return Problem(groups, values)
