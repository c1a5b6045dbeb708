"""What is checked of a request at a node's door, before a byte of its tensors is looked at."""

from __future__ import annotations

from collections.abc import Mapping

from shared.codecs import check_frame
from shared.errors import PeerError
from shared.plan import Coding, Plan
from shared.request import Buffer
from shared.scheduler import Scheduler
from shared.wire.messages import Infer, Tensor, tensor_table


class Door:
    """What the plans of a node say of requests: computed once."""

    def __init__(self, plans: Mapping[str, Plan], scheduler: Scheduler, levels: int) -> None:
        """`plans` by contract digest. `levels` is how many classes of requests there are."""
        self._plans = plans
        self._levels = levels
        self._most_rows = {contract: scheduler.max_rows(contract) for contract in plans}
        self._tensors = {
            (contract, cut): tensor_table(plan.cuts[cut].tensors, self._most_rows[contract])
            for contract, plan in plans.items()
            for cut in range(len(plan.cuts))
        }

    def tensors(self, contract: str, cut: int, rows: int) -> tuple[Tensor, ...]:
        """The tensors of a cut with so many rows."""
        return self._tensors[contract, cut][rows]

    def check(self, message: Infer, frames: tuple[Buffer, ...]) -> Coding:
        """The coding that the request names, after everything that can be checked without decoding. Raises `PeerError` with
        the reason of the refusal: `contract`, `input` or `size`."""
        plan = self._plans.get(message.contract)
        if plan is None:
            raise PeerError("contract", f"contract {message.contract[:12]} is not served here")
        if not 0 <= message.cut < len(plan.cuts) - 1:
            raise PeerError("input", f"cut {message.cut} is not one of 0 to {len(plan.cuts) - 2}")
        cut = plan.cuts[message.cut]
        coding = cut.coding(message.coding)
        if coding is None:
            raise PeerError("input", f"cut {message.cut} has no coding {message.coding!r}")
        most = self._most_rows[message.contract]
        if not 1 <= message.rows <= most:
            raise PeerError("input", f"{message.rows} rows, expected 1 to {most}")
        if not 0 <= message.priority < self._levels:
            raise PeerError("input", f"priority {message.priority}, expected 0 to {self._levels - 1}")
        expected = self.tensors(message.contract, message.cut, message.rows)
        if message.tensors != expected or len(frames) != len(expected):
            raise PeerError("input", f"tensors {message.tensors}, expected {expected}")
        for spec, frame in zip(cut.tensors, frames, strict=True):
            check_frame(memoryview(frame).nbytes, coding, spec, message.rows)
        return coding
