"""Processes for work that takes the processor, which end with the command that asked for them."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def pool_of(jobs: int) -> Generator[ProcessPoolExecutor, None, None]:
    """So many processes. Where this one is interrupted, or anything else ends it, they are killed: what they are at may take
    minutes, and nobody waits for it any more."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        for process in list(multiprocessing.active_children()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """An interrupt from the terminal reaches every process: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
