"""A rung: a model with the whole's inputs and outputs that answers in less time, and how much it agrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from partitioner.agreement import Answers, Metric, agreement
from partitioner.extensions import open_metric
from partitioner.graph.model import Model
from partitioner.running import Part, Tensors, load_part, named
from shared.errors import ModelError

Made = tuple[str, Model, Part]
"""A rung's name, its model, and that loaded."""

Rungs = tuple[list[Made], list[str]]
"""What was made, and notes on what was not."""

What = TypeVar("What")


@dataclass(frozen=True, slots=True)
class LowerRung:
    """A cheaper model, loaded, with its agreement on held-out data."""

    name: str
    model: Model
    part: Part
    agreement: float


def make_each(wanted: Mapping[str, What], make: Callable[[What], Model], *, must: bool, threads: int) -> Rungs:
    """A model for each of what is wanted, by the rung's name, loaded, and notes on those that cannot be made.

    Where they `must` be made (the user named them), the first that cannot is a `ModelError`.
    """
    made: list[Made] = []
    notes: list[str] = []
    for name, what in wanted.items():
        try:
            model = make(what)
            made.append((name, model, load_part(model, threads)))
        except ModelError as error:
            if must:
                raise
            notes.append(f"no rung {name}: {error}")
    return made, notes


def judge(
    rung: Made,
    metric: str | Metric,
    reference: Sequence[Tensors],
    rows: Sequence[Tensors],
    labels: Answers = (),
) -> LowerRung:
    """A rung with its agreement with the whole model's answers (`reference`) to these rows, or by the user's labels."""
    name, model, part = rung
    counts = open_metric(metric) if isinstance(metric, str) else metric
    outputs = model.outputs
    answers = [named(outputs, part(row)) for row in rows]
    return LowerRung(name, model, part, agreement(counts, [named(outputs, r) for r in reference], answers, labels))
