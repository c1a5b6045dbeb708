"""Measuring a profile on the machine that it describes.

The whole model and its kernels take turns at the stream's pace (`partitioner.costs.timing`), in blocks, until the
middles of the wholes are steady or the time is over; then the kernels' times are charged to the groups and scaled to
the whole that was measured without the runtime's own profiling. Codings share one more turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partitioner.calibrating.calibration import synthetic_row
from partitioner.costs.timing import Job, Pace, Samples, quantile, sample_at, stable, switches
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.graph.kernels import Watched
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.run import open_session, run_session
from partitioner.graph.runtime import CPU, providers
from partitioner.options import MAX_THREADS
from partitioner.profiles.codings import coding_jobs
from partitioner.profiles.machine import PowerMeter, board_name, read_clocks, versions
from partitioner.profiles.mapping import Charged, assign, charge, quiet_runs
from partitioner.profiles.record import (
    PROFILE_FORMAT,
    BatchTimes,
    Bucket,
    CodecSpeed,
    DeviceProfile,
    GroupTime,
    Machine,
    Origin,
    Quantiles,
    Side,
)
from partitioner.profiles.scaling import to_whole
from partitioner.profiles.work import kind_of, origins_of
from partitioner.running import Tensors, join_rows
from partitioner.ways import over
from shared.errors import UserError
from shared.request import Array

BATCHES = (1, 2, 4)
MAX_BATCH = 1024
ROWS = 8
WARM_RUNS = 2
"""Runs of each batch size whose kernels do not count."""

DOUBTFUL = 0.25
"""How far the sum of the kernels may be from the whole before it is said that the groups' times are doubtful."""

Key = tuple[str, str | int]
Progress = Callable[[str, float], None]
"""Told what is being done and how much of all is done (0 to 1)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured. `shapes` holds the shapes of each bucket, as `Recipe` takes them; `batches` None means 1, 2 and
    4 where the model's rows may be joined, else 1. `seconds` is the time for timing, loading not included."""

    model: Path
    side: Side
    shapes: tuple[tuple[str, ...], ...] = ((),)
    preprocess: str = "none"
    postprocess: str = "none"
    batches: tuple[int, ...] | None = None
    provider: str = CPU
    threads: int = 1
    cadence_hz: float = 30.0
    seconds: float = 20.0

    def recipe(self, shapes: tuple[str, ...]) -> Recipe:
        """How the model is made at these shapes."""
        return Recipe(self.model, shapes, self.preprocess, self.postprocess)


