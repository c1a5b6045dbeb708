"""Weighing every way to answer, and looking closely only at those that may win.

All candidates get an estimate: times from a few timed heads, bytes from shapes, agreement taken as full where it is not
known. Those that would win with that benefit of the doubt are loaded, fitted, timed at the stream's pace and judged on
held-out data; what they lose by it may let others win, so this is repeated until every winner was measured or the
allowance of cuts is used up. A way that was only estimated is shown in the report and never chosen. Measuring all of
them was rejected: a model of 300 cuts would take an hour, for ways that lose even when flattered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from partitioner.calibrating.calibration import is_image
from partitioner.choose import (
    WHOLE,
    acceptable,
    choose_routes,
    choose_rungs,
    contenders,
    explain,
    rank,
    without_dominated,
)
from partitioner.costs.cost import Candidate
from partitioner.costs.settle import SideName, settled
from partitioner.costs.side_files import doubts_of
from partitioner.costs.sides import Here, Side
from partitioner.demands.constraints import binding, refuse
from partitioner.demands.device_memory import fitting, insured_by
from partitioner.grids.regret import Regret
from partitioner.grids.routes import Kept, keep_routes
from partitioner.ladder import LowerRung, Rungs, default_resolutions, judge, lower_rungs, other_rungs, plan_rungs
from partitioner.options import PlanOptions
from partitioner.search.answers import Impossible
from partitioner.study import Progress, Study
from partitioner.table import Table, warm_up
from partitioner.ways import LoadedCut
from shared.errors import Unsatisfiable, UserError
from shared.plan import Plan

FEW = 50
"""Findings in the held-out data below which an agreement is called weak: one of fifty is two hundredths of F1."""
MANY = 0.1
"""Share of disturbed runs from which the report warns."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The outcome: all candidates, the best, the cloud's ways to keep, the rungs to keep, and the loaded cuts by name.
    `here` is what was measured of this machine, `notes` are for the report. Once a bundle
    is written, `candidates` have its own times, and `weighed` are the same ways as they were weighed. `kept` is how the
    routes were found, where that was for a grid of conditions."""

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    routes: tuple[Candidate, ...]
    rungs: tuple[Candidate, ...]
    lower: tuple[LowerRung, ...]
    loaded: dict[str, LoadedCut]
    here: Here
    sentence: str
    notes: tuple[str, ...]
    weighed: tuple[Candidate, ...] = ()
    kept: Kept | None = None

    @property
    def regret(self) -> Regret | None:
        """What the routes lose over the grid of conditions; None without one."""
        return None if self.kept is None else self.kept.regret(self.routes)


@dataclass(frozen=True, slots=True)
class Begun:
    """What every plan of one study shares: the table of all ways, which grows with each look, and notes for the report."""

    table: Table
    notes: tuple[str, ...]


def begin_weighing(study: Study, progress: Progress) -> Begun:
    """Make and judge the rungs, estimate the cuts, and time what every plan needs: whole model, rungs, input's codings."""
    lower, notes = _rungs(study, progress)
    progress(f"estimating {len(study.inner)} cuts")
    table = Table(study, tuple(lower), warm_up(study))
    progress("timing the whole model, the rungs and the input's codings at the stream's pace")
    table.start()
    if study.options.device_memory is not None:
        ranked = rank(table.device(), study.options.link, study.options.deadline_ns, 0.0, study.objective)
        nbytes = table.rung_bytes()
        table.insured = insured_by(ranked, nbytes, study.options.device_memory, study.options.min_agreement).rung
    progress("searching among all cuts")
    places = table.search()
    notes.append(
        f"of all cuts of {places.groups} groups of operators, {places.solves} minimum cuts at rates near the stated one gave "
        f"{len(places.cuts)} of several tensors that may win"
    )
    return Begun(table, tuple(notes))


