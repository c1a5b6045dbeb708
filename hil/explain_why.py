"""Why a request took its way through the cloud, or none: the reasons of `edge.balance.choose`, in words."""

from __future__ import annotations

import msgspec

from edge.balance import FEWER, NEAR, Candidate, Considered, worth_of

MS = 1_000_000


class WayTold(msgspec.Struct, frozen=True):
    """One way that was considered. `chance` is the probability that its answer is back in time, `typical_ms` and `p95_ms` are
    when it is back, counted from the choice, `nbytes` both directions together. `why` says what spoke for it or against."""

    cut: int
    coding: str
    node: str
    chance: float
    typical_ms: float
    p95_ms: float
    head_ms: float
    network_ms: float
    node_ms: float
    nbytes: int
    agreement: float
    taken: bool
    why: str


class ChoiceTold(msgspec.Struct, frozen=True):
    """One choice among ways. `due_ms` is when an answer had to be back, `device` what the device did anyway, both counted
    from the choice."""

    due_ms: float
    device: str
    verdict: str
    ways: tuple[WayTold, ...]


def told(considered: Considered) -> ChoiceTold:
    """What was considered, the ways in the order of the plan."""
    insured, now = considered.insured, considered.now
    if insured.agreement < 0.0:
        device = "the device has no answer in time"
    else:
        promised = "promised" if insured.promised else "tried, not promised"
        done = (insured.finish_ns - now) / MS
        device = f"the device's answer agrees {insured.agreement:.3f}, typically done after {done:.1f} ms, {promised}"
    return ChoiceTold(
        due_ms=(considered.due_ns - now) / MS,
        device=device,
        verdict=_verdict(considered),
        ways=tuple(_way(considered, candidate) for candidate in considered.candidates),
    )


def _way(considered: Considered, way: Candidate) -> WayTold:
    now = considered.now
    return WayTold(
        cut=way.route.cut,
        coding=way.route.coding,
        node=way.node.name,
        chance=way.chance,
        typical_ms=(way.typical_ns - now) / MS,
        p95_ms=(way.sure_ns - now) / MS,
        head_ms=way.head_ns / MS,
        network_ms=way.network_ns / MS,
        node_ms=way.node_ns / MS,
        nbytes=way.nbytes,
        agreement=way.route.agreement,
        taken=way is considered.found,
        why=_why(considered, way),
    )


def _verdict(considered: Considered) -> str:
    found = considered.found
    if found is None:
        return "no way through the cloud"
    way = f"cut {found.route.cut} as {found.route.coding} at {found.node.name}"
    if considered.insured.promised and found.beside < considered.insured.agreement:
        way += f", beside which the device has time for an answer that agrees {found.beside:.3f}"
    return f"{way}, only to learn" if considered.exploring else way


def _why(considered: Considered, way: Candidate) -> str:
    insured, found = considered.insured, considered.found
    if way.node.name in considered.yields_to:
        return "its node is pressed: the device's promised answer will do"
    worth = worth_of(way, insured, considered.least)
    if way is found and worth <= 0.0:
        return "the soonest of what is hopeless: tried to learn" if considered.exploring else "the last hope"
    if worth <= 0.0:
        return _worthless(considered, way)
    others = [other for other in considered.candidates if other.node.name not in considered.yields_to]
    best = max(worth_of(other, insured, considered.least) for other in others)
    if way is found:
        kept = considered.usual is not None and (way.index, way.path.data) == (
            considered.usual.index,
            considered.usual.link,
        )
        if len(others) == 1:
            return "the only one"
        if worth < best:
            return "about as good as the best" + (", and in use already" if kept else "")
        return "it adds the most" if insured.promised else "the likeliest to be in time"
    if found is None or worth < best * (1.0 - NEAR):
        return "it adds less" if insured.promised else "less likely to be in time"
    if way.route.agreement < found.route.agreement:
        return "about as sure, and agrees less"
    if way.nbytes > found.nbytes / FEWER:
        return "about as good, for more bytes"
    return "about as good, and later or not in use"


def _worthless(considered: Considered, way: Candidate) -> str:
    insured = considered.insured
    if way.chance < considered.least:
        return f"less likely than {considered.least:g} to be in time"
    if way.route.agreement < insured.agreement:
        return "the device's own answer agrees more"
    if insured.promised and way.beside < insured.agreement:
        return f"hardly in time, and the device has time for {way.beside:.3f} only beside it"
    if way.route.agreement == insured.agreement:
        return "the device has the same as soon or as surely"
    return "not worth a try"
