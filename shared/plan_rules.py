"""What must hold between the parts of a plan, beyond the types of `shared.plan`.

`plan_faults` yields one sentence for each rule that is broken, so that the partitioner can show all of them and a loader
the first. A plan without faults cannot make an executor or a session index past an end, ask for a coding that does not
exist, or feed a segment a tensor that nobody made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from shared.codecs import coding_fault, dtype_of
from shared.errors import UserError
from shared.padding import padding_faults
from shared.plan import Cut, Plan, Profile, Program
from shared.request import TensorSpec
from shared.wire.messages import MAX_TENSORS

MAX_NAME = 128
"""Characters of a plan's name, which every request carries."""

MAX_TENSOR_BYTES = 1 << 31
"""The most bytes of one tensor of one row: what ONNX itself can hold."""

MAX_US = 1e11
"""The longest time that a profile may state, about a day in microseconds: sums and products of a few stay numbers."""

MAX_SLOWDOWN = 1e6
"""The largest factor by which a device may be said to be slower."""

MAX_ROUTE_BYTES = MAX_TENSORS * MAX_TENSOR_BYTES * 2
"""The most bytes that a route may be said to send for one row, with something to spare for headers."""


def plan_faults(plan: Plan) -> Iterator[str]:
    """Every rule that the plan breaks, as sentences that name the part at fault."""
    if len(plan.cuts) < 2:
        yield f"cuts: {len(plan.cuts)}, a plan has at least two (input and outputs)"
        return
    if not plan.programs:
        yield "programs: none, a plan has at least the whole model"
        return
    if plan.max_batch < 1 or (plan.max_batch > 1 and not plan.batchable):
        yield f"max_batch: {plan.max_batch} does not fit batchable={plan.batchable}"
    if not 0 < len(plan.name) <= MAX_NAME:
        yield f"name: {len(plan.name)} characters, a plan's has 1 to {MAX_NAME}"
    yield from _repeated("cuts", (cut.name for cut in plan.cuts))
    yield from _repeated("programs", (program.name for program in plan.programs))
    for cut in plan.cuts:
        yield from _cut_faults(cut, plan.batchable, last=cut is plan.cuts[-1])
    yield from _whole_faults(plan)
    for program in plan.programs[1:]:
        yield from _chain_faults(program, plan)
    yield from _ladder_faults(plan)
    for number, route in enumerate(plan.routes):
        if not 0 <= route.cut < len(plan.cuts) - 1:
            yield f"routes[{number}]: cut {route.cut} is not one of 0 to {len(plan.cuts) - 2}"
        elif plan.cuts[route.cut].coding(route.coding) is None:
            yield f"routes[{number}]: cut {route.cut} has no coding {route.coding!r}"
        if not 0 <= route.agreement <= 1:
            yield f"routes[{number}]: agreement {route.agreement} is not one of 0 to 1"
        if not (0 <= route.bytes_up <= MAX_ROUTE_BYTES and 0 <= route.bytes_down <= MAX_ROUTE_BYTES):
            yield f"routes[{number}]: {route.bytes_up} bytes up and {route.bytes_down} down are not a message's"
    yield from _padding_faults(plan)
    for profile in plan.profiles:
        yield from _profile_faults(profile, plan)


def _padding_faults(plan: Plan) -> Iterator[str]:
    """Only what runs the same on a padded input may have one: that was proven of the whole model, and not of what is lossy
    or of other programs."""
    padding = plan.padding
    if padding is None:
        return
    inputs = {spec.name: spec.shape for spec in plan.inputs}
    for fault in padding_faults(padding, inputs, (spec.name for spec in plan.outputs)):
        yield f"padding: {fault}"
    shapes = {spec.name: spec.shape for spec in plan.outputs}
    for cut in padding.outputs:
        shape = shapes.get(cut.tensor, ())
        if cut.axis >= len(shape) or shape[cut.axis] != padding.size:
            yield f"padding: output {cut.tensor!r} of shape {list(shape)} has not {padding.size} on axis {cut.axis}"
    if len(plan.programs) > 1 or any(coding.lossy for cut in plan.cuts for coding in cut.codings):
        yield "padding: a plan that pads has no other program and no lossy coding: nothing is proven of these"


def _repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what}: the name {name!r} is there {count} times"


def _cut_faults(cut: Cut, batchable: bool, *, last: bool) -> Iterator[str]:
    where = f"cut {cut.name!r}"
    if not 1 <= len(cut.tensors) <= MAX_TENSORS:
        yield f"{where}: {len(cut.tensors)} tensors, expected 1 to {MAX_TENSORS}"
    yield from _repeated(f"{where}: tensors", (spec.name for spec in cut.tensors))
    for spec in cut.tensors:
        fault = _spec_fault(spec, batchable)
        if fault:
            yield f"{where}, tensor {spec.name!r}: {fault}"
            return
    if not cut.codings:
        yield f"{where}: no coding"
    yield from _repeated(f"{where}: codings", (coding.name for coding in cut.codings))
    for coding in cut.codings:
        fault = "only raw is allowed at the outputs" if last and coding.coded else coding_fault(coding, cut.tensors)
        if fault:
            yield f"{where}, coding {coding.name!r}: {fault}"


