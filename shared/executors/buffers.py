"""The memory behind the slots: for each entry of each plan a few batch-shaped arrays, made once and touched, so that no
request pays for a page fault.

A row's tensors are written straight to their place in the batch; the runtime then reads the leading part of the same
arrays. Nothing that leaves an executor may lie in here, since the next run overwrites it: see `Buffers.holds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shared.codecs import dtype_of
from shared.plan import Plan, SegmentRange
from shared.request import Array, TensorSpec
from shared.slots import SlotClass


class Slot:
    """The arrays of one slot, one for each tensor of the entry. Used by one run at a time, as leased."""

    __slots__ = ("_arrays", "_batchable", "_specs", "rows")

    def __init__(self, specs: Sequence[TensorSpec], rows: int, batchable: bool) -> None:
        self._specs = tuple(specs)
        self._batchable = batchable
        self.rows = rows
        """The most rows that fit."""
        self._arrays: tuple[Array, ...] = tuple(np.empty(spec.at(rows), dtype_of(spec.dtype)) for spec in specs)
        for array in self._arrays:
            array.reshape(-1).view(np.uint8)[:] = 0

    def place(self, tensor: int, first: int, rows: int) -> Array:
        """Where rows `first` to `first + rows` of a tensor belong: a contiguous view of shape `spec.at(rows)`."""
        array = self._arrays[tensor]
        if not self._batchable:
            return array
        length = self._specs[tensor].shape[0]
        return array[first * length : (first + rows) * length]

    def feeds(self, rows: int) -> dict[str, Array]:
        """The leading `rows` rows of every tensor, by name."""
        return {spec.name: self.place(index, 0, rows) for index, spec in enumerate(self._specs)}

    def holds(self, array: Array) -> bool:
        """Whether an array lies in this slot's memory, so that it must be copied before it leaves."""
        return any(np.may_share_memory(array, own) for own in self._arrays)


class Buffers:
    """All slots of a process, by entry and index."""

    def __init__(self, plans: Iterable[tuple[Plan, Sequence[SlotClass]]]) -> None:
        self._slots: dict[tuple[str, int, int], tuple[Slot, ...]] = {
            (c.contract, c.program, c.first): tuple(
                Slot(plan.cuts[c.first].tensors, c.rows, plan.batchable) for _ in range(c.slots)
            )
            for plan, classes in plans
            for c in classes
        }

    def slot(self, contract: str, part: SegmentRange, index: int) -> Slot | None:
        """The slot `index` of a range's entry; None where there is none such."""
        slots = self._slots.get((contract, part.program, part.first), ())
        return slots[index] if 0 <= index < len(slots) else None