def weigh(study: Study, begun: Begun, progress: Progress) -> Weighing:
    """Weigh all ways under the options' link, deadline and least agreement. What `begun` knows already is not measured
    again; it may come from a study that differs in its place and its forced cuts."""
    options, table = study.options, begun.table
    for cut in study.forced:
        if cut.name not in table.loaded:
            progress(f"cutting and timing at {cut.name}")
            table.look(cut)
    kept = keep_routes(study, table, progress) if options.grid else None
    if not study.forced:
        _look_at_winners(study, table, progress)
    if (study.forced or study.pins.cloud) and not _choose(study, table, table.candidates())[1]:
        _look_for_a_way(study, table, progress)
    candidates = table.candidates()
    best, routes = _choose(study, table, candidates) if kept is None else _choose_kept(study, kept, candidates)
    device = table.device()
    rungs = choose_rungs([c for c in candidates if c.kind == "device"], options.min_agreement)
    if options.device_memory is not None:
        borders = {name: loaded.cut.nodes for name, loaded in table.loaded.items()}
        routes, rungs = fitting(
            table.insured, routes, rungs, borders, table.weights, table.rung_bytes(), options.device_memory
        )
        known = [c for c in (*routes, *rungs) if _may_win(study, c)]
        best = next(iter(rank(known, options.link, options.deadline_ns, options.min_agreement, study.objective)), None)
    dropped = [c.rung for c in device if c not in rungs]
    left_out = [
        f"rung {name} is left out: not faster than a better one, or of too little agreement" for name in dropped
    ]
    return Weighing(
        candidates=tuple(candidates),
        best=best,
        routes=tuple(routes),
        rungs=tuple(rungs),
        lower=tuple(rung for rung in table.lower if rung.name not in dropped),
        loaded=dict(table.loaded),
        here=table.here(),
        sentence=_sentence(study, best, candidates),
        notes=(
            *_overhead(study),
            *_private(options),
            *_pinned(study),
            *doubts_of(options, study.sides),
            *begun.notes,
            *(() if kept is None else kept.notes),
            *left_out,
            *_crossing([way.cut for way in routes], table.loaded),
            *_doubts(study, table),
        ),
        kept=kept,
    )


def settle(study: Study, weighing: Weighing, plan: Plan) -> Weighing:
    """The weighing with the times of the written bundle's profiles. Which of the plan's routes and rungs is best, the order
    of the routes and the sentence follow from these."""
    options = study.options
    both: tuple[tuple[SideName, Side], ...] = (("edge", study.sides.edge), ("cloud", study.sides.cloud))
    sides: list[SideName] = [name for name, side in both if side.source.kind == "here"]
    candidates = tuple(settled(way, plan, sides) for way in weighing.candidates)
    known = {way.label: way for way in candidates if way.measured}
    rungs = tuple(known[way.label] for way in weighing.rungs)
    routes = rank(
        [known[way.label] for way in weighing.routes],
        options.link,
        options.deadline_ns,
        options.min_agreement,
        study.objective,
    )
    best = None
    if weighing.best is not None:
        able = [way for way in (*routes, *rungs) if _may_win(study, way)]
        best = next(iter(rank(able, options.link, options.deadline_ns, options.min_agreement, study.objective)), None)
    return replace(
        weighing,
        candidates=candidates,
        weighed=weighing.candidates,
        best=best,
        routes=tuple(routes),
        rungs=rungs,
        sentence=_sentence(study, best, candidates),
    )


def _sentence(study: Study, best: Candidate | None, candidates: Sequence[Candidate]) -> str:
    options = study.options
    sentence = explain(best, [c for c in candidates if c.measured], options.link, options.deadline_ns)
    if study.forced:
        sentence += f"; the routes are forced to {', '.join(dict.fromkeys(cut.name for cut in study.forced))}"
    if study.objective.name != "latency":
        sentence += f"; chosen for {study.objective.name}: {study.objective}"
        amount = 0.0 if best is None else study.objective.amount(best, options.link)
        sentence += f", {study.objective.told(amount)}" if study.objective.adds_up and best is not None else ""
    return sentence


