"""Answers between an agent and its clients: as header and frames on the way, as `Answer` at either end.

The header says dtype and shape of each output; its name follows from the model's list of outputs, by position. A frame
becomes an array that looks into the frame's own memory: nothing is copied, and such an array is read-only. That the frames'
lengths fit the header has been checked by the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.errors import PeerError
from shared.request import Answer, Array, Buffer
from shared.wire.codec import array_of, tensor_of
from shared.wire.messages import AnswerHeader


def to_header(answer: Answer) -> tuple[AnswerHeader, tuple[Array, ...]]:
    """The header and the frames (C-contiguous arrays) of an answer."""
    arrays = tuple(np.ascontiguousarray(array) for array in answer.outputs.values())
    header = AnswerHeader(
        source=answer.source,
        node=answer.node,
        rung=answer.rung,
        cut=answer.cut,
        fidelity=answer.fidelity,
        contract=answer.contract,
        stages=answer.stages,
        tensors=tuple(tensor_of(array) for array in arrays),
    )
    return header, arrays


def from_header(header: AnswerHeader, frames: Sequence[Buffer], names: Sequence[str]) -> Answer:
    """The answer in a message whose outputs are called `names`. Raises `PeerError` where the counts differ."""
    if not len(frames) == len(header.tensors) == len(names):
        raise PeerError("frames", f"{len(frames)} frames, {len(header.tensors)} tensors, {len(names)} outputs")
    outputs = {name: array_of(tensor, frame) for name, tensor, frame in zip(names, header.tensors, frames, strict=True)}
    return Answer(
        outputs=outputs,
        source=header.source,
        node=header.node,
        rung=header.rung,
        cut=header.cut,
        fidelity=header.fidelity,
        contract=header.contract,
        stages=header.stages,
    )
