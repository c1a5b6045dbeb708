"""`headtail hil check`: what it shows, what its status says, and a trace played between real namespaces."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer
from emulated import needs_kernel

from hil.emulator import checks, cli, namespaces
from hil.emulator.handle import Emulator
from hil.emulator.messages import PlayTrace, Reply
from hil.emulator.probe import Probe
from hil.emulator.shape import Shape
from hil.emulator.trace_check import QUEUE_BYTES, check_trace
from hil.emulator.trace_chunks import CHUNK_STEPS, trace_chunks
from hil.hil_cli import group
from hil.links.trace import Direction, Trace
from hil.links.trace_csv import write_trace
from shared.errors import UserError

STEPS = 2 * CHUNK_STEPS + 100


def direction(delay_ms: float, loss: float = 0.0) -> Direction:
    """Half of what is sent waits: an outage from 0.3 s to 0.5 s."""
    outage = np.zeros(STEPS, np.bool_)
    outage[300:500] = True
    return Direction(np.full(STEPS, delay_ms), np.full(STEPS, 50.0), np.full(STEPS, loss), outage)


TRACE = Trace(1000, direction(20.0, 0.2), direction(5.0))


def status_of(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        group()(["check", *arguments])
    return ended.value.code


def test_the_group_has_the_verbs_of_the_manual() -> None:
    assert list(typer.main.get_group(group()).commands) == [
        "fit",
        "generate",
        "compare",
        "check",
        "scenarios",
        "run",
        "regret",
    ]


@needs_kernel
@pytest.mark.parametrize(("seed", "status", "verdict"), [(checks.SEED, 0, "as told"), (checks.SEED + 1, 1, "WRONG")])
def test_the_command_shows_each_check_and_its_status_says_whether_all_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int, status: int, verdict: str
) -> None:
    real = Emulator.reseed
    monkeypatch.setattr(Emulator, "reseed", lambda self, _: real(self, seed))
    monkeypatch.setattr(checks, "CHECKS", (checks.independent_loss, checks.faults))
    assert status_of() == status
    shown = capsys.readouterr().out
    assert verdict in shown
    assert "loss" in shown


@needs_kernel
def test_a_trace_longer_than_a_piece_is_played_as_it_tells_in_both_directions() -> None:
    rows = check_trace(TRACE, 1.5, seed=1)
    assert all(row.right for row in rows), rows
    told = {row.what: row.told for row in rows}
    assert (told["delay up, p1"], told["delay down, p1"]) == ("20.01 ms", "5.01 ms")
    assert float(told["longest gap down"].split()[0]) > 190
    assert (told["loss up"], told["loss down"]) == ("20.00% of 300", "0.00% of 300")


@needs_kernel
def test_an_emulator_that_plays_another_trace_is_found() -> None:
    real = Emulator.play_trace

    def swapped(self: Emulator, trace: Trace, link: str, queue_bytes: int) -> int:
        return real(self, Trace(trace.step_us, trace.down, trace.up), link, queue_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Emulator, "play_trace", swapped)
        wrong = {row.what for row in check_trace(TRACE, 1.0, seed=1) if not row.right}
    assert {"delay up, p50", "loss up", "loss down"} <= wrong


@needs_kernel
def test_a_link_goes_on_as_it_is_while_a_trace_is_loaded_and_one_that_is_not_loaded_is_refused() -> None:
    with Emulator((checks.LINK,)) as running, Probe(running, "air", "edge", "cloud") as probe:
        running.shape(Shape(loss=1.0))
        for piece in trace_chunks(TRACE):
            assert msgspec.json.decode(running.ask(msgspec.json.encode(piece)), type=Reply).error == ""
        probe.send(range(10), 100)
        assert probe.settle(10).lost == 10
        began = running.play_trace(TRACE, "air")
        assert probe.send([11], 100)[0] > began
        play = msgspec.json.encode(PlayTrace(1000, QUEUE_BYTES))
        assert "no trace" in msgspec.json.decode(running.ask(play), type=Reply).error


@needs_kernel
def test_the_command_plays_the_trace_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "link.csv"
    path.write_text(write_trace(TRACE))
    # 1: the machine was slow, which the output then says.
    status = status_of("--trace", str(path), "--seconds", "1")
    shown = capsys.readouterr().out
    assert "WRONG" not in shown
    assert (status == 0) == ("LATE" not in shown)
    assert "longest gap down" in shown


def test_a_trace_that_keeps_probes_for_too_long_is_refused_before_anything_is_made() -> None:
    outage = np.ones(70_000, np.bool_)
    outage[0] = False
    zero = np.zeros(70_000)
    slow = Trace(1000, Direction(zero, zero, zero, outage), Direction(zero, zero, zero, ~outage))
    with pytest.raises(UserError, match="up within 1 s of the trace would arrive after 70 s"):
        check_trace(slow, 1.0, seed=1)


@pytest.mark.parametrize("trace", [False, True])
def test_without_root_one_sentence_says_what_is_missing_and_the_status_is_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: bool
) -> None:
    path = tmp_path / "link.csv"
    path.write_text(write_trace(TRACE))
    monkeypatch.setattr(cli, "check_able", lambda: namespaces.check_able("CapEff:\t0\n", tmp_path / "tun"))
    assert status_of(*(["--trace", str(path)] if trace else [])) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs what is missing here: root" in said
    assert "the device" in said


def test_a_trace_that_is_none_and_two_wishes_at_once_are_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("--trace", str(tmp_path / "none.csv")) == 2
    assert "none.csv: cannot be read" in capsys.readouterr().err
    assert status_of("--trace", str(tmp_path / "none.csv"), "--cost") == 2
    assert "--cost" in capsys.readouterr().err
