"""The loop's order, its timer, its wake-ups and its end, with fakes and without waiting."""

from __future__ import annotations

import gc
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import pytest

from shared.driver import Driver, JumpWatch, Mailbox
from shared.errors import InvariantBroken
from shared.events import (
    Abort,
    Action,
    ClientGone,
    ClockJumped,
    Event,
    Failed,
    LinkUp,
    Send,
    SendFailed,
    Tick,
    WakeAt,
)
from shared.fakes import FakeClock, FakeMachine, FakeSource, FakeTransport
from shared.process import YOUNG_OBJECTS, OwnProcess
from shared.wire.messages import Bye

BOUND_S = 30.0


def over(run: int) -> Failed:
    """Some event of an executor."""
    return Failed(run, "aborted")


def nothing(action: Action) -> Event | None:
    raise AssertionError(f"unexpected {action}")


class Rig:
    """A driver on fakes with a clock that is moved by hand."""

    def __init__(self, machine: FakeMachine) -> None:
        self.clock = FakeClock()
        self.machine = machine
        self.completions, self.transport, self.arrivals = FakeSource(), FakeTransport(), FakeSource()
        self.performed: list[Action] = []
        self.driver = Driver(
            machine,
            self.perform,
            completions=[self.completions],
            transports=[self.transport],
            arrivals=[self.arrivals],
            clock=self.clock,
        )

    def perform(self, action: Action) -> Event | None:
        self.performed.append(action)
        if isinstance(action, Send) and not self.transport.send(action):
            return SendFailed(action.link, action.message)
        return None


def test_a_turn_handles_completions_then_messages_then_arrivals_then_the_timer() -> None:
    machine = FakeMachine(lambda event, _: [WakeAt(1)] if isinstance(event, LinkUp) else [])
    rig = Rig(machine)
    rig.arrivals.put(ClientGone("app"))
    rig.transport.connect("n1/data")
    rig.completions.put(over(1))
    rig.completions.put(over(2))
    assert rig.driver.step() == 5
    assert machine.events == [over(1), over(2), LinkUp("n1/data"), ClientGone("app"), Tick(0)]


def test_the_guard_does_not_fire_while_its_answer_waits_in_a_source() -> None:
    """What comes in while messages are handled is seen before the timer that is due fires."""
    rig: Rig

    def script(event: Event, now: int) -> list[Action]:
        if isinstance(event, LinkUp):
            rig.completions.put(over(1))
            return [WakeAt(now)]
        if isinstance(event, Failed):
            return [WakeAt(now + 1_000)]
        return []

    rig = Rig(FakeMachine(script))
    rig.transport.connect("n1/data")
    rig.driver.step()
    assert rig.machine.events == [LinkUp("n1/data"), over(1)]
    rig.clock.advance(1_500)
    rig.driver.step()
    assert rig.machine.events[2:] == [Tick(500)]


def test_each_wake_up_replaces_the_one_before_and_fires_once() -> None:
    rig = Rig(FakeMachine(lambda event, now: [WakeAt(now + 5), WakeAt(now + 100)] if isinstance(event, LinkUp) else []))
    rig.transport.connect("n1/data")
    rig.driver.step()
    rig.clock.advance(99)
    assert rig.driver.step() == 0
    rig.clock.advance(1)
    assert rig.driver.step() == 1
    rig.clock.advance(1_000)
    assert rig.driver.step() == 0
    assert rig.machine.events == [LinkUp("n1/data"), Tick(0)]


def test_lateness_counts_from_the_asking_where_the_wake_up_was_due_before_it_was_asked_for() -> None:
    rig = Rig(FakeMachine(lambda event, now: [WakeAt(now - 700)] if isinstance(event, LinkUp) else [WakeAt(now + 100)]))
    rig.transport.connect("n1/data")
    rig.driver.step()
    rig.clock.advance(130)
    rig.driver.step()
    assert [event for event in rig.machine.events if isinstance(event, Tick)] == [Tick(0), Tick(30)]
    figures = rig.driver.lateness.figures()
    assert (figures.count, figures.max_ms) == (2, 30e-6)


