"""The typed `plan.json`: what a bundle promises, and the digest that names it.

A bundle is a folder `NAME.plan/` with

* `manifest.json`: sha256 of every other file (`Manifest`); written last, so that a half-copied bundle is seen;
* `plan.json`: this module's `Plan`;
* one ONNX file for each segment, and one `weights.bin` that holds every weight once (external data of all of them);
* `golden.npz`: a few inputs and the answers of the whole model, `in/<i>/<name>` and `out/<i>/<name>`, one row each;
* `weighing.json`: what it was chosen from (`partitioner.records.record`); `report.html`: the same for a reader.

Programs: program 0 is `whole`, the model with its pre- and post-processing as a chain of segments; cuts are the borders
of that chain. Further programs are the cheaper rungs of the ladder. Every program takes cut 0's tensors and gives
the plan's outputs.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from shared.padding import Padding
from shared.request import EXACT, Fidelity, TensorSpec

PLAN_FORMAT = 1
MANIFEST = "manifest.json"
PLAN_FILE = "plan.json"
GOLDEN_FILE = "golden.npz"
REPORT_FILE = "report.html"
WEIGHTS_FILE = "weights.bin"


class SegmentRange(msgspec.Struct, frozen=True, gc=False, array_like=True, cache_hash=True):
    """Segments `first` to `last` (exclusive) of a program: what one launch runs. It enters at cut `first` and leaves at
    cut `last`. An empty range runs no segment: only a codec."""

    program: int
    first: int
    last: int

    @property
    def empty(self) -> bool:
        """Whether no segment runs."""
        return self.first == self.last


CodingKind = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
"""A way to write a tensor: one that `shared.codecs` has, or the name of one that another package brings
(`shared.codecs.installed`). A plan of a kind that is not there is refused by `shared.plan_rules`."""


def _no_quality() -> int:
    return 0


def _no_scales() -> tuple[tuple[float, ...], ...]:
    return ()


class Coding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a cut's tensors are written as frames, one frame for each tensor. What a kind does not use stays at its default.

    `raw`: the tensor's bytes, little-endian, C order. `fp16`: floats as IEEE halves. `int8`: one byte an element,
    `q = clip(round(x / scale), -127, 127)` per channel of axis 1 (one scale for a tensor of fewer than two axes); `scales`
    holds a list for each tensor. `intn`: the same with `bits` of 2 to 8 and one scale a channel or one for the tensor, packed
    and compressed by zstd. `jpeg`: for one uint8 tensor of shape (1, height, width, 3), at `quality`; `subsampling` is
    `444`, or empty for 4:2:0. `qoi`: the same tensors without loss. `pca`: floats as principal components of their channels
    (axis 1), in steps of one size for each tensor, in `scales`; `basis` holds for each tensor, as little-endian float32, the
    mean of its channels, then the components. `docs/protocol.md` has the layouts. Any other kind is the name of a codec that
    another package brings, which says what the fields mean, and whether the coding is `lossless`.

    The contract digest is taken of a coding's JSON. So that plans of before keep theirs, the first four fields are always
    written (msgspec never leaves out what a function made), and later ones only where they are not at their defaults.
    """

    name: str
    kind: CodingKind
    quality: int = msgspec.field(default_factory=_no_quality)
    scales: tuple[tuple[float, ...], ...] = msgspec.field(default_factory=_no_scales)
    bits: int = 0
    subsampling: Literal["", "444"] = ""
    lossless: bool = False
    basis: tuple[bytes, ...] = ()

    @property
    def coded(self) -> bool:
        """Whether a frame is anything but the tensor's own bytes, so that there is work in encoding and decoding it."""
        return self.kind != "raw"

    @property
    def lossy(self) -> bool:
        """Whether what is decoded may differ from what was encoded."""
        return self.kind not in {"raw", "qoi"} and not self.lossless


