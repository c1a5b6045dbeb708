"""Cuts drawn at random, to prove that a graph may be cut anywhere and not only at the places that somebody thought of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partitioner.graph.cuts import CandidateCut, CutFinder
from shared.errors import ModelError

MOST_NAMES = 6
"""Values by which a drawn cut is named, at most."""

TRIES = 12
"""Draws for each cut that is wanted: a graph that is a chain has no others than its single ones."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A cut that the finder does not allow, and why."""

    name: str
    reason: str


def sample_cuts(
    finder: CutFinder, random: np.random.Generator, count: int
) -> tuple[tuple[CandidateCut, ...], tuple[Refusal, ...]]:
    """Up to `count` distinct cuts that more than one tensor crosses, and the distinct draws that were refused.

    A cut is drawn as one to `MOST_NAMES` values, half of the time from the whole graph and half of the time from a
    neighbourhood, whose closure it then is. Every downward-closed set whose last operators end at borders is the closure of
    some values, so each can be drawn as far as it has no more than `MOST_NAMES` last operators; a prefix of one order of
    the operators would never leave one branch untouched while another is finished.
    """
    places = finder.places()
    found: dict[frozenset[int], CandidateCut] = {}
    refused: dict[str, Refusal] = {}
    for _ in range(count * TRIES if places else 0):
        if len(found) == count:
            break
        names = _draw(random, places)
        try:
            cut = finder.at(*names)
        except ModelError as error:
            name = ",".join(names)
            refused[name] = Refusal(name, str(error))
            continue
        if len(cut.tensors) > 1:
            found.setdefault(frozenset(cut.nodes), cut)
    return tuple(found.values()), tuple(refused.values())


def _draw(random: np.random.Generator, places: list[str]) -> list[str]:
    among = places
    if random.random() < 0.5:
        width = int(random.integers(2, 2 + max(1, len(places) // 4)))
        start = int(random.integers(0, max(1, len(places) - width + 1)))
        among = places[start : start + width]
    many = int(random.integers(1, min(MOST_NAMES, len(among)) + 1))
    return [among[index] for index in sorted(random.choice(len(among), many, replace=False))]
