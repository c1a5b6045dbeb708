"""What signals ask of a service: SIGTERM and SIGINT that its loop stop, so that it leaves by the ordinary way with status 0;
SIGUSR1 that its journal be saved."""

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
