"""The plans that are best under some conditions: the vertices of a lower hull.

Under any conditions the time of a plan is a weighted sum of three figures, its microseconds on the device, its bytes and its
microseconds in the cloud (and a constant that all plans through the cloud share). So the plans that can win are the vertices
of the convex hull of these points, seen from below. They are found from outside (as in the "inner approximation" of
Benson's algorithm): start from four weightings, take the hull of what is known, ask the minimum cut at the normal of each
of its lower facets, and stop when no answer lies below its facet: then nothing does anywhere, since the gap between the
hull and the truth is widest at a facet's normal.

What is taken is the hull of the known points together with rays along the three axes, each ray cut off. That makes the
lower facets those with a normal that is nowhere negative, the pure weightings among them, and the hull has a volume
however few or flat the points are.
"""

# scipy has no type information
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial import ConvexHull

from partitioner.search.conditions import NO_PINS, Conditions, Pins
from partitioner.search.mincut import best_plan, on_device
from partitioner.search.network import Floats, Network
from partitioner.search.plans import Plan

EQUAL = 1e-10
"""Differences below this part of a figure's range are none."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A plan through the cloud that wins somewhere: under every sum of non-negative multiples of the conditions in `corners`,
    and against the device where the constant is nothing. `typical` is in their midst; there no other plan is as good."""

    plan: Plan
    corners: tuple[Conditions, ...]
    typical: Conditions


@dataclass(frozen=True, slots=True)
class Hull:
    """The plans through the cloud that win under some conditions, by rising time on the device; the plan without the cloud,
    which a large enough constant makes the best, None where pins forbid it; and the number of solves that it took."""

    vertices: tuple[Vertex, ...]
    device: Plan | None
    solves: int

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans that win under some conditions."""
        return (*(vertex.plan for vertex in self.vertices), *(() if self.device is None else (self.device,)))


@dataclass(slots=True)
class _Known:
    """The points found so far, `plans` and their figures, and the weightings that were asked."""

    network: Network
    pins: Pins
    least_agreement: float
    plans: list[Plan] = field(default_factory=list[Plan])
    asked: set[tuple[float, ...]] = field(default_factory=set[tuple[float, ...]])

    def ask(self, weights: Floats, scale: Floats) -> bool:
        """Add the best plan under these weights (floats, 3) of figures divided by `scale`; whether it is better than all that
        is known. What was asked before is not asked again."""
        key = tuple(float(weight) for weight in np.round(weights, 12))
        if key in self.asked:
            return False
        self.asked.add(key)
        plan = best_plan(self.network, self.conditions(weights / scale), self.pins)
        if plan is None:
            return False
        value = float(_point(plan) / scale @ weights)
        if self.plans and value >= float(np.min(self.points() / scale @ weights)) - EQUAL:
            return False
        self.plans.append(plan)
        return True

    def points(self) -> Floats:
        """The figures of all plans known (floats, plans x 3)."""
        return np.array([_point(plan) for plan in self.plans])

    def conditions(self, weights: Floats) -> Conditions:
        """Weights of the plain figures as conditions."""
        device, per_byte, cloud = (float(weight) for weight in weights)
        return Conditions(device, per_byte, cloud, 0.0, self.least_agreement)


def find_hull(network: Network, pins: Pins = NO_PINS, least_agreement: float = 0.0) -> Hull:
    """All plans that are best under some conditions with this least agreement. Without any plan through the cloud that obeys
    the pins there are no vertices."""
    known = _Known(network, pins, least_agreement)
    scale = _scale(network)
    for weights in (np.full(3, 1.0 / 3.0), *np.eye(3)):
        known.ask(weights, scale)
    better = bool(known.plans)
    while better:
        better = bool(sum(known.ask(weights, scale) for weights in _normals(known.points() / scale)))
    vertices = sorted(_vertices(known, scale), key=lambda vertex: vertex.plan.figures.device_us)
    return Hull(tuple(vertices), on_device(network, pins), len(known.asked))


def _point(plan: Plan) -> Floats:
    figures = plan.figures
    return np.array([figures.device_us, float(figures.bytes_up), figures.cloud_us])


def _scale(network: Network) -> Floats:
    """A size of each figure, so that weights are comparable: all work, and the largest value."""
    sizes = (network.device_us.sum(), np.max(network.nbytes, initial=0.0), network.cloud_us.sum())
    return np.array([float(size) or 1.0 for size in sizes])


def _normals(points: Floats) -> Floats:
    """The inner normals (floats, facets x 3, each of sum 1) of the lower facets of the points (floats, points x 3) and the
    rays along the axes that begin there."""
    rays = [points + axis * max(1.0, float(np.ptp(points))) for axis in np.eye(3)]
    normals = -np.asarray(ConvexHull(np.concatenate([points, *rays])).equations)[:, :3]
    lower = np.clip(normals[(normals > -EQUAL).all(axis=1)], 0.0, None)
    return np.unique(np.round(lower / lower.sum(axis=1, keepdims=True), 12), axis=0)


def _vertices(known: _Known, scale: Floats) -> Iterator[Vertex]:
    """Those of the known plans through the cloud that are the only best ones under some weights."""
    if not known.plans:
        return
    points = known.points() / scale
    normals = _normals(points)
    values = normals @ points.T
    touches = values <= values.min(axis=1, keepdims=True) + EQUAL
    for index, plan in enumerate(known.plans):
        corners = normals[touches[:, index]]
        if not (len(corners) and plan.figures.uses_cloud):
            continue
        weights = corners.mean(axis=0)
        others = np.delete(points, index, axis=0) @ weights
        if np.min(others, initial=np.inf) > points[index] @ weights:
            wins = tuple(known.conditions(corner / scale) for corner in corners)
            yield Vertex(plan, wins, known.conditions(weights / scale))