def test_asking_again_for_a_wake_up_that_is_overdue_makes_it_no_less_late() -> None:
    due = 2_000_000_000

    def script(event: Event, _: int) -> list[Action]:
        return [] if isinstance(event, Tick) else [WakeAt(due)]

    rig = Rig(FakeMachine(script))
    rig.clock.advance(due - 500 - rig.clock.now())
    rig.completions.put(over(1))
    rig.driver.step()
    rig.clock.advance(2_500)
    rig.completions.put(over(2))
    rig.driver.step()
    assert rig.machine.events == [over(1), over(2), Tick(2_000)]


def test_a_stall_is_what_a_turn_takes_and_not_what_the_loop_sleeps() -> None:
    """Three turns of 3 ms each, between which the loop sleeps for 50 ms."""
    rig: Rig

    class Sleep:
        """An epoll that sleeps for so long, after which something has come."""

        def poll(self, timeout: int, most: int) -> list[tuple[int, int]]:
            rig.clock.advance(50_000_000)
            rig.completions.put(over(1))
            return []

    def script(event: Event, _: int) -> list[Action]:
        rig.clock.advance(3_000_000)
        if len(rig.machine.events) == 3:
            rig.driver.stop()
        return []

    rig = Rig(FakeMachine(script))
    rig.transport.connect("n1/data")
    rig.driver._epoll = Sleep()  # type: ignore[assignment]
    rig.driver.run()
    figures = rig.driver.stalls.figures()
    assert (figures.count, figures.p50_ms, figures.max_ms) == (3, 3.0, 3.0)


def test_a_failed_send_comes_back_in_the_same_turn_before_the_next_event() -> None:
    bye = Bye("closing")
    rig = Rig(FakeMachine(lambda event, _: [Send("n1/data", bye)] if isinstance(event, Failed) else []))
    rig.transport.down.add("n1/data")
    rig.completions.put(over(1))
    rig.arrivals.put(ClientGone("app"))
    rig.driver.step()
    assert rig.machine.events == [over(1), SendFailed("n1/data", bye), ClientGone("app")]


def test_a_machine_that_tries_a_failed_send_for_ever_is_stopped() -> None:
    bye = Bye("closing")
    rig = Rig(FakeMachine(lambda event, _: [Send("n1/data", bye)]))
    rig.transport.down.add("n1/data")
    rig.completions.put(over(1))
    with pytest.raises(InvariantBroken):
        rig.driver.step()


def test_what_the_machine_raises_leaves_run_and_names_the_event() -> None:
    def script(event: Event, _: int) -> list[Action]:
        raise InvariantBroken("two outcomes")

    rig = Rig(FakeMachine(script))
    rig.completions.put(Failed(7, "error", "out of memory"))
    with pytest.raises(InvariantBroken) as broken:
        rig.driver.run()
    assert any("out of memory" in note for note in broken.value.__notes__)


def test_run_blocks_until_a_thread_puts_an_event_and_ends_when_stopped() -> None:
    seen = threading.Event()

    def script(event: Event, _: int) -> list[Action]:
        if isinstance(event, Failed):
            seen.set()
        return []

    box = Mailbox()
    driver = Driver(FakeMachine(script), nothing, arrivals=[box], own_process=OwnProcess(250.0))
    interval_s = sys.getswitchinterval()
    thread = threading.Thread(target=driver.run)
    thread.start()
    box.put(over(1))
    assert seen.wait(BOUND_S)
    assert sys.getswitchinterval() == pytest.approx(250e-6)
    driver.stop()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    assert sys.getswitchinterval() == pytest.approx(interval_s)
    assert gc.isenabled()
    driver.close()
    driver.stop()  # a second signal while the process ends


