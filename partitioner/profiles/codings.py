"""How fast this machine codes tensors, as jobs to be timed.

Speed depends on what is in a tensor, so that one of the model's own is coded, as it is made from seeded synthetic input: of
all values of floats that may cross a cut, that whose size is nearest to `TYPICAL_BYTES`. Images are coded where the input is
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partitioner.calibrating.calibration import is_image
from partitioner.costs.timing import Job
from partitioner.graph.groups import Groups
from partitioner.graph.observe import fetch
from partitioner.profiles.record import CodecSpeed
from partitioner.running import Tensors
from partitioner.ways import codec_jobs
from shared.codecs import calibrate_int8, calibrate_intn
from shared.plan import RAW, Coding
from shared.request import Array, TensorSpec

TYPICAL_BYTES = 1 << 17
STEPS = 4
QUALITY = 90


@dataclass(frozen=True, slots=True)
class CodecJobs:
    """One coding on one tensor."""

    coding: Coding
    nbytes: int
    encode: Job
    decode: Job

    def speed(self, encode_us: float, decode_us: float) -> CodecSpeed:
        """The speed, where both took so long."""
        return CodecSpeed(
            self.coding.name, self.coding.kind, encode_us / self.nbytes, decode_us / self.nbytes, self.nbytes
        )


def coding_jobs(groups: Groups, rows: Sequence[Tensors]) -> tuple[CodecJobs, ...]:
    """The jobs of every coding that the model's tensors can travel in. `rows` are inputs of one row each.

    Raises `ModelError` where the model cannot be run on them, and `UserError` where a coding's library is missing.
    """
    model = groups.finder.model
    spec = typical(groups)
    found: list[CodecJobs] = []
    if spec is None:
        found += _jobs([RAW], model.inputs[0], [row[0] for row in rows])
    else:
        feeds = [dict(zip((s.name for s in model.inputs), row, strict=True)) for row in rows]
        samples = _values(groups, spec, feeds)
        scales8, scales = calibrate_int8(samples), calibrate_intn(samples, STEPS)
        codings = [RAW]
        codings += [Coding("fp16", "fp16")] if np.dtype(spec.dtype).itemsize > 2 else []
        codings += [Coding("int8", "int8", scales=(scales8,)), Coding("int4", "intn", bits=STEPS, scales=(scales,))]
        found += _jobs(codings, spec, samples)
    if is_image(model.inputs):
        images = [Coding("qoi", "qoi"), Coding(f"jpeg{QUALITY}", "jpeg", quality=QUALITY)]
        found += _jobs(images, model.inputs[0], [row[0] for row in rows])
    return tuple(found)


def typical(groups: Groups) -> TensorSpec | None:
    """The value of floats that may cross whose size is nearest to the typical one, by ratio; None where there is none."""
    specs = [value.spec for value in groups.values if not value.free and value.spec.dtype]
    floats = [spec for spec in specs if np.dtype(spec.dtype).kind == "f" and spec.shape and spec.nbytes() > 0]
    return min(floats, key=lambda spec: abs(math.log(spec.nbytes() / TYPICAL_BYTES)), default=None)


def _values(groups: Groups, spec: TensorSpec, feeds: Sequence[Mapping[str, Array]]) -> list[Array]:
    if spec.name in feeds[0]:
        return [feed[spec.name] for feed in feeds]
    [(_, arrays)] = fetch(groups.finder.model, [spec.name], feeds)
    return [array for array in arrays if array is not None]


def _jobs(codings: Sequence[Coding], spec: TensorSpec, samples: Sequence[Array]) -> list[CodecJobs]:
    rows = [(sample,) for sample in samples]
    return [CodecJobs(coding, spec.nbytes(), *codec_jobs(coding, [spec], rows)) for coding in codings]
