"""What signals ask of a service: SIGTERM and SIGINT that its loop stop, so that it leaves by the ordinary way with status 0;
SIGUSR1 that its journal be saved, SIGUSR2 that it tell its stats. Once it has ended, none of them changes its status any
more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from types import FrameType

from shared.events import Event


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call `stop`, which must be safe inside a signal handler. For the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


class Wish:
    """A source of one event, which a signal handler may ask for: the first `ask` has the loop take it. Asking again has the
    loop end by `stop`, which must be safe inside a signal handler."""

    def __init__(self, event: Event, stop: Callable[[], None]) -> None:
        self._event = event
        self._stop = stop
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asked = False
        self._given = False

    def ask(self) -> None:
        """Have the event taken. Safe inside a signal handler."""
        if self._asked:
            self._stop()
            return
        self._asked = True
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        """Readable when the event was asked for and not taken."""
        return self._fd

    def drain(self) -> Iterable[Event]:
        """The event, once."""
        if not self._asked or self._given:
            return ()
        self._given = True
        os.eventfd_read(self._fd)
        return (self._event,)

    def pending(self) -> bool:
        """Whether it is still to be taken."""
        return self._asked and not self._given

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)


def save_on_signal(save: Callable[[], None]) -> None:
    """Have SIGUSR1 call `save`, which must be safe inside a signal handler. For the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        save()

    signal.signal(signal.SIGUSR1, handler)


def tell_on_signal(told: Callable[[], bytes]) -> None:
    """Have SIGUSR2 write the line that `told` makes to the standard output, at once. For the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        # Not by `sys.stdout`, which may be in the middle of a line of its own.
        line = told() + b"\n"
        while line:
            line = line[os.write(1, line) :]

    signal.signal(signal.SIGUSR2, handler)


def outlive_signals() -> None:
    """Have SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 do nothing more: the service has ended, and its process leaves with the
    status that it has. The interpreter gives them back to the system while it ends, which would kill the process in its last
    moments. For the main thread."""
    asked = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    # Blocked first: Python tells on stderr of a signal that came before it was ignored and was not handled yet.
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    for number in asked:
        signal.signal(number, signal.SIG_IGN)
