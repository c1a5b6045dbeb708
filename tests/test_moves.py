"""A real agent whose address changes under it: the cloud answers again, and no request goes without an answer."""

from __future__ import annotations

from emulated import needs_kernel
from rich.console import Console

from hil import moves


@needs_kernel
def test_after_a_change_of_its_address_an_agent_finds_its_node_again() -> None:
    found = moves.measure(1, lambda _: None)
    assert len(found.away_s) == 1


def test_a_limit_that_is_missed_is_told() -> None:
    console = Console(record=True, width=200)
    assert not moves.show(moves.Moves((0.2, 1.4), 0), console)
    assert "MISSED" in console.export_text()
    assert moves.show(moves.Moves((0.2, 0.3), 0), console)
    assert not moves.show(moves.Moves((0.2, 0.3), 2), console)
