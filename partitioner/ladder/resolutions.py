"""The same weights at a lower resolution of the image, which is resized inside the rung's graph."""

from __future__ import annotations

from collections.abc import Sequence

from partitioner.graph.recipe import Recipe, build_at_resolution
from partitioner.ladder.rung import Rungs, make_each
from shared.errors import UserError
from shared.request import TensorSpec

STRIDE = 32
"""Sides are whole multiples of this: most networks halve an image five times."""
DEFAULT_SHARES = (2 / 3, 1 / 2)


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


def lower_rungs(recipe: Recipe, image: TensorSpec, resolutions: Sequence[int], *, must: bool, threads: int) -> Rungs:
    """Models at these resolutions, loaded, and notes on those that cannot be made.

    Where they `must` be made (the user named them), the first that cannot is a `ModelError`.
    """
    sizes = {f"res-{resolution}": size_at(resolution, image) for resolution in resolutions}
    return make_each(sizes, lambda size: build_at_resolution(recipe, *size), must=must, threads=threads)
