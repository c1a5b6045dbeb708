"""Makes the demo's two plans: the one that the partitioner chooses, and one with a forced split.

Deadlines are chosen here as well. Which of them a plan is made for has to be known before there is a plan whose control
could be measured, so the cheaper rung is timed first, on its own; the control phase then has the last word.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from PIL import Image

from hil.demo_settings import DemoSettings
from hil.frames import make_frames
from hil.phases import Heat
from partitioner.build import make_all
from partitioner.graph.recipe import Recipe, build_at_resolution
from partitioner.options import LinkGuess, PlanOptions
from partitioner.running import load_part
from shared.bundle import Bundle, load_bundle
from shared.plan import Plan

MAIN, FORCED = "faces", "faces-split"
"""Names of the two plans."""

CALIBRATION_IMAGES = 24
CALIBRATION_SCALE = 3
FAST = 1
"""How hard PNG files are pressed: the next level takes seconds more for files that are read once."""

RUNS = 20

MARGIN_MS = 3.0
"""What a local answer needs beside its execution: two processes, their messages, the agent's guard."""

TOO_LATE_MS = 1.0
"""By how much the heat makes the usual rung miss the deadline."""

SPLIT_MARGIN_MS = 2.5
"""What the forced split is given beyond the middle of what its parts take: their spread, and the agent's guard."""

Progress = Callable[[str], None]


class Planned(msgspec.Struct, frozen=True):
    """A plan that was made, and how many seconds it took."""

    bundle: Bundle
    seconds: float


def recipe_of(settings: DemoSettings, model: Path) -> Recipe:
    """How the model is read: its fixed shape relabelled, a uint8 image in front of it, its peaks taken behind it."""
    shape = f"1,3,{settings.stream.height},{settings.stream.width}"
    return Recipe(model, (shape,), preprocess="image", postprocess="peaks")


def likely_deadline_ms(settings: DemoSettings, model: Path) -> float:
    """The first deadline that a device so much slower is likely to hold with its largest rung below the whole alone."""
    stream = settings.stream
    side = max(settings.device.rung_resolutions)
    rung = build_at_resolution(recipe_of(settings, model), side, round(side * stream.width / stream.height / 32) * 32)
    part = load_part(rung, 1)
    pixels = make_frames(1, stream.height, stream.width, stream.seed)[0].pixels
    took_ms: list[float] = []
    for _ in range(RUNS):
        time.sleep(1 / stream.rate_hz)
        began_ns = time.perf_counter_ns()
        part((pixels,))
        took_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
    needed_ms = statistics.median(took_ms) * settings.device.slowdown + MARGIN_MS
    return first_with_room(settings.deadline.choices_ms, needed_ms)


def first_with_room(choices_ms: Sequence[float], needed_ms: float) -> float:
    """The smallest choice of at least `needed_ms`; the largest where none is."""
    return min((choice for choice in choices_ms if choice >= needed_ms), default=max(choices_ms))


def make_plans(
    settings: DemoSettings, model: Path, folder: Path, deadline_ms: float, progress: Progress
) -> tuple[Planned, Planned]:
    """The plan that the partitioner chooses and the one with the forced split, as bundles in `folder`, from one study.

    Raises `UserError` and its kinds.
    """
    stream = settings.stream
    images = folder / "calibration"
    images.mkdir(parents=True, exist_ok=True)
    frames = make_frames(
        CALIBRATION_IMAGES, stream.height * CALIBRATION_SCALE, stream.width * CALIBRATION_SCALE, stream.seed + 1
    )
    for number, frame in enumerate(frames):
        Image.fromarray(frame.pixels[0]).save(images / f"{number:02}-{frame.name}.png", compress_level=FAST)
    recipe = recipe_of(settings, model)
    options = PlanOptions(
        model=model,
        out=folder / f"{MAIN}.plan",
        shapes=recipe.shapes,
        preprocess=recipe.preprocess,
        postprocess=recipe.postprocess,
        calibration=images,
        deadline_ns=round(deadline_ms * 1e6),
        link=LinkGuess(settings.links.good.rate_mbit, settings.links.good.rtt_ms),
        edge_slowdown=settings.device.slowdown,
        cadence_hz=stream.rate_hz,
        rung_resolutions=settings.device.rung_resolutions,
        quick=True,
        seed=stream.seed,
    )
    forced = replace(options, out=folder / f"{FORCED}.plan", force_cuts=(settings.plan.force_cut,))
    main, split = make_all((options, forced), progress)
    return Planned(load_bundle(main.path), main.seconds), Planned(load_bundle(split.path), split.seconds)


def heat_for(plan: Plan, usual: str, deadline_ms: float) -> Heat | None:
    """How hot a device has to be for its `usual` rung to come a little too late, and the rungs that are cheaper. None where
    there is none, or no time of the usual one is known."""
    names = [rung.name for rung in plan.ladder]
    profile = plan.profile("edge")
    if usual not in names or names[-1] == usual or profile is None:
        return None
    place = names.index(usual)
    program = plan.ladder[place].program
    time = profile.time(program, 0, len(plan.programs[program].segments))
    if time is None:
        return None
    return Heat(max(1.0, (deadline_ms - MARGIN_MS + TOO_LATE_MS) * 1e3 / time.p50_us), tuple(names[place + 1 :]))


def split_deadline_ms(plan: Plan, deadline_ms: float, local_ms: float) -> float:
    """A deadline for the forced split, in whole milliseconds: `deadline_ms`, or more where the device needs it.

    The device runs the head, encodes, and then runs the rung that insures the answer, one after the other. `local_ms` is
    what a local answer alone was seen to take, from the client and back.
    """
    profile = plan.profile("edge")
    if profile is None or not plan.routes:
        return deadline_ms
    route = plan.routes[0]
    head, coding = profile.time(0, 0, route.cut), profile.codec_time(route.cut, route.coding)
    before_us = (head.p99_us if head else 0.0) + (coding.encode_us if coding else 0.0)
    return max(deadline_ms, float(math.ceil(local_ms + before_us / 1e3 + SPLIT_MARGIN_MS)))


def remarks_on(plan: Plan, deadline_ms: float, planned_ms: float) -> list[str]:
    """What a reader ought to know of the deadline that is used, where the plan was made for `planned_ms`, in sentences."""
    remarks: list[str] = []
    if deadline_ms != planned_ms:
        remarks.append(f"The plans were made for {planned_ms:g} ms, before the control had been measured.")
    profile = plan.profile("edge")
    whole = profile.time(0, 0, len(plan.programs[0].segments)) if profile else None
    if whole is not None and whole.p99_us / 1e3 < deadline_ms:
        remarks.append(
            f"The slowed device can run the whole model by itself within {deadline_ms:g} ms (p99 {whole.p99_us / 1e3:.1f} "
            "ms): the cloud saves it work, but makes no answer better. A larger device.slowdown shows more."
        )
    return remarks
