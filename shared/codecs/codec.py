"""What every kind of coding offers, and the table of kinds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shared.errors import InvariantBroken
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec


class Codec(Protocol):
    """One kind of coding. It keeps nothing between calls but scratch memory, and may be used by several threads."""

    @property
    def kind(self) -> CodingKind:
        """The word by which codings name it."""
        ...

    @property
    def fields(self) -> frozenset[str]:
        """The fields of `Coding` that it uses, beyond `name` and `kind`."""
        ...

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """Why a cut of these tensors cannot travel in `coding`, in words; None where it can."""
        ...

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """One frame from one tensor. Raises `InputError` where the array does not fit the coding."""
        ...

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """The least and the most bytes of a frame of `spec` at `rows` rows. Raises `InputError` for other tensors."""
        ...

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """Write what `frame` holds, whose length is within the bounds, into `out`, which is C contiguous and of the tensor's
        dtype and shape. Raises `PeerError("codec")` for contents that cannot be decoded, and nothing else on account of
        them."""
        ...


def registered(*codecs: Codec) -> Mapping[CodingKind, Codec]:
    """The read-only table of these codecs by their kinds. Raises `InvariantBroken` where two have the same."""
    table: dict[CodingKind, Codec] = {}
    for codec in codecs:
        if codec.kind in table:
            raise InvariantBroken(f"two codecs are of kind {codec.kind!r}")
        table[codec.kind] = codec
    return MappingProxyType(table)
