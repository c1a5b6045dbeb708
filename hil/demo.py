"""`headtail demo`: real answers by the deadline on one machine, through a network that degrades and nodes that die.

The steps are here, in order: fetch the model, make the plans, compute the references, start the processes, find the deadline,
play the phases, judge, report. What each of them means is in the module that it calls.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer

from hil.course import WARM_S, Course, Plans
from hil.demo_board import DemoBoard
from hil.demo_settings import DemoSettings
from hil.drawing import draw
from hil.fetch import CENTERFACE, cache_folder, cached, check_given, fetch
from hil.frames import Frame, make_frames
from hil.ledger import References
from hil.phases import demo_phases
from hil.planning import Planned, heat_for, likely_deadline_ms, make_plans, remarks_on, split_deadline_ms
from hil.plant import Plant
from hil.references import SingleProcess, only, references, telling_frames
from hil.report import FORMAT, Report, environment, summary_of, write_json
from hil.report_html import write_html
from hil.rig import Rig
from hil.verdict import judge
from hil.weight import add_weight
from hil.written import require_place
from partitioner.terminal import PlainConsole
from shared.errors import UserError
from shared.request import Array
from shared.settings_file import load

SWITCH_S = 0.0005
"""Thread switch interval of this process, which is the application here: the client's thread waits no longer than this."""

FINISH_S = 3.0
"""Kept free of repeats for judging and reporting."""


class Show(msgspec.Struct, frozen=True):
    """What is to be played: the settings, the two plans, the images, where files go, when it all began, what the plans
    were made for, how long the cloud may take to warm up, what the scheduler granted, and a fault that is planted, if any."""

    settings: DemoSettings
    main: Planned
    forced: Planned
    images: tuple[Array, ...]
    folder: Path
    began_s: float
    planned_ms: float
    warm_s: float = WARM_S
    weight: tuple[str, ...] = ()
    plant: Plant | None = None


