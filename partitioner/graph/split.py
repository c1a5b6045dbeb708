"""Cutting a graph into a chain of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.graph.cuts import CandidateCut
from partitioner.graph.model import Model


@dataclass(frozen=True, slots=True)
class Chain:
    """`parts[i]` leads from `cuts[i]` to `cuts[i + 1]`. `cuts` begins with the input and ends with the outputs."""

    cuts: tuple[CandidateCut, ...]
    parts: tuple[Model, ...]


def split(model: Model, cuts: Sequence[CandidateCut]) -> Chain:
    """Cut at the given inner cuts (any order; they must be nested). No cut gives one part.

    Each part's inputs and outputs are all tensors of its two cuts, pass-through tensors included; it holds only its own
    weights, named by content.

    Raises:
        ModelError: two cuts are not nested.
    """
    raise NotImplementedError
