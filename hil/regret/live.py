"""`headtail hil regret`: a link played to real processes under the agent's choice and under every fixed route.

Each policy is a run of its own over the same emulated link, from its beginning, with the same losses drawn; the device alone
is the control that every run has beside it. The oracle is that of `headtail sim regret`, of the trace as it was played: it
knows nothing of what processes cost beside their work, so that a real agent stays further below it than a simulated one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from hil.emulator.namespaces import check_able
from hil.regret.live_rules import CONTROL, ORACLE, as_served, oracle_row, policies, row_of, together
from hil.regret.words import CaseRows, Row
from hil.scenarios.check import check_scenario
from hil.scenarios.emulated import EmulatedNetwork
from hil.scenarios.figures import marks
from hil.scenarios.find import traces
from hil.scenarios.known import Known, make_known
from hil.scenarios.player import Played, Player
from hil.scenarios.scenario import Fleet, LinkPart, Model, Scenario, Stream
from hil.scenarios.stage import Stage
from hil.scenarios.timeline import frames

AIR = "air"
MODEL = Model(side=64, rung_ms=6.0, cloud_ms=1.0, routes=("raw", "split-int8"))


def scenario_of(link: Path, seconds: float, deadline_ms: float, rate_hz: float, seed: int) -> Scenario:
    """A scenario without faults over this link: a trace, a log of round trips, or a parameter set. Raises `SettingsError`."""
    resolved = str(link.resolve())
    model, trace = (resolved, "") if link.suffix == ".toml" else ("", resolved)
    found = Scenario(
        name=link.stem[:64],
        about=f"{link.name}, played under each policy",
        seed=seed,
        stream=Stream(rate_hz=rate_hz, seconds=seconds, deadline_ms=deadline_ms),
        model=MODEL,
        fleet=Fleet(nodes=1),
        links=(LinkPart(name=AIR, trace=trace, model=model, seed=seed),),
    )
    check_scenario(found)
    return found


def play_link(scenario: Scenario, say: Callable[[str], None]) -> CaseRows:
    """Play a link under each policy. Raises `UserError` where this machine cannot emulate one, `HeadtailError` where a
    process ends by itself."""
    check_able()
    links = traces(scenario)
    rows: list[Row] = []
    controls: list[tuple[int, Row]] = []
    with tempfile.TemporaryDirectory(prefix="headtail-regret-") as folder:
        known = make_known(scenario, Path(folder))
        plan = known.bundle.plan
        oracle: Row | None = None
        for policy in policies(plan):
            say(f"{scenario.name}: {policy}")
            played = _played(replace(scenario, fleet=replace(scenario.fleet, route=policy)), known, Path(folder))
            marked = _marked(scenario, played)
            rows.append(row_of(policy, played.entries["test"], marked["test"], plan))
            clear = sum(not mark for mark in marked["control"])
            controls.append((clear, row_of(CONTROL, played.entries["control"], marked["control"], plan)))
            if oracle is None:
                times = [frame.at_ns for frame in frames(scenario) if frame.arm == "test"]
                served = as_served(plan, scenario.model.cloud_ms)
                into = played.traces[AIR]
                oracle = oracle_row(served, links[AIR], into, times, scenario.stream.deadline_ms)
    found = [rows[0], together(controls, CONTROL), *rows[1:], *([oracle] if oracle is not None else [])]
    count = len([frame for frame in frames(scenario) if frame.arm == "test"])
    return CaseRows(scenario.name, scenario.stream.deadline_ms, count, scenario.stream.seconds, tuple(found))


def _played(scenario: Scenario, known: Known, folder: Path) -> Played:
    player = Player(scenario, known)
    network = EmulatedNetwork(scenario)
    try:
        with Stage(scenario, known, folder, network, traces(scenario), lambda: player.node) as stage:
            try:
                stage.begin_links()
                player.attach(stage)
                return player.play(stage, player.warm())
            finally:
                player.close()
    finally:
        network.close()


def _marked(scenario: Scenario, played: Played) -> dict[str, Sequence[bool]]:
    return {
        arm: marks(entries, played.seen.stalls, scenario.noise, scenario.stream.deadline_ms)
        for arm, entries in played.entries.items()
    }


__all__ = ["ORACLE", "play_link", "scenario_of"]
