"""A small crowd on virtual time, and what a crowd is judged by."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hil.crowd.play import Crowd, Outcome, Seen, play
from hil.crowd.rules import judge, settled
from hil.regret.world import Turns
from hil.sim.check_cli import group

SMALL = Crowd(edges=40, nodes=4, credits=32, hz=5.0, executors=1, dies_s=3.0, returns_s=6.0, seconds=9.5)


@pytest.fixture(scope="module")
def played() -> Outcome:
    return play(SMALL)


def test_no_node_is_offered_more_than_it_lends_and_nothing_swings(played: Outcome) -> None:
    judged = judge(played)
    assert judged.faults == ()
    assert judged.offered <= 1.2


def test_every_edge_has_answers_of_nodes_and_all_are_in_time(played: Outcome) -> None:
    assert played.served == SMALL.edges
    assert played.on_time == played.requests
    assert played.cloud > 0.8 * played.requests


def test_the_node_that_dies_is_left_and_used_again(played: Outcome) -> None:
    dead = played.nodes[0].sent
    away = dead[int(SMALL.dies_s / 0.05) + 2 : int(SMALL.returns_s / 0.05)]
    assert sum(away) == 0
    assert sum(dead[-40:]) > 20


def test_a_thousand_edges_through_the_codec_are_answered_by_one_node_and_its_turns_are_counted() -> None:
    clock = iter(range(0, 1 << 40, 1_000))
    turns = Turns(lambda: next(clock))
    many = Crowd(
        edges=1_000, nodes=1, hz=5.0, credits=1024, tail_ms=0.2, executors=4, dies_s=9.0, returns_s=9.0, seconds=0.75
    )
    played = play(many, turns)
    assert played.served == many.edges
    assert played.on_time == played.requests >= many.edges
    assert turns.took.figures().count > 2 * many.edges, "greetings, probes and requests"


def seen(node: str, most: int, sent: list[int]) -> Seen:
    return Seen(node, (most,) * len(sent), tuple(sent))


def outcome(*nodes: Seen, on_time: int = 100) -> Outcome:
    return Outcome(msgspec.structs.replace(SMALL, credits=10), 100, on_time, 90, 40, {}, nodes)


STEADY = [4] * 190


def test_what_is_over_a_bound_is_told() -> None:
    assert judge(outcome(seen("a", 5, STEADY), seen("b", 12, STEADY))).faults == ()
    assert judge(outcome(seen("a", 13, STEADY))).faults == ("a was offered 1.30 times its credit; the bound is 1.2",)
    swinging = [4] * 40 + ([0] * 12 + [8] * 12) * 6 + [4] * 6
    faults = judge(outcome(seen("a", 5, STEADY), *(seen(name, 5, swinging) for name in "bcd"))).faults
    assert any(
        f.startswith("b swings by ") and "of an even share after its return, from 8 to 9.5 s" in f for f in faults
    )
    assert not any(f.startswith("a ") for f in faults)
    assert judge(outcome(seen("a", 1, STEADY), on_time=98)).faults == (
        "98.00 % of the requests were answered in time; the bound is 99 %",
    )


def test_the_node_that_dies_is_not_judged_while_it_is_away() -> None:
    assert [name for name, _, _ in settled(SMALL, dies=True)] == ["at first", "after its return"]
    assert [name for name, _, _ in settled(SMALL, dies=False)] == ["at first", "while one is away", "after its return"]


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    svg = tmp_path / "crowd.svg"
    small = ["--edges", "8", "--nodes", "2", "--dies-s", "2.5", "--returns-s", "3.5", "--seconds", "6"]
    done = CliRunner().invoke(group(), ["crowd", *small, "--svg", str(svg), "--json"])
    found = json.loads(done.output)
    assert done.exit_code == (1 if found["judged"]["faults"] else 0)
    assert found["outcome"]["requests"] > 100
    assert "out at each node" in svg.read_text()
    assert found["turns"]["count"] == 0
    done = CliRunner().invoke(group(), ["crowd", *small, "--codec"])
    assert "a node's turn, by this machine's clock: p50" in done.output
    assert CliRunner().invoke(group(), ["crowd", "--dies-s", "9", "--returns-s", "3"]).exit_code == 2
    nobody = ["--edges", "1", "--hz", "0.1", "--seconds", "1", "--dies-s", "0.2", "--returns-s", "0.5"]
    refused = CliRunner().invoke(group(), ["crowd", *nobody])
    assert refused.exit_code == 2
    assert "no request counts; expected a longer run" in refused.output
