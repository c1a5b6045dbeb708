"""The memory behind the slots: for each entry of each plan a few batch-shaped arrays, made once and touched, so that no
request pays for a page fault.

A row's tensors are written straight to their place in the batch; the runtime then reads the leading part of the same
arrays. Nothing that leaves an executor may lie in here, since the next run overwrites it: see `Slot.holds`.

In a debug run (`memory.poison`) a slot is filled with a pattern while nobody holds it, floats that are no numbers: what is
read of a slot that was given back shows, and what was written there is found by the next run, as is a lease that is older
than one that the slot has seen. It costs two passes over the slot for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from shared.codecs import dtype_of
from shared.errors import InvariantBroken
from shared.plan import Plan, SegmentRange
from shared.request import Array, TensorSpec
from shared.slots import SlotClass

POISON = 0xFF
"""Every byte of a slot that nobody holds: floats of it are no numbers, signed integers -1."""


ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector of a processor; what the runtime gives its own tensors."""


class Slot:
    """The arrays of one slot, one for each tensor of the entry. Used by one run at a time, as leased: each `enter`s first and
    `leave`s at the end."""

    __slots__ = ("_arrays", "_batchable", "_generation", "_leading", "_poison", "_specs", "rows")

    def __init__(self, specs: Sequence[TensorSpec], rows: int, batchable: bool, *, poison: bool = False) -> None:
        self._poison = poison
        self._generation = -1
        self._specs = tuple(specs)
        self._batchable = batchable
        self.rows = rows
        """The most rows that fit."""
        self._arrays: tuple[Array, ...] = tuple(_aligned(spec, rows) for spec in specs)
        self._leading: dict[int, dict[str, Array]] = {}
        """What `feeds` gave, by rows: the memory stays the same."""
        self._fill(POISON if poison else 0)

    def enter(self, generation: int) -> None:
        """A run begins that holds a lease of this generation. Raises `InvariantBroken`, in a debug run, where a later one has
        been here, or something was written since the last one left."""
        if not self._poison:
            return
        if generation <= self._generation:
            raise InvariantBroken(f"a lease of generation {generation} of a slot that {self._generation} has used")
        if any((array.reshape(-1).view(np.uint8) != POISON).any() for array in self._arrays):
            raise InvariantBroken(f"a slot was written to after generation {self._generation} had left it")
        self._generation = generation

    def leave(self) -> None:
        """The run has read and written all that it will."""
        if self._poison:
            self._fill(POISON)

    def _fill(self, byte: int) -> None:
        for array in self._arrays:
            array.reshape(-1).view(np.uint8)[:] = byte

    def place(self, tensor: int, first: int, rows: int) -> Array:
        """Where rows `first` to `first + rows` of a tensor belong: a contiguous view of shape `spec.at(rows)`."""
        array = self._arrays[tensor]
        if not self._batchable:
            return array
        length = self._specs[tensor].shape[0]
        return array[first * length : (first + rows) * length]

    def places(self, first: int, rows: int) -> Iterable[Array]:
        """`place` of each tensor, in their order."""
        if first == 0:
            return self.feeds(rows).values()
        return [self.place(index, first, rows) for index in range(len(self._arrays))]

    def feeds(self, rows: int) -> Mapping[str, Array]:
        """The leading `rows` rows of every tensor, by name, in their order."""
        feeds = self._leading.get(rows)
        if feeds is None:
            feeds = {spec.name: self.place(index, 0, rows) for index, spec in enumerate(self._specs)}
            self._leading[rows] = feeds
        return feeds

    def holds(self, array: Array) -> bool:
        """Whether an array lies in this slot's memory, so that it must be copied before it leaves."""
        for own in self._arrays:  # noqa: SIM110 -- a generator would be made for each output
            if np.may_share_memory(array, own):
                return True
        return False


def _aligned(spec: TensorSpec, rows: int) -> Array:
    """Room for so many rows of a tensor that begins at a multiple of `ALIGNMENT`."""
    nbytes = spec.nbytes(rows)
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return cast(Array, raw[first : first + nbytes].view(dtype_of(spec.dtype)).reshape(spec.at(rows)))


class Buffers:
    """All slots of a process, by entry and index."""

    def __init__(self, plans: Iterable[tuple[Plan, Sequence[SlotClass]]], *, poison: bool = False) -> None:
        self._slots: dict[tuple[str, int, int], tuple[Slot, ...]] = {
            (c.contract, c.program, c.first): tuple(
                Slot(plan.cuts[c.first].tensors, c.rows, plan.batchable, poison=poison) for _ in range(c.slots)
            )
            for plan, classes in plans
            for c in classes
        }

    def slots(self, contract: str, part: SegmentRange) -> tuple[Slot, ...]:
        """The slots of a range's entry, by their index; none where nothing enters there."""
        return self._slots.get((contract, part.program, part.first), ())
