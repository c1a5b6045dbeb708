"""The cheaper ways to answer on the device: the same weights at a lower resolution of the image.

A rung takes the same input and gives the same outputs as the whole model; the image is resized inside its graph. Its
agreement is measured on held-out data and never guessed from the resolution: small objects vanish all at once. A
quantised rung is left out while nothing here can tell a model that survives it from one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.agreement import agreement
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build_at_resolution
from partitioner.running import Part, Tensors, load_part, named
from shared.errors import ModelError, UserError
from shared.request import TensorSpec

STRIDE = 32
"""Sides are whole multiples of this: most networks halve an image five times."""
DEFAULT_SHARES = (2 / 3, 1 / 2)


@dataclass(frozen=True, slots=True)
class LowerRung:
    """A model at a lower resolution, loaded, with its agreement on held-out data."""

    name: str
    model: Model
    part: Part
    agreement: float


def default_resolutions(height: int) -> tuple[int, ...]:
    """Two thirds and one half of an image's height, as multiples of 32, those that are lower and at least 32."""
    sides = [round(height * share / STRIDE) * STRIDE for share in DEFAULT_SHARES]
    return tuple(dict.fromkeys(side for side in sides if STRIDE <= side < height))


def size_at(resolution: int, image: TensorSpec) -> tuple[int, int]:
    """Height and width of an image of shape (1, height, width, 3) brought to this height, the width in proportion.

    Raises `UserError` for a resolution that is not lower than the image's.
    """
    height, width = image.shape[1], image.shape[2]
    if not 0 < resolution < height:
        raise UserError(
            f"rung resolution {resolution}: expected more than 0 and less than the input's height of {height}"
        )
    if resolution % STRIDE:
        raise UserError(f"rung resolution {resolution}: expected a multiple of {STRIDE}")
    return resolution, max(STRIDE, round(width * resolution / height / STRIDE) * STRIDE)


def lower_rungs(
    recipe: Recipe, image: TensorSpec, resolutions: Sequence[int], *, must: bool, threads: int
) -> tuple[list[tuple[str, Model, Part]], list[str]]:
    """Models at these resolutions, loaded, and notes on those that cannot be made.

    Where they `must` be made (the user named them), the first that cannot is a `ModelError`.
    """
    made: list[tuple[str, Model, Part]] = []
    notes: list[str] = []
    for resolution in resolutions:
        height, width = size_at(resolution, image)
        name = f"res-{resolution}"
        try:
            model = build_at_resolution(recipe, height, width)
        except ModelError as error:
            if must:
                raise
            notes.append(f"no rung {name}: {error}")
            continue
        made.append((name, model, load_part(model, threads)))
    return made, notes


def judge(
    rung: tuple[str, Model, Part], metric: str, reference: Sequence[Tensors], rows: Sequence[Tensors]
) -> LowerRung:
    """A rung with its agreement with the whole model's answers (`reference`) to these rows."""
    name, model, part = rung
    outputs = model.outputs
    answers = [named(outputs, part(row)) for row in rows]
    return LowerRung(name, model, part, agreement(metric, [named(outputs, r) for r in reference], answers))
