"""One timer with a descriptor: nanoseconds, absolute, CLOCK_MONOTONIC.

Guards need 0.1 ms, while the timeouts of `epoll.poll`, `zmq.Poller` and asyncio round to milliseconds; a timerfd does not.
Python has it from 3.13 on; before that the C library is called through ctypes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import cache
from typing import Protocol

_ABSOLUTE = 1
_SECOND = 1_000_000_000


class Timer(Protocol):
    """A timer that a loop can wait on."""

    def fileno(self) -> int:
        """Readable from the moment that was set until `ack`."""
        ...

    def set(self, at_ns: int | None) -> None:
        """Fire at `at_ns` of CLOCK_MONOTONIC (at once where that has passed); None disarms. Replaces what was set before."""
        ...

    def ack(self) -> None:
        """Take note that it fired, so that the descriptor is no longer readable."""
        ...

    def close(self) -> None:
        """Release the descriptor."""
        ...


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


@cache
def _libc() -> ctypes.CDLL:
    """The C library, loaded once: each loading makes a class, which only the collector takes back."""
    return ctypes.CDLL(None, use_errno=True)


class CtypesTimer:
    """`Timer` by the C library's own calls, for every Python."""

    def __init__(self) -> None:
        libc = _libc()
        fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._fd: int = fd
        self._settime = libc.timerfd_settime
        self._spec = _Itimerspec()
        self._value = self._spec.value
        self._pointer = ctypes.byref(self._spec)

    def fileno(self) -> int:
        """Readable from the moment that was set until `ack`."""
        return self._fd

    def set(self, at_ns: int | None) -> None:
        """Fire at `at_ns` of CLOCK_MONOTONIC; None disarms."""
        # A value of zero would disarm.
        value = self._value
        value.seconds, value.nanoseconds = (0, 0) if at_ns is None else divmod(max(at_ns, 1), _SECOND)
        if self._settime(self._fd, _ABSOLUTE, self._pointer, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def ack(self) -> None:
        """Take note that it fired."""
        _drain(self._fd)

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)


if sys.version_info >= (3, 13):

    class NativeTimer:
        """`Timer` by Python's own calls."""

        def __init__(self) -> None:
            self._fd = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

        def fileno(self) -> int:
            """Readable from the moment that was set until `ack`."""
            return self._fd

        def set(self, at_ns: int | None) -> None:
            """Fire at `at_ns` of CLOCK_MONOTONIC; None disarms."""
            initial = 0 if at_ns is None else max(at_ns, 1)
            os.timerfd_settime_ns(self._fd, flags=os.TFD_TIMER_ABSTIME, initial=initial)

        def ack(self) -> None:
            """Take note that it fired."""
            _drain(self._fd)

        def close(self) -> None:
            """Release the descriptor."""
            os.close(self._fd)


def make_timer() -> Timer:
    """The best timer that this Python has."""
    if sys.version_info >= (3, 13):
        return NativeTimer()
    return CtypesTimer()


def _drain(fd: int) -> None:
    try:
        os.read(fd, 8)
    except BlockingIOError:
        return