def buckets_of(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The shapes of each bucket: one for an input that has one already begins the next."""
    buckets: list[tuple[str, ...]] = [()]
    for text in texts:
        name = text.rpartition("=")[0]
        if any(name == before.rpartition("=")[0] for before in buckets[-1]):
            buckets.append(())
        buckets[-1] = (*buckets[-1], text)
    return tuple(buckets)


def check_asked(asked: Asked) -> None:
    """Refuse what cannot be measured, each by name. Raises `UserError`."""
    if not 1 <= asked.threads <= MAX_THREADS:
        raise UserError(f"threads {asked.threads}: expected 1 to {MAX_THREADS}")
    if not 0.1 <= asked.cadence_hz <= 1000.0:
        raise UserError(f"cadence {asked.cadence_hz:g} Hz: expected 0.1 to 1000")
    if not 0.0 <= asked.seconds <= 3600.0:
        raise UserError(f"seconds {asked.seconds:g}: expected 0 to 3600")


def provider_named(text: str) -> str:
    """The installed provider of this name, in full or without its ending (`cpu`, `cuda`). Raises `UserError`."""
    for name in providers():
        if text.lower() in {name.lower(), name.lower().removesuffix("executionprovider")}:
            return name
    raise UserError(f"provider {text}: expected one that is installed: {', '.join(providers())}")


def measure(asked: Asked, progress: Progress) -> DeviceProfile:
    """Measure here. Raises `UserError` for what cannot be asked and `ModelError` for a model that cannot be used."""
    check_asked(asked)
    samples: Samples[Key] = Samples()
    meter = PowerMeter()
    clocks = read_clocks()
    buckets: list[Bucket] = []
    codecs: tuple[CodecSpeed, ...] = ()
    for index, shapes in enumerate(asked.shapes):
        done = index / len(asked.shapes)
        progress("reading and normalising the model", done)
        model = build(asked.recipe(shapes))
        batches = batches_for(model, asked.batches)
        progress("finding its groups of operators", done)
        groups = find_groups(CutFinder(model))

        def tick(part: float, done: float = done) -> None:
            meter.sample()
            progress("timing", done + part / len(asked.shapes))

        measured = _Bucket(asked, groups, batches, codings=index == 0)
        of_bucket = measured.run(tick, asked.seconds / len(asked.shapes))
        samples.runs.update({(f"{index} {what}", of): runs for (what, of), runs in of_bucket.runs.items()})
        samples.disturbed += of_bucket.disturbed
        buckets.append(Bucket(model.digest, model.inputs, measured.times))
        codecs = codecs or measured.codecs
    notes = doubts_of(asked.provider, [times for bucket in buckets for times in bucket.batches])
    clocks = read_clocks() or clocks  # under load, where there are any
    return DeviceProfile(
        format=PROFILE_FORMAT,
        side=asked.side,
        model=asked.model.name,
        preprocess=asked.preprocess,
        postprocess=asked.postprocess,
        origin=Origin("measured", "on this machine, with seeded synthetic input"),
        machine=Machine(
            device=board_name(),
            provider=asked.provider,
            threads=asked.threads,
            cadence_hz=asked.cadence_hz,
            versions=versions(),
            clocks=clocks,
            power=meter.power(),
        ),
        buckets=tuple(buckets),
        codecs=codecs,
        disturbed_share=samples.disturbed_share,
        notes=tuple(notes),
    )


def batches_for(model: Model, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The batch sizes to be measured. Raises `UserError` for one below 1, above 1024 or twice, and for more than one row
    where the model's rows cannot be joined."""
    if asked is None:
        return BATCHES if model.batchable else (1,)
    for batch in asked:
        if not 1 <= batch <= MAX_BATCH or list(asked).count(batch) > 1:
            raise UserError(f"batch {batch}: expected 1 to {MAX_BATCH}, each once")
        if batch > 1 and not model.batchable:
            raise UserError(
                f"batch {batch}: the rows of {model.name} cannot be joined into a batch, only 1 is possible"
            )
    return tuple(asked)


class _Bucket:
    """One model at one set of shapes, measured; `times` and `codecs` are there after `run`."""

    def __init__(self, asked: Asked, groups: Groups, batches: tuple[int, ...], *, codings: bool) -> None:
        self.times: tuple[BatchTimes, ...] = ()
        self.codecs: tuple[CodecSpeed, ...] = ()
        self._asked = asked
        self._groups = groups
        self._batches = batches
        self._rows: list[Tensors] = [synthetic_row(groups.finder.model.inputs, seed) for seed in range(ROWS)]
        self._codings = coding_jobs(groups, self._rows) if codings else ()

    def run(self, tick: Callable[[float], None], budget_s: float) -> Samples[Key]:
        asked, model = self._asked, self._groups.finder.model
        samples: Samples[Key] = Samples()
        names = [spec.name for spec in model.outputs]
        session = open_session(model, threads=asked.threads, provider=asked.provider)
        order: list[int] = []
        disturbed: set[int] = set()
        with Watched(model, asked.threads, asked.provider) as watched:
            jobs: list[dict[Key, Job]] = []
            for batch in self._batches:
                feeds = [self._feed(batch, start) for start in range(ROWS)]

                def watch(feed: dict[str, Array], batch: int = batch) -> None:
                    before = switches()
                    watched.run(feed)
                    if switches() != before:
                        disturbed.add(len(order))
                    order.append(batch)

                jobs.append({("whole", batch): over(lambda feed: run_session(session, model.name, names, feed), feeds)})
                jobs.append({("kernels", batch): over(watch, feeds)})
            if self._codings:
                jobs.append(
                    {
                        (what, coded.coding.name): job
                        for coded in self._codings
                        for what, job in (("encode", coded.encode), ("decode", coded.decode))
                    }
                )
            self._sample(jobs, samples, tick, budget_s)
            kernels = watched.kernels()
        assigned = assign(kernels, origins_of(self._groups))
        found: list[BatchTimes] = []
        for batch in self._batches:
            runs = [place for place, of in enumerate(order) if of == batch][WARM_RUNS:]
            quiet = quiet_runs(kernels, runs, disturbed)
            charged = charge(kernels, assigned, len(self._groups.nodes), quiet)
            cpu = self._asked.provider == CPU
            found.append(batch_times(self._groups, batch, samples.runs["whole", batch], charged if cpu else None))
        self.times = tuple(found)
        self.codecs = tuple(
            coded.speed(*(quantile(samples.runs[what, coded.coding.name], 0.5) for what in ("encode", "decode")))
            for coded in self._codings
        )
        return samples

    def _sample(
        self, jobs: Sequence[dict[Key, Job]], samples: Samples[Key], tick: Callable[[float], None], budget_s: float
    ) -> None:
        pace = Pace.of(self._asked.cadence_hz, self._asked.threads)
        if self._asked.provider != CPU:
            pace = replace(pace, work_ns=None)
        wholes: list[Key] = [("whole", batch) for batch in self._batches]
        began_s = time.monotonic()
        while True:
            for group in jobs:
                sample_at(pace, [group], 0.0, samples)
                tick(min(1.0, (time.monotonic() - began_s) / max(budget_s, 1e-9)))
            if time.monotonic() - began_s >= budget_s or all(stable(samples.runs[key]) for key in wholes):
                return

    def _feed(self, batch: int, start: int) -> dict[str, Array]:
        joined = join_rows([self._rows[(start + i) % ROWS] for i in range(batch)])
        return dict(zip((spec.name for spec in self._groups.finder.model.inputs), joined, strict=True))


def batch_times(groups: Groups, batch: int, runs: Sequence[float], charged: Charged | None) -> BatchTimes:
    """The times of one batch size from the runs of the whole, in microseconds, and what was charged to its groups; None where
    the provider does not tell how long kernels take, so that the groups share the whole by their estimated compute."""
    whole = _quantiles(list(runs))
    if charged is None:
        shares = [sum(groups.finder.share_of(node) for node in members) for members in groups.nodes]
        each = [Quantiles(share, share, share) for share in shares]
    else:
        each = [_quantiles(list(times)) for times in charged.groups_us]
    return BatchTimes(
        batch=batch,
        whole=whole,
        groups=tuple(
            GroupTime(groups.name_of(group), kind_of(groups, group), time_us)
            for group, time_us in enumerate(to_whole(each, whole.p50_us))
        ),
        runs=len(runs),
        stable=stable(list(runs)),
        guessed_share=1.0 if charged is None else charged.guessed_share,
        kernels_share=charged.kernels_us / whole.p50_us if charged is not None and whole.p50_us else 0.0,
    )


def doubts_of(provider: str, times: Iterable[BatchTimes]) -> list[str]:
    """What is to be said of how the whole was divided among the groups."""
    worst = max((one.kernels_share for one in times), key=lambda share: abs(share - 1.0))
    if provider != CPU:
        return [
            f"{provider} shows when its kernels are launched, not how long they take: the groups share the whole by their "
            "estimated compute"
        ]
    if abs(worst - 1.0) > DOUBTFUL:
        return [
            f"the kernels took {worst:.0%} of the whole that was measured without profiling: how it is divided among the "
            "groups is doubtful; measure longer, or with less running beside it"
        ]
    return []


def _quantiles(runs: list[float]) -> Quantiles:
    return Quantiles(*(quantile(runs, share) for share in (0.5, 0.9, 0.99)))
