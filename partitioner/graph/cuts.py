"""Where a graph may be cut."""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.graph.model import Model
from shared.request import TensorSpec


@dataclass(frozen=True, slots=True)
class CandidateCut:
    """A border: the `nodes` (indices into the graph) run before it, `tensors` cross it.

    `name` is `input` for cut 0, `output` for the last, else the tensor by which it was found. `producer` is the operator
    type that makes that tensor. `share` estimates the part of the compute that lies before it (0 to 1).
    """

    name: str
    tensors: tuple[TensorSpec, ...]
    producer: str
    nodes: frozenset[int]
    share: float

    @property
    def raw_bytes(self) -> int:
        """Bytes of one row, raw."""
        return sum(t.nbytes() for t in self.tensors)

    @property
    def int8_bytes(self) -> int:
        """Bytes of one row with every float tensor at one byte an element."""
        raise NotImplementedError


def find_cuts(model: Model) -> list[CandidateCut]:
    """`input`, every single-tensor cut at a fusion border in order, `output`. Linear in the graph.

    Raises:
        ModelError: the model cannot be run on sample inputs.
    """
    raise NotImplementedError


def cut_at(model: Model, *names: str) -> CandidateCut:
    """The smallest downward-closed cut that produces these tensors, with all tensors that then cross.

    Raises:
        ModelError: no such tensor (near names are listed); inside a fused group (the next border is named); a tensor that
            would cross has a size that depends on data or no row axis.
    """
    raise NotImplementedError
