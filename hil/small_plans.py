"""Small plans whose every answer tells which input it was made of, for rigs that look for wrong answers.

The model is two matrices of small whole numbers behind a uint8 image, and so is its cheaper rung. All sums are exact in
float32, in whatever order they are taken and in whatever batch a row ran, so that an answer is right to the last bit or
wrong. Random real weights were rejected: their last bits move with the batch, and an int8 coding makes whole steps of
that. How long the runs take is the caller's to say: the profile claims it, and a slowed executor waits it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper

from hil.small_bundle import IR_VERSION, OPSET, finish_small, write_segment
from shared.bundle import Golden
from shared.plan import (
    PLAN_FORMAT,
    RAW,
    CodecTime,
    Coding,
    Cut,
    Plan,
    Profile,
    Program,
    RangeTime,
    Route,
    Rung,
    Segment,
)
from shared.request import Array, TensorSpec

SIDE = 16
PATCHES = 4
"""Side of an image in pixels unless the caller says otherwise, and in patches of one colour."""

MIDDLE, CLASSES = 32, 8
DOWN_SCALE = 1 / 256
"""Brings the middle tensor into the range of int8; a power of two, so that nothing is rounded."""

MOST_WEIGHT, MOST_WEIGHT_OF_LARGE = 8, 5
"""Largest weight on a pixel, so that no sum passes 2^24, up to which float32 holds every whole number."""

INT8_SCALE = 2.0
MAX_BATCH = 4
SPREAD = 1.1
"""p99 over p50 of the times that are claimed."""

HEADER_BYTES = 300
CODEC_US = 30.0
CADENCE_HZ = 30.0

Numbers = npt.NDArray[np.float32]

CROSSING = TensorSpec("middle", "float32", (1, MIDDLE))
SCORES = TensorSpec("scores", "float32", (1, CLASSES))

JPEG = Coding("jpeg90", "jpeg", quality=90)
INT8 = Coding("int8", "int8", scales=((INT8_SCALE,) * MIDDLE,))

ROUTES = {
    "raw": Route(0, "raw", 1.0, SIDE * SIDE * 3 + HEADER_BYTES, SCORES.nbytes() + HEADER_BYTES),
    "jpeg": Route(0, "jpeg90", 0.98, 1500, SCORES.nbytes() + HEADER_BYTES),
    "split": Route(1, "raw", 1.0, CROSSING.nbytes() + HEADER_BYTES, SCORES.nbytes() + HEADER_BYTES),
    "split-int8": Route(1, "int8", 0.99, MIDDLE + HEADER_BYTES, SCORES.nbytes() + HEADER_BYTES),
}
"""The ways through the cloud that a small plan may have, for images of `SIDE`."""

RUNGS = {"whole": Rung("whole", 0, 1.0), "small": Rung("small", 1, 0.5)}
"""The rungs that it may have."""


class Times(msgspec.Struct, frozen=True):
    """What the runs of one row are claimed to take typically, in microseconds: the whole model and its cheaper rung on the
    device, which is stated to be `slowdown` times slower than this machine, and the whole model on a node."""

    whole_us: float = 60.0
    small_us: float = 40.0
    cloud_us: float = 60.0
    slowdown: float = 1.0


def write_small(
    folder: Path,
    name: str,
    *,
    rungs: Sequence[str],
    routes: Sequence[str],
    times: Times | None = None,
    seed: int = 0,
    side: int = SIDE,
) -> Path:
    """Write the bundle `NAME.plan` with these of `RUNGS` and `ROUTES` into `folder` and return its path. Plans of
    different names or seeds have different contracts. `side` is a multiple of `PATCHES`, at most 64."""
    path = folder / f"{name}.plan"
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    pixels, most = side * side * 3, MOST_WEIGHT if side <= 32 else MOST_WEIGHT_OF_LARGE
    picture = TensorSpec("image", "uint8", (1, side, side, 3))
    first = rng.integers(-most, most + 1, (pixels, MIDDLE)).astype(np.float32)
    second = rng.integers(-4, 5, (MIDDLE, CLASSES)).astype(np.float32)
    direct = rng.integers(-most, most + 1, (pixels, CLASSES)).astype(np.float32)
    head = (*_sums("first"), helper.make_node("Mul", ["sums", "scale"], ["middle"]))
    scale = np.full((), DOWN_SCALE, np.float32)
    write_segment(path / "head.onnx", head, picture, CROSSING, {"first": first, "scale": scale})
    tail = (helper.make_node("Relu", ["middle"], ["kept"]), helper.make_node("MatMul", ["kept", "second"], ["scores"]))
    write_segment(path / "tail.onnx", tail, CROSSING, SCORES, {"second": second})
    write_segment(path / "small.onnx", _sums("direct", "scores"), picture, SCORES, {"direct": direct})
    whole = Program("whole", tuple(_segment(part) for part in ("head", "tail")))
    plan = Plan(
        format=PLAN_FORMAT,
        name=name,
        model=hashlib.sha256(f"{name} {seed}".encode()).hexdigest(),
        opset=OPSET,
        ir_version=IR_VERSION,
        batchable=True,
        max_batch=MAX_BATCH,
        cuts=(Cut("image", (picture,), (RAW, JPEG)), Cut("middle", (CROSSING,), (RAW, INT8)), Cut("scores", (SCORES,))),
        programs=(whole, Program("small", (_segment("small"),))),
        ladder=tuple(RUNGS[rung] for rung in rungs),
        routes=tuple(_route(route, picture) for route in routes),
        metric="exact",
        chosen="small, for rigs",
        digests={},
        profiles=_profiles(times or Times()),
    )
    vectors = [Golden((image,), (_whole(image, first, second),)) for image in make_images(2, seed + 1, side)]
    return finish_small(path, plan, vectors, "a small plan")


def make_images(count: int, seed: int, side: int = SIDE) -> tuple[Array, ...]:
    """So many images of one row each, all different: coarse patches, which a JPEG keeps apart."""
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (count, PATCHES, PATCHES, 3), dtype=np.uint8)
    each = side // PATCHES
    return tuple(patches[i : i + 1].repeat(each, axis=1).repeat(each, axis=2) for i in range(count))


def _route(name: str, picture: TensorSpec) -> Route:
    """The way of this name for such images. A JPEG's size grows with the image's."""
    known = ROUTES[name]
    if name == "raw":
        return msgspec.structs.replace(known, bytes_up=picture.nbytes() + HEADER_BYTES)
    if name == "jpeg":
        return msgspec.structs.replace(known, bytes_up=known.bytes_up * picture.nbytes() // (SIDE * SIDE * 3))
    return known


def _whole(image: Array, first: Numbers, second: Numbers) -> Numbers:
    pixels = image.reshape(1, -1).astype(np.float32)
    middle = np.maximum(np.matmul(pixels, first) * np.float32(DOWN_SCALE), np.float32(0))
    scores: Numbers = np.matmul(middle, second)
    return scores


def _sums(weights: str, to: str = "sums") -> tuple[NodeProto, ...]:
    return (
        helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["numbers"], ["row"]),
        helper.make_node("MatMul", ["row", weights], [to]),
    )


_ENDS = {"head": ("image", "middle"), "tail": ("middle", "scores"), "small": ("image", "scores")}


def _segment(name: str) -> Segment:
    entry, leaving = _ENDS[name]
    return Segment(name, f"{name}.onnx", (entry,), (leaving,))


def _profiles(times: Times) -> tuple[Profile, Profile]:
    codecs = tuple(
        CodecTime(cut, coding, CODEC_US, CODEC_US)
        for cut, coding in ((0, "raw"), (0, "jpeg90"), (1, "raw"), (1, "int8"))
    )
    device = ("claimed", "CPUExecutionProvider", 1)
    edge = _ranges(times.whole_us, times.small_us)
    cloud = _ranges(times.cloud_us, times.cloud_us)
    return (
        Profile("edge", *device, times.slowdown, CADENCE_HZ, edge, codecs),
        Profile("cloud", *device, 1.0, CADENCE_HZ, cloud, codecs),
    )


def _ranges(whole_us: float, small_us: float) -> tuple[RangeTime, ...]:
    parts = ((0, 0, 1, whole_us / 2), (0, 1, 2, whole_us / 2), (0, 0, 2, whole_us), (1, 0, 1, small_us))
    return tuple(
        RangeTime(program, first, last, rows, us * rows, us * rows * SPREAD)
        for rows in range(1, MAX_BATCH + 1)
        for program, first, last, us in parts
    )
