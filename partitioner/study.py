"""What a plan is made from: the normalised model, its candidate cuts, the data, and the whole model's own answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from partitioner.agreement import Metric, agreement, check_labels, check_metric, default_metric, evidence, try_metric
from partitioner.calibrating.calibration import Calibration, divide, load_sources, probe_rows
from partitioner.costs.overhead import Overhead
from partitioner.costs.overhead_file import read_overhead
from partitioner.costs.side_files import open_sides
from partitioner.costs.sides import Sides
from partitioner.costs.timing import Pace
from partitioner.demands.device_memory import Weights
from partitioner.demands.objective import Objective, objective_of
from partitioner.demands.pins import find_pins
from partitioner.extensions import names_function, open_metric
from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.options import PlanOptions
from partitioner.running import Part, Tensors, load_part, named
from partitioner.search.conditions import Pins

Progress = Callable[[str], None]
"""Told what is being done, in a few words, whenever that changes."""

INPUT = "input"
SLOWEST_CADENCE_HZ = 10.0
"""Timing waits at most a tenth of a second between runs: after that, caches are as cold as they get."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is spent on timing and judging. Seconds, counts of rows and of cuts."""

    weigh_s: float
    profile_s: float
    anchors: int
    finalists: int
    probes: int
    fit_rows: int
    held_out_rows: int


THOROUGH = Effort(2.0, 2.5, 16, 3, 3, 32, 96)
QUICK = Effort(0.0, 1.5, 6, 2, 2, 16, 48)


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that weighing needs. `groups` are the model's operators between which cuts fall, `sides` the times of device
    and cloud, `pins` what must be on one side of every cut, `objective` what the best way is best in. `cuts` are those of one
    tensor, which begin with the input and end with the outputs; `forced` are the cuts that the user named. `judge` is the
    metric, `reference` the whole model's answers to the held-out rows."""

    options: PlanOptions
    effort: Effort
    recipe: Recipe
    model: Model
    whole: Part
    finder: CutFinder
    groups: Groups
    sides: Sides
    pins: Pins
    objective: Objective
    weights: Weights
    cuts: tuple[CandidateCut, ...]
    forced: tuple[CandidateCut, ...]
    data: Calibration
    judge: Metric
    reference: tuple[Tensors, ...]
    overhead: Overhead | None = None

    def under(self, options: PlanOptions) -> Study:
        """The same study for a plan that differs only in its place and its forced cuts."""
        return replace(self, options=options, forced=_forced(options, self.finder, self.cuts))

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.judge.name

    @property
    def pace(self) -> Pace:
        """How often a job is run while it is timed."""
        return Pace.of(max(self.options.cadence_hz, SLOWEST_CADENCE_HZ), self.options.threads)

    @property
    def inner(self) -> tuple[CandidateCut, ...]:
        """The cuts between input and outputs."""
        return self.cuts[1:-1]

    @property
    def found(self) -> int:
        """How much the held-out rows let the metric judge: detections for `detection`, else rows."""
        return round(sum(self.found_in(row) for row in range(len(self.reference))))

    def found_in(self, row: int) -> float:
        """How much one held-out row lets the metric judge."""
        return evidence(self.judge, named(self.model.outputs, self.reference[row]))

    def agreement_of(self, answers: Sequence[Tensors]) -> float:
        """Agreement of some answers to the held-out rows with the whole model's, or by the user's labels."""
        outputs = self.model.outputs
        reference = [named(outputs, r) for r in self.reference]
        return agreement(self.judge, reference, [named(outputs, a) for a in answers], self.data.labels)


def begin(options: PlanOptions, progress: Progress) -> Study:
    """Load and normalise the model, find its cuts, and run it on the calibration data. The options have been checked.

    Raises `UserError` for what the user must change, `ModelError` for a model that cannot be used.
    """
    effort = QUICK if options.quick else THOROUGH
    overhead = None if options.overhead is None else read_overhead(options.overhead)
    progress("reading and normalising the model")
    recipe = Recipe(options.model, options.shapes, options.preprocess, options.postprocess)
    model = build(recipe)
    outputs = [spec.name for spec in model.outputs]
    judge = open_metric(options.metric or default_metric(outputs))
    check_metric(judge, model.outputs)
    progress("finding where it may be cut")
    finder = CutFinder(model)
    cuts = tuple(finder.single())
    forced = _forced(options, finder, cuts)
    groups = find_groups(finder)
    sides = open_sides(options, groups)
    objective = objective_of(
        options.objective,
        options.compute_watts,
        options.radio_watts,
        None if sides.edge.known is None else sides.edge.known.watts,
        options.cloud_price,
        options.traffic_price,
    )
    pins = find_pins(options.pins, groups, private_input=options.private_input)
    progress("reading the calibration data")
    whole = load_part(model, options.threads)
    data = _calibrate(options, effort, model, whole, judge)
    reference = tuple(whole(row) for row in data.held_out)
    if data.labels or (data.real and names_function(judge.name)):
        try_metric(judge, [named(model.outputs, answer) for answer in reference], data.labels)
    return Study(
        options,
        effort,
        recipe,
        model,
        whole,
        finder,
        groups,
        sides,
        pins,
        objective,
        Weights.of(finder),
        cuts,
        forced,
        data,
        judge,
        reference,
        overhead,
    )


def _forced(options: PlanOptions, finder: CutFinder, cuts: Sequence[CandidateCut]) -> tuple[CandidateCut, ...]:
    return tuple(cuts[0] if name == INPUT else finder.at(name) for name in dict.fromkeys(options.force_cuts))


def _calibrate(options: PlanOptions, effort: Effort, model: Model, whole: Part, judge: Metric) -> Calibration:
    sources = load_sources(options.calibration, model.inputs, options.seed, options.labels)
    if options.labels is not None:
        check_labels(judge, sources.labels, model.outputs, f"labels {options.labels}")
    probes = probe_rows(sources, model.inputs, options.seed, effort.probes)
    found = [sum(evidence(judge, whole.named(row)) for row in rows) if sources.real else 1.0 for rows in probes]
    return divide(sources, model.inputs, found, options.seed, fit=effort.fit_rows, held_out=effort.held_out_rows)
