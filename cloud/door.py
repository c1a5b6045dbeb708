"""What is checked of a request at a node's door, before a byte of its tensors is looked at."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.codecs import check_frame, frame_bounds
from shared.errors import PeerError
from shared.latency import WorkKey
from shared.plan import Coding, Plan, SegmentRange
from shared.request import Buffer
from shared.scheduler import Scheduler
from shared.wire.messages import Infer, Tensor, tensor_table


class Entry(msgspec.Struct, frozen=True):
    """A way in: a cut of a plan and a coding. `key` is what its work is timed by; by rows, from 0 on: the tensors, and the
    least and the most bytes of each frame."""

    coding: Coding
    key: WorkKey
    tensors: tuple[tuple[Tensor, ...], ...]
    bounds: tuple[tuple[tuple[int, int], ...], ...]


class Door:
    """What the plans of a node say of requests: computed once."""

    def __init__(self, plans: Mapping[str, Plan], scheduler: Scheduler, levels: int) -> None:
        """`plans` by contract digest. `levels` is how many classes of requests there are."""
        self._plans = plans
        self._levels = levels
        most = {contract: scheduler.max_rows(contract) for contract in plans}
        self._tensors = {
            (contract, cut): tensor_table(plan.cuts[cut].tensors, most[contract])
            for contract, plan in plans.items()
            for cut in range(len(plan.cuts))
        }
        self.outputs = {contract: self._tensors[contract, len(plan.cuts) - 1] for contract, plan in plans.items()}
        """What is answered: by contract, then by rows, the tensors of the last cut."""
        self._entries = {
            (contract, first, coding.name): self._entry(contract, first, coding)
            for contract, plan in plans.items()
            for first in range(len(plan.cuts) - 1)
            for coding in plan.cuts[first].codings
        }

    def check(self, message: Infer, frames: tuple[Buffer, ...]) -> Entry:
        """The way in that the request names, after everything that can be checked without decoding. Raises `PeerError` with
        the reason of the refusal: `contract`, `input` or `size`."""
        entry = self._entries.get((message.contract, message.cut, message.coding))
        if entry is None:
            raise self._unknown(message)
        rows = message.rows
        if not 1 <= rows < len(entry.tensors):
            raise PeerError("input", f"{rows} rows, expected 1 to {len(entry.tensors) - 1}")
        if not 0 <= message.priority < self._levels:
            raise PeerError("input", f"priority {message.priority}, expected 0 to {self._levels - 1}")
        expected = entry.tensors[rows]
        if message.tensors != expected or len(frames) != len(expected):
            raise PeerError("input", f"tensors {message.tensors}, expected {expected}")
        for frame, (low, high) in zip(frames, entry.bounds[rows], strict=True):
            if not low <= memoryview(frame).nbytes <= high:
                specs = self._plans[message.contract].cuts[message.cut].tensors
                for each, spec in zip(frames, specs, strict=True):
                    check_frame(memoryview(each).nbytes, entry.coding, spec, rows)
        return entry

    def _entry(self, contract: str, first: int, coding: Coding) -> Entry:
        plan, tensors = self._plans[contract], self._tensors[contract, first]
        key = WorkKey(contract, SegmentRange(0, first, len(plan.cuts) - 1), coding.name if coding.coded else "")
        specs = plan.cuts[first].tensors
        bounds = tuple(tuple(frame_bounds(coding, spec, rows) for spec in specs) for rows in range(len(tensors)))
        return Entry(coding, key, tensors, bounds)

    def _unknown(self, message: Infer) -> PeerError:
        plan = self._plans.get(message.contract)
        if plan is None:
            return PeerError("contract", f"contract {message.contract[:12]} is not served here")
        if not 0 <= message.cut < len(plan.cuts) - 1:
            return PeerError("input", f"cut {message.cut} is not one of 0 to {len(plan.cuts) - 2}")
        return PeerError("input", f"cut {message.cut} has no coding {message.coding!r}")
