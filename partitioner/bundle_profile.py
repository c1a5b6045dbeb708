"""The profiles of a written bundle: its own segments and codings, timed as they will run.

Every range that a launch may be (from the input to a cut, from a cut to the end, each segment, each rung) is timed at one
row at the stream's pace. For models whose rows may be joined, two and four rows follow by their ratio to one row, back to
back: on a CPU a batch is often no cheaper than its rows, and the scheduler must know. One machine is measured; what that
means on either side is `partitioner.costs.sides`: this machine, slowed by a stated factor, or what a device profile says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from partitioner.costs.cost import Spread
from partitioner.costs.machine import device_name
from partitioner.costs.sides import Direction, Here, Side, Sides
from partitioner.costs.timing import Job, Pace, Samples, sample_at, time_warm
from partitioner.running import Part, Tensors, join_rows, load_file, run_chain
from partitioner.ways import codec_jobs, over
from shared.plan import CodecTime, Coding, Plan, Profile, Program, RangeTime

BATCHES = (1, 2, 4)
PROVIDER = "CPUExecutionProvider"

WARM_RUNS = 3
RangeKey = tuple[int, int, int, int]
"""(program, first, last, batch)."""
CodecKey = tuple[int, str, str]
"""(cut, coding, `encode` or `decode`)."""


@dataclass(frozen=True, slots=True)
class LoadedBundle:
    """Every segment of a written bundle, loaded: one list of parts for each program."""

    plan: Plan
    programs: tuple[tuple[Part, ...], ...]

    def crossing(self, row: Tensors, cut: int) -> Tensors:
        """The tensors that cross a cut of program 0, for one input (or several rows)."""
        return run_chain(self.programs[0][:cut], row)


def load_segments(folder: Path, plan: Plan, threads: int) -> LoadedBundle:
    """Load every segment. Raises `ModelError`."""

    def load(program: Program) -> tuple[Part, ...]:
        return tuple(load_file(folder / s.file, s.inputs, s.outputs, threads) for s in program.segments)

    return LoadedBundle(plan, tuple(load(program) for program in plan.programs))


def known_profiles(plan: Plan, before: Plan) -> tuple[Profile, ...]:
    """The profiles of a plan that was timed `before`, as far as this one needs them; none where they do not cover it: other
    files, other cuts, or a coding that was not timed."""
    if (plan.programs, plan.digests) != (before.programs, before.digests):
        return ()
    if [cut.name for cut in plan.cuts] != [cut.name for cut in before.cuts]:
        return ()
    wanted = [(index, coding) for index, cut in enumerate(plan.cuts) for coding in cut.codings]
    if any(coding not in before.cuts[index].codings for index, coding in wanted):
        return ()
    names = {(index, coding.name) for index, coding in wanted}
    return tuple(
        msgspec.structs.replace(profile, codecs=tuple(c for c in profile.codecs if (c.cut, c.coding) in names))
        for profile in before.profiles
    )


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a range of segments is on a side: the operators before each cut of the plan, what was measured here while the plan
    was weighed, and the sides' times."""

    plan: Plan
    before: tuple[Set[int], ...]
    here: Here
    sides: Sides

    def on(self, side: Side, what: tuple[int, int, int], time: Spread) -> Spread:
        """A range that takes `time` here. Each segment has half of each of its borders' costs."""
        program, first, last = what
        if program != 0 or side.known is None or not self.before:
            return side.like_whole(time, self.here)
        borders_us = [self.here.borders_us.get(cut.name, 0.0) for cut in self.plan.cuts]
        inside = sum(borders_us[cut] for cut in range(first + 1, last))
        nodes = self.before[last] - self.before[first]
        return side.part(nodes, time, self.here, (borders_us[first] + borders_us[last]) / 2 + inside)


