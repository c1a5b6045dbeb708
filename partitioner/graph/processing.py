"""What a user writes after `--preprocess` and `--postprocess`.

`none`, or a kind with options: `image:mean=127.5,std=127.5,bgr`, `peaks:k=32,min_score=0.2`, `topk:k=5,softmax`. Three
numbers, one for each channel, are joined by `/`: `mean=123.7/116.3/103.5`. A post-processing may also be the path of an
ONNX file, whose inputs are the model's outputs by name.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from partitioner.graph.compose import join
from partitioner.graph.images import ImageInput
from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise
from partitioner.graph.peaks import Peaks, with_peaks
from partitioner.graph.topk import TopK, with_topk
from shared.errors import ModelError, UserError

Postprocess = Peaks | TopK | Path | None


def parse_preprocess(text: str) -> ImageInput | None:
    """None for `none`.

    Raises:
        UserError: an unknown kind or option, or a value of the wrong form.
    """
    kind, options = _options(text, "preprocess")
    if kind == "none":
        _refuse_rest(text, options, "no options")
        return None
    if kind != "image":
        raise UserError(f"preprocess '{text}': expected none or image[:mean=M,std=S,bgr]")
    image = ImageInput()
    if "mean" in options:
        image = replace(image, mean=_channels(text, "mean", options.pop("mean")))
    if "std" in options:
        std = _channels(text, "std", options.pop("std"))
        if 0.0 in std:
            raise UserError(f"preprocess '{text}': std must not be 0")
        image = replace(image, std=std)
    if "bgr" in options:
        image = replace(image, bgr=_flag(text, "bgr", options.pop("bgr")))
    _refuse_rest(text, options, "mean, std, bgr")
    return image


def parse_postprocess(text: str) -> Postprocess:
    """None for `none`, a path for anything that ends in `.onnx`.

    Raises:
        UserError: an unknown kind or option, or a value of the wrong form.
    """
    if text.endswith(".onnx"):
        return Path(text)
    kind, options = _options(text, "postprocess")
    if kind == "none":
        _refuse_rest(text, options, "no options")
        return None
    if kind == "peaks":
        return _peaks(text, options)
    if kind == "topk":
        top = TopK(
            k=_count(text, "k", options.pop("k", "5")), softmax=_flag(text, "softmax", options.pop("softmax", "false"))
        )
        _refuse_rest(text, options, "k, softmax")
        return top
    raise UserError(
        f"postprocess '{text}': expected none, peaks[:k=32,min_score=0.2], topk[:k=5,softmax] or a path that ends in .onnx"
    )


def _peaks(text: str, options: dict[str, str]) -> Peaks:
    default = Peaks()
    peaks = Peaks(
        k=_count(text, "k", options.pop("k", str(default.k))),
        min_score=_number(text, "min_score", options.pop("min_score", str(default.min_score))),
        heatmap=options.pop("heatmap", ""),
        scale=options.pop("scale", ""),
        offset=options.pop("offset", ""),
        landmarks=options.pop("landmarks", ""),
        exp=_flag(text, "exp", options.pop("exp", "true")),
    )
    _refuse_rest(text, options, "k, min_score, heatmap, scale, offset, landmarks, exp")
    if peaks.min_score <= 0:
        raise UserError(f"postprocess '{text}': min_score must be above 0, since 0 marks what is not there")
    return peaks


def with_postprocess(model: Model, post: Postprocess) -> Model:
    """The model with its post-processing behind it.

    Raises:
        ModelError: the two do not fit together.
    """
    if isinstance(post, Peaks):
        return with_peaks(model, post)
    if isinstance(post, TopK):
        return with_topk(model, post)
    if isinstance(post, Path):
        return _with_file(model, post)
    return model


def _with_file(model: Model, path: Path) -> Model:
    behind = load_model(path)
    given = {spec.name: spec for spec in model.outputs}
    names = [spec.name for spec in behind.inputs]
    wires = {name: name for name in names if name in given}
    if len(names) == 1 and len(given) == 1:
        wires = {names[0]: next(iter(given))}
    if missing := [name for name in names if name not in wires]:
        raise ModelError(f"{path}: input '{missing[0]}' is no output of {model.name}, which gives {', '.join(given)}")
    for spec in behind.inputs:
        source = given[wires[spec.name]]
        if spec.dtype != source.dtype:
            raise ModelError(f"{path}: input '{spec.name}' is {spec.dtype}, but {model.name} gives {source.dtype}")
    return join(model, normalise(behind, {name: given[source].shape for name, source in wires.items()}), wires)


def _options(text: str, what: str) -> tuple[str, dict[str, str]]:
    kind, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for item in rest.split(",") if rest else []:
        key, equals, value = item.partition("=")
        if not key or (equals and not value) or key in options:
            raise UserError(f"{what} '{text}': '{item}' is not KEY=VALUE, a flag, or is given twice")
        options[key] = value if equals else "true"
    return kind, options


def _refuse_rest(text: str, options: dict[str, str], known: str) -> None:
    if options:
        raise UserError(f"'{text}': unknown option '{next(iter(options))}'; there are {known}")


def _number(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"'{text}': {key} must be a number, not '{value}'")
    return number


def _count(text: str, key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UserError(f"'{text}': {key} must be a positive whole number, not '{value}'")
    return int(value)


def _flag(text: str, key: str, value: str) -> bool:
    if value not in {"true", "false"}:
        raise UserError(f"'{text}': {key} must be true or false, not '{value}'")
    return value == "true"


def _channels(text: str, key: str, value: str) -> tuple[float, float, float]:
    numbers = [_number(text, key, part) for part in value.split("/")]
    if len(numbers) == 1:
        numbers *= 3
    if len(numbers) != 3:
        raise UserError(f"'{text}': {key} must be one number, or three joined by '/'")
    return numbers[0], numbers[1], numbers[2]
