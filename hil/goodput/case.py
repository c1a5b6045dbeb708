"""What a goodput run is about: devices, models and how their requests come. Read from TOML, checked at the door."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hil.links.files import read_text
from shared.errors import UserError
from shared.toml_text import parse_toml

MS = 1_000_000
MOST_MODELS = 1000
Positive = Annotated[float, Meta(gt=0.0, le=1e6)]
Zero = Annotated[float, Meta(ge=0.0, le=1e6)]


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How requests of a model come. `poisson`; `gamma`: independent gaps of coefficient of variation `cv` (above 1 is
    bursty); `periodic`: evenly, each model at a phase of its own, disturbed by up to `jitter` of a period; `trace`: at the
    times of `file`, one a line in seconds, stretched to the rate that is asked."""

    process: Literal["poisson", "gamma", "periodic", "trace"] = "poisson"
    cv: Positive = 1.0
    jitter: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    file: str = ""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model, or `count` alike. A launch of b rows takes `alpha_ms` * b + `beta_ms`, or what lies on the line through
    `points` (rows, milliseconds). `share`: its part of the offered requests, relative to the others. `rate_per_s`: so many
    instead, whatever is offered. `priority` 0 is the most important class. `judged`: whether its requests count for
    goodput. `segments`: it consists of so many that take equal parts of the time, between which a launch may end."""

    name: str
    count: Annotated[int, Meta(ge=1, le=MOST_MODELS)] = 1
    deadline_ms: Positive
    alpha_ms: Zero = 0.0
    beta_ms: Zero = 0.0
    points: tuple[tuple[Annotated[int, Meta(ge=1, le=4096)], Positive], ...] = ()
    max_batch: Annotated[int, Meta(ge=1, le=4096)] = 64
    segments: Annotated[int, Meta(ge=1, le=64)] = 1
    share: Zero = 1.0
    rate_per_s: Zero | None = None
    priority: Annotated[int, Meta(ge=0, le=15)] = 0
    judged: bool = True
    arrivals: Arrivals = Arrivals()

    def duration_ns(self, rows: int) -> int:
        """How long a launch of so many rows takes, in nanoseconds."""
        if not self.points:
            return round((self.alpha_ms * rows + self.beta_ms) * MS)
        points = self.points
        if len(points) == 1:
            return round(points[0][1] * max(1.0, rows / points[0][0]) * MS)
        i = next((i for i, (b, _) in enumerate(points) if b >= rows and i), len(points) - 1)
        (b0, t0), (b1, t1) = points[i - 1], points[i]
        return round(max(points[0][1], t0 + (t1 - t0) * (rows - b0) / (b1 - b0)) * MS)


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request meets on the way: `up_ms` and `down_ms` always, and an exponential time of mean `jitter_ms` more on the
    way up. Deadlines hold at the edge."""

    up_ms: Zero = 0.0
    down_ms: Zero = 0.0
    jitter_ms: Zero = 0.0


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From `at_s` on for `for_s`, what begins on `device` takes `slowdown` times as long; 0: nothing begun there ends before
    the fault does."""

    device: Annotated[int, Meta(ge=0, le=1023)]
    at_s: Zero
    for_s: Positive
    slowdown: Annotated[float, Meta(ge=0.0, le=1000.0)] = 0.0


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole case. `spread`: deviation of the logarithm of a launch's time, 0 is none."""

    about: str
    devices: Annotated[int, Meta(ge=1, le=1024)]
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]
    network: Network = Network()
    faults: tuple[Fault, ...] = ()
    spread: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0

    @property
    def each(self) -> tuple[Model, ...]:
        """Every model by itself, those that stand for several repeated."""
        return tuple(model for model in self.models for _ in range(model.count))

    def with_background(self, times: float) -> Case:
        """The same with the rates that models have of their own so many times as high; at 0 the others are alone. Raises
        `UserError` where no model has a rate of its own."""
        if all(m.rate_per_s is None for m in self.models):
            raise UserError(f"{self.about}: no model has a rate of its own (rate_per_s) that could be multiplied")
        replace = msgspec.structs.replace
        return replace(
            self,
            about=f"{self.about}, the background {times:g} times",
            models=tuple(
                m if m.rate_per_s is None else replace(m, rate_per_s=m.rate_per_s * times) for m in self.models
            ),
        )

    def most_per_s(self) -> float:
        """Requests per second that no policy can exceed: all devices always busy with the largest batches that end in time,
        of the models in their shares. Ignores that requests must wait for a device and for each other."""
        shares = sum(m.share * m.count for m in self.models if m.rate_per_s is None)
        if shares == 0.0:
            raise UserError("every model has a rate of its own: there is no rate to search")
        busy = 0.0
        for model in self.models:
            each = max(largest(model, model.deadline_ms * MS), 1)
            seconds = model.duration_ns(each) / each / 1e9
            if model.rate_per_s is None:
                busy += seconds * model.share * model.count / shares
        return self.devices / busy

    def staggered_per_s(self) -> float | None:
        """The bound where devices take turns (a request waits for the n-th part of a launch, then for the launch): of one
        kind of model only, else None. It leaves out how requests divide among models, and that they come at random."""
        if len(self.models) != 1 or self.models[0].points:
            return None
        model, n = self.models[0], self.devices
        fitting = [
            b for b in range(1, model.max_batch + 1) if model.duration_ns(b) * (1 + 1 / n) <= model.deadline_ms * MS
        ]
        best = max(fitting, default=1)
        return n * best / model.duration_ns(best) * 1e9


def largest(model: Model, budget_ns: float) -> int:
    """The most rows of a launch that ends within a budget; 0 where not even one does."""
    low, high = 0, model.max_batch
    while low < high:
        middle = (low + high + 1) // 2
        if model.duration_ns(middle) <= budget_ns:
            low = middle
        else:
            high = middle - 1
    return low


def read_case(path: Path) -> Case:
    """The case of a file. Raises `UserError` naming file, place and what was expected."""
    tree = parse_toml(read_text(path), str(path))
    try:
        case = msgspec.convert(tree, Case)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}") from error
    for model in case.models:
        _check(path, model)
    if sum(m.count for m in case.models) > MOST_MODELS:
        raise UserError(f"{path}: more than {MOST_MODELS} models")
    for fault in case.faults:
        if fault.device >= case.devices:
            raise UserError(f"{path}: a fault of device {fault.device}, expected 0 to {case.devices - 1}")
    return case


def _check(path: Path, model: Model) -> None:
    if not re.fullmatch(r"[\w.\- ]{1,64}", model.name):
        raise UserError(f"{path}: model name {model.name!r}, expected up to 64 letters, digits, dots, dashes, blanks")
    if model.points and (model.alpha_ms or model.beta_ms):
        raise UserError(f"{path}: model {model.name}: give points, or alpha_ms and beta_ms, not both")
    if not model.points and model.alpha_ms + model.beta_ms <= 0.0:
        raise UserError(f"{path}: model {model.name}: give alpha_ms and beta_ms, or points")
    rows = [b for b, _ in model.points]
    if sorted(set(rows)) != rows:
        raise UserError(f"{path}: model {model.name}: the rows of points must rise")
    if (model.arrivals.process == "trace") != bool(model.arrivals.file):
        raise UserError(
            f"{path}: model {model.name}: a file of arrivals belongs to the process 'trace', and only to it"
        )