def _overhead(study: Study) -> list[str]:
    """Whether times hold what a request costs beside its work and the link."""
    known = study.overhead
    if known is None:
        return [
            "times are of work and link alone: what a request costs beside these, a millisecond and more, can be measured "
            "(headtail overhead) and given (--overhead)"
        ]
    return [
        f"times hold what a request costs beside its work and the link, measured on {known.processor}: from "
        f"{known.device_us / 1e3:.2f} ms on the device, from {known.cloud_us / 1e3:.2f} ms through the cloud"
    ]


def _may_win(study: Study, way: Candidate) -> bool:
    """Whether a way may be what the plan chooses. Where something is pinned to the cloud, the device is insurance only."""
    return way.kind != "device" or not study.pins.cloud


def _look_for_a_way(study: Study, table: Table, progress: Progress) -> None:
    """Look at a cut that surely obeys everything, where the user demands a way through the cloud and none is known.

    Raises `Unsatisfiable` where there is none, with what binds.
    """
    options = study.options
    insured = 0 if table.insured == WHOLE else table.rung_bytes()[table.insured]
    if study.forced:
        ways = [
            table.figures(way, cut if cut.nodes else None) for cut in study.forced for way in table.of_cut(cut.name)
        ]
        raise refuse(binding(ways, options), options)
    found = table.nearest()
    if isinstance(found, Impossible):
        raise refuse(found, options, insured)
    progress(f"cutting and timing at {found.name}")
    table.look(found)
    if not _choose(study, table, table.candidates())[1]:
        raise Unsatisfiable(f"--pin {', --pin '.join(options.pins)}: no way through the cloud obeys all that was asked")


def _pinned(study: Study) -> list[str]:
    """What pins, a limit of memory and a count of energy mean, in plain words."""
    told: list[str] = []
    if study.objective.name == "energy" and study.options.radio_watts is None:
        told.append("energy: no --radio-watts was given, so that sending counts nothing")
    if study.objective.name == "energy" and study.options.compute_watts is None:
        told.append(
            f"energy: the device's power is {study.objective.compute_watts:g} W, the largest source of its profile, a mean "
            "with the pauses in it"
        )
    if study.pins.cloud:
        told.append(
            "what is pinned to the cloud is in the tail of every route; the rungs on the device insure every request all the "
            "same, and run the whole of their models"
        )
    if study.options.device_memory is not None:
        told.append(
            f"the device may hold {study.options.device_memory} bytes of weights: rungs and heads that do not fit are left "
            "out"
        )
    return told


def _crossing(cuts: Sequence[str], loaded: Mapping[str, LoadedCut]) -> list[str]:
    """Which tensors cross where several do, whose names stand in no name of a cut."""
    found = [loaded[name].cut for name in dict.fromkeys(cuts) if name in loaded]
    return [
        f"at {cut.name!r} there cross {len(cut.tensors)} tensors: {', '.join(spec.name for spec in cut.tensors)}"
        for cut in found
        if len(cut.tensors) > 1 and cut.name not in {"input", "output"}
    ]


def _private(options: PlanOptions) -> list[str]:
    """What a private input means, in plain words."""
    if not options.private_input:
        return []
    told = [
        "the input stays on the device: ways that send it, in whatever coding, are left out. What crosses an early cut is no "
        "secret: a small decoder can often rebuild the input from it, the better the earlier the cut lies (--least-share); "
        "headtail invert holds one against the routes"
    ]
    if options.least_share <= 0.0:
        told.append(
            "no least share of the compute before the cut was stated (--least-share): a cut behind the first operators may "
            "win, which gives away most"
        )
    return told


def _rungs(study: Study, progress: Progress) -> tuple[list[LowerRung], list[str]]:
    """The rungs that were asked for, and the lower resolutions: those asked for, or the default ones where they can be made
    and judged."""
    options = study.options
    if not options.lower_rungs:
        return [], []
    if options.rungs and not study.data.real:
        raise UserError("a rung needs --calibration to be judged by")
    progress("making and judging the rungs")
    wanted = plan_rungs(options.rungs)
    made, notes = other_rungs(wanted, study.recipe, study.model, study.data.fit, must=True, threads=options.threads)
    lower, more = _resolutions(study)
    data = study.data
    return [judge(rung, study.judge, study.reference, data.held_out, data.labels) for rung in (*made, *lower)], [
        *notes,
        *more,
    ]


