"""Bugs that are put in on purpose, one at a time: the simulator finds each within a few seeds, and nothing without them.

What it takes is written into `docs/testing.md`, between two marks, by this test:

    HEADTAIL_WRITE_TABLE=1 pytest tests/test_planted.py
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from planted.device import DEVICE
from planted.edge import EDGE
from planted.node import NODE
from planted.plant import Bug
from planted.wire import WIRE

from hil.sim.checks import checked_run
from hil.sim.scenario import SCENARIOS

PAGE = Path(__file__).parent.parent / "docs" / "testing.md"
BEGIN = "<!-- planted bugs: written by tests/test_planted.py -->"
END = "<!-- planted bugs: end -->"
WRITE = "HEADTAIL_WRITE_TABLE"

MOST_SEEDS = 20
"""Seeds within which each bug is found."""

REQUESTS = 150
"""Requests of each run."""

GROUPS = (("edge", EDGE), ("node", NODE), ("device, both sides", DEVICE), ("wire, clocks and client", WIRE))
BUGS = [bug for _, bugs in GROUPS for bug in bugs]
IN_THEIR_OWN_WORDS = 0
"""What a machine finds broken by itself is reported as this check, where it is of none of the 18."""


def found(bug: Bug) -> tuple[int, int] | None:
    """The check that finds this bug, and the seeds that it takes; None where it is not found."""
    return all_found()[bug.name]


@cache
def all_found() -> dict[str, tuple[int, int] | None]:
    """That of all bugs, spread over all cores."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as cores:
        return dict(zip([bug.name for bug in BUGS], cores.map(find, range(len(BUGS))), strict=True))


def find(number: int) -> tuple[int, int] | None:
    """Look for the bug of this number."""
    bug = BUGS[number]
    with bug.planted():
        for seed in range(1, MOST_SEEDS + 1):
            broken = checked_run(seed, SCENARIOS[bug.scenario], REQUESTS)
            if broken is not None:
                return broken.check, seed
    return None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert found(bug) is not None, f"{bug.what}: not found in {MOST_SEEDS} seeds of {bug.scenario}"


def test_without_a_bug_the_same_seeds_are_fine() -> None:
    needed: Counter[str] = Counter()
    for bug in BUGS:
        result = found(bug)
        if result is not None:
            needed[bug.scenario] = max(needed[bug.scenario], result[1])
    for scenario, most in sorted(needed.items()):
        for seed in range(1, most + 1):
            assert checked_run(seed, SCENARIOS[scenario], REQUESTS) is None, f"{scenario}, seed {seed}"


def test_every_check_finds_some_bug() -> None:
    assert {result[0] for bug in BUGS if (result := found(bug))} >= set(range(1, 19))


def test_names_are_told_apart_and_a_planted_bug_is_gone_afterwards() -> None:
    assert max(Counter(bug.name for bug in BUGS).values()) == 1
    for bug in BUGS:
        before = [vars(owner)[name] for owner, name, _ in bug.parts]
        with bug.planted():
            assert all(
                vars(owner)[name] is not right for (owner, name, _), right in zip(bug.parts, before, strict=True)
            )
        assert [vars(owner)[name] for owner, name, _ in bug.parts] == before


def table() -> str:
    lines = ["| bug | what is wrong | scenario | found by check | seeds needed |", "|---|---|---|---|---|"]
    for group, bugs in GROUPS:
        lines.append(f"| **{group}** | | | | |")
        for bug in bugs:
            result = found(bug)
            check, seeds = ("not found", f"more than {MOST_SEEDS}") if result is None else result
            check = "the machine itself" if check == IN_THEIR_OWN_WORDS else check
            lines.append(f"| {bug.name} | {bug.what} | {bug.scenario} | {check} | {seeds} |")
    return "\n".join(lines)


def test_the_table_in_the_documents_is_what_was_found() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END), f"{PAGE.name} has lost its marks"
    new = f"\n\n{table()}\n\n"
    if os.environ.get(WRITE):
        PAGE.write_text(before + begin + new + end + after, encoding="utf-8")
    elif old != new:
        pytest.fail(
            f"the table of planted bugs in docs/{PAGE.name} is out of date: {WRITE}=1 pytest {Path(__file__).name}"
        )
