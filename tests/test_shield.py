"""Handlers of signals wait while a shield is up, and nothing of them is lost or changed by it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from edge import shield as module
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


def test_a_thread_that_leaves_a_shield_leaves_the_main_threads_alone() -> None:
    """All threads of a client have the same one."""
    shield = Shield(nothing)
    before = signal.getsignal(signal.SIGINT)
    errors: list[BaseException] = []

    def other() -> None:
        try:
            with shield:
                pass
        except BaseException as error:
            errors.append(error)

    with shield:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
        assert signal.getsignal(signal.SIGINT) != before
    assert errors == []
    assert signal.getsignal(signal.SIGINT) == before


def test_a_storm_of_one_signal_calls_its_handler_once() -> None:
    notes: list[str] = []
    signal.signal(signal.SIGUSR1, noting(notes, "got"))
    with Shield(nothing):
        for _ in range(2 * sys.getrecursionlimit()):
            signal.raise_signal(signal.SIGUSR1)
    assert notes == ["got SIGUSR1"]


def test_a_child_that_another_thread_forks_has_the_applications_handlers() -> None:
    notes: list[str] = []
    signal.signal(signal.SIGTERM, noting(notes, "got"))
    signal.siginterrupt(signal.SIGTERM, False)
    before = signal.getsignal(signal.SIGTERM), action(signal.SIGTERM)
    status: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child:
            status.append(os.waitpid(child, 0)[1])
            return
        try:
            as_before = (signal.getsignal(signal.SIGTERM), action(signal.SIGTERM)) == before
            signal.raise_signal(signal.SIGTERM)
            with Shield(nothing):  # its main thread is this one
                put_off = signal.getsignal(signal.SIGTERM) != before[0]
            os._exit(0 if as_before and put_off and notes == ["got SIGTERM"] else 1)
        finally:
            os._exit(2)

    with Shield(nothing), Shield(nothing):  # of two clients
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(30)
    assert status == [0]
    assert notes == []


def test_what_a_library_has_put_before_a_handler_is_called_at_once() -> None:
    notes: list[str] = []
    signal.signal(signal.SIGUSR1, noting(notes, "got"))
    with tempfile.TemporaryFile() as file:
        faulthandler.register(signal.SIGUSR1, file, chain=True)
        try:
            before = action(signal.SIGUSR1)
            with Shield(nothing):
                signal.raise_signal(signal.SIGUSR1)
                assert file.tell()
                assert notes == []
            assert action(signal.SIGUSR1) == before
        finally:
            faulthandler.unregister(signal.SIGUSR1)
    assert notes == ["got SIGUSR1"]


def test_handlers_that_raise_while_others_are_given_back_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    for number in SIGNALS:
        signal.signal(number, noting(notes, "got", None if number == signal.SIGTERM else RuntimeError()))
    before = [signal.getsignal(number) for number in SIGNALS]
    shield = Shield(nothing)

    def work() -> None:
        with shield:
            monkeypatch.setattr(module, "_set", storm)

    given = module._set

    def storm(number: int, handler: object) -> object:
        done = given(number, handler)
        if number == signal.SIGUSR2:  # its own again, as SIGUSR1 is, and SIGALRM and SIGTERM are not
            monkeypatch.setattr(module, "_set", given)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # all four are there at once
        return done

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        signal.raise_signal(number)
    with pytest.raises(RuntimeError):
        work()
    signal.raise_signal(signal.SIGTERM)
    with shield:
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert notes.count("got SIGTERM") == 2
    assert set(notes) == {f"got {number.name}" for number in SIGNALS}


def test_what_a_handler_sets_while_others_are_given_back_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def sets(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    notes: list[str] = []
    signal.signal(signal.SIGUSR1, sets)
    signal.signal(signal.SIGTERM, noting(notes, "got"))
    put = Shield._put

    def late(self: Shield, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        put(self, number, handler)
        if number == signal.SIGUSR1:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(Shield, "_put", late)
    with Shield(nothing):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_handlers_are_called_on_no_thread_but_the_interpreters_first_one(tmp_path: os.PathLike[str]) -> None:
    """Which need not be that of `threading`, where the interpreter is part of another program."""
    program = f"""
import sys, _thread
assert "threading" not in sys.modules
sys.path[:] = {sys.path!r}
def work():
    import threading
    assert threading.get_ident() == threading.main_thread().ident
    from edge.shield import Shield
    with Shield(print):
        print("in", flush=True)
    done.release()
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(work, ())
done.acquire(True, 20)
"""
    ran = subprocess.run([sys.executable, "-S", "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("in\n", "")
