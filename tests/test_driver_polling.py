"""The loop that looks for what usually comes soon, on a thread of its own and with the system's clock."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from shared.doctor.tree import Tree
from shared.driver import Driver, Mailbox, polling_of
from shared.events import Action, Event, Failed, Tick, WakeAt
from shared.fakes import FakeMachine
from shared.polling import Polling

BOUND_S = 30.0


def over(run: int) -> Failed:
    """Some event of an executor."""
    return Failed(run, "aborted")


def nothing(action: Action) -> Event | None:
    raise AssertionError(f"unexpected {action}")


def usually_soon() -> Polling:
    """The polling of a loop for which what it waits for has always come soon, and which looks for it for an hour."""
    polling = Polling(3_600_000_000_000)
    for _ in range(50):
        polling.waited("work", 1, came=True)
    return polling


def looking(
    polling: Polling, script: Callable[[Event, int], list[Action]], expects: Callable[[], str | None]
) -> tuple[Driver, Mailbox, threading.Thread]:
    """A driver on a thread, with the system's clock, that begins with one event."""
    box = Mailbox()
    driver = Driver(FakeMachine(script), nothing, arrivals=[box], polling=polling, expects=expects)
    thread = threading.Thread(target=driver.run)
    box.put(over(0))
    thread.start()
    return driver, box, thread


def test_a_loop_that_looks_for_what_comes_finds_events_its_timer_and_its_end() -> None:
    came: SimpleQueue[Event] = SimpleQueue()
    polling = usually_soon()

    def script(event: Event, now: int) -> list[Action]:
        came.put(event)
        return [WakeAt(now + 2_000_000)] if event == over(2) else []

    driver, box, thread = looking(polling, script, lambda: "work")
    for run in range(1, 3):
        assert came.get(timeout=BOUND_S) == over(run - 1)
        box.put(over(run))
    assert came.get(timeout=BOUND_S) == over(2)
    assert isinstance(came.get(timeout=BOUND_S), Tick)
    driver.stop()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    assert polling.polled_ns > 0
    driver.close()
    box.close()


def test_a_loop_does_not_look_where_there_is_no_use_in_it() -> None:
    came: SimpleQueue[Event] = SimpleQueue()
    polling = usually_soon()

    def script(event: Event, _: int) -> list[Action]:
        came.put(event)
        return []

    driver, box, thread = looking(polling, script, lambda: None)
    for run in range(3):
        assert came.get(timeout=BOUND_S) == over(run)
        box.put(over(run + 1))
    driver.stop()
    thread.join(BOUND_S)
    assert polling.polled_ns == 0
    driver.close()
    box.close()


def test_a_closed_loop_holds_nobody_who_tells_it_what_is_waited_for() -> None:
    class Owner:
        def expects(self) -> str | None:
            return "work"

    owner = Owner()
    gone = weakref.ref(owner)
    driver = Driver(FakeMachine(), nothing, polling=usually_soon(), expects=owner.expects)
    del owner
    assert gone() is not None
    driver.close()
    assert gone() is None


NO_QUOTA = Tree(Path("/nowhere"))


def under(policy: int) -> Polling | None:
    """What a thread of this policy is to poll by. Skips where the system does not let it have that."""
    found: list[Polling | None] = []

    def ask() -> None:
        with suppress(PermissionError):
            os.sched_setscheduler(0, policy, os.sched_param(int(policy in (os.SCHED_FIFO, os.SCHED_RR))))
            found.append(polling_of(1000.0, tree=NO_QUOTA))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(BOUND_S)
    if not found:
        pytest.skip("the system does not allow this policy")
    return found[0]


@pytest.mark.parametrize(("poll_us", "realtime"), [(0.0, False), (1000.0, True)])
def test_a_process_that_may_not_look_never_does(poll_us: float, realtime: bool) -> None:
    assert polling_of(poll_us, realtime=realtime, tree=NO_QUOTA) is None


def test_a_process_looks_only_where_there_is_another_core_for_what_it_waits_for() -> None:
    assert (polling_of(1000.0, tree=NO_QUOTA) is not None) == several_cores()


@pytest.mark.parametrize("policy", [os.SCHED_FIFO, os.SCHED_RR])
def test_a_thread_that_has_real_time_priority_from_elsewhere_never_looks(policy: int) -> None:
    assert under(policy) is None


def test_a_thread_that_comes_after_all_others_may_look() -> None:
    assert (under(os.SCHED_BATCH) is not None) == several_cores()


@pytest.mark.parametrize(("cores", "looks"), [(0.5, False), (1.9, False), (2.0, True), (8.0, True)])
def test_looking_takes_no_time_of_a_quota_of_less_than_two_cores(tmp_path: Path, cores: float, looks: bool) -> None:
    files = {
        "proc/self/cgroup": "0::/pod\n",
        "sys/fs/cgroup/pod/cpu.max": f"{int(cores * 100_000)} 100000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert (polling_of(1000.0, tree=Tree(tmp_path)) is not None) == (looks and several_cores())


def several_cores() -> bool:
    return len(os.sched_getaffinity(0)) > 1
