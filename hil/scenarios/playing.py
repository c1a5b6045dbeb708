"""A trace played step by step by the rig itself, where what stands for the network takes one shape at a time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from hil.links.trace import Moment, Trace
from shared.errors import HeadtailError


class Playing:
    """Plays a trace from now on, again and again, on a thread of its own: `apply` is told each moment, and nothing within
    `least_s` of the last. Where it raises `HeadtailError`, the trace is played no further, which is said on stderr."""

    def __init__(self, trace: Trace, apply: Callable[[Moment], None], least_s: float = 0.0) -> None:
        self._trace = trace
        self._apply = apply
        self._least_s = least_s
        self._ended = threading.Event()
        self.began_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="hil-trace", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the link as it is."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            at_us = (time.monotonic_ns() - self.began_ns) // 1000
            try:
                self._apply(self._trace.at(at_us))
            except HeadtailError as error:
                sys.stderr.write(f"headtail: the trace is played no further: {error}\n")
                return
            next_s = self.began_ns / 1e9 + self._trace.next_change_us(at_us) / 1e6 - time.monotonic()
            self._ended.wait(max(0.0, self._least_s, next_s))
