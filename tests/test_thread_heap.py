"""A thread's heap is larger while it is asked to be, and what it takes then is there already."""

import subprocess
import sys
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


STEADY = """
import threading
from pathlib import Path
from shared.process import SteadyHeap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
heap = SteadyHeap(8.0)
ready = resident()

def work():
    held = [bytearray(b"x" * 3000) for _ in range(1500)] + [object() for _ in range(30_000)]
    seen.append(resident())

seen = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(ready - before, seen[0] - ready)
"""


def test_an_application_with_a_steady_heap_uses_what_is_ready_from_any_thread() -> None:
    # In a process of its own, since the C allocator cannot be set back.
    said = subprocess.run([sys.executable, "-c", STEADY], capture_output=True, text=True, check=True).stdout
    ready, more = (int(word) for word in said.split())
    assert ready > 14e6
    assert more < 1e6
