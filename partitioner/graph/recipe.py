"""From a file and what the user said about it to the whole model, and to the same model at a lower resolution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partitioner.graph.model import Model


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the user gave. `shapes`: `"1,3,192,192"` for a model with one input, or `"name=1,3,192,192"` for each.

    `preprocess`: `none` or `image[:mean=M,std=S,bgr]` with M and S one number or three joined by `/`.
    `postprocess`: `none`, `peaks[:k=32,min_score=0.2,...]`, `topk[:k=5,softmax]` or the path of an ONNX file.
    """

    path: Path
    shapes: tuple[str, ...] = ()
    preprocess: str = "none"
    postprocess: str = "none"


def build(recipe: Recipe) -> Model:
    """The whole model: loaded, normalised, with its pre- and post-processing as graph nodes.

    Raises:
        ModelError: the file, a shape or a processing does not fit the model.
    """
    raise NotImplementedError


def build_at_resolution(recipe: Recipe, height: int, width: int) -> Model:
    """The same inputs and outputs as `build(recipe)`, the image resized inside the graph to (height, width) and the same
    weights run on that. Only for `preprocess="image..."`; outputs must keep their shapes (peaks and topk do).

    Raises:
        ModelError: no image input, or the outputs' shapes would change.
    """
    raise NotImplementedError