def profile_bundle(
    bundle: LoadedBundle, rows: Sequence[Tensors], pace: Pace, budget_s: float, on: Ranges, threads: int
) -> tuple[Profile, Profile]:
    """The edge's and the cloud's profile, in this order. `rows` are inputs of one row each."""
    plan = bundle.plan
    samples: Samples[RangeKey | CodecKey] = Samples()
    groups: list[dict[RangeKey | CodecKey, Job]] = [{what: job} for what, job in range_jobs(bundle, rows).items()]
    codecs: dict[RangeKey | CodecKey, Job] = {}
    for index, cut in enumerate(plan.cuts):
        crossing = [bundle.crossing(row, index) for row in rows[:8]]
        for coding in cut.codings:
            encode_one, decode_one = codec_jobs(coding, cut.tensors, crossing)
            codecs[index, coding.name, "encode"], codecs[index, coding.name, "decode"] = encode_one, decode_one
    sample_at(pace, [*groups, codecs], budget_s, samples)
    times = samples.spreads()
    ratios = {what: _batch_ratios(bundle, what, rows, pace.work_ns or pace.clock_ns) for what in _ranges(plan)}

    def ranges(side: Side) -> Iterator[RangeTime]:
        for what, of_batches in ratios.items():
            one = on.on(side, what, times[*what, 1])
            for batch, ratio in of_batches.items():
                factor = side.batch_ratio(batch, ratio)
                yield _range_time((*what, batch), Spread(one.p50_us * factor, one.p99_us * factor))

    def coded(side: Side, cut: int, coding: Coding, direction: Direction) -> float:
        return round(side.coded(times[cut, coding.name, direction], coding.kind, direction, on.here).p50_us, 1)

    def profile(name: Literal["edge", "cloud"], side: Side) -> Profile:
        known = side.known
        return Profile(
            side=name,
            device=device_name() if known is None else side.source.device,
            provider=PROVIDER if known is None else known.provider,
            threads=threads if known is None else known.threads or threads,
            slowdown=side.slowdown,
            cadence_hz=pace.cadence_hz if known is None else known.cadence_hz or pace.cadence_hz,
            ranges=tuple(ranges(side)),
            codecs=tuple(
                CodecTime(
                    index, coding.name, coded(side, index, coding, "encode"), coded(side, index, coding, "decode")
                )
                for index, cut in enumerate(plan.cuts)
                for coding in cut.codings
            ),
        )

    return profile("edge", on.sides.edge), profile("cloud", on.sides.cloud)


def range_jobs(bundle: LoadedBundle, rows: Sequence[Tensors]) -> dict[RangeKey, Job]:
    """Every range that a launch may be, at one row. `rows` are inputs of one row each."""
    return {(*what, 1): _range_job(bundle, what, rows, 1) for what in _ranges(bundle.plan)}


def _ranges(plan: Plan) -> list[tuple[int, int, int]]:
    """Heads, tails and wholes of program 0, its single segments, and each rung; each once."""
    last = len(plan.cuts) - 1
    found = [(0, 0, last)]
    found += [(0, 0, cut) for cut in range(1, last)]
    found += [(0, cut, last) for cut in range(1, last)]
    found += [(0, cut, cut + 1) for cut in range(last)]
    found += [(index, 0, len(program.segments)) for index, program in enumerate(plan.programs) if index > 0]
    return list(dict.fromkeys(found))


def _range_job(bundle: LoadedBundle, what: tuple[int, int, int], rows: Sequence[Tensors], batch: int) -> Job:
    program, first, last = what
    parts = bundle.programs[program][first:last]
    groups = [join_rows([rows[(start + i) % len(rows)] for i in range(batch)]) for start in range(min(8, len(rows)))]
    entries = [run_chain(bundle.programs[program][:first], group) for group in groups]
    return over(lambda tensors: run_chain(parts, tensors), entries)


def _batch_ratios(
    bundle: LoadedBundle, what: tuple[int, int, int], rows: Sequence[Tensors], clock_ns: Callable[[], int]
) -> dict[int, float]:
    """How many times longer a launch of so many rows takes than one of one row, back to back."""
    if bundle.plan.max_batch < BATCHES[-1]:
        return {1: 1.0}
    warm = {batch: time_warm(_range_job(bundle, what, rows, batch), WARM_RUNS, clock_ns) for batch in BATCHES}
    return {batch: max(1.0, time_us / warm[1]) for batch, time_us in warm.items()}


def _range_time(key: RangeKey, time: Spread) -> RangeTime:
    program, first, last, batch = key
    return RangeTime(program, first, last, batch, round(time.p50_us, 1), round(time.p99_us, 1))
