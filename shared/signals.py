"""What signals ask of a service: SIGTERM and SIGINT that its loop stop, so that it leaves by the ordinary way with status 0;
SIGUSR1 that its journal be saved. Once it has ended, none of them changes its status any more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call `stop`, which must be safe inside a signal handler. For the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


def save_on_signal(save: Callable[[], None]) -> None:
    """Have SIGUSR1 call `save`, which must be safe inside a signal handler. For the main thread."""

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        save()

    signal.signal(signal.SIGUSR1, handler)


def outlive_signals() -> None:
    """Have SIGTERM, SIGINT and SIGUSR1 do nothing more: the service has ended, and its process leaves with the status that it
    has. The interpreter gives them back to the system while it ends, which would kill the process in its last moments. For
    the main thread."""
    asked = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    # Blocked first: Python tells on stderr of a signal that came before it was ignored and was not handled yet.
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    for number in asked:
        signal.signal(number, signal.SIG_IGN)
