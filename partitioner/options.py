"""What a user asks of a plan, and the parsers of the short forms in which it is asked (`10ms`, `200mbit,2ms`).

Units are part of every value, since `10` alone has been read as seconds and as milliseconds; a value without a unit is
refused rather than guessed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shared.errors import UserError, shown
from shared.plan_rules import MAX_NAME

if TYPE_CHECKING:
    from partitioner.grids.grid import GridPoint

MAX_SLOWDOWN = 1000.0
MAX_THREADS = 256
"""The most that the settings of an edge or a node take."""

LEAST_RATE_MBIT, MOST_RATE_MBIT = 0.001, 1e6
"""The rates that the settings of an edge take: with others nothing could be reckoned."""

LONGEST_NS = 86_400 * 10**9
"""The longest duration, a day."""

MOST_BYTES = 10**15
"""The largest size."""

MOST_SEED = 2**63 - 1
"""The largest seed, which a record can hold."""

PinSide = Literal["edge", "cloud"]

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"^{_NUMBER}\s*(ns|us|ms|s)$")
_RATE = re.compile(rf"^{_NUMBER}\s*(kbit|mbit|gbit)$")
_SIZE = re.compile(rf"^{_NUMBER}\s*(b|kb|mb|gb|kib|mib|gib)$")
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_MBIT = {"kbit": 0.001, "mbit": 1.0, "gbit": 1000.0}


@dataclass(frozen=True, slots=True)
class LinkGuess:
    """The way to the cloud that a plan is made for: rate in Mbit/s in either direction, and the round trip in ms, of
    which each direction takes half."""

    rate_mbit: float
    rtt_ms: float

    def __str__(self) -> str:
        return f"{self.rate_mbit:g} Mbit/s, {self.rtt_ms:g} ms round trip"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Everything `headtail plan` takes. `shapes`, `preprocess` and `postprocess` are as in `partitioner.graph.recipe`.

    `rungs` as in `partitioner.ladder.plan_rungs`. `rung_resolutions` empty means the default (two thirds and
    one half of the side), `lower_rungs` False no rungs at all.
    `force_cuts` makes the named cuts the only routes. `quick` spends less time on timing. `metric` None lets the outputs
    choose; else a name or `module:function`. `labels` as in `partitioner.calibrating.labels`. `threads` is what a
    session may use. `min_agreement`: what is less like the whole model than this is no answer.

    `edge` and `cloud` are profiles of the two sides (`headtail profile`); without one the device is this machine
    `edge_slowdown` times slower, the cloud this machine.

    `private_input`: no input, in whatever coding, leaves the device; `least_share` of the compute (0 to 1) lies before
    any cut. `max_bytes_per_second` bounds what requests at the cadence may send; None is no bound.
    `pins` are `NAME=edge` or `NAME=cloud` (`partitioner.demands.pins`), `device_memory` is in bytes
    (`partitioner.demands.device_memory`). `objective` and what it counts with are as in `partitioner.demands.objective`.

    With a `grid` of conditions the routes are the fewest that lose at most `max_regret` (0.02 is 2 %) under each of them.

    `overhead` is a file of what a request costs beside its work and the link (`headtail overhead`); without one that is left
    out. `codecs` are kinds of codings that are offered only where asked for (`shared.codecs.offering`).

    `bucket` is an open axis of the inputs, by the name that the file gives it, and its length in this plan: requests may be
    shorter, and are padded, each input with its number in `pads`, or 0 (`partitioner.padding_proof`).
    """

    model: Path
    out: Path
    shapes: tuple[str, ...] = ()
    preprocess: str = "none"
    postprocess: str = "none"
    calibration: Path | None = None
    deadline_ns: int = 10_000_000
    link: LinkGuess = LinkGuess(200.0, 2.0)
    edge_slowdown: float = 1.0
    edge: Path | None = None
    cloud: Path | None = None
    cadence_hz: float = 30.0
    metric: str | None = None
    labels: Path | None = None
    min_agreement: float = 0.5
    rung_resolutions: tuple[int, ...] = ()
    rungs: tuple[str, ...] = ()
    lower_rungs: bool = True
    force_cuts: tuple[str, ...] = ()
    seed: int = 0
    quick: bool = False
    threads: int = 1
    jpeg_qualities: tuple[int, ...] = (90,)
    private_input: bool = False
    least_share: float = 0.0
    max_bytes_per_second: int | None = None
    pins: tuple[str, ...] = ()
    device_memory: int | None = None
    objective: str = "latency"
    compute_watts: float | None = None
    radio_watts: float | None = None
    cloud_price: float = 0.05
    traffic_price: float = 0.1
    grid: tuple[GridPoint, ...] = ()
    max_regret: float = 0.02
    overhead: Path | None = None
    codecs: tuple[str, ...] = ()
    bucket: tuple[str, int] | None = None
    pads: tuple[tuple[str, float], ...] = ()

    @property
    def max_bytes(self) -> int | None:
        """The most bytes that one request may send; None is no bound."""
        return None if self.max_bytes_per_second is None else int(self.max_bytes_per_second / self.cadence_hz)


