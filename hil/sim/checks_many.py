"""Many seeds on several processes: each is run with all checks on, and what breaks is made small and told.

Processes are spawned, not forked, so that each has its own order of sets: a seed that is run in two of them shows what
depends on it. An interrupt ends the processes; what they had found by then is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import islice

import msgspec

from hil.pools import pool_of
from hil.sim.author import write
from hil.sim.checks import Found, checked_play, told_failure
from hil.sim.scenario import SCENARIOS
from shared.errors import InvariantBroken

AHEAD = 2
"""Seeds that are handed out for each process, so that none waits for the next."""


class Task(msgspec.Struct, frozen=True):
    """A seed to run. Of what breaks, `shrink_s` seconds are spent to make it small."""

    seed: int
    scenario: str
    requests: int
    shrink_s: float


class Breach(msgspec.Struct, frozen=True):
    """A broken rule: its number, the story in a line, and the whole story of the smallest run that breaks it."""

    check: int
    story: str
    told: str


class Verdict(msgspec.Struct, frozen=True):
    """What running a seed came to. Of a broken run only the breach is known."""

    task: Task
    requests: int = 0
    virtual_s: float = 0.0
    digest: str = ""
    breach: Breach | None = None


def judge(task: Task) -> Verdict:
    """Run a seed."""
    script = write(task.seed, SCENARIOS[task.scenario], task.requests)
    found: Found = checked_play(script, task.seed)
    if found.played is not None:
        return Verdict(task, found.played.requests, found.played.virtual_s, found.played.digest)
    if found.broken is None:
        raise InvariantBroken(f"seed {task.seed} was neither played nor broken")
    until = time.monotonic() + task.shrink_s
    told = told_failure(script, task.seed, found, lambda: time.monotonic() >= until)
    return Verdict(task, breach=Breach(found.broken.check, found.broken.story, told))


def judge_all(tasks: Iterable[Task], jobs: int) -> Iterator[Verdict]:
    """Run all of them, as they come, on so many processes; the verdicts in the order in which they are reached."""
    if jobs == 1:
        yield from map(judge, tasks)
        return
    left = iter(tasks)
    with pool_of(jobs) as pool:
        out = {pool.submit(judge, task) for task in islice(left, AHEAD * jobs)}
        while out:
            done, out = wait(out, return_when=FIRST_COMPLETED)
            out |= {pool.submit(judge, task) for task in islice(left, len(done))}
            for future in done:
                yield future.result()