def main(
    config: Annotated[
        Path | None, typer.Option(help="The demo's settings (TOML); without it what configs/demo.toml says.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for plans, reports and images.")] = Path("out/demo"),
    json: Annotated[Path | None, typer.Option(help="Write the JSON report here as well.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="The model's file, where it is at hand; else it is fetched.")
    ] = None,
    frames: Annotated[int, typer.Option(min=0, help="Frames of each phase, instead of what the settings say.")] = 0,
    plant: Annotated[
        str,
        typer.Option(help="For tests only: plant a fault, duplicated, swapped or dropped, that the verdict must see."),
    ] = "",
) -> None:
    """Play the demo on this machine; status 0 only when no rule that could be judged is broken."""
    began_s = time.monotonic()
    settings = load(config, DemoSettings) if config else DemoSettings()
    if frames:
        settings = msgspec.structs.replace(settings, stream=msgspec.structs.replace(settings.stream, frames=frames))
    fault = _plant(plant)
    folder = _folder(out)
    require_place(json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    weight = tuple(add_weight())
    sys.setswitchinterval(SWITCH_S)
    board = DemoBoard(PlainConsole(highlight=True), began_s)

    file = _model(model, board)
    planned_ms = likely_deadline_ms(settings, file)
    board.say(f"making two plans for {planned_ms:g} ms and a device {settings.device.slowdown:g} times slower")
    chosen, forced = make_plans(settings, file, folder, planned_ms, board.detail)
    for planned in (chosen, forced):
        board.say(f"{planned.bundle.name}: {planned.bundle.plan.chosen}")
    stream = settings.stream
    images = make_frames(stream.images, stream.height, stream.width, stream.seed)
    pixels = tuple(image.pixels for image in images)
    report = play(
        Show(settings, chosen, forced, pixels, folder, began_s, planned_ms, weight=weight, plant=fault), board
    )
    pictures = draw_rungs(chosen, images[0], folder)
    report = msgspec.structs.replace(report, images=tuple(str(path) for _, path in pictures))
    paths = [folder / "report.json", *([json] if json else []), folder / "report.html"]
    for path in paths[:-1]:
        write_json(report, path)
    write_html(report, paths[-1], pictures)
    board.verdict(report.verdict, {result.name: result.title for result in report.phases})
    for path in (*paths, *(path for _, path in pictures)):
        board.path(str(path))
    if not report.verdict.holds:
        raise typer.Exit(1)


def play(show: Show, board: DemoBoard) -> Report:
    """Start the processes, play every phase and judge. The report names no images yet.

    Raises `HeadtailError` where a process ends by itself or the frames could not show a swapped answer.
    """
    settings, plans = show.settings, (show.main, show.forced)
    board.say("computing what every answer ought to be")
    known: References = {
        claim: answers for planned in plans for claim, answers in references(planned.bundle, show.images).items()
    }
    kept = telling_frames(known)
    known, frames = only(known, kept), [show.images[number] for number in kept]
    board.say(f"{len(kept)} of {len(show.images)} images have answers that all differ, and are used")
    names = Plans(show.main.bundle.name, show.forced.bundle.name)
    bundles = [planned.bundle.path for planned in plans]
    board.say("starting two nodes, two agents, the shaping proxy and the monitor")
    with Rig(show.folder, bundles, settings.device.slowdown, settings.links.good, settings.noise.late_ms) as rig:
        rig.wait_ready()
        with Course(rig, settings, names, frames, known, board.watch) as course:
            course.attach()
            board.say("looking for the smallest deadline that holds without a cloud")
            deadline = course.find_deadline()
            split_ms = split_deadline_ms(show.forced.bundle.plan, deadline.ms, deadline.local_ms)
            board.say(f"{deadline.why} The forced split is asked for at {split_ms:g} ms.")
            heat = heat_for(show.main.bundle.plan, deadline.rung, deadline.ms)
            phases = demo_phases(settings.stream.frames, settings.links.good, settings.links.slow, heat)
            remarks = remarks_on(show.main.bundle.plan, deadline.ms, show.planned_ms)
            if heat is None:
                remarks.append(
                    f"No phase with a hot device: the plan has no rung cheaper than {deadline.rung or 'none'}."
                )
            for remark in remarks:
                board.say(remark)
            warmed = course.warm(max(split_ms, deadline.ms), show.warm_s)
            board.expect(phases)
            ends_s = show.began_s + settings.time.budget_s - FINISH_S
            results = course.play_all(phases, deadline.ms, split_ms, show.plant, ends_s)
            board.finish()
            proxy = rig.proxy.report()
    notes = [f"The proxy's own lateness: p50 {proxy.lateness.p50_ms:.2f} ms, p99 {proxy.lateness.p99_ms:.2f} ms."]
    if not warmed:
        notes.append("Before the first phase the cloud did not answer as it should: see the outputs of the processes.")
    notes += remarks
    notes += [
        f"The machine stalled in {result.title!r}, and it was not repeated: {result.not_repeated_because}."
        for result in results
        if result.not_repeated_because
    ]
    return Report(
        format=FORMAT,
        deadline_ms=deadline.ms,
        split_deadline_ms=split_ms,
        deadline_why=deadline.why,
        slowdown=settings.device.slowdown,
        phases=tuple(results),
        verdict=judge(results),
        plans=tuple(summary_of(planned.bundle, planned.seconds) for planned in plans),
        notes=tuple(notes),
        planted=show.plant or "",
        images=(),
        seconds=round(time.monotonic() - show.began_s, 1),
        environment=environment(show.weight),
    )


def draw_rungs(planned: Planned, image: Frame, folder: Path) -> list[tuple[str, Path]]:
    """One PNG for each rung of the ladder, with what it finds in `image`: titles and paths."""
    runner = SingleProcess(planned.bundle)
    (spec,) = planned.bundle.plan.inputs
    pictures: list[tuple[str, Path]] = []
    for rung in planned.bundle.plan.ladder:
        path = folder / f"found-{rung.name}.png"
        outputs = runner.whole(planned.bundle.plan.programs[rung.program], {spec.name: image.pixels})
        draw(image.pixels, outputs, rung.name, path)
        pictures.append((f"{rung.name}, agreement {rung.agreement:.3f}", path))
    return pictures


def _model(given: Path | None, board: DemoBoard) -> Path:
    """The model's file: the one given, the one in the cache, or one that is fetched. The screen says which."""
    if given:
        board.say(f"taking the model from {given}")
        return check_given(CENTERFACE, given)
    cache = cache_folder()
    known = cached(CENTERFACE, cache)
    board.say(f"taking the model from {known}" if known else f"fetching the model into {cache}")
    return known or fetch(CENTERFACE, cache, f"give it: headtail demo --model {CENTERFACE.name}")


def _plant(word: str) -> Plant | None:
    known: tuple[Plant, ...] = get_args(Plant)
    if word and word not in known:
        raise UserError(f"--plant {word}: expected {', '.join(known)}")
    return next((plant for plant in known if plant == word), None)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path}: cannot be made ({error.strerror})") from None
    return path
