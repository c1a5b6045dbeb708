"""What a range of segments takes, runs and gives: pure planning, and the port behind which a runtime runs it.

`OrtPrograms` in `shared.executors.ort` is the real thing; a test can put anything with the same three methods in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from shared.plan import Plan, SegmentRange
from shared.request import Array, TensorSpec


class Interrupt(Protocol):
    """One run's handle for whoever wants it to end early."""

    def stop(self) -> None:
        """Ask the run to end at its next chance. Safe from every thread, before, during and after the run."""
        ...


class Programs(Protocol):
    """The loaded segments of one plan."""

    @property
    def plan(self) -> Plan:
        """The plan that was loaded."""
        ...

    def interrupt(self) -> Interrupt:
        """A handle for one run."""
        ...

    def run(self, part: SegmentRange, feeds: Mapping[str, Array], interrupt: Interrupt) -> tuple[Array, ...]:
        """Run the segments of `part` on the entry's tensors by name, and give the exit's tensors in their order.

        Raises `ModelError` where the runtime fails, or was stopped by `interrupt`.
        """
        ...


class Step(msgspec.Struct, frozen=True):
    """One segment inside a range: which tensors it is fed, and which of its outputs anybody needs."""

    segment: int
    feeds: tuple[str, ...]
    makes: tuple[str, ...]


def known_range(plan: Plan, part: SegmentRange) -> bool:
    """Whether entry and exit of the range are places whose tensors the plan describes: any two cuts of program 0, and
    the whole of any other program."""
    if not 0 <= part.program < len(plan.programs):
        return False
    if part.program == 0:
        return 0 <= part.first <= part.last < len(plan.cuts)
    return part.first == 0 and part.last in {0, len(plan.programs[part.program].segments)}


def entry_tensors(plan: Plan, part: SegmentRange) -> tuple[TensorSpec, ...]:
    """The tensors that a range takes."""
    return plan.cuts[part.first].tensors


def exit_tensors(plan: Plan, part: SegmentRange) -> tuple[TensorSpec, ...]:
    """The tensors that a range gives."""
    if part.empty:
        return entry_tensors(plan, part)
    return plan.cuts[part.last].tensors if part.program == 0 else plan.outputs


def steps(plan: Plan, part: SegmentRange) -> tuple[Step, ...]:
    """The range's segments in order, each asked only for what a later one or the exit takes."""
    wanted = {spec.name for spec in exit_tensors(plan, part)}
    backwards: list[Step] = []
    for index in range(part.last - 1, part.first - 1, -1):
        segment = plan.programs[part.program].segments[index]
        makes = tuple(name for name in segment.outputs if name in wanted)
        wanted = (wanted - set(makes)) | set(segment.inputs)
        if makes:
            backwards.append(Step(index, segment.inputs, makes))
    return tuple(reversed(backwards))
