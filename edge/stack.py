"""Whether the calling thread has the room that leading a loop takes: an overflow in the middle of a turn would break it.

Python tells neither how many more calls a thread may make nor how large its stack is (`threading.stack_size` says what the
next thread will get, and threads that others started are unknown to it). The first is tried out by a call that goes as deep,
in 0.4 µs; frames alone cannot be counted, since until Python 3.11 calls by way of C count as well: of an application's
objects that are called, half of the calls are no frames. The second is asked of the C library, once for each thread.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

CALLS_DEEP = 200
"""So many more calls, one in another, a thread must be allowed to make to lead the loop."""

STACK_BYTES = 1 << 20
"""Threads with smaller stacks do not lead: a model may run on them."""

_ATTRIBUTES_BYTES = 512
"""More than any system's `pthread_attr_t` has."""

_DEEP: type | tuple[Any, ...] = int
for _ in range(CALLS_DEEP):
    _DEEP = (_DEEP,)  # pyright: ignore[reportConstantRedefinition]
"""Classes in tuples in tuples: to look through them takes a call for each."""


class _Here(threading.local):
    """How many bytes of stack the calling thread has in all; 0 where the system does not say."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        size = ctypes.c_size_t(0)
        if libc.pthread_getattr_np(ctypes.c_ulong(threading.get_ident()), attributes) == 0:
            libc.pthread_attr_getstacksize(attributes, ctypes.byref(size))
            libc.pthread_attr_destroy(attributes)
        self.stack_bytes = size.value


_here = _Here()


def has_stack() -> bool:
    """Whether the calling thread's stack is large enough, and it is not too deep in calls."""
    if _here.stack_bytes < STACK_BYTES:
        return False
    try:
        isinstance(None, _DEEP)
    except RecursionError:
        return False
    return sys.version_info < (3, 12) or _frames_left()


def _frames_left() -> bool:
    try:
        sys._getframe(sys.getrecursionlimit() - CALLS_DEEP)  # pyright: ignore[reportPrivateUsage]
    except ValueError:
        return True
    return False
