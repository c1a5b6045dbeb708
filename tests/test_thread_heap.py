"""A heap is larger while it is asked to be, and what it takes then is there already. In processes of their own: what a
process did before decides what its heaps have free, and the C allocator cannot be set back."""

from __future__ import annotations

import subprocess
import sys

import pytest

RESIDENT = """
import threading
from pathlib import Path

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""

THREAD = """
from shared.thread_heap import grown_heap

def work():
    before = resident()
    with grown_heap({nbytes}):
        ready = resident()
        # Pieces that the interpreter takes from C's heap, three quarters of what is there.
        held = [bytearray(b"x" * 3000) for _ in range({nbytes} // 4000)]
        print(ready - before, resident() - ready)

in_a_thread(work)
"""

STEADY = """
from shared.process import SteadyHeap

before = resident()
heap = SteadyHeap(8.0)
ready = resident()

def work():
    held = [bytearray(b"x" * 3000) for _ in range(1500)] + [object() for _ in range(30_000)]
    print(ready - before, resident() - ready)

in_a_thread(work)
"""


def grown_and_more(program: str) -> tuple[int, int]:
    """Resident bytes that a program has ready, and those that it takes beyond them."""
    done = subprocess.run([sys.executable, "-c", RESIDENT + program], capture_output=True, text=True, check=True)
    ready, more = (int(word) for word in done.stdout.split())
    return ready, more


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_what_a_thread_has_ready_is_resident_and_used_before_new_memory() -> None:
    ready, more = grown_and_more(THREAD.format(nbytes=4 << 20))
    assert ready > 3 << 20
    assert more < 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_nothing_is_taken_where_nothing_is_asked() -> None:
    ready, _ = grown_and_more(THREAD.format(nbytes=0))
    assert ready < 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_an_application_with_a_steady_heap_uses_what_is_ready_from_any_thread() -> None:
    ready, more = grown_and_more(STEADY)
    assert ready > 14e6
    assert more < 1e6
