"""What becomes of a broken rule: it is reported by its number, made small, told, and the command says how to see it again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import typer

from edge import broker
from hil.sim import check_cli
from hil.sim.author import write
from hil.sim.check_cli import Sum, check, command, summary
from hil.sim.checks import checked_play, checked_run, machine_broke, told_failure
from hil.sim.checks_many import Task, Verdict, judge, judge_all
from hil.sim.scenario import SCENARIOS
from hil.sim.script import Ask, Fault, Script
from hil.sim.shrink import shrink
from shared.errors import InvariantBroken, UserError
from shared.memory import Arena, Lease, PoolKey
from shared.request import EXACT, Answer, Fidelity
from shared.slots import SlotClass

CALM = SCENARIOS["calm"]
NEVER: Callable[[], bool] = lambda: False  # noqa: E731


@pytest.fixture
def lying_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of the device claims to be exact."""
    honest = broker.local_answer

    def lie(*arguments: object) -> Answer:
        answer = honest(*arguments)  # type: ignore[arg-type]
        return answer.replace(fidelity=EXACT if answer.fidelity != EXACT else Fidelity("rung", "none", 0.1))

    monkeypatch.setattr(broker, "local_answer", lie)


def test_a_seed_that_breaks_nothing_is_none() -> None:
    assert checked_run(1, CALM, 60) is None


@pytest.mark.usefixtures("lying_broker")
def test_a_bug_in_a_machine_is_reported_as_the_rule_that_it_breaks() -> None:
    found = checked_run(1, CALM, 60)
    assert found is not None
    assert (found.check, "what ran was" in found.story) == (13, True)


@pytest.mark.usefixtures("lying_broker")
def test_a_failing_run_is_made_small_and_told() -> None:
    script = write(1, SCENARIOS["mixed"], 300)
    found = checked_play(script, 1)
    assert found.broken is not None
    told = told_failure(script, 1, found, NEVER)
    assert "1 devices" in told
    assert "1 requests, 0 faults" in told
    assert "resolves" in told or "pushes" in told
    assert told.splitlines()[-1].endswith(str(checked_broken(told)))


def checked_broken(told: str) -> str:
    return told.splitlines()[-1].partition("broken: ")[2]


def test_what_a_machine_finds_out_itself_is_reported_as_the_rule_that_it_belongs_to() -> None:
    arena = Arena([SlotClass("c", 0, 0, 1, 1, 4)])
    with pytest.raises(InvariantBroken) as raised:
        arena.release(Lease(PoolKey("c", 0, 0), 0, 0))
    assert machine_broke(raised.value).check == 7
    assert machine_broke(InvariantBroken("something else")).check == 0
    assert machine_broke(KeyError("x")).check == 0


# --- shrinking -----------------------------------------------------------------------------------------------------------


def asks(script: Script) -> list[int]:
    return [item.value for item in script.items if isinstance(item, Ask)]


def test_shrinking_leaves_only_what_the_failure_needs() -> None:
    script = write(4, SCENARIOS["mixed"], 200)
    needed = {asks(script)[17], asks(script)[90]}
    small = shrink(script, None, lambda s: needed <= set(asks(s)), NEVER)
    assert set(asks(small)) == needed
    assert not any(isinstance(item, Fault) for item in small.items)
    clients = {item.client for item in small.items if isinstance(item, Ask)}
    assert {c for device in small.devices for c in device.clients} <= clients | {d.clients[0] for d in small.devices}
    assert not small.nodes


def test_shrinking_finds_a_failure_that_needs_no_item() -> None:
    script = write(4, SCENARIOS["mixed"], 50)
    assert shrink(script, None, lambda _: True, NEVER).items == ()


def test_shrinking_ends_when_its_time_is_over() -> None:
    script = write(4, SCENARIOS["mixed"], 200)
    left = iter([False] * 5)
    tries: list[Script] = []
    small = shrink(script, None, lambda s: tries.append(s) is None and len(s.items) > 190, lambda: next(left, True))
    assert len(tries) <= 6
    assert len(small.items) > 190


