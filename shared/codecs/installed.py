"""Codecs of other packages, which the installation declares as entry points of the group `headtail.codecs`.

    [project.entry-points."headtail.codecs"]
    delta = "delta_codec:Delta"

The name is the kind that codings of it have, the value a class (or a function) that is called without arguments and gives an
`OfferedCodec`. It is imported when a plan on this machine first names it: nothing is ever imported because of what a peer
sent, and an installation that does not declare a kind cannot be made to load it.

What a frame of it means is part of the contract between both sides, but the digest has only its name. So a codec that
comes to write other frames takes another name.

Behind the fence of `Installed` it cannot break what it is called from: whatever it raises becomes an error of
`shared.errors` that names it, and bounds that are none are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from shared.codecs.codec import Codec
from shared.errors import InputError, PeerError, UserError
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

GROUP = "headtail.codecs"

FIELDS: Mapping[str, object] = {
    "quality": 0, "scales": (), "bits": 0, "subsampling": "", "lossless": False, "basis": ()
}  # fmt: skip
"""The fields of a `Coding` that belong to some kinds only, with what they are in the others."""

_MEMBERS = ("fault", "encode", "bounds", "decode", "offer")


class OfferedCodec(Codec, Protocol):
    """The extension point: a codec that also says in which codings a plan may have it.

    `fields` are those of `FIELDS` that it uses, in which what it was fitted to is kept. `encode` and `decode` are called by
    several threads at once. `decode` must not take more memory than a small multiple of the tensor's own, whatever is in the
    frame. A coding with `lossless` gives back every bit: the planner proves it on the calibration data.
    """

    def offer(self, tensors: tuple[TensorSpec, ...], samples: Sequence[Sequence[Array]]) -> Sequence[Coding]:
        """The codings in which a cut of these tensors is offered, none where they do not suit. `samples` holds what each
        tensor was in some rows of the user's data, one row each. Their `kind` is the codec's."""
        ...


@cache
def installed(kind: str) -> Installed:
    """The codec of this kind that the installation declares. Raises `UserError`: none, several, or one that is unusable."""
    from importlib.metadata import entry_points  # slow to import, and most plans have headtail's own codecs alone

    found = list(entry_points(group=GROUP, name=kind))
    if not found:
        raise UserError(
            f"no codec {kind!r} is installed here: expected one of headtail's own, or a package that brings it as an entry "
            f"point of the group {GROUP}"
        )
    if len(found) > 1:
        raise UserError(f"codec {kind!r}: several packages bring it: {', '.join(sorted(p.value for p in found))}")
    try:
        made = cast(Callable[[], object], found[0].load())()
    except Exception as error:  # whatever the package does
        raise UserError(f"codec {kind!r}: {found[0].value} fails with {type(error).__name__}: {error}") from error
    return Installed(made, kind)


class Installed:
    """A codec of another package, fenced in. Raises `UserError` where it lacks a member, or is of another kind."""

    def __init__(self, codec: object, kind: str) -> None:
        lacking = [name for name in _MEMBERS if not callable(getattr(codec, name, None))]
        if lacking:
            raise UserError(f"codec {kind!r} has no function {lacking[0]!r} (see shared.codecs.installed)")
        if getattr(codec, "kind", None) != kind:
            raise UserError(f"codec {kind!r} says that it is of kind {getattr(codec, 'kind', None)!r}")
        self.kind: CodingKind = kind
        self.fields = frozenset(cast(Sequence[str], getattr(codec, "fields", ())))
        unknown = sorted(self.fields - FIELDS.keys())
        if unknown:
            raise UserError(f"codec {kind!r} uses {unknown[0]!r}: expected fields among {', '.join(FIELDS)}")
        self._codec = cast(OfferedCodec, codec)

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """As the codec says; in words, too, where it fails."""
        try:
            return self._codec.fault(coding, tensors)
        except Exception as error:
            return self._failed("fault", error)

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """The codec's frame. Raises `InputError` for whatever it raises."""
        try:
            return memoryview(self._codec.encode(array, coding, tensor_index)).cast("B")
        except Exception as error:
            raise InputError(self._failed("encode", error)) from error

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """The codec's bounds. Raises `InputError` for whatever it raises, and where they are none."""
        try:
            low, high = self._codec.bounds(coding, spec, rows)
            if not 0 <= int(low) <= int(high):
                raise ValueError(f"{low} to {high} bytes")
        except Exception as error:
            raise InputError(self._failed("bounds", error)) from error
        return int(low), int(high)

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """As the codec decodes. Raises `PeerError("codec")` for whatever it raises."""
        try:
            self._codec.decode(frame, coding, tensor_index, spec, out)
        except Exception as error:
            raise PeerError("codec", f"{spec.name}: {self._failed('decode', error)}") from error

    def offer(self, tensors: tuple[TensorSpec, ...], samples: Sequence[Sequence[Array]]) -> tuple[Coding, ...]:
        """The codec's codings. Raises `UserError` for whatever it raises, for one of another kind, and for one that its own
        `fault` refuses."""
        try:
            offered = tuple(self._codec.offer(tensors, samples))
        except Exception as error:
            raise UserError(self._failed("offer", error)) from error
        for coding in offered:
            if coding.kind != self.kind:
                raise UserError(f"codec {self.kind!r} offers {coding.name!r}, a coding of kind {coding.kind!r}")
            fault = self.fault(coding, tensors)
            if fault is not None:
                raise UserError(f"codec {self.kind!r} offers {coding.name!r}, which does not fit: {fault}")
        return offered

    def _failed(self, what: str, error: Exception) -> str:
        return f"codec {self.kind!r}: {what} failed with {type(error).__name__}: {error}"
