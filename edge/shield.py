"""Signal handlers wait while a thread changes what all share.

Python runs an application's signal handlers on its main thread, between any two instructions. One that raises, as Ctrl-C
does, may leave half done whatever that thread is in the middle of: no harm to what is the caller's own, but no caller may
break a machine that serves others too. A thread of the loop's own is spared all that. Where the main thread leads the loop in
its place, the handlers are exchanged for one that takes down what came, and are called when the loop has been given back,
which is done at once.

Handlers are exchanged by the `_signal` module and the C library: `signal.getsignal` of all signals costs 24 µs, that of the
module below it 1 µs. What the system does about a signal stays as it is all the time: setting a handler forgets whether it
interrupts system calls (`signal.siginterrupt`) and what a library has put before it (`faulthandler.register`), and Python
cannot read either. All in all a shield costs some 3 µs.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# `_signal` has no types.

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, MethodType, TracebackType
from typing import Any, cast

Handler = Callable[[int, FrameType | None], Any]

_SIGNALS = tuple(map(int, signal.valid_signals()))
_get: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal
_sigaction: Callable[..., int] = ctypes.PyDLL(None).sigaction
"""Called with the interpreter's lock held: it does not block."""

_ACTION_BYTES = 512
"""More than any system's `struct sigaction` has: it is read and set as a whole, and not looked into."""


class _Here(threading.local):
    """Whether Python calls handlers on the calling thread. That of `threading` need not be it: where the interpreter is part
    of another program, it is whichever thread has imported the module first."""

    def __init__(self) -> None:
        try:
            _set(signal.SIGHUP, None)
        except TypeError:  # no handler
            self.handles = True
        except ValueError:  # not from this thread
            self.handles = False


_here = _Here()


class Shield:
    """A context in which Python's handlers of signals are put off: they are called when it is left, and may raise there, each
    once, however often its signal came (signals are not counted by Python either). Does nothing on threads on which no
    handlers are called. Within it, `call` is called, in a handler, where a signal has come, so that the thread may leave
    soon."""

    __slots__ = ("_actions", "_call", "_handled", "_held", "_known", "_plain", "_swapped", "_up")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._up = False
        self._held: dict[int, tuple[Handler, FrameType | None]] = {}
        self._swapped: dict[int, Handler] = {}
        self._known: list[object] = []
        self._handled: list[tuple[int, Handler]] = []
        self._actions: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._plain: dict[int, bytes] = {}

    @property
    def held(self) -> bool:
        """Whether a handler waits for the shield's end."""
        return bool(self._held)

    def up(self) -> bool:
        """Whether the calling thread's handlers are put off: it may not raise the shield once more."""
        return self._up and _here.handles

    def __enter__(self) -> None:
        if not _here.handles:
            return
        if self._swapped:
            self._restore()
        known = list(map(_get, _SIGNALS))
        if known != self._known:
            self._handled = [(number, each) for number, each in zip(_SIGNALS, known, strict=True) if callable(each)]
            self._known = known
        try:
            self._up = True
            for number, handler in self._handled:
                self._swap(number, handler)
        except BaseException:  # that of a handler which is not yet exchanged
            try:
                self._restore()
            finally:
                self._up = False
                self._deliver()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.lower()

    def lower(self) -> None:
        """Leave the context. May be called more than once."""
        if not _here.handles:
            return
        try:
            self._restore()
        finally:
            self._up = False
            self._deliver()

    def _swap(self, number: int, handler: Handler) -> None:
        action = self._actions.get(number)
        if action is None:
            action = self._actions[number] = ctypes.create_string_buffer(_ACTION_BYTES)
        _sigaction(number, None, action)
        self._swapped[number] = handler
        _set(number, self._hold)
        plain = self._plain.get(number)
        if plain is None:
            made = ctypes.create_string_buffer(_ACTION_BYTES)
            _sigaction(number, None, made)
            plain = self._plain[number] = made.raw
        if action.raw != plain:
            _sigaction(number, action, None)

    def _restore(self) -> None:
        swapped = self._swapped
        try:
            for number, handler in tuple(swapped.items()):
                if _get(number) in (self._hold, handler):  # else a handler that is its own again has set another
                    self._put(number, handler)
                swapped.pop(number, None)
        except BaseException:  # of a handler that is its own again, while others are not
            self._restore()
            raise

    def _put(self, number: int, handler: Handler) -> None:
        _set(number, handler)
        action = self._actions[number]
        if action.raw != self._plain.get(number):
            _sigaction(number, action, None)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        handler = self._swapped[number]
        if self._up:
            self._held.setdefault(number, (handler, frame))
            self._call()
        else:  # one handler raised while others were given back, and another while that was gone on with
            handler(number, frame)

    def _deliver(self) -> None:
        if self._held:
            number = next(iter(self._held))
            handler, frame = self._held.pop(number)
            try:
                handler(number, frame)
            finally:
                self._deliver()

    @staticmethod
    def forked() -> None:
        """In a child that another thread has forked, nobody is to leave the shields that were up: it has the application's
        own handlers, as without them."""
        global _here  # noqa: PLW0603
        _here = _Here()
        for number in _SIGNALS:
            handler = _get(number)
            while isinstance(handler, MethodType) and handler.__func__ is Shield._hold:
                shield = cast(Shield, handler.__self__)
                handler = shield._swapped[number]
                shield._put(number, handler)


os.register_at_fork(after_in_child=Shield.forked)
