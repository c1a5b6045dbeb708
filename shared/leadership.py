"""Who turns a loop: its own thread or, for a while, another one that waits for something of it.

The pattern is known as leader and followers (D. Schmidt and others, "Leader/Followers", Pattern Languages of Programs, 2000):
one thread at a time waits on the descriptors and does what comes; whoever is to wait for an outcome anyway may do that
itself. Handing a request to another thread and its outcome back costs two wake-ups, each of 15 to 50 µs on a virtual machine,
and cold caches: a request that the device answers by itself took 200 µs by way of the loop's thread, and 100 without.

The loop's own thread never waits on the loop's descriptors themselves but on one descriptor above them, which tells nothing
while somebody else leads. So that thread sleeps on, whatever comes, and needs not be woken to be relieved or to follow again.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress


class Leadership:
    """Held by the loop's own thread from `begin` to `close`, but for the time that it sleeps in `follow`."""

    def __init__(self, epoll: select.epoll) -> None:
        """`epoll` has all that the loop waits for; what `call` wakes it by is added."""
        self._epoll = epoll
        self._lead = threading.RLock()  # it knows whose it is
        self._open = False
        self._called = False
        self._call_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        epoll.register(self._call_fd, select.EPOLLIN)
        self._above = select.epoll()
        self._above.register(epoll.fileno(), select.EPOLLIN)

    def begin(self) -> None:
        """Lead from now on, as the loop's own thread."""
        self._lead.acquire()
        self._open = True

    def mine(self) -> bool:
        """Whether the calling thread leads."""
        return self._open and self._lead._is_owned()  # type: ignore[attr-defined]  # pyright: ignore

    def take(self) -> bool:
        """Lead in place of the loop's own thread; False, at once, where that does not sleep or somebody else leads."""
        if not self._open or self.mine() or not self._lead.acquire(blocking=False):
            return False
        self._above.modify(self._epoll.fileno(), 0)
        return True

    def give_back(self) -> None:
        """Lead no longer, after `take`: what has come, and comes from now on, wakes the loop's own thread."""
        try:
            self._above.modify(self._epoll.fileno(), select.EPOLLIN)
        finally:
            self._lead.release()

    def follow(self) -> None:
        """Let others lead, and block until something has come while nobody did. For the loop's own thread."""
        self._lead.release()
        self._above.poll(-1, 1)
        self._lead.acquire()  # where somebody has taken it just now: to look again and again would be in their way

    def call(self) -> None:
        """Have whoever waits next on the loop's descriptors not sleep. For who leads, and its signal handlers."""
        self._called = True
        os.eventfd_write(self._call_fd, 1)

    def heard(self) -> None:
        """Whoever leads is awake: what it was called by is over."""
        if self._called:
            self._called = False
            with suppress(BlockingIOError):  # a signal's handler has called in this very moment, and was heard already
                os.eventfd_read(self._call_fd)

    def close(self) -> None:
        """Release the descriptors, by the loop's own thread, after which nobody leads."""
        self._open = False
        self._above.close()
        os.close(self._call_fd)
