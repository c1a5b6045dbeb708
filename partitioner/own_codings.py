"""Codings that a plan has only where they are asked for (`--codec`): `pca`, and those of codecs that other packages bring
(`shared.codecs.installed`)."""

from __future__ import annotations

from collections.abc import Sequence

from partitioner.running import Tensors, decode_all
from shared.codecs import offering
from shared.errors import UserError
from shared.plan import Coding
from shared.request import Array, Buffer, TensorSpec


def check_codecs(kinds: Sequence[str]) -> None:
    """Refuse what names no codec that can be asked for. Raises `UserError` that names it."""
    for kind in kinds:
        offering(kind)


def offered_codings(
    kinds: Sequence[str], tensors: tuple[TensorSpec, ...], samples: Sequence[Sequence[Array]], taken: Sequence[Coding]
) -> list[Coding]:
    """What these codecs offer for a cut: `samples` holds what each tensor was in some rows, one row each, and `taken` are
    the codings that the cut has already.

    Raises `UserError`: a codec that fails, or one coding's name twice.
    """
    found = [coding for kind in dict.fromkeys(kinds) for coding in offering(kind).offer(tensors, samples)]
    names = [coding.name for coding in taken]
    for coding in found:
        if coding.name in names:
            raise UserError(f"codec {coding.kind!r} offers {coding.name!r}, a name that another coding has")
        names.append(coding.name)
    return found


def check_lossless(
    coding: Coding, specs: tuple[TensorSpec, ...], rows: Sequence[Tensors], frames: Sequence[Sequence[Buffer]]
) -> None:
    """Hold a coding to what it says: every row comes out of its frames bit by bit. Raises `UserError` where one does not."""
    for tensors, coded in zip(rows, frames, strict=True):
        for spec, array, back in zip(specs, tensors, decode_all(coded, coding, specs), strict=True):
            if array.tobytes() != back.tobytes():
                raise UserError(f"codec {coding.kind!r}: {coding.name!r} is to be lossless and changed {spec.name!r}")
