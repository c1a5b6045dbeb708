"""Rows of a model's inputs as a user gives them: an `.npz` with an array for each input, or a function that yields them.

Everything is checked at this door, by name: dtype, shape, how many, and that floats are finite: an answer to NaN or to an
infinity is mostly NaN, by which nothing can be judged. A function may yield for ever; it is asked for no more than is kept.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from partitioner.extensions import load_function
from shared.errors import UserError
from shared.request import Array, TensorSpec

Row = tuple[Array, ...]
"""One row of cut 0's tensors, in the plan's order."""

MAX_ROWS = 4096
MAX_BYTES = 1 << 30
"""Rows are kept in memory: no more than this many of them, and no more bytes than this, whichever is less."""


def read_arrays(path: Path, what: str) -> dict[str, Array]:
    """All arrays of an `.npz`. Raises `UserError` that begins with `what`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{what} {path}: cannot be read as .npz ({error})") from error


def read_rows(path: Path, inputs: Sequence[TensorSpec]) -> tuple[Row, ...]:
    """Rows from an `.npz` with an array (rows, ...) for each input. Raises `UserError`."""
    arrays = read_arrays(path, "calibration")
    count = most_rows(inputs)
    for spec in inputs:
        array = arrays.get(spec.name)
        if array is None:
            raise UserError(
                f"calibration {path}: no array {spec.name!r}, only {', '.join(sorted(arrays)) or 'nothing'}"
            )
        if array.dtype != np.dtype(spec.dtype) or array.shape[1:] != spec.shape[1:] or array.ndim != len(spec.shape):
            raise UserError(
                f"calibration {path}: {spec.name!r} is {array.dtype}{list(array.shape)}, "
                f"expected {spec.dtype}[{', '.join(map(str, ('rows', *spec.shape[1:])))}]"
            )
        count = min(count, array.shape[0] // max(1, spec.shape[0]))
    for spec in inputs:
        rows = arrays[spec.name][: count * max(1, spec.shape[0])]
        _check_finite(rows.reshape(count, -1) if count else rows, f"calibration {path}: {spec.name!r}")
    return tuple(
        tuple(np.ascontiguousarray(arrays[spec.name][i * spec.shape[0] : (i + 1) * spec.shape[0]]) for spec in inputs)
        for i in range(count)
    )


def call_rows(text: str, inputs: Sequence[TensorSpec]) -> tuple[Row, ...]:
    """Rows from the user's function `module:function`, at most `most_rows` of them.

    The function takes nothing and gives an iterable. Each row is a mapping from the inputs' names to arrays, or, where there
    is a single input, its array. Arrays have the input's dtype and its shape at one row, and are copied. Raises `UserError`.
    """
    what = f"calibration {text!r}"
    function = load_function(text, "calibration")
    rows: list[Row] = []
    try:
        given = function()
        if not isinstance(given, Iterable):
            raise UserError(f"{what}: the function returned {type(given).__name__}, expected rows to iterate over")
        for number, row in enumerate(islice(cast("Iterable[object]", given), most_rows(inputs))):
            rows.append(_checked(row, inputs, f"{what}: row {number}"))
    except UserError:
        raise
    except Exception as error:  # whatever the user's function does
        raise UserError(f"{what} failed after {len(rows)} rows: {type(error).__name__}: {error}") from error
    if not rows:
        raise UserError(f"{what}: the function yielded no row")
    return tuple(rows)


def most_rows(inputs: Sequence[TensorSpec]) -> int:
    """How many rows are kept, at least one: `MAX_ROWS`, or as many as fit into `MAX_BYTES`."""
    return max(1, min(MAX_ROWS, MAX_BYTES // max(1, sum(spec.nbytes() for spec in inputs))))


def digest(tensors: Sequence[Array]) -> bytes:
    """Names what is in some arrays: shapes, dtypes and elements."""
    total = hashlib.sha256()
    for array in tensors:
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.digest()


def _checked(row: object, inputs: Sequence[TensorSpec], where: str) -> Row:
    if isinstance(row, Mapping):
        given = cast("Mapping[object, object]", row)
    elif len(inputs) == 1:
        given = {inputs[0].name: row}
    else:
        raise UserError(
            f"{where} is {type(row).__name__}, expected a mapping with {', '.join(spec.name for spec in inputs)}"
        )
    tensors: list[Array] = []
    for spec in inputs:
        array = given.get(spec.name)
        if array is None:
            raise UserError(f"{where}: no array {spec.name!r}, only {', '.join(map(str, given)) or 'nothing'}")
        if not isinstance(array, np.ndarray):
            raise UserError(f"{where}: {spec.name!r} is {type(array).__name__}, expected a numpy array")
        tensor = cast("Array", array)
        if tensor.dtype != np.dtype(spec.dtype) or tensor.shape != spec.shape:
            raise UserError(
                f"{where}: {spec.name!r} is {tensor.dtype}{list(tensor.shape)}, expected {spec.dtype}{list(spec.shape)}"
            )
        if not _finite(tensor):
            raise UserError(f"{where}: {spec.name!r} holds {_odd(tensor)}: expected finite numbers")
        tensors.append(np.array(tensor, order="C"))
    return tuple(tensors)


def _check_finite(rows: Array, where: str) -> None:
    """Refuse rows (rows, elements) that hold something else than numbers, naming the first of them."""
    if _finite(rows):
        return
    for number, row in enumerate(rows):
        if not _finite(row):
            raise UserError(f"{where}: row {number} holds {_odd(row)}: expected finite numbers")


def _finite(array: Array) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _odd(array: Array) -> str:
    return "NaN" if bool(np.isnan(array).any()) else "an infinity"