def _resolutions(study: Study) -> Rungs:
    options, wanted = study.options, study.options.rung_resolutions
    if not study.data.real or not is_image(study.model.inputs):
        if wanted:
            raise UserError("a lower resolution needs --preprocess image, and --calibration to be judged by")
        return [], []
    image = study.model.inputs[0]
    return lower_rungs(
        study.recipe, image, wanted or default_resolutions(image.shape[1]), must=bool(wanted), threads=options.threads
    )


def _look_at_winners(study: Study, table: Table, progress: Progress) -> None:
    """Measure those that would win with the benefit of the doubt, and the best split in any case, for the report."""
    options = study.options
    by_name = {cut.name: cut for cut in table.inner}
    while len(table.loaded) - 1 < study.effort.finalists:
        hopeful = [
            replace(c, agreement=1.0 if math.isnan(c.agreement) else c.agreement, measured=True)
            for c in table.candidates()
            if _may_win(study, c)
        ]
        splits = [c for c in without_dominated(hopeful) if c.kind == "split"]
        names = [
            c.cut
            for c in choose_routes(hopeful, options.link, options.deadline_ns, options.min_agreement, study.objective)
        ]
        names += [
            c.cut for c in rank(splits, options.link, options.deadline_ns, options.min_agreement, study.objective)[:1]
        ]
        names = [name for name in names if name not in table.loaded]
        if not names:
            return
        progress(f"cutting and timing at {names[0]}")
        table.look(by_name[names[0]])


def _choose(study: Study, table: Table, candidates: Sequence[Candidate]) -> tuple[Candidate | None, list[Candidate]]:
    """The best way and the routes to keep; where cuts are forced, those and nothing else."""
    options = study.options
    forced = {cut.name for cut in study.forced}
    candidates = [c for c in candidates if _may_win(study, c)]
    ranked = rank(
        contenders(candidates, options.min_agreement, forced),
        options.link,
        options.deadline_ns,
        options.min_agreement,
        study.objective,
    )
    best = next(iter(ranked), None)
    if forced:
        return best, [c for c in ranked if c.cut in forced]
    usable = [c for c in candidates if c.measured and acceptable(c, options.min_agreement)]
    routes = choose_routes(usable, options.link, options.deadline_ns, options.min_agreement, study.objective)
    return best, _nested(routes, {name: loaded.cut.nodes for name, loaded in table.loaded.items()})


def _choose_kept(study: Study, kept: Kept, candidates: Sequence[Candidate]) -> tuple[Candidate | None, list[Candidate]]:
    """The best way of the routes that are kept for a grid and those on the device, and these routes, best first."""
    options = study.options
    known = [c for c in candidates if c.measured and _may_win(study, c)]
    usable = [c for c in known if c.kind == "device" or (c.cut, c.coding) in kept.ways]
    ranked = rank(usable, options.link, options.deadline_ns, options.min_agreement, study.objective)
    return next(iter(ranked), None), [c for c in ranked if c.kind != "device"]


def _nested(routes: Sequence[Candidate], nodes: Mapping[str, Set[int]]) -> list[Candidate]:
    """The routes whose cuts hold or are held by those of all better ones: segments are the parts of a chain of cuts."""
    kept: list[Candidate] = []
    for route in routes:
        mine = nodes[route.cut]
        if all(mine <= nodes[other.cut] or nodes[other.cut] <= mine for other in kept):
            kept.append(route)
    return kept


def _doubts(study: Study, table: Table) -> list[str]:
    """What weakens the figures."""
    doubts: list[str] = []
    if study.data.real and study.found < FEW:
        doubts.append(
            f"agreement rests on {study.found} findings in the held-out data: give more data for firmer figures"
        )
    share = table.samples.disturbed_share
    if share > MANY:
        doubts.append(f"other processes took the processor in {share:.0%} of the timed runs")
    return doubts