def parse_duration(text: str) -> int:
    """Nanoseconds of a positive duration such as `10ms`, `1.5s` or `250us`, of a day at most. Raises `UserError`."""
    match = _DURATION.match(text.strip().lower())
    if match is None:
        raise UserError(f"duration {text!r}: expected a number with a unit of ns, us, ms or s, such as 10ms")
    value_ns = float(match[1]) * _NS[match[2]]
    if value_ns > LONGEST_NS:
        raise UserError(f"duration {text!r:.80}: expected a day at most")
    if round(value_ns) <= 0:
        raise UserError(f"duration {text!r:.80}: expected more than zero")
    return round(value_ns)


def parse_rate(text: str) -> float:
    """Mbit/s of a rate such as `200mbit`, from 1kbit to 1000gbit. Raises `UserError`."""
    match = _RATE.match(text.strip().lower())
    if match is None:
        raise UserError(f"rate {text!r}: expected a number with a unit of kbit, mbit or gbit, such as 200mbit")
    rate_mbit = float(match[1]) * _MBIT[match[2]]
    if not LEAST_RATE_MBIT <= rate_mbit <= MOST_RATE_MBIT:
        raise UserError(f"rate {text!r:.80}: expected more than zero, from 1kbit to 1000gbit")
    return rate_mbit


def parse_bytes(text: str) -> int:
    """Bytes of a positive size such as `64MiB` or `1.5GB`, of a million GB at most. Raises `UserError`."""
    match = _SIZE.match(text.strip().lower())
    if match is None:
        raise UserError(
            f"size {text!r}: expected a number with a unit of B, KB, MB, GB, KiB, MiB or GiB, such as 64MiB"
        )
    nbytes = float(match[1]) * _BYTES[match[2]]
    if nbytes > MOST_BYTES:
        raise UserError(f"size {text!r:.80}: expected a million GB at most")
    if int(nbytes) <= 0:
        raise UserError(f"size {text!r:.80}: expected more than zero")
    return int(nbytes)


def split_pin(text: str) -> tuple[str, PinSide]:
    """The name and the side of a pin such as `conv5=cloud`. Raises `UserError`."""
    name, _, side = text.rpartition("=")
    if name and side == "edge":
        return name, "edge"
    if name and side == "cloud":
        return name, "cloud"
    raise UserError(
        f"pin {text!r}: expected NAME=edge or NAME=cloud, NAME of a tensor or an operator; * and ? match any"
    )


def parse_link(text: str) -> LinkGuess:
    """A link such as `200mbit,2ms`: rate, then round trip (`0ms` is allowed). Raises `UserError`."""
    rate, comma, rtt = text.partition(",")
    if not comma:
        raise UserError(f"link {text!r}: expected a rate and a round trip, such as 200mbit,2ms")
    zero = re.fullmatch(r"0+(?:\.0+)?\s*(ns|us|ms|s)", rtt.strip().lower())
    return LinkGuess(parse_rate(rate), 0.0 if zero else parse_duration(rtt) / 1e6)