def test_a_signal_may_ask_to_stop_at_any_moment_of_being_asked_to_stop() -> None:
    """At each line of `stop()`, and of whatever it calls, it is called once more on the same thread, as by a handler."""
    done: list[int] = []

    def stop_twice(driver: Driver, at: int) -> bool:
        seen = [0]

        def trace(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
            seen[0] += 1
            if seen[0] == at:
                sys.settrace(None)
                driver.stop()
                sys.settrace(trace)
            return trace

        sys.settrace(trace)
        driver.stop()
        sys.settrace(None)
        return seen[0] >= at

    def every_moment() -> None:
        at = 1
        while True:
            driver = Driver(FakeMachine(), nothing)
            again = stop_twice(driver, at)
            driver.run()
            driver.close()
            driver.stop()
            done.append(at)
            if not again:
                return
            at += 1

    thread = threading.Thread(target=every_moment, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert not thread.is_alive(), f"it hangs when it is interrupted at moment {len(done) + 1}"
    assert len(done) > 3


TraceFunction = Callable[[FrameType, str, object], "TraceFunction | None"]


def test_the_real_timer_ticks_no_earlier_than_asked() -> None:
    asked: list[int] = []
    ticked: list[tuple[int, int]] = []
    driver: Driver

    def script(event: Event, now: int) -> list[Action]:
        if isinstance(event, Tick):
            ticked.append((now, event.late_ns))
        if len(ticked) == 5:
            driver.stop()
            return []
        asked.append(now + 700_000)
        return [WakeAt(asked[-1])]

    start = FakeSource()
    start.put(over(1))
    driver = Driver(FakeMachine(script), nothing, arrivals=[start])
    driver.run()
    assert [now >= at for at, (now, _) in zip(asked, ticked, strict=True)] == [True] * 5
    assert [now - late for now, late in ticked] == asked
    driver.close()


def readable(box: Mailbox) -> bool:
    return bool(select.select([box.fileno()], [], [], 0)[0])


def test_a_mailbox_writes_once_and_only_where_the_loop_is_about_to_sleep() -> None:
    box = Mailbox()
    box.put(over(1))
    assert not readable(box)
    assert box.pending()
    assert list(box.drain()) == [over(1)]
    assert not box.pending()
    box.put(over(2))
    box.put(over(3))
    assert readable(box)
    assert list(box.drain()) == [over(2), over(3)]
    assert not readable(box)
    assert list(box.drain()) == []


def test_a_full_mailbox_says_so() -> None:
    box = Mailbox(limit=1)
    assert box.offer(over(1))
    assert not box.offer(over(2))
    with pytest.raises(InvariantBroken):
        box.put(over(3))
    assert list(box.drain()) == [over(1)]


def test_nothing_put_by_many_threads_is_lost_or_left_unseen() -> None:
    """Every event reaches a loop that sleeps whenever it finds nothing."""
    box = Mailbox()
    count, threads = 2_000, 4
    left = [count * threads]
    driver: Driver

    def script(event: Event, _: int) -> list[Action]:
        left[0] -= 1
        if left[0] == 0:
            driver.stop()
        return []

    driver = Driver(FakeMachine(script), nothing, arrivals=[box])
    putting = [
        threading.Thread(target=lambda: [box.put(over(number)) for number in range(count)]) for _ in range(threads)
    ]
    stopper = threading.Timer(BOUND_S, driver.stop)
    stopper.start()
    for thread in putting:
        thread.start()
    driver.run()
    stopper.cancel()
    for thread in putting:
        thread.join(BOUND_S)
    assert left[0] == 0
    driver.close()


class Clocks:
    """Boot and monotonic clocks that are moved by hand; each reading takes `reading_ns`."""

    def __init__(self) -> None:
        self.time_ns, self.asleep_ns, self.reading_ns = 1_000_000_000, 0, 10

    def monotonic(self) -> int:
        self.time_ns += self.reading_ns
        return self.time_ns

    def boot(self) -> int:
        return self.monotonic() + self.asleep_ns


def test_a_suspension_is_seen_once_with_its_length() -> None:
    clocks = Clocks()
    watch = JumpWatch(clocks.monotonic, clocks.boot)
    assert watch.jumped() == 0
    clocks.asleep_ns += 3_000_000_000
    assert watch.jumped() == pytest.approx(3_000_000_000, abs=100)
    assert watch.jumped() == 0


def test_a_thread_held_up_between_two_readings_sees_no_jump() -> None:
    clocks = Clocks()
    watch = JumpWatch(clocks.monotonic, clocks.boot)
    clocks.reading_ns = 50_000_000
    assert watch.jumped() == 0
    clocks.reading_ns = 10
    assert watch.jumped() == 0


def test_a_kernel_without_boot_time_shows_no_jump_and_says_that_it_cannot() -> None:
    def absent() -> int:
        raise OSError(22, "Invalid argument")

    clocks = Clocks()
    watch = JumpWatch(clocks.monotonic, absent)
    clocks.time_ns += 10_000_000_000
    assert watch.jumped() == 0
    assert not watch.able
    assert JumpWatch(clocks.monotonic, clocks.boot).able


def test_a_loop_that_never_sleeps_sees_a_jump_as_well() -> None:
    clocks = Clocks()
    driver: Driver

    def script(event: Event, _: int) -> list[Action]:
        if isinstance(event, ClockJumped):
            driver.stop()
        else:
            clocks.asleep_ns += 5_000_000_000
            busy.put(event)
        return []

    busy = FakeSource()
    busy.put(over(1))
    machine = FakeMachine(script)
    driver = Driver(machine, nothing, arrivals=[busy], jumps=JumpWatch(clocks.monotonic, clocks.boot))
    driver.run()
    assert machine.events == [over(1), ClockJumped(pytest.approx(5_000_000_000, abs=100))]
    driver.close()


def test_a_jump_reaches_the_machine() -> None:
    clocks = Clocks()
    box = Mailbox()
    driver: Driver

    def script(event: Event, _: int) -> list[Action]:
        if isinstance(event, Failed):
            clocks.asleep_ns += 5_000_000_000
            return [WakeAt(time.monotonic_ns())]
        if isinstance(event, ClockJumped):
            driver.stop()
        else:
            return [WakeAt(time.monotonic_ns() + 1_000_000)]
        return []

    machine = FakeMachine(script)
    driver = Driver(machine, nothing, arrivals=[box], jumps=JumpWatch(clocks.monotonic, clocks.boot))
    box.put(over(1))
    driver.run()
    jumps = [event.jump_ns for event in machine.events if isinstance(event, ClockJumped)]
    assert jumps == [pytest.approx(5_000_000_000, abs=100)]
    driver.close()


def test_an_idle_process_collects_only_where_there_is_slack_or_no_other_way() -> None:
    kept: list[list[int]] = []
    with OwnProcess() as process:
        assert not gc.isenabled()
        kept.extend([0] for _ in range(YOUNG_OBJECTS * 2))
        process.idle(0)
        assert gc.get_count()[0] >= YOUNG_OBJECTS
        process.idle(1 << 60)
        assert gc.get_count()[0] < YOUNG_OBJECTS
    assert gc.isenabled()


@pytest.mark.parametrize("reserve_mb", [0, 24])
def test_the_heaps_of_a_process_of_its_own_are_grown_beforehand(reserve_mb: int) -> None:
    anonymous = "sum(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('RssAnon'))"
    code = f"""
from shared.process import OwnProcess
before = {anonymous}
with OwnProcess(heap_reserve_bytes={reserve_mb} << 20):
    print({anonymous} - before)
"""
    grown_kb = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert abs(grown_kb - 2 * reserve_mb * 1024) < 8192


def test_what_can_wait_is_done_before_the_loop_sleeps_and_knows_for_how_long_that_may_be() -> None:
    source = FakeSource()
    source.put(LinkUp("n1/data"))
    done: list[tuple[int, int]] = []

    def idle(slack_ns: int) -> None:
        done.append((len(machine.events), slack_ns))
        driver.stop()

    machine = FakeMachine(lambda event, now: [WakeAt(now + 7_000_000_000)])
    driver = Driver(machine, nothing, arrivals=[source], clock=FakeClock(), idle=idle)
    driver.run()
    driver.close()
    source.close()
    assert done == [(1, 7_000_000_000)]


def test_abort_and_other_actions_reach_perform() -> None:
    rig = Rig(FakeMachine(lambda event, _: [Abort(1, 0), WakeAt(1 << 62)]))
    rig.completions.put(over(1))
    rig.driver.step()
    assert rig.performed == [Abort(1, 0)]
