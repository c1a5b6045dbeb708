"""Handlers of signals wait while a shield is up, and nothing of them is lost or changed by it."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from edge.shield import Shield

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test sets is gone after it."""
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nothing() -> None:
    pass


def noting(notes: list[str], what: str, error: BaseException | None = None) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, frame: FrameType | None) -> None:
        assert frame is not None
        notes.append(f"{what} {signal.Signals(number).name}")
        if error is not None:
            raise error

    return handler


class Action(ctypes.Structure):
    """The C library's `struct sigaction`, of glibc and musl alike."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def action(number: int) -> tuple[int, int]:
    """What the system does about a signal, and its flags."""
    told = Action()
    ctypes.CDLL(None).sigaction(int(number), None, ctypes.byref(told))
    return told.handler, told.flags


def test_ctrl_c_is_raised_when_the_shield_ends_and_not_before() -> None:
    done: list[str] = []
    shield = Shield(lambda: done.append("called"))

    def work() -> None:
        with shield:
            signal.raise_signal(signal.SIGINT)
            assert shield.held
            done.append("finished")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["called", "finished"]
    assert not shield.held


def test_every_signal_that_came_has_its_handler_called_in_order_also_where_one_raises() -> None:
    notes: list[str] = []
    for number in SIGNALS:
        signal.signal(number, noting(notes, "got", RuntimeError() if number == signal.SIGALRM else None))

    def work() -> None:
        with Shield(nothing):
            for number in SIGNALS:
                signal.raise_signal(number)
            assert notes == []

    with pytest.raises(RuntimeError):
        work()
    assert notes == [f"got {number.name}" for number in SIGNALS]


def test_handlers_and_whether_they_interrupt_calls_are_as_before() -> None:
    notes: list[str] = []
    for number in SIGNALS:
        signal.signal(number, noting(notes, "got"))
        signal.siginterrupt(number, False)
    known = [(signal.getsignal(number), action(number)) for number in (*SIGNALS, signal.SIGINT)]
    with Shield(nothing):
        assert all(signal.getsignal(number) != handler for number, (handler, _) in zip(SIGNALS, known, strict=False))
    assert [(signal.getsignal(number), action(number)) for number in (*SIGNALS, signal.SIGINT)] == known
    signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
    assert action(signal.SIGUSR1) != known[0][1]  # what setting a handler forgets


def test_a_handler_that_was_set_meanwhile_is_put_off_as_well_the_next_time() -> None:
    notes: list[str] = []
    shield = Shield(nothing)
    with shield:
        pass
    for what in ("one", "two"):
        signal.signal(signal.SIGUSR1, noting(notes, what))
        with shield:
            signal.raise_signal(signal.SIGUSR1)
            assert what not in str(notes)
    assert notes == ["one SIGUSR1", "two SIGUSR1"]


def test_what_is_ignored_or_left_to_the_system_stays_so() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    with Shield(nothing) as _:
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        signal.raise_signal(signal.SIGUSR1)


def test_a_handler_that_raises_before_it_is_exchanged_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    for number in SIGNALS:
        signal.signal(number, noting(notes, "got", KeyboardInterrupt() if number == signal.SIGTERM else None))
    before = [signal.getsignal(number) for number in SIGNALS]
    shield = Shield(nothing)
    swap = Shield._swap

    def late(self: Shield, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        if number == signal.SIGTERM:  # all that have lower numbers are exchanged
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGTERM)
        swap(self, number, handler)

    monkeypatch.setattr(Shield, "_swap", late)
    with pytest.raises(KeyboardInterrupt), shield:
        raise AssertionError("unreachable")
    assert notes == ["got SIGTERM", "got SIGUSR1"]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_other_threads_have_no_handlers_to_put_off() -> None:
    seen: list[object] = []

    def look() -> None:
        with Shield(nothing):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(30)
    assert seen == [signal.getsignal(signal.SIGINT)]