def _spec_fault(spec: TensorSpec, batchable: bool) -> str | None:
    try:
        itemsize = dtype_of(spec.dtype).itemsize
    except UserError as reason:
        return str(reason)
    if any(length < 0 for length in spec.shape):
        return f"shape {spec.shape} has a negative length"
    if itemsize * math.prod(spec.shape) > MAX_TENSOR_BYTES:
        return f"shape {spec.shape} takes more than {MAX_TENSOR_BYTES} bytes"
    if batchable and (not spec.shape or spec.shape[0] < 1):
        return f"shape {spec.shape} has no batch axis, though the plan is batchable"
    return None


def _names(specs: tuple[TensorSpec, ...]) -> set[str]:
    return {spec.name for spec in specs}


def _files_faults(program: Program, plan: Plan) -> Iterator[str]:
    if not program.segments:
        yield f"program {program.name!r}: no segment"
    for segment in program.segments:
        if segment.file not in plan.digests:
            yield f"program {program.name!r}: no digest of {segment.file!r}"


def _whole_faults(plan: Plan) -> Iterator[str]:
    """Program 0: one segment between each two neighbouring cuts. A tensor of a later cut that the segment does not make
    must have crossed the earlier one: it is passed along."""
    whole = plan.programs[0]
    yield from _files_faults(whole, plan)
    if len(whole.segments) != len(plan.cuts) - 1:
        yield f"program {whole.name!r}: {len(whole.segments)} segments for {len(plan.cuts)} cuts"
        return
    for number, segment in enumerate(whole.segments):
        before, after = _names(plan.cuts[number].tensors), _names(plan.cuts[number + 1].tensors)
        lacking = set(segment.inputs) - before
        if lacking:
            yield f"segment {segment.name!r}: takes {sorted(lacking)}, which do not cross cut {number}"
        unmade = after - set(segment.outputs) - before
        if unmade:
            yield f"segment {segment.name!r}: does not make {sorted(unmade)} of cut {number + 1}"


def _chain_faults(program: Program, plan: Plan) -> Iterator[str]:
    """A rung: each segment lives off the inputs and what was made before it; in the end all outputs are there."""
    yield from _files_faults(program, plan)
    known = _names(plan.inputs)
    for segment in program.segments:
        lacking = set(segment.inputs) - known
        if lacking:
            yield f"program {program.name!r}, segment {segment.name!r}: nothing before it makes {sorted(lacking)}"
        known |= set(segment.outputs)
    unmade = _names(plan.outputs) - known
    if unmade:
        yield f"program {program.name!r}: does not make the outputs {sorted(unmade)}"


def _ladder_faults(plan: Plan) -> Iterator[str]:
    yield from _repeated("ladder: rungs", (rung.name for rung in plan.ladder))
    for rung in plan.ladder:
        if not 0 <= rung.program < len(plan.programs):
            yield f"rung {rung.name!r}: no program {rung.program}"
        if not 0 <= rung.agreement <= 1:
            yield f"rung {rung.name!r}: agreement {rung.agreement} is not one of 0 to 1"
    agreements = [rung.agreement for rung in plan.ladder]
    if agreements != sorted(agreements, reverse=True):
        yield f"ladder: agreements {agreements} do not fall"


def _profile_faults(profile: Profile, plan: Plan) -> Iterator[str]:
    where = f"profile of the {profile.side}"
    if not 1 <= profile.slowdown <= MAX_SLOWDOWN:
        yield f"{where}: slowdown {profile.slowdown} is not one of 1 to {MAX_SLOWDOWN:g}"
    for entry in profile.ranges:
        known = 0 <= entry.program < len(plan.programs)
        if not known or not 0 <= entry.first <= entry.last <= len(plan.programs[entry.program].segments):
            yield f"{where}: no range {entry.first} to {entry.last} in program {entry.program}"
        if entry.batch < 1 or not 0 <= entry.p50_us <= entry.p99_us <= MAX_US:
            yield f"{where}: batch {entry.batch}, p50 {entry.p50_us} and p99 {entry.p99_us} do not fit together"
    for codec in profile.codecs:
        if not 0 <= codec.cut < len(plan.cuts) or plan.cuts[codec.cut].coding(codec.coding) is None:
            yield f"{where}: no coding {codec.coding!r} at cut {codec.cut}"
        if not (0 <= codec.encode_us <= MAX_US and 0 <= codec.decode_us <= MAX_US):
            yield f"{where}: coding {codec.coding!r} takes {codec.encode_us} and {codec.decode_us} us"