def check_options(options: PlanOptions) -> None:
    """Refuse values that no plan can be made for, each by name. Raises `UserError`."""
    if not options.model.is_file():
        what = "not a file; an ONNX model was expected" if options.model.exists() else "no such file"
        raise UserError(f"model {options.model}: {what}")
    if not 1.0 <= options.edge_slowdown <= MAX_SLOWDOWN:
        raise UserError(f"edge slowdown {options.edge_slowdown:g}: expected 1 to {MAX_SLOWDOWN:g}")
    if options.edge is not None and options.edge_slowdown != 1.0:
        raise UserError(
            f"--edge {options.edge} says how slow the device is: leave out --edge-slowdown, or scale the profile "
            "(headtail profile scale)"
        )
    if not 0.1 <= options.cadence_hz <= 1000.0:
        raise UserError(f"cadence {options.cadence_hz:g} Hz: expected 0.1 to 1000")
    if not 0.0 <= options.min_agreement <= 1.0:
        raise UserError(f"least agreement {options.min_agreement:g}: expected 0 to 1")
    if not 0.0 <= options.least_share < 1.0:
        raise UserError(f"least share of compute {options.least_share:g}: expected 0 to less than 1")
    if options.max_bytes_per_second is not None and options.max_bytes_per_second > MOST_BYTES:
        raise UserError("--max-bytes-per-second: expected a million GB at most")
    if options.max_bytes is not None and options.max_bytes < 1:
        raise UserError(
            f"at most {options.max_bytes_per_second} bytes a second at {options.cadence_hz:g} requests a second: expected at "
            "least a byte for each request"
        )
    if options.grid and options.objective != "latency":
        raise UserError("routes for a grid of conditions are chosen by time: leave out --objective or --conditions")
    if options.grid and options.force_cuts:
        raise UserError("forced cuts are the only routes: leave out --force-cut or --conditions")
    if not 0.0 <= options.max_regret < math.inf:
        raise UserError(f"largest regret {options.max_regret:g}: expected 0 or more, such as 0.02 for 2 %")
    for pin in options.pins:
        split_pin(pin)
    if options.device_memory is not None and options.device_memory < 1:
        raise UserError(f"device memory {options.device_memory}: expected at least a byte")
    if options.private_input and "input" in options.force_cuts:
        raise UserError("a private input cannot be sent: leave out --force-cut input or --private-input")
    if options.codecs and options.calibration is None:
        raise UserError(f"codec {options.codecs[0]!r} needs --calibration, to be fitted to and judged by")
    _check_bucket(options)
    if not 1 <= options.threads <= MAX_THREADS:
        raise UserError(f"threads {options.threads}: expected 1 to {MAX_THREADS}")
    if not 0 <= options.seed <= MOST_SEED:
        raise UserError(f"seed {shown(options.seed)}: expected 0 to {MOST_SEED}")
    for quality in options.jpeg_qualities:
        if not 1 <= quality <= 100:
            raise UserError(f"JPEG quality {quality}: expected 1 to 100")
    if options.out.suffix != ".plan" or not options.out.stem:
        raise UserError(f"output {options.out}: expected a path that ends in .plan")
    if len(options.out.stem) > MAX_NAME:
        raise UserError(f"output {options.out}: a plan's name has at most {MAX_NAME} characters")


def _check_bucket(options: PlanOptions) -> None:
    """That padding changes nothing is proven of the whole model alone: what is lossy, and other rungs, go without."""
    if options.bucket is None:
        if options.pads:
            raise UserError(f"--pad {options.pads[0][0]}: nothing is padded without --buckets")
        return
    size = options.bucket[1]
    if options.out.stem.removesuffix(f"-{size}") in {"", options.out.stem}:
        raise UserError(f"output {options.out}: a bundle of bucket {size} is called NAME-{size}.plan")
    refused = {
        "--calibration": options.calibration is not None,
        "--rung": bool(options.rungs),
        "--rung-resolution": bool(options.rung_resolutions),
        f"--preprocess {options.preprocess}": options.preprocess != "none",
    }
    for name in (name for name, given in refused.items() if given):
        raise UserError(
            f"{name}: leave it out beside --buckets: that padding changes nothing is proven of exact ways alone"
        )
