"""An image in front of a model: cut 0 becomes the uint8 pixels, a quarter of the bytes of the float input, and what an
image codec can write.

The pixels are turned into the model's input by operators of the graph, so that device and cloud do the very same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from partitioner.graph.builder import Builder
from partitioner.graph.compose import join
from partitioner.graph.model import Model
from partitioner.graph.passes import OLDEST_OPSET
from shared.errors import ModelError

IMAGE = "image"
"""Name of the input that takes the pixels."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """How pixels become the model's input: `(pixel - mean) / std` for each channel of the model's own order, which is
    blue, green, red where `bgr`. Pixels are RGB, 0 to 255."""

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    bgr: bool = False


def image_size(model: Model) -> tuple[int, int]:
    """Height and width of the image that a model takes.

    Raises:
        ModelError: it does not take exactly one image of three channels.
    """
    height, width, _ = _layout(model)
    return height, width


def _layout(model: Model) -> tuple[int, int, bool]:
    """Height, width, and whether channels come first."""
    if len(model.inputs) == 1 and len(model.inputs[0].shape) == 4:
        _, a, b, c = model.inputs[0].shape
        if a == 3:
            return b, c, True
        if c == 3:
            return a, b, False
    shown = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in model.inputs)
    raise ModelError(
        f"{model.name}: preprocess 'image' needs one input of shape N,3,height,width or N,height,width,3; it has {shown}"
    )


def with_image_input(model: Model, image: ImageInput, size: tuple[int, int] | None = None) -> Model:
    """The model behind an input `image`: uint8 (N, height, width, 3), RGB.

    `size` is the image's height and width where they differ from what the model takes: the image is resized in the graph,
    by averaging whole blocks where both factors are whole, else linearly (half-pixel centres, no antialiasing).

    Raises:
        ModelError: the model takes no image, or is older than the operators needed.
    """
    height, width, channels_first = _layout(model)
    target = model.inputs[0]
    if model.opset < OLDEST_OPSET:
        raise ModelError(f"{model.name}: opset {model.opset} could not be converted to one that takes an image input")
    if target.dtype not in {"float32", "float16", "uint8"}:
        raise ModelError(f"{model.name}: preprocess 'image' cannot make an input of type {target.dtype}")
    plain = image.mean == (0.0, 0.0, 0.0) and image.std == (1.0, 1.0, 1.0)
    if target.dtype == "uint8" and not plain:
        raise ModelError(f"{model.name}: the input '{target.name}' is uint8, which mean and std do not fit")

    from_height, from_width = size or (height, width)
    build = Builder("pre", model.opset)
    value = build.input(IMAGE, "uint8", (target.shape[0], from_height, from_width, 3))
    value = build.add("Transpose", value, perm=[0, 3, 1, 2])
    if image.bgr:
        value = build.add("Gather", value, build.numbers(2, 1, 0), axis=1)
    resized = (from_height, from_width) != (height, width)
    if resized or target.dtype != "uint8":
        value = build.add("Cast", value, to=1)
    if resized:
        value = _resize(build, value, (from_height, from_width), (height, width))
    if not plain:
        value = build.add("Sub", value, build.constant(_per_channel(image.mean)))
        value = build.add("Div", value, build.constant(_per_channel(image.std)))
    if target.dtype == "float16":
        value = build.add("Cast", value, to=10)
    if target.dtype == "uint8" and resized:
        value = build.add("Cast", build.add("Round", value), to=2)
    if not channels_first:
        value = build.add("Transpose", value, perm=[0, 2, 3, 1])
    front = build.model([value], model.batchable)
    return replace(join(front, model, {target.name: value}), name=model.name)


def _per_channel(numbers: tuple[float, float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(numbers, np.float32).reshape(1, 3, 1, 1)


def _resize(build: Builder, value: str, source: tuple[int, int], target: tuple[int, int]) -> str:
    down, across = source[0] / target[0], source[1] / target[1]
    if down >= 1 and across >= 1 and down.is_integer() and across.is_integer():
        block = [int(down), int(across)]
        return build.add("AveragePool", value, kernel_shape=block, strides=block)
    # The size that comes out is floor(size * scale): the next larger number keeps it from falling one short.
    scales = build.constant(_just_above(1 / down, 1 / across))
    return build.add("Resize", value, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")


def _just_above(*factors: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    exact = np.array(factors, np.float32)
    return np.concatenate([np.ones(2, np.float32), np.nextafter(exact, np.float32(np.inf))])
