"""What a run leaves behind in real processes, and the census that finds it. Memory is measured by the bench."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

import pytest

from edge.due import DueTimes
from hil.leak import FORMS, Form, LeakRig
from hil.leak_census import Census, take_census
from shared.memory import Arena, PoolKey
from shared.slots import SlotClass

REQUESTS = 8_000
STRETCH = 2_000


@pytest.mark.parametrize("form", FORMS)
def test_after_thousands_of_requests_no_lease_timer_thread_or_descriptor_is_left(form: Form, tmp_path: Path) -> None:
    with LeakRig(form, tmp_path) as rig:
        leak = rig.run(REQUESTS, STRETCH, print)
    assert not leak.broken, leak.broken
    assert {"node", "application"} <= set(leak.samples)
    for name, before in leak.before.items():
        assert [s.requests for s in leak.samples[name]] == [2_000, 4_000, 6_000, 8_000]
        assert (leak.after[name].descriptors, leak.after[name].threads) == (before.descriptors, before.threads)
    # Whether a frame overtakes another is up to the machine.
    assert {"asked", "on_time", "missed", "rejected", "withdrawn"} <= set(leak.outcomes)
    assert leak.outcomes["asked"] == REQUESTS


class Machine:
    """Something with containers of every kind."""

    def __init__(self) -> None:
        self.table: dict[int, object] = {}
        self.window: deque[int] = deque(maxlen=4)
        self.words: Counter[str] = Counter()
        self._sorted: dict[int, int] = {}
        self.pool = PoolKey("c", 0, 0)
        self.arena = Arena([SlotClass("c", 0, 0, 3, 1, 4)])
        self.due = DueTimes(self.table, 8)
        self.myself = self


Machine.__module__ = "hil.made_for_a_test"


def test_a_census_counts_every_container_by_the_way_that_leads_to_it() -> None:
    machine = Machine()
    before = take_census(machine)
    assert before.at_rest
    machine.table = {number: [number, {number}] for number in range(20)}
    machine.window.extend(range(10))
    machine.words.update(["many", "different", "words"])
    machine._sorted = dict.fromkeys(range(2000), 0)
    after = take_census(machine)
    assert after.at_rest
    assert (after.sizes["Machine.table"], after.sizes["Machine.table[]"], after.sizes["Machine.table[][]"]) == (
        20,
        40,
        20,
    )
    assert after.grown(before, 10) == {
        "Machine.table": (0, 20),
        "Machine.table[]": (0, 40),
        "Machine.table[][]": (0, 20),
    }
    assert after.grown(before, 20) == {"Machine.table[]": (0, 40)}


def test_leases_and_timers_that_are_left_are_found() -> None:
    machine = Machine()
    lease = machine.arena.acquire(machine.pool, 1)
    machine.due.add(5, 1)
    left = take_census(machine)
    assert not left.at_rest
    assert left.left == {"leases": 1, "runs": 0, "jobs": 0, "requests": 0, "timers": 1}
    assert lease is not None
    machine.arena.release(lease)
    assert take_census(machine).left["leases"] == 0


def test_what_was_there_before_has_not_grown() -> None:
    census = Census({}, {"Machine.table": 5000})
    assert census.grown(census, 0) == {}