RAW = Coding("raw", "raw")


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A border of program 0: the tensors that cross it and the codings they may travel in. Cut 0 is the input, the last
    cut the outputs (which always travel raw)."""

    name: str
    tensors: tuple[TensorSpec, ...]
    codings: tuple[Coding, ...] = (RAW,)

    def coding(self, name: str) -> Coding | None:
        """The coding of this name; None where the cut has none such."""
        return next((c for c in self.codings if c.name == name), None)


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ONNX file between two neighbouring cuts. Its graph inputs and outputs carry the cuts' tensor names."""

    name: str
    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chain of segments from cut 0's tensors to the plan's outputs."""

    name: str
    segments: tuple[Segment, ...]


class Rung(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to answer on the device. `agreement` is with the whole model, on held-out data; 1.0 for program 0."""

    name: str
    program: int
    agreement: float


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way through the cloud that the plan allows: send cut `cut` in `coding`, finish there.

    `bytes_up` and `bytes_down` are measured on calibration data for one row, headers included."""

    cut: int
    coding: str
    agreement: float
    bytes_up: int
    bytes_down: int


class RangeTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured execution time of a segment range at a batch size, in microseconds, codecs not included."""

    program: int
    first: int
    last: int
    batch: int
    p50_us: float
    p99_us: float


class CodecTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured time to encode and to decode one row of a cut in a coding, in microseconds."""

    cut: int
    coding: str
    encode_us: float
    decode_us: float


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Execution times on one side. `slowdown` is the stated factor by which a stand-in device is slower than the machine
    that was measured; the times include it. Not part of the contract."""

    side: Literal["edge", "cloud"]
    device: str
    provider: str
    threads: int
    slowdown: float
    cadence_hz: float
    ranges: tuple[RangeTime, ...]
    codecs: tuple[CodecTime, ...] = ()

    def time(self, program: int, first: int, last: int, batch: int = 1) -> RangeTime | None:
        """The time of this range at this batch size; None where it was not measured."""
        wanted = (program, first, last, batch)
        return next((t for t in self.ranges if (t.program, t.first, t.last, t.batch) == wanted), None)

    def codec_time(self, cut: int, coding: str) -> CodecTime | None:
        """The time of this coding at this cut; None where it was not measured."""
        return next((t for t in self.codecs if (t.cut, t.coding) == (cut, coding)), None)


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of `plan.json`. See the module's docstring for the words.

    `batchable`: whether rows may be joined on the first axis. `max_batch` bounds them (1 where not batchable).
    `routes` are the cloud ways worth considering, best first by the plan's own conditions; empty where the cloud never
    pays. `ladder` is sorted by falling agreement; empty only for a model that the device cannot run at all.
    `chosen` says in one line what the partitioner would do under the conditions it was given.
    `opset` and `ir_version` are what a runtime must be able to load.
    `digests` is the sha256 of each file that changes answers (segments, weights).
    `padding` is there where requests may be shorter than the plan on an axis that its model leaves open.
    """

    format: int
    name: str
    model: str
    opset: int
    ir_version: int
    batchable: bool
    max_batch: int
    cuts: tuple[Cut, ...]
    programs: tuple[Program, ...]
    ladder: tuple[Rung, ...]
    routes: tuple[Route, ...]
    metric: str
    chosen: str
    digests: dict[str, str]
    profiles: tuple[Profile, ...] = ()
    padding: Padding | None = None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors of cut 0."""
        return self.cuts[0].tensors

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors of the last cut."""
        return self.cuts[-1].tensors

    def profile(self, side: Literal["edge", "cloud"]) -> Profile | None:
        """The profile of one side; None where there is none."""
        return next((p for p in self.profiles if p.side == side), None)

    def rung_of(self, program: int) -> Rung | None:
        """The rung that runs `program`; None where none does."""
        return next((r for r in self.ladder if r.program == program), None)

    def cloud_fidelity(self, coding: Coding, agreement: float) -> Fidelity:
        """Fidelity of an answer of program 0 whose cut travelled in `coding`."""
        return Fidelity("lossy", coding.name, agreement) if coding.lossy else EXACT

    def rung_fidelity(self, rung: Rung) -> Fidelity:
        """Fidelity of a local answer made by `rung`."""
        return EXACT if rung.program == 0 else Fidelity("rung", rung.name, rung.agreement)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """sha256 (hexadecimal) of every file of the bundle but the manifest itself."""

    format: int
    files: dict[str, str]


def contract_digest(plan: Plan) -> str:
    """sha256 (hexadecimal) over what changes answers: cuts, codings, programs, ladder, files. Profiles, routes' bytes and
    the plan's name do not count, so that a new profile of the same bundle is the same contract."""
    contract = (
        plan.format,
        plan.model,
        plan.batchable,
        plan.cuts,
        plan.programs,
        plan.ladder,
        sorted((r.cut, r.coding, r.agreement) for r in plan.routes),
        sorted(plan.digests.items()),
        *(() if plan.padding is None else (plan.padding,)),
    )
    return hashlib.sha256(msgspec.json.encode(contract)).hexdigest()
