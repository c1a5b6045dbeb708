"""What is asked and what comes back: tensor specifications, requests, identities and outcomes.

Everything here is data. Times are nanoseconds of CLOCK_MONOTONIC unless a name says otherwise.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
"""A numpy array of any element type."""

Buffer = bytes | bytearray | memoryview
"""One received or encoded frame."""

Stage = Literal[
    "client", "agent", "edge_queue", "head", "codec", "uplink", "cloud_queue", "tail", "downlink", "rung", "hold"
]
"""Where a request's time can go. `client`: from the call to the agent and back. `agent`: deciding and waiting inside the
agent. `edge_queue`, `cloud_queue`: waiting for an executor. `head`, `tail`, `rung`: running segments. `codec`: encoding
and decoding. `uplink`, `downlink`: the network. `hold`: a finished local answer waiting for a better one."""

Stages = dict[Stage, int]
"""Nanoseconds by stage; they add up to the elapsed time."""


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name, element type and shape of a tensor for one row of a batch.

    `dtype` is a numpy name in native byte order (`uint8`, `float32`, `int64`, `bool`, ...). `shape` is the whole shape at
    one row: its first axis is the batch axis (usually 1) where the plan is batchable, and counts as any other where not.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def at(self, rows: int) -> tuple[int, ...]:
        """Shape with `rows` rows: the first axis multiplied. At one row it is `shape` itself; a scalar has no rows."""
        if rows == 1 or not self.shape:
            return self.shape
        return (self.shape[0] * rows, *self.shape[1:])

    def nbytes(self, rows: int = 1) -> int:
        """Bytes of the raw tensor with `rows` rows."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape) * rows

    def view(self, frame: Buffer, rows: int = 1) -> Array:
        """The raw little-endian frame as an array of `at(rows)`, without a copy; it is read-only where the frame is.

        Raises ValueError where the frame's size is not `nbytes(rows)`."""
        array: Array = np.frombuffer(frame, np.dtype(self.dtype).newbyteorder("<")).reshape(self.at(rows))
        return array


class Fidelity(msgspec.Struct, frozen=True, gc=False):
    """What ran. `exact`: the whole model, nothing lossy. `lossy`: the whole model behind the lossy codec `name`.
    `rung`: the cheaper local rung `name`. `agreement` is with the whole model, measured when the plan was made."""

    kind: Literal["exact", "lossy", "rung"]
    name: str = ""
    agreement: float = 1.0

    def __str__(self) -> str:
        if self.kind == "exact":
            return "exact"
        if self.kind == "lossy":
            return f"lossy({self.name})"
        return f"rung({self.name}, {self.agreement:.3g})"


EXACT = Fidelity("exact")


class Answer(msgspec.Struct, frozen=True):
    """A result. `outputs` maps each output's name to its array (`rows` on the first axis where batchable).

    `source` tells where it was made, `node` which node made it (None on the edge), `rung` which way of the ladder ran
    (`whole` for the full model, in the cloud as well), `cut` the index of the plan's cut that was sent (None for a local
    answer), `contract` the plan's contract digest. `stages` add up to `elapsed_ns`, counted from the request's scheduled
    time, or from when it was asked where that was earlier, to its resolution. `on_time` is whether it was resolved no later
    than its deadline.
    """

    outputs: dict[str, Array]
    source: Literal["edge", "cloud"]
    node: str | None
    rung: str
    cut: int | None
    fidelity: Fidelity
    contract: str
    elapsed_ns: int = 0
    stages: Stages = {}
    on_time: bool = True

    @property
    def agreement(self) -> float:
        """Agreement with the whole model, measured when the plan was made (1.0 where exact)."""
        return self.fidelity.agreement

    def replace(self, **changes: object) -> Answer:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Missed(msgspec.Struct, frozen=True):
    """No answer could be made in time. `stage` names the part that ate the budget; `detail` says more for a person."""

    stage: Stage
    detail: str = ""
    elapsed_ns: int = 0


class Rejected(msgspec.Struct, frozen=True):
    """Refused at once: accepting it would have broken a promise already given, or nothing can answer it.

    `reason` is a short fixed word: `input`, `overload`, `revoked` (a promise had to go for more important ones), `expired`,
    `no-route`, `too-many-open`, `duplicate`, `closed`.
    """

    reason: str
    detail: str = ""
    elapsed_ns: int = 0


class Superseded(msgspec.Struct, frozen=True):
    """A newer frame of the same latest-wins stream took this one's place."""

    elapsed_ns: int = 0


Outcome = Answer | Missed | Rejected | Superseded
"""Every request ends in exactly one of these."""


class Request(msgspec.Struct, frozen=True):
    """One request as the agent's broker sees it.

    `client` and `sequence` identify it to the caller's stub. `inputs` are the tensors of cut 0 in the plan's order, C
    contiguous, native byte order, owned by headtail (a copy). `scheduled_ns` is when it was due, `deadline_ns` when its
    outcome is due. `priority` 0 is the most important. `stream` is 0 for a single request. `length` is how long its inputs
    were before the client padded them to the plan's bucket; 0 where it did not.
    """

    client: str
    sequence: int
    plan: str
    inputs: tuple[Array, ...]
    rows: int
    scheduled_ns: int
    deadline_ns: int
    priority: int = 1
    stream: int = 0
    latest_wins: bool = False
    length: int = 0
