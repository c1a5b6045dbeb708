"""How a service ends: SIGTERM and SIGINT ask its loop to stop, and it leaves by the ordinary way with status 0."""

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
