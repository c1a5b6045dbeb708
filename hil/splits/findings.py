"""What was measured of the study's models, as data: `docs/when-to-split.json`, from which the page is written.

Times are middles, in microseconds, of the machine that measured, which stands for the cloud as it is and for the device a
stated factor slower. Everything else on the page (which way wins where) follows from this and is never stored.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from partitioner.costs.cost import NOTHING, Candidate, Kind, Spread
from shared.errors import UserError

FORMAT = 1

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Time = Annotated[float, msgspec.Meta(ge=0.0)]
Road = Literal["device", "raw", "coded", "split"]
"""The four ways between which the page decides: all on the device, the input as it is, the input in a coding, a cut."""


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured way. On the device, `head_us` is the whole model's time; where the input is sent, `tail_us` is. `exposes`
    is whether what crosses is an input of the model or little else (`hil.splits.answers.LEAST_WORK`), in whatever coding.
    `agreement` is 1 where nothing is lost."""

    kind: Kind
    cut: str
    coding: str
    head_us: Time
    encode_us: Time
    decode_us: Time
    tail_us: Time
    bytes_up: Count
    bytes_down: Count
    agreement: Share
    exposes: bool

    @property
    def road(self) -> Road:
        """Which of the four it is."""
        if self.kind == "input":
            return "raw" if self.coding == "raw" else "coded"
        return "device" if self.kind == "device" else "split"

    def on(self, ratio: float) -> Candidate:
        """The way on a device so many times slower than the machine that measured. Its p99 is its middle: the page compares
        middles alone."""
        return Candidate(
            kind=self.kind,
            cut=self.cut,
            coding=self.coding,
            rung="whole" if self.kind == "device" else "",
            head=_sharp(self.head_us * ratio),
            encode=_sharp(self.encode_us * ratio),
            decode=_sharp(self.decode_us),
            tail=_sharp(self.tail_us),
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            agreement=self.agreement,
            measured=True,
        )


class CutPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cut that was measured: its name, how many tensors cross, the share of the model's time that lies before it."""

    name: str
    tensors: Count
    share: Share


class Doubt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way that was only estimated and would win under so many of the conditions if it agreed fully."""

    cut: str
    coding: str
    conditions: Count


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured on, in words that say what matters: cores, processor, versions."""

    cores: Count
    processor: str
    python: str
    onnxruntime: str


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that was measured of one model. `cuts_found` is how many places of one tensor there are to cut, `several` how many
    of several tensors the search found. `unsteady` is by how much the middles of the first and second half of a job's runs
    differ: nine jobs of ten differ by less. `disturbed` is the share of runs in which the system took the processor away."""

    name: str
    metric: str
    rows_fitted: Count
    rows_judged: Count
    cuts_found: Count
    several: Count
    cuts: tuple[CutPlace, ...]
    ways: tuple[Way, ...]
    doubts: tuple[Doubt, ...]
    runs: Count
    unsteady: Time
    disturbed: Share
    machine: Machine
    date: str
    seconds: Time


class Findings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file: one finding for each model, in the order of the study."""

    format: int
    models: tuple[Finding, ...]

    def with_model(self, finding: Finding, order: tuple[str, ...]) -> Findings:
        """The same with one model measured anew."""
        kept = {model.name: model for model in (*self.models, finding)}
        return Findings(self.format, tuple(kept[name] for name in order if name in kept))


NOTHING_FOUND = Findings(FORMAT, ())


def encode_findings(findings: Findings) -> bytes:
    """The bytes of the file."""
    return msgspec.json.format(msgspec.json.encode(findings), indent=1) + b"\n"


def decode_findings(text: bytes, where: str) -> Findings:
    """The findings of these bytes. Raises `UserError` that begins with `where`."""
    try:
        findings = msgspec.json.decode(text, type=Findings)
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise UserError(f"{where}: no findings of this study ({reason})") from None
    if findings.format != FORMAT:
        raise UserError(f"{where}: format {findings.format}, this version reads format {FORMAT}: measure again")
    for model in findings.models:
        if not any(way.kind == "device" for way in model.ways):
            raise UserError(f"{where}: {model.name} has no way on the device")
    return findings


def _sharp(time_us: float) -> Spread:
    return Spread(time_us, time_us) if time_us else NOTHING
