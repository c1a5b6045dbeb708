"""How an outcome reaches whoever waits for it: a blocked thread, a future, an asyncio future.

`infer()` is the hot path: a blocked thread waits on a bare lock, which costs a tenth of what a future with its
condition costs and, unlike waiting with a timeout, needs no clock. It may wait without one because the loop ends every
ticket, also when it ends itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

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

    def drop(self) -> None:
        """Nothing to tell: the thread has left `wait` by an exception."""

    def wait(self) -> Outcome:
        """Block until the outcome is there. An exception raised by a signal handler (Ctrl-C) comes through."""
        self._lock.acquire()
        assert self._outcome is not None  # noqa: S101
        return self._outcome


class OutcomeFuture(Future[Outcome]):
    """A future of an outcome. `cancel()` withdraws the request: the agent stops working on it.

    In a forked child the outcomes that were there before the fork can be read. All others never come, and asking for them
    raises what `check` raises, before any lock is touched that another thread held at the moment of the fork.
    """

    def __init__(self, withdraw: Callable[[int], None], check: Callable[[], None]) -> None:
        super().__init__()
        self.sequence = 0
        self._withdraw = withdraw
        self._check = check
        self._outcome: Outcome | None = None

    def set_result(self, result: Outcome) -> None:
        """Only the client does so."""
        self._outcome = result
        super().set_result(result)

    def result(self, timeout: float | None = None) -> Outcome:
        """The outcome, waited for. Raises `CancelledError`, `TimeoutError`, and `HeadtailError` in a forked child."""
        if self._outcome is not None:
            return self._outcome
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """None, once the outcome is there: a request never ends in an exception."""
        if self._outcome is not None:
            return None
        self._check()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Withdraw the request; False where its outcome has been decided already."""
        if self._outcome is not None:
            return False
        self._check()
        cancelled = super().cancel()
        if cancelled:
            self._withdraw(self.sequence)
        return cancelled


class FutureTicket:
    """A `Future` that anybody may wait on."""

    __slots__ = ("_future",)

    def __init__(self, future: OutcomeFuture) -> None:
        self._future = future

    def resolve(self, outcome: Outcome) -> None:
        """Set the future's result, unless it was cancelled a moment ago."""
        if self._future.set_running_or_notify_cancel():
            self._future.set_result(outcome)

    def drop(self) -> None:
        """Wake those who wait for the cancelled future."""
        self._future.set_running_or_notify_cancel()


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
