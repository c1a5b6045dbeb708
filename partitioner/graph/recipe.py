"""From a file and what the user said about it to the whole model, and to the same model at a lower resolution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partitioner.graph.images import image_size, with_image_input
from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise
from partitioner.graph.processing import parse_postprocess, parse_preprocess, with_postprocess
from partitioner.graph.shapes import parse_shapes
from shared.errors import ModelError


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
        UserError: a processing is misspelt.
        ModelError: the file, a shape or a processing does not fit the model.
    """
    image, post = parse_preprocess(recipe.preprocess), parse_postprocess(recipe.postprocess)
    read = load_model(recipe.path)
    model = normalise(read, parse_shapes(read, recipe.shapes))
    if image is not None:
        model = with_image_input(model, image)
    return with_postprocess(model, post)


def build_at_resolution(recipe: Recipe, height: int, width: int) -> Model:
    """The same inputs and outputs as `build(recipe)`, the image resized inside the graph to (height, width) and the same
    weights run on that. Only for `preprocess="image..."`; outputs must keep their shapes (peaks and topk do).

    Raises:
        UserError: a processing is misspelt.
        ModelError: no image input, the model cannot run at this size, or the outputs' shapes would change.
    """
    image, post = parse_preprocess(recipe.preprocess), parse_postprocess(recipe.postprocess)
    if image is None:
        raise ModelError(f"{recipe.path}: a lower resolution needs --preprocess image")
    whole = build(recipe)
    read = load_model(recipe.path)
    full = normalise(read, parse_shapes(read, recipe.shapes))
    full_size = image_size(full)
    rows, *axes = full.inputs[0].shape
    small_axes = (axes[0], height, width) if axes[0] == 3 else (height, width, axes[2])
    small = normalise(read, {full.inputs[0].name: (rows, *small_axes)})
    model = with_postprocess(with_image_input(small, image, full_size), post)
    if model.outputs != whole.outputs or model.batchable != whole.batchable:
        shown = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in model.outputs)
        raise ModelError(
            f"{recipe.path}: at {height}x{width} the outputs would be {shown}; a lower resolution needs outputs that keep "
            "their shape, as after --postprocess peaks or topk"
        )
    return model
