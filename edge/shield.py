"""Signal handlers wait while a thread changes what all share.

Python runs an application's signal handlers on its main thread, between any two instructions. One that raises, as Ctrl-C
does, may leave half done whatever that thread is in the middle of: no harm to what is the caller's own, but no caller may
break a machine that serves others too. A thread of the loop's own is spared all that. Where the main thread leads the loop in
its place, the handlers are exchanged for one that takes down what came, and are called when the loop has been given back,
which is done at once.

Handlers are exchanged by the `_signal` module and the C library: `signal.getsignal` of all signals costs 24 µs, that of the
module below it 1 µs, and Python has no way to read whether a signal interrupts system calls (`signal.siginterrupt`), which
setting a handler forgets. All in all a shield costs some 3 µs.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# `_signal` has no types.

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
import ctypes
import signal
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

_SIGNALS = tuple(map(int, signal.valid_signals()))
_get: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal

_ACTION_BYTES = 512
"""More than any system's `struct sigaction` has: it is read and set as a whole, and not looked into."""


class Shield:
    """A context in which Python's handlers of signals are put off: they are called when it is left, and may raise there.
    Does nothing on other threads than the main one, where there are none. Within it, `call` is called, in a handler, where a
    signal has come, so that the thread may leave soon."""

    __slots__ = ("_actions", "_call", "_handled", "_held", "_known", "_main", "_swapped")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._main = threading.main_thread().ident
        self._held: deque[tuple[Handler, int, FrameType | None]] = deque()
        self._swapped: dict[int, Handler] = {}
        self._known: list[object] = []
        self._handled: list[tuple[int, Handler]] = []
        self._actions: dict[int, ctypes.Array[ctypes.c_char]] = {}

    @property
    def held(self) -> bool:
        """Whether a handler waits for the shield's end."""
        return bool(self._held)

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        known = list(map(_get, _SIGNALS))
        if known != self._known:
            self._handled = [(number, each) for number, each in zip(_SIGNALS, known, strict=True) if callable(each)]
            self._known = known
        try:
            for number, handler in self._handled:
                self._swap(number, handler)
        except BaseException:  # that of a handler which is not yet exchanged
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._swapped:
            try:
                self._restore()
            finally:
                self._deliver()

    def _swap(self, number: int, handler: Handler) -> None:
        action = self._actions.get(number)
        if action is None:
            action = self._actions[number] = ctypes.create_string_buffer(_ACTION_BYTES)
        _sigaction()(number, None, action)
        self._swapped[number] = handler
        _set(number, self._hold)

    def _restore(self) -> None:
        swapped = self._swapped
        try:
            for number, handler in swapped.items():
                _set(number, handler)
                _sigaction()(number, self._actions[number], None)
        except BaseException:  # of a handler that is its own again, while others are not: doing it twice does no harm
            self._restore()
            raise
        swapped.clear()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held.append((self._swapped[number], number, frame))
        self._call()

    def _deliver(self) -> None:
        if self._held:
            handler, number, frame = self._held.popleft()
            try:
                handler(number, frame)
            finally:
                self._deliver()


@cache
def _sigaction() -> Callable[..., int]:
    # Called with the interpreter's lock held: it does not block.
    return ctypes.PyDLL(None).sigaction