def test_what_comes_after_the_failure_is_cut_off_first() -> None:
    script = write(4, SCENARIOS["mixed"], 200)
    middle = script.items[len(script.items) // 2].at
    tries: list[Script] = []
    shrink(script, middle, lambda s: tries.append(s) is None, lambda: True)
    assert max(item.at for item in tries[0].items) <= middle + 1_000_000
    assert (tries[0].end, tries[0].rest_ns) == (middle + 1_000_000, 1)


# --- many seeds, and the command -----------------------------------------------------------------------------------------


def test_seeds_are_judged_alike_on_one_process_and_on_several() -> None:
    tasks = [Task(seed, "calm", 20, 0.0) for seed in (1, 2, 3)]
    alone = {v.task.seed: v for v in judge_all(tasks, 1)}
    assert {v.task.seed: v for v in judge_all(tasks, 2)} == alone
    assert sum(v.requests for v in alone.values()) == 60


@pytest.mark.usefixtures("lying_broker")
def test_the_command_tells_what_broke_and_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ending:
        check(scenario="calm", requests=20, replay=1, shrink_s=0.0)
    printed = capsys.readouterr().out
    assert ending.value.exit_code == 1
    assert "again: headtail sim check --scenario calm --requests 20 --replay 1" in printed
    assert "; 1 broken" in printed


@pytest.mark.usefixtures("lying_broker")
def test_the_command_gives_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        check(scenario="calm", requests=20, replay=1, shrink_s=0.0, as_json=True)
    found = json.loads(capsys.readouterr().out)
    (failure,) = found["broken"]
    assert (found["seeds"], failure["seed"], failure["check"]) == (1, 1, 13)
    assert failure["command"] == "headtail sim check --scenario calm --requests 20 --replay 1"
    assert failure["told"].startswith("seed 1 of calm")


def test_the_command_sums_up_what_broke_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    check(scenario="all", requests=20, seeds=2, first=5, jobs=1)
    printed = capsys.readouterr().out
    assert printed.startswith("2 seeds of all from 5: ")
    assert "1 run twice; none broken" in printed


def test_an_unknown_scenario_is_one_line() -> None:
    with pytest.raises(UserError, match="scenario 'sunny' is unknown; expected one of mixed, calm, "):
        check(scenario="sunny")


def test_a_seed_with_two_traces_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    task = Task(1, "calm", 20, 0.0)
    honest = judge(task)
    verdicts = [honest, msgspec.structs.replace(honest, digest="another")]
    monkeypatch.setattr(check_cli, "judge_all", lambda tasks, jobs: iter(verdicts))
    with pytest.raises(typer.Exit):
        check(scenario="calm", requests=20, seeds=2, jobs=1)
    assert "check 18: the same seed gave the traces" in capsys.readouterr().out


def test_an_interrupt_ends_with_the_sum_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(tasks: object, jobs: int) -> object:
        yield judge(Task(1, "calm", 20, 0.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(check_cli, "judge_all", interrupted)
    with pytest.raises(typer.Exit) as ending:
        check(scenario="calm", requests=20, seeds=9, jobs=1)
    assert ending.value.exit_code == 130
    assert ", interrupted; none broken" in capsys.readouterr().out


def test_an_interrupt_of_the_command_ends_its_processes() -> None:
    arguments = ["sim", "check", "--seeds", "100000", "--requests", "20", "--scenario", "calm", "--jobs", "2"]
    program = f"import sys; sys.argv = ['headtail', *{arguments!r}]; from shared.cli import main; main()"
    source = (
        # Whoever runs the tests in the background may have had interrupts ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import hil.sim.check_cli as cli\n"
        "told = cli.Progress.show\n"
        "cli.Progress.show = lambda self, total: (told(self, total), print('going', flush=True))[0]\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source + program],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parent.parent,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()  # ends only when every process that has it open has ended
        assert process.wait(60) == 130
    assert "interrupted" in rest.splitlines()[-1]


def test_the_summary_names_each_broken_seed_and_its_command() -> None:
    total = Sum("mixed", 1, 2, seeds=3, requests=2500, virtual_s=3725.0, wall_s=2.0, requests_per_s=1250.0)
    total.broken = [check_cli.Failure("mixed", 7, 4, "a story", "all of it", command(Task(7, "mixed", 900, 1.0)))]
    assert summary(total).splitlines() == [
        "3 seeds of mixed from 1: 2,500 requests in 2.0 s (1,250 a second on 2 processes), 1 h 02 min 05 s of virtual time, "
        "0 run twice; 1 broken",
        "  seed 7: check 4: a story",
        "    headtail sim check --scenario mixed --requests 900 --replay 7",
    ]


def test_a_verdict_holds_what_came_of_the_run() -> None:
    verdict = judge(Task(2, "calm", 30, 0.0))
    assert isinstance(verdict, Verdict)
    assert (verdict.requests, verdict.breach) == (30, None)
    assert verdict.digest
