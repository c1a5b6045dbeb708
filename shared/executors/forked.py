"""What becomes of onnxruntime in a forked child of a process that has loaded it: nothing, as far as that can be had.

Its threads are not there in the child, and it waits for them all the same: a session that is destroyed there joins threads
that do not exist, which ends in a crash, and its exit handler waits for ever (1.32, from the mere import on). An application
that carries its agent may fork for reasons of its own, and its child must come to its end. So in the child the sessions are
kept from being destroyed, and an exit handler that runs before onnxruntime's ends the process at once, by when Python has
finished and flushed everything of its own.

Rejected: to leave it at a warning (the child that hangs is not ours, and neither is the code that forks); to destroy the
sessions before the fork and load them again (the parent would be without answers meanwhile).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache, partial


def spare_in_forks(session: object) -> None:
    """From now on no forked child of this process destroys `session`, nor waits for onnxruntime when it exits."""
    _spared().add(session)


@cache
def _spared() -> weakref.WeakSet[object]:
    """Of this process; made with the hook that makes use of it, which cannot be taken back."""
    sessions: weakref.WeakSet[object] = weakref.WeakSet()
    os.register_at_fork(after_in_child=partial(_abandon, sessions))
    return sessions


def _abandon(sessions: weakref.WeakSet[object]) -> None:
    for session in list(sessions):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; elsewhere nothing is known to run before a library's own handlers
        libc.on_exit(libc._exit, None)
