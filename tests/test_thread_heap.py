"""A thread's heap is larger while it is asked to be, and what it takes then is there already."""

import threading
from pathlib import Path

from shared.thread_heap import HEAP_BYTES, grown_heap

PAGE = 4096


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_what_a_thread_has_ready_is_resident_and_used_before_new_memory() -> None:
    seen: dict[str, int] = {}

    def work() -> None:
        before = _resident()
        with grown_heap(4 * HEAP_BYTES):
            seen["ready"] = _resident() - before
            # Pieces that the interpreter takes from C's heap, about three quarters of what is there.
            held = [bytearray(b"x" * 3000) for _ in range(HEAP_BYTES // 1000)]
            seen["used"] = _resident() - before
            del held

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen["ready"] > 3.5 * HEAP_BYTES
    assert seen["used"] < seen["ready"] + HEAP_BYTES


def test_nothing_is_taken_where_nothing_is_asked() -> None:
    before = _resident()
    with grown_heap(0):
        assert _resident() - before < HEAP_BYTES
