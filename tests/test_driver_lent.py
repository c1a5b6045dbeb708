"""A loop that is lent: other threads lead it while its own sleeps."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue
from types import FrameType

import pytest

from shared.driver import Driver, Mailbox
from shared.events import Action, ClientGone, Event, Tick, WakeAt
from shared.fakes import FakeSource
from shared.leadership import Leadership

BOUND_S = 30.0


def nothing(action: Action) -> Event | None:
    raise AssertionError(f"unexpected {action}")


def never() -> bool:
    return False


class Loop:
    """A driver that runs on a thread of its own; `seen` has each event and the thread that handled it."""

    def __init__(self) -> None:
        self.seen: Queue[tuple[Event, threading.Thread]] = Queue()
        self.source = FakeSource()
        self.script: Callable[[Event, int], list[Action]] = lambda event, now: []
        self.error: BaseException | None = None
        self.driver = Driver(self, nothing, arrivals=[self.source], lent=True)
        self.thread = threading.Thread(target=self._run)

    def handle(self, event: Event, now: int) -> list[Action]:
        self.seen.put((event, threading.current_thread()))
        return self.script(event, now)

    def _run(self) -> None:
        try:
            self.driver.run()
        except BaseException as error:
            self.error = error

    def take(self) -> None:
        """Lead the loop, as soon as it sleeps."""
        end = time.monotonic() + BOUND_S
        while not self.driver.take():
            assert time.monotonic() < end
            time.sleep(0.001)

    def next(self) -> tuple[Event, threading.Thread]:
        return self.seen.get(timeout=BOUND_S)

    def end(self) -> None:
        self.driver.stop()
        self.thread.join(BOUND_S)
        assert not self.thread.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    loop.thread.start()
    yield loop
    loop.end()
    loop.driver.close()
    loop.source.close()


def gone(name: str) -> ClientGone:
    return ClientGone(name)


def test_who_leads_handles_what_comes_and_the_loops_own_thread_does_afterwards(loop: Loop) -> None:
    here = threading.current_thread()
    loop.take()
    loop.source.watch()
    loop.source.put(gone("a"))
    loop.driver.lead(lambda: not loop.seen.empty())
    assert loop.next() == (gone("a"), here)
    loop.source.put(gone("b"))
    assert loop.next() == (gone("b"), loop.thread)


def test_who_leads_sleeps_until_another_thread_has_put_something(loop: Loop) -> None:
    loop.take()
    putting = threading.Timer(0.05, loop.source.put, [gone("late")])
    putting.start()
    loop.driver.lead(lambda: not loop.seen.empty())
    assert loop.next() == (gone("late"), threading.current_thread())


def test_one_thread_leads_at_a_time_and_none_before_the_loop_sleeps_or_after_it_ended(loop: Loop) -> None:
    asleep = Loop()
    assert not asleep.driver.take()
    loop.take()
    assert not loop.driver.take()
    loop.driver.lead(lambda: True)
    loop.take()
    loop.driver.lead(lambda: True)
    loop.end()
    assert not loop.driver.take()
    asleep.driver.close()
    asleep.source.close()


def test_a_loop_that_is_not_lent_is_led_by_nobody_else() -> None:
    source = FakeSource()
    driver = Driver(Loop(), nothing, arrivals=[source])
    assert not driver.take()
    driver.close()
    source.close()


def test_what_a_led_turn_has_waked_at_wakes_the_loops_own_thread(loop: Loop) -> None:
    loop.script = lambda event, now: [WakeAt(now + 30_000_000)] if isinstance(event, ClientGone) else []
    loop.take()
    loop.source.watch()
    loop.source.put(gone("a"))
    loop.driver.lead(lambda: True)
    assert loop.next() == (gone("a"), threading.current_thread())
    event, thread = loop.next()
    assert (type(event), thread) == (Tick, loop.thread)


def test_a_timer_fires_for_who_leads_and_one_that_fired_meanwhile_is_set_anew(loop: Loop) -> None:
    loop.script = lambda event, now: [WakeAt(now + 5_000_000)]
    loop.take()
    loop.source.watch()
    loop.source.put(gone("a"))
    loop.driver.lead(lambda: loop.seen.qsize() > 5)
    assert {thread for _, thread in (loop.next() for _ in range(6))} == {threading.current_thread()}
    assert [loop.next()[1] for _ in range(5)] == [loop.thread] * 5


def test_what_came_in_the_last_turn_is_left_to_the_loops_own_thread(loop: Loop) -> None:
    def more(event: Event, now: int) -> list[Action]:
        if event == gone("a"):
            loop.source.put(gone("b"))
        return []

    loop.script = more
    loop.take()
    loop.source.watch()
    loop.source.put(gone("a"))
    loop.driver.lead(lambda: True)
    assert loop.next() == (gone("a"), threading.current_thread())
    assert loop.next() == (gone("b"), loop.thread)


def test_who_leads_is_called_by_what_interrupts_it(loop: Loop) -> None:
    turns: list[int] = []

    def done() -> bool:
        turns.append(1)
        if len(turns) == 1:
            loop.driver.call()
        return len(turns) == 3

    loop.take()
    threading.Timer(0.05, loop.source.put, [gone("a")]).start()
    loop.driver.lead(done)  # the second turn begins at once, the third when something has come
    assert loop.next() == (gone("a"), threading.current_thread())
    loop.source.put(gone("b"))
    assert loop.next() == (gone("b"), loop.thread)


def test_a_call_of_somebody_who_does_not_lead_is_none(loop: Loop) -> None:
    loop.driver.call()
    loop.take()
    thread = threading.Thread(target=loop.driver.call)
    thread.start()
    thread.join(BOUND_S)
    threading.Timer(0.05, loop.source.put, [gone("a")]).start()
    turns: list[int] = []
    loop.driver.lead(lambda: bool(turns.append(1)) or not loop.seen.empty())
    assert len(turns) == 2


def test_what_breaks_a_led_turn_ends_the_loop_itself(loop: Loop) -> None:
    def breaks(event: Event, now: int) -> list[Action]:
        raise RuntimeError("the wheel came off")

    loop.script = breaks
    loop.take()
    loop.source.watch()
    loop.source.put(gone("a"))
    loop.driver.lead(never)
    loop.thread.join(BOUND_S)
    assert isinstance(loop.error, RuntimeError)
    assert "while handling ClientGone" in loop.error.__notes__[0]
    assert not loop.driver.take()


def test_a_stop_ends_the_lead(loop: Loop) -> None:
    loop.take()
    threading.Timer(0.05, loop.driver.stop).start()
    loop.driver.lead(never)
    loop.thread.join(BOUND_S)
    assert loop.error is None


def test_many_threads_that_lead_by_turns_lose_no_event(loop: Loop) -> None:
    led: list[bool] = []

    def ask(name: str) -> None:
        for number in range(200):
            taken = loop.driver.take()
            if taken:
                loop.source.watch()
            loop.source.put(gone(f"{name}{number}"))
            if taken:
                led.append(True)
                loop.driver.lead(lambda: True)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    seen = [loop.next()[0] for _ in range(800)]
    for thread in threads:
        thread.join(BOUND_S)
    for name in "abcd":
        assert [e for e in seen if e in {gone(f"{name}{n}") for n in range(200)}] == [
            gone(f"{name}{n}") for n in range(200)
        ]
    assert led


def test_a_signals_handler_may_put_while_its_thread_wakes_the_loop() -> None:
    """The loop has slept again before the handler is called."""
    box = Mailbox()
    came: list[int] = []

    def handler(frame: FrameType, event: str, arg: object) -> object:
        if frame.f_code is Mailbox._wake.__code__ and not came and not box._asleep:
            came.append(1)
            box._events.clear()
            assert not box.pending()
            box.put(Tick(2))
        return handler

    def put() -> None:
        sys.settrace(handler)  # type: ignore[arg-type]
        box.put(Tick(1))

    assert not box.pending()
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert came
    assert list(box.drain()) == [Tick(2)]
    assert not select.select([box.fileno()], [], [], 0)[0]
    box.close()


def test_the_loops_own_thread_that_is_woken_as_another_begins_to_lead_waits_for_it_and_does_not_look_again() -> None:
    looks: list[int] = []

    class Above:
        """The descriptor above, before it was told that somebody leads."""

        def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
            looks.append(1)
            taken.wait(BOUND_S)
            return [(0, select.EPOLLIN)]

    taken = threading.Event()
    epoll = select.epoll()
    leadership = Leadership(epoll)
    above, leadership._above = leadership._above, Above()  # type: ignore[assignment]
    followed: Queue[bool] = Queue()

    def own() -> None:
        leadership.begin()
        leadership.follow()
        followed.put(True)

    thread = threading.Thread(target=own)
    thread.start()
    while not leadership._open or not leadership._lead.acquire(blocking=False):
        time.sleep(0.001)
    taken.set()
    time.sleep(0.05)
    assert followed.empty()
    assert len(looks) == 1
    leadership._lead.release()
    assert followed.get(timeout=BOUND_S)
    thread.join(BOUND_S)
    leadership._above = above
    leadership.close()
    epoll.close()
