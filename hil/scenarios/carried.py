"""Which scenarios the unprivileged proxy can carry. Pure."""

from __future__ import annotations

from hil.scenarios.scenario import Scenario

KINDS = frozenset({"readdress", "dark"})


def cannot_carry(scenario: Scenario) -> str:
    """What of a scenario the proxy cannot do; empty where it can do all of it."""
    if len(scenario.links) > 1:
        return "two links"
    found = [fault.kind for fault in scenario.faults if fault.kind in KINDS]
    if found:
        return f"a fault {found[0]!r}"
    shapes = [shape for link in scenario.links for shape in (link.up, link.down)]
    shapes += [shape for fault in scenario.faults for shape in (fault.up, fault.down)]
    for shape in shapes:
        if shape.loss or shape.bursts or shape.reorder:
            return "loss and reordering"
        if shape.jitter_ms:
            return "jitter"
    return ""
