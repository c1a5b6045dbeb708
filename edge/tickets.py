"""How an outcome reaches whoever waits for it: a blocked thread, a future, an asyncio future.

`infer()` is the hot path: a blocked thread waits on a bare lock, which costs a tenth of what a future with its
condition costs and, unlike waiting with a timeout, needs no clock. It may wait without one because the loop ends every
ticket, also when it ends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from edge.door import seconds
from shared.errors import HeadtailError
from shared.request import Outcome


class Ticket(Protocol):
    """One waiting caller. Exactly one of the two methods is called, once, by whoever took it out of the loop's table."""

    def resolve(self, outcome: Outcome) -> None:
        """Hand over the outcome."""
        ...

    def drop(self) -> None:
        """The request was withdrawn: there will be no outcome."""
        ...


class WaitTicket:
    """A thread that blocks in `wait`."""

    __slots__ = ("_lock", "_outcome")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._outcome: Outcome | None = None

    def resolve(self, outcome: Outcome) -> None:
        """Hand over the outcome and wake the thread."""
        self._outcome = outcome
        self._lock.release()

    @property
    def over(self) -> bool:
        """Whether the outcome is there, for who waits next."""
        return not self._lock.locked()

    def drop(self) -> None:
        """Nothing to tell: the thread has left `wait` by an exception."""

    def wait(self) -> Outcome:
        """Block until the outcome is there. An exception raised by a signal handler (Ctrl-C) comes through."""
        self._lock.acquire()
        assert self._outcome is not None  # noqa: S101
        return self._outcome


class Owner(Protocol):
    """What a future needs of the loop that ends it."""

    def withdraw(self, sequence: int) -> None:
        """Forget a request."""
        ...

    def check_process(self) -> None:
        """Raise `HeadtailError` in a forked child."""
        ...

    def on_loop(self) -> bool:
        """Whether the calling thread is the loop's own."""
        ...

    def check_may_wait(self, what: str) -> None:
        """Raise `HeadtailError` on the loop's own thread, which would wait for itself; `what` is the call."""
        ...


class OutcomeFuture(Future[Outcome]):
    """A future of an outcome. `cancel()` withdraws the request: the agent stops working on it. Only the client sets it.

    In a forked child the outcomes that were there before the fork can be read. All others never come, and asking for them
    raises `HeadtailError`, before any lock is touched that another thread held at the moment of the fork.
    """

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.sequence = 0
        self._owner = owner
        self._outcome: Outcome | None = None

    def result(self, timeout: float | None = None) -> Outcome:
        """The outcome, waited for, at most `timeout` seconds. Raises `CancelledError`, `TimeoutError`, `InputError` for what
        is no time, and `HeadtailError` in a forked child and in a callback, where the client would wait for itself."""
        if self._outcome is not None:
            return self._outcome
        return super().result(self._patience("result()", timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """None, once the outcome is there: a request never ends in an exception. Waits and raises as `result`."""
        if self._outcome is not None:
            return None
        return super().exception(self._patience("exception()", timeout))

    def _patience(self, what: str, timeout: float | None) -> float | None:
        self._owner.check_process()
        wait_s = None if timeout is None else seconds("timeout", timeout)
        if wait_s != 0.0 and not self.done():
            self._owner.check_may_wait(what)
        return wait_s

    def cancel(self) -> bool:
        """Withdraw the request; False where its outcome has been decided already."""
        if self._outcome is not None:
            return False
        self._owner.check_process()
        try:
            return super().cancel()
        finally:  # whatever a callback has raised
            if self.cancelled():
                self._owner.withdraw(self.sequence)

    def add_done_callback(self, fn: Callable[[Future[Outcome]], object]) -> None:
        """Have `fn` called with this future once it is done: on the client's own thread, which must not be blocked, or here
        and now where it is done already. Whatever it raises on the client's thread goes to the log."""
        super().add_done_callback(partial(_call, self._owner, fn))

    def set_running_or_notify_cancel(self) -> bool:
        """Refused with a `HeadtailError`."""
        raise HeadtailError("the outcome of a request is the client's to decide")

    def set_result(self, result: Outcome) -> None:
        """Refused with a `HeadtailError`."""
        raise HeadtailError("the outcome of a request is the client's to decide")

    def set_exception(self, exception: BaseException | None) -> None:
        """Refused with a `HeadtailError`: a request never ends in an exception."""
        raise HeadtailError("the outcome of a request is the client's to decide")

    def decide(self, outcome: Outcome) -> None:
        """The outcome is there; it is not wanted where the future was cancelled a moment ago. For the client only."""
        if super().set_running_or_notify_cancel():
            self._outcome = outcome
            super().set_result(outcome)

    def forget(self) -> None:
        """There will be no outcome: whoever waits is told that the future is cancelled. For the client only."""
        try:
            super().cancel()
        finally:
            super().set_running_or_notify_cancel()


def _call(owner: Owner, fn: Callable[[Future[Outcome]], object], done: Future[Outcome]) -> None:
    try:
        fn(done)
    except Exception:
        raise  # the base class logs it, and goes on with the next callback
    except BaseException as error:
        if not owner.on_loop():
            raise
        report(f"a callback of {done!r} raised", error)


def report(what: str, error: BaseException) -> None:
    """Log what the application's code has raised on the client's thread: no error of one caller may end what all share, be it
    a `SystemExit`, and be it the log's own."""
    with contextlib.suppress(BaseException):
        logging.getLogger("headtail").error(what, exc_info=error)


class FutureTicket:
    """A `Future` that anybody may wait on."""

    __slots__ = ("_future",)

    def __init__(self, future: OutcomeFuture) -> None:
        self._future = future

    def resolve(self, outcome: Outcome) -> None:
        """Set the future's result, unless it was cancelled a moment ago."""
        self._future.decide(outcome)

    def drop(self) -> None:
        """Cancel the future, and wake those who wait for it."""
        self._future.forget()


class AsyncTicket:
    """A future of an asyncio loop, which may be gone when the outcome comes."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Outcome]) -> None:
        self._loop = loop
        self._future = future

    def resolve(self, outcome: Outcome) -> None:
        """Set the future's result on its own loop."""
        try:
            self._loop.call_soon_threadsafe(self._set, outcome)
        except RuntimeError:  # that loop is closed: nobody waits
            return

    def drop(self) -> None:
        """Nothing to tell: the asyncio future was cancelled on its own loop."""

    def _set(self, outcome: Outcome) -> None:
        if not self._future.done():
            self._future.set_result(outcome)
