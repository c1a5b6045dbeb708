"""What a virtual device computes instead of a network: a stamp of everything that an answer must depend on.

Each output of a segment is filled from a checksum over contract, program, segment and all the tensors that went in, so that
an answer made from the wrong tensors, request, coding, program, segments or version of the model differs from the right one
(but for one chance in 2^32). What a range gives is what its segments give one after the other: as in a network, whether
they run in one launch or in several makes no difference. `expected` says what the right answer is. Lossy codings are gone
through with the real codec, there as here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from zlib import crc32

import numpy as np

from shared.codecs import decode_into, dtype_of, encode
from shared.errors import InvariantBroken
from shared.events import Row, RowResult, Run
from shared.executors.programs import entry_tensors, exit_tensors
from shared.plan import RAW, Plan, SegmentRange
from shared.request import Answer, Array, Buffer, Request, TensorSpec

STEP = 0x9E3779B97F4A7C15
"""Odd, and about 2^64 over the golden ratio: neighbouring outputs are filled with unlike numbers."""

MASK = (1 << 64) - 1


class Stamps:
    """The virtual device's programs: what `plans` (by contract digest) compute. One for a whole run: it keeps nothing but
    what follows from the plans."""

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans = dict(plans)
        self._parts: dict[tuple[str, SegmentRange], _Part] = {}

    def run(self, run: Run) -> tuple[RowResult, ...]:
        """What comes of each row of a run. A row whose frames do not fit fails alone."""
        part = self._part(run.contract, run.range)
        return tuple([part.result(row) for row in run.rows])

    def expected(self, request: Request, answer: Answer) -> dict[str, Array]:
        """The outputs that an answer to this request must have, by what it says of itself: contract, rung, cut and
        fidelity. `request.inputs` are its tensors. Raises `InvariantBroken` where it says what no plan has."""
        plan = self._plans.get(answer.contract)
        if plan is None:
            raise InvariantBroken(f"an answer of contract {answer.contract[:12]}, which nobody ever had")
        program = next((i for i, p in enumerate(plan.programs) if p.name == answer.rung), None)
        if program is None:
            raise InvariantBroken(f"an answer of rung {answer.rung!r}, which plan {plan.name} does not have")
        coding = answer.fidelity.name if answer.fidelity.kind == "lossy" else RAW.name
        return self.outputs(answer.contract, request.inputs, request.rows, program, answer.cut, coding)

    def outputs(
        self, contract: str, inputs: Sequence[Array], rows: int, program: int, cut: int | None, coding: str
    ) -> dict[str, Array]:
        """The outputs of a program on the device (`cut` None), or of the whole model through the cloud by cut and coding."""
        plan = self._plans[contract]
        if cut is None:
            whole = self._part(contract, SegmentRange(program, 0, len(plan.programs[program].segments)))
            return whole.named(tuple(inputs), rows)
        code = plan.cuts[cut].coding(coding) if 0 <= cut < len(plan.cuts) - 1 else None
        if code is None:
            raise InvariantBroken(f"an answer by cut {cut} and coding {coding!r}, which plan {plan.name} does not have")
        sent: tuple[Array | Buffer, ...] = tuple(inputs)
        if cut or code.coded:
            head = self._part(contract, SegmentRange(0, 0, cut))
            sent = head.result(Row(0, rows, sent, RAW, code)).outputs
        frames = tuple(encode(s, RAW, 0) if isinstance(s, np.ndarray) else s for s in sent)
        tail = self._part(contract, SegmentRange(0, cut, len(plan.cuts) - 1))
        result = tail.result(Row(0, rows, frames, code))
        if result.error:
            raise InvariantBroken(result.error)
        return tail.by_name(result.outputs)

    def _part(self, contract: str, part: SegmentRange) -> _Part:
        found = self._parts.get((contract, part))
        if found is None:
            each: tuple[_Part, ...] = ()
            if part.program == 0 and part.last - part.first > 1:
                each = tuple(self._part(contract, SegmentRange(0, i, i + 1)) for i in range(part.first, part.last))
            found = self._parts[contract, part] = _Part(self._plans[contract], contract, part, each)
        return found


class _Part:
    """One range of one plan, which is `each` of these one after the other where it is more than one segment."""

    def __init__(self, plan: Plan, contract: str, part: SegmentRange, each: tuple[_Part, ...]) -> None:
        self._each = each
        self._empty = part.empty
        self._entry = entry_tensors(plan, part)
        self._exit = exit_tensors(plan, part)
        self._sizes = [spec.nbytes() for spec in self._entry]
        self._fillers: dict[int, list[Filler]] = {}
        self._salt = crc32(f"{contract} {part.program} {part.first} {part.last}".encode())

    def result(self, row: Row) -> RowResult:
        """The row's outputs, encoded where that is asked for, or its error."""
        tensors: Sequence[Array | Buffer] = row.inputs
        if len(tensors) != len(self._entry):
            return RowResult(row.job, (), f"{len(tensors)} tensors, expected {len(self._entry)}")
        if row.decode.coded:
            tensors = [self._decoded(given, row, i, self._entry[i]) for i, given in enumerate(tensors)]
        for tensor, size in zip(tensors, self._sizes, strict=True):
            if _nbytes(tensor) != size * row.rows:
                return RowResult(row.job, (), f"a tensor of {_nbytes(tensor)} bytes for {row.rows} rows of {size}")
        outputs = self._arrays(tensors, row.rows) if self._empty else self._stamp(tensors, row.rows)
        if row.encode is None:
            return RowResult(row.job, outputs)
        return RowResult(row.job, tuple(encode(array, row.encode, i) for i, array in enumerate(outputs)))

    def named(self, inputs: tuple[Array, ...], rows: int) -> dict[str, Array]:
        """The outputs on these tensors, by name."""
        return self.by_name(self.result(Row(0, rows, inputs, RAW)).outputs)

    def by_name(self, outputs: Sequence[Array | Buffer]) -> dict[str, Array]:
        """Arrays with the names of the tensors at the exit."""
        return {s.name: o for s, o in zip(self._exit, outputs, strict=True) if isinstance(o, np.ndarray)}

    def _decoded(self, given: Array | Buffer, row: Row, index: int, spec: TensorSpec) -> Array | Buffer:
        if isinstance(given, np.ndarray):
            return given
        array: Array = np.empty(spec.at(row.rows), dtype_of(spec.dtype))
        decode_into(given, row.decode, index, spec, row.rows, array)
        return array

    def _arrays(self, tensors: Sequence[Array | Buffer], rows: int) -> tuple[Array, ...]:
        return tuple(
            t if isinstance(t, np.ndarray) else s.view(t, rows) for s, t in zip(self._entry, tensors, strict=True)
        )

    def _stamp(self, tensors: Sequence[Array | Buffer], rows: int) -> tuple[Array, ...]:
        if self._each:
            for part in self._each[:-1]:
                tensors = part._stamp(tensors, rows)
            return self._each[-1]._stamp(tensors, rows)
        seed = self._salt
        for tensor in tensors:
            seed = crc32(tensor.data if isinstance(tensor, np.ndarray) else tensor, seed)
        fillers = self._fillers.get(rows)
        if fillers is None:
            fillers = self._fillers[rows] = [filler(spec, rows) for spec in self._exit]
        return tuple([fill(seed * 8 + i) for i, fill in enumerate(fillers)])


