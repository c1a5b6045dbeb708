"""A minimum cut of 64-bit capacities, exact, by a solver that counts in 32 bits.

`scipy.sparse.csgraph.maximum_flow` takes int32 capacities. Scaling a model's costs down to that and cutting once chooses
wrongly where two cuts differ by less than one step of the scale, and rounding the whole with floats (as networkx does) can
return a partition that is no minimum cut at all. So the flow is found digit by digit, as in capacity scaling (Gabow,
"Scaling algorithms for network problems", 1985): a maximum flow of the leading 30 bits is taken out of the capacities, what
is left is a residual graph whose maximum flow is smaller by about 2**30 over the number of edges that were cut, and that
one is scaled anew, until nothing was scaled away. Two or three rounds do. No edge needs more capacity than what can still
flow in all, so wider ones are clamped to that, infinite ones as well.
"""

# scipy has no type information
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ENDLESS = 1 << 61
"""A capacity that no flow fills."""
MOST_FLOW = 1 << 59
"""No finite cut that matters may weigh more."""
DIGIT_BITS = 30


@dataclass(frozen=True, slots=True)
class Pattern:
    """The edges of a graph in rows of sources, both directions of each: `starts` (nodes + 1) and `targets` (edges), int32, as
    in a CSR matrix. `sources` (edges) is the row of each edge, `back` (edges) the index of its opposite."""

    nodes: int
    starts: NDArray[np.int32]
    targets: NDArray[np.int32]
    sources: NDArray[np.int32]
    back: Ints

    @classmethod
    def of(cls, nodes: int, edges: Sequence[tuple[int, int]]) -> Pattern:
        """The pattern of these (source, target) pairs; the opposite of each comes by itself, and repeated ones are one
        edge."""
        pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        keys = np.unique(np.concatenate([pairs[:, 0] * nodes + pairs[:, 1], pairs[:, 1] * nodes + pairs[:, 0]]))
        sources, targets = keys // nodes, keys % nodes
        starts = np.zeros(nodes + 1, dtype=np.int32)
        np.cumsum(np.bincount(sources, minlength=nodes), out=starts[1:])
        back = np.searchsorted(keys, targets * nodes + sources)
        return cls(nodes, starts, targets.astype(np.int32), sources.astype(np.int32), back.astype(np.int64))

    def find(self, edges: Sequence[tuple[int, int]]) -> Ints:
        """The indices of these edges, all of which must be there."""
        pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        keys = self.sources.astype(np.int64) * self.nodes + self.targets
        return np.searchsorted(keys, pairs[:, 0] * self.nodes + pairs[:, 1]).astype(np.int64)


def reach(pattern: Pattern, open_edges: Bools, start: int) -> Bools:
    """Which nodes can be reached from `start` over the open edges. Bools (edges) in, (nodes) out."""
    found = np.zeros(pattern.nodes, dtype=np.bool_)
    found[start] = True
    if not open_edges[pattern.starts[start] : pattern.starts[start + 1]].any():
        return found
    before = np.zeros(len(open_edges) + 1, dtype=np.int32)
    np.cumsum(open_edges, out=before[1:])
    graph = csr_array(
        (np.ones(int(before[-1]), dtype=np.int8), pattern.targets[open_edges], before[pattern.starts]),
        shape=(pattern.nodes, pattern.nodes),
    )
    found[breadth_first_order(graph, start, directed=True, return_predecessors=False)] = True
    return found


def minimum_cuts(pattern: Pattern, capacities: Ints, bound: int, source: int, sink: int) -> tuple[Bools, Bools, int]:
    """The least and the largest source side of all minimum cuts (bools over nodes), and the weight of such a cut.

    `capacities` (edges) are not negative and at most `ENDLESS`; `bound` is the weight of some cut, at most `MOST_FLOW`.
    """
    left = capacities.astype(np.int64)
    flown = 0
    while bound:
        shift = max(0, bound.bit_length() - DIGIT_BITS)
        digit = (np.minimum(left, bound) >> shift).astype(np.int32)
        value, flow = _one_digit(pattern, digit, source, sink)
        left -= flow.astype(np.int64) << shift
        flown += value << shift
        if not shift:
            break
        side = reach(pattern, digit.astype(np.int64) > flow, source)
        border = side[pattern.sources] & ~side[pattern.targets]
        bound = min(bound - (value << shift), int(np.minimum(left[border], bound).sum()))
    least = reach(pattern, left > 0, source)
    largest = ~reach(pattern, left[pattern.back] > 0, sink)
    return least, largest, flown


def _one_digit(pattern: Pattern, digit: NDArray[np.int32], source: int, sink: int) -> tuple[int, NDArray[np.int32]]:
    """A maximum flow: its value, and for each edge what flows over it, negative against it."""
    shape = (pattern.nodes, pattern.nodes)
    result = maximum_flow(csr_array((digit, pattern.targets, pattern.starts), shape=shape), source, sink)
    return int(result.flow_value), np.asarray(result.flow.data, dtype=np.int32)
