"""Into the slot and out of it: decoding rows to their places in a batch, and splitting a batch's outputs into rows.

A row that cannot be decoded fails alone: the next row takes its place, so that the batch stays without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shared import codecs
from shared.errors import InputError, ModelError, PeerError, UserError
from shared.events import Row, RowResult
from shared.executors.buffers import Slot
from shared.request import Array, Buffer, TensorSpec


class Staged(msgspec.Struct, frozen=True, gc=False):
    """The rows that lie in a slot, each with the index of its first one there, how many in all, and the errors by job."""

    placed: list[tuple[Row, int]]
    rows: int
    errors: dict[int, str]


def stage(rows: Sequence[Row], specs: Sequence[TensorSpec], slot: Slot) -> Staged:
    """Write each row's tensors to their places in the slot: the one copy between the socket and the runtime."""
    placed: list[tuple[Row, int]] = []
    errors: dict[int, str] = {}
    first = 0
    for row in rows:
        try:
            _check_count(row, specs)
            places = slot.places(first, row.rows)
            for index, (spec, value, place) in enumerate(zip(specs, row.inputs, places, strict=True)):
                _write(value, row, index, spec, place)
        except (PeerError, UserError) as reason:
            errors[row.job] = str(reason)
            continue
        placed.append((row, first))
        first += row.rows
    return Staged(placed, first, errors)


def split(
    outputs: Sequence[Array], specs: Sequence[TensorSpec], placed: Sequence[tuple[Row, int]], slot: Slot
) -> list[tuple[Row, tuple[Array, ...]]]:
    """Each row's part of a batch's outputs, as views, or copied where the runtime gave the slot's own memory back.

    Raises `ModelError` for an output of another shape or type than the plan's, as of an operator whose result's size depends
    on its data: nobody can tell which of its rows are whose.
    """
    last, first = placed[-1]
    total = first + last.rows
    own: list[Array] = []
    for array, spec in zip(outputs, specs, strict=True):
        if array.shape != spec.at(total) or array.dtype != codecs.dtype_of(spec.dtype):
            raise ModelError(
                f"{spec.name!r} came out as {array.dtype}{array.shape}, the plan says {spec.dtype}{spec.at(total)}"
            )
        own.append(array.copy() if slot.holds(array) else array)
    if len(placed) == 1:
        return [(last, tuple(own))]
    return [
        (
            row,
            tuple(
                array[first * spec.shape[0] : (first + row.rows) * spec.shape[0]]
                for array, spec in zip(own, specs, strict=True)
            ),
        )
        for row, first in placed
    ]


def pack(row: Row, outputs: Sequence[Array]) -> RowResult:
    """The row's result: its arrays, or frames where an encoding is asked for."""
    if row.encode is None:
        return RowResult(row.job, tuple(outputs))
    try:
        return RowResult(row.job, tuple(codecs.encode(array, row.encode, i) for i, array in enumerate(outputs)))
    except UserError as reason:
        return RowResult(row.job, (), str(reason))


def recode(row: Row, specs: Sequence[TensorSpec]) -> RowResult:
    """An empty range: decode what came as frames, encode what is asked for, run nothing. Needs no slot."""
    try:
        _check_count(row, specs)
        tensors: list[Array] = []
        for index, (spec, value) in enumerate(zip(specs, row.inputs, strict=True)):
            if isinstance(value, np.ndarray):
                _check_array(value, spec, row.rows)
                tensors.append(value)
                continue
            made = np.empty(spec.at(row.rows), codecs.dtype_of(spec.dtype))
            codecs.decode_into(value, row.decode, index, spec, row.rows, made)
            tensors.append(made)
    except (PeerError, UserError) as reason:
        return RowResult(row.job, (), str(reason))
    return pack(row, tensors)


def _check_count(row: Row, specs: Sequence[TensorSpec]) -> None:
    if len(row.inputs) != len(specs):
        raise InputError(f"{len(row.inputs)} tensors, expected {len(specs)}")


def _write(value: Array | Buffer, row: Row, index: int, spec: TensorSpec, out: Array) -> None:
    if isinstance(value, np.ndarray):
        if value.shape != out.shape or value.dtype != out.dtype:
            _check_array(value, spec, row.rows)
        np.copyto(out, value)
    else:
        codecs.decode_into(value, row.decode, index, spec, row.rows, out)


def _check_array(value: Array, spec: TensorSpec, rows: int) -> None:
    if value.shape != spec.at(rows) or value.dtype != codecs.dtype_of(spec.dtype):
        raise InputError(f"{spec.name}: an array of {value.dtype}{value.shape}, expected {spec.dtype}{spec.at(rows)}")
