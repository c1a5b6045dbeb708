"""Tensors in a journal: what they look like, never what they hold.

A journal must not carry camera images out of a vehicle, and its ring must not keep frames alive. Decisions never look into
a tensor, only at its size, so that a replay can do with blank ones. A mark is the length of a frame, or element type and
shape of an array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shared.errors import JournalError
from shared.request import Array, Buffer
from shared.wire.codec import ITEMSIZE

Mark = int | tuple[str, tuple[int, ...]]
"""Bytes of a frame, or element type and shape of an array."""

MOST_BYTES = 1 << 31
"""The largest tensor that is believed, in bytes: above what any message may carry."""

MOST_BLANKS = 256
"""Blank tensors that are kept to be used again."""

_names: dict[np.dtype[np.generic], str] = {np.dtype(name): name for name in ITEMSIZE}


def mark(tensor: Array | Buffer) -> Mark:
    """What `tensor` looks like."""
    if isinstance(tensor, np.ndarray):
        dtype = tensor.dtype
        return (_names.get(dtype) or dtype.name, tensor.shape)
    return memoryview(tensor).nbytes


class Blanks:
    """Tensors that look as their marks say and hold zeros. Equal marks may give the same tensor, which is read-only."""

    def __init__(self) -> None:
        self._known: dict[Mark, Array | bytes] = {}

    def array(self, marked: Mark) -> Array:
        """The blank array of a mark. Raises `JournalError` where the mark is a frame's, or no array can look like that."""
        found = self.tensor(marked)
        if isinstance(found, bytes):
            raise JournalError(f"a frame of {len(found)} bytes stands where an array is expected")
        return found

    def tensor(self, marked: Mark) -> Array | bytes:
        """The blank frame or array of a mark. Raises `JournalError` where no tensor can look like that."""
        found = self._known.get(marked)
        if found is None:
            found = _blank(marked)
            if len(self._known) >= MOST_BLANKS:
                self._known.clear()
            self._known[marked] = found
        return found

    def tensors(self, marked: Sequence[Mark]) -> tuple[Array | bytes, ...]:
        """The blank tensors of some marks: a new tuple, as each message has its own."""
        return tuple([self.tensor(each) for each in marked])


def _blank(marked: Mark) -> Array | bytes:
    if isinstance(marked, int):
        if not 0 <= marked <= MOST_BYTES:
            raise JournalError(f"a frame of {marked} bytes; expected 0 to {MOST_BYTES}")
        return bytes(marked)
    dtype, shape = marked
    if dtype not in ITEMSIZE:
        raise JournalError(f"element type {dtype!r:.40}; expected one of {', '.join(ITEMSIZE)}")
    if len(shape) > 32 or any(axis < 0 for axis in shape) or math.prod(shape) * ITEMSIZE[dtype] > MOST_BYTES:
        raise JournalError(f"an array of shape {shape!r:.80}; expected axes from 0, and at most {MOST_BYTES} bytes")
    blank: Array = np.zeros(shape, dtype)
    blank.flags.writeable = False
    return blank