def _nbytes(tensor: Array | Buffer) -> int:
    return len(tensor) if isinstance(tensor, bytes | bytearray) else tensor.nbytes


class Filler:
    """Fills tensors of one specification and number of rows."""

    __slots__ = ("_dtype", "_repeats", "_shape", "_small")

    def __init__(self, spec: TensorSpec, rows: int) -> None:
        self._shape = spec.at(rows)
        self._dtype = dtype_of(spec.dtype)
        self._small = self._dtype.kind == "f"
        nbytes = math.prod(self._shape) * (1 if self._small else self._dtype.itemsize)
        self._repeats = -(-nbytes // 8)

    def __call__(self, seed: int) -> Array:
        """A tensor that depends on `seed`'s lower 61 bits; read-only unless it is of floats, which are small numbers."""
        pattern = (((seed + 1) * STEP) & MASK).to_bytes(8, "little") * self._repeats
        if self._small:
            small: Array = np.ndarray(self._shape, np.int8, pattern)
            return small.astype(self._dtype)
        return np.ndarray(self._shape, self._dtype, pattern)


@cache
def filler(spec: TensorSpec, rows: int) -> Filler:
    """The filler for these tensors."""
    return Filler(spec, rows)


def request_inputs(specs: Sequence[TensorSpec], rows: int, value: int) -> tuple[Array, ...]:
    """The tensors that a client sends with the request that was given the number `value`."""
    return tuple([filler(spec, rows)(value * 8 + i) for i, spec in enumerate(specs)])
