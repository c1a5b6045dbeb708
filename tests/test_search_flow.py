"""Minimum cuts of 64-bit capacities: exact where 32 bits, or a single scaling, are not."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from partitioner.search.flow import DIGIT_BITS, ENDLESS, Pattern, minimum_cuts, reach

Edges = list[tuple[int, int, int]]


def cut(nodes: int, edges: Edges) -> tuple[np.ndarray, np.ndarray, int]:
    """The extreme minimum cuts from node 0 to node 1."""
    pattern = Pattern.of(nodes, [(a, b) for a, b, _ in edges])
    capacities = np.zeros(len(pattern.targets), dtype=np.int64)
    for a, b, capacity in edges:
        capacities[pattern.find([(a, b)])] += capacity
    bound = sum(capacity for a, _, capacity in edges if a == 0 and capacity < ENDLESS)
    return minimum_cuts(pattern, capacities, bound, 0, 1)


def weight(side: np.ndarray, edges: Edges) -> int:
    return sum(capacity for a, b, capacity in edges if side[a] and not side[b])


def sides(nodes: int) -> list[np.ndarray]:
    return [np.array([True, False, *rest]) for rest in itertools.product([False, True], repeat=nodes - 2)]


CAPACITY = st.one_of(
    st.integers(0, 3),
    st.integers(0, 1 << 54),
    st.builds(lambda base, more: (1 << base) + more, st.integers(30, 54), st.integers(0, 3)),
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    nodes = draw(st.integers(3, 7))
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, min_size=1, max_size=16, unique=True))
    return nodes, [(a, b, draw(CAPACITY)) for a, b in pairs]


@given(graphs())
def test_the_cut_is_the_least_of_all_and_its_sides_are_the_extreme_ones(graph: tuple[int, Edges]) -> None:
    nodes, edges = graph
    weights = {tuple(side): weight(side, edges) for side in sides(nodes)}
    least = min(weights.values())
    optimal = np.array([side for side, value in weights.items() if value == least])
    smallest, largest, flown = cut(nodes, edges)
    assert flown == least
    assert smallest.tolist() == optimal.all(axis=0).tolist()
    assert largest.tolist() == optimal.any(axis=0).tolist()


def test_one_scaling_to_30_bits_would_choose_a_wrong_cut() -> None:
    big = 1 << 50
    edges = [(0, 2, big + 2), (2, 3, big), (3, 1, big + 3)]
    shift = (big + 3).bit_length() - DIGIT_BITS
    coarse = cut(4, [(a, b, capacity >> shift) for a, b, capacity in edges])
    fine = cut(4, edges)
    assert [weight(side, edges) for side in coarse[:2]] == [big + 2, big + 3]
    assert [weight(side, edges) for side in fine[:2]] == [big, big]


def test_an_edge_without_end_is_never_cut() -> None:
    edges = [(0, 2, 7), (2, 3, ENDLESS), (3, 1, 1 << 40), (0, 3, 1 << 58)]
    smallest, largest, flown = cut(4, edges)
    assert flown == 1 << 40
    assert smallest.tolist() == largest.tolist() == [True, False, True, True]


def test_nothing_is_reached_over_closed_edges() -> None:
    pattern = Pattern.of(4, [(0, 1), (1, 2), (2, 3)])
    open_edges = np.zeros(len(pattern.targets), dtype=bool)
    open_edges[pattern.find([(0, 1), (2, 3)])] = True
    assert reach(pattern, open_edges, 0).tolist() == [True, True, False, False]
    assert reach(pattern, open_edges, 1).tolist() == [False, True, False, False]
    assert reach(pattern, open_edges[pattern.back], 1).tolist() == [True, True, False, False]
