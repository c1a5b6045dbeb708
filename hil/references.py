"""What every answer ought to be: each way of a plan, run beforehand on each frame in this one process.

It runs the bundle's segments with plain sessions of the runtime, and not with headtail's executors, so that a fault of
theirs (a wrong slot, a stale buffer) cannot be in both. A lossy way goes through the very coding that it names: the
round trip, then the rest of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hil.ledger import Claim, References, distinct
from partitioner.graph.runtime import Session, open_session
from partitioner.running import decode_all, encode_all, named
from shared.bundle import Bundle
from shared.errors import HeadtailError
from shared.plan import Coding, Cut, Plan, Program, Segment
from shared.request import Array

Tensors = Mapping[str, Array]

LEAST_FRAMES = 2


class SingleProcess:
    """The programs of one bundle, each segment a session of its own. `threads` as the processes that are judged use."""

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        self._bundle = bundle
        self._threads = threads
        self._sessions: dict[str, Session] = {}

    @property
    def plan(self) -> Plan:
        """The bundle's plan."""
        return self._bundle.plan

    def run(self, program: Program, tensors: Tensors, first: int = 0, last: int | None = None) -> dict[str, Array]:
        """Segments `first` to `last` (exclusive) of a program: every tensor that it has seen, by name."""
        known = dict(tensors)
        for segment in program.segments[first:last]:
            feed = {name: known[name] for name in segment.inputs}
            results = self._session(segment).run(list(segment.outputs), feed)
            known.update(zip(segment.outputs, results, strict=True))
        return known

    def whole(self, program: Program, tensors: Tensors) -> dict[str, Array]:
        """The plan's outputs by a whole program."""
        return self._outputs(self.run(program, tensors))

    def lossy(self, cut: int, coding: Coding, tensors: Tensors) -> dict[str, Array]:
        """The plan's outputs by program 0 where cut number `cut` went through `coding`."""
        program = self.plan.programs[0]
        crossing = self.plan.cuts[cut]
        before = self.run(program, tensors, last=cut)
        return self._outputs(self.run(program, round_trip(crossing, coding, before), first=cut))

    def _outputs(self, known: Tensors) -> dict[str, Array]:
        return {spec.name: known[spec.name] for spec in self.plan.outputs}

    def _session(self, segment: Segment) -> Session:
        session = self._sessions.get(segment.file)
        if session is None:
            session = open_session(self._bundle.files[segment.file], threads=self._threads)
            self._sessions[segment.file] = session
        return session


def round_trip(cut: Cut, coding: Coding, tensors: Tensors) -> dict[str, Array]:
    """The cut's tensors as they come out of the coding at the other side."""
    frames = encode_all(tuple(tensors[spec.name] for spec in cut.tensors), coding)
    return dict(named(cut.tensors, decode_all(frames, coding, cut.tensors)))


def references(bundle: Bundle, frames: Sequence[Array], threads: int = 1) -> dict[Claim, list[dict[str, Array]]]:
    """The answer to every frame by every way of the plan: its rungs, and its routes in every coding they may travel in."""
    runner = SingleProcess(bundle, threads)
    plan, contract = bundle.plan, bundle.contract
    (image,) = plan.inputs
    inputs = [{image.name: frame} for frame in frames]
    whole = Claim(contract, "exact")
    found = {whole: [runner.whole(plan.programs[0], tensors) for tensors in inputs]}
    for rung in plan.ladder:
        fidelity = plan.rung_fidelity(rung)
        if fidelity.kind == "rung":
            program = plan.programs[rung.program]
            found[Claim(contract, "rung", rung.name)] = [runner.whole(program, tensors) for tensors in inputs]
    for route in plan.routes:
        coding = plan.cuts[route.cut].coding(route.coding)
        if coding is not None and coding.lossy:
            claim = Claim(contract, "lossy", coding.name, route.cut)
            found[claim] = [runner.lossy(route.cut, coding, tensors) for tensors in inputs]
    return found


def telling_frames(known: References) -> list[int]:
    """The frames, by number, among which no two have the same answer by any way. Raises `HeadtailError` below two of them."""
    kept = distinct(known)
    if len(kept) < LEAST_FRAMES:
        raise HeadtailError(
            f"only {len(kept)} of the frames have answers that differ: too few to show that an answer was swapped"
        )
    return kept


def only(known: References, frames: Sequence[int]) -> dict[Claim, list[Mapping[str, Array]]]:
    """The references of these frames, renumbered."""
    return {claim: [answers[frame] for frame in frames] for claim, answers in known.items()}
