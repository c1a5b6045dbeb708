"""Gives a process of the rig the weight that it would have on a device of its own.

On a machine that does other work, a process that wakes for 2 ms in every 33 waits behind whatever computes. Two things of
the Linux scheduler help, each only where it is permitted: the weight of the session's autogroup, without which a nice
value counts only against one's own session; and a short slice for the EEVDF scheduler (6.12 and later), with which a
process that wakes preempts at once instead of waiting for the other's slice to end. Real-time priority was rejected: an
executor that computes for milliseconds at it can starve the very machine that is measured.

An unprivileged user may not ask for more than the normal weight, so each step asks, and takes no for an answer.

`python -m hil.weight COMMAND ...` becomes COMMAND with that weight, killed by the kernel when the thread that started it
ends, so that no rig leaves a process behind. Start it as the leader of a session of its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from pathlib import Path

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call, which the C library does not wrap."""

_PR_SET_PDEATHSIG = 1

_ATTRIBUTES = "<IIQiIQQQII"
"""struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period, util_min, util_max."""


def add_weight(nice: int = -5, slice_ns: int = 100_000) -> list[str]:
    """Give the calling process weight and say what was granted: any of `autogroup`, `slice`.

    It counts for the calling thread and for all threads and processes that it starts afterwards. `slice_ns` is the
    scheduler's slice in nanoseconds. Where nothing is permitted, nothing changes.
    """
    granted = [name for name, done in (("autogroup", _autogroup()), ("slice", _slice(nice, slice_ns))) if done]
    if "slice" not in granted and _slice(0, slice_ns):
        granted.append("slice")
    return granted


def _autogroup() -> bool:
    try:
        Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        return False
    return True


def _slice(nice: int, slice_ns: int) -> bool:
    number = SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    size = struct.calcsize(_ATTRIBUTES)
    attributes = ctypes.create_string_buffer(struct.pack(_ATTRIBUTES, size, 0, 0, nice, 0, slice_ns, 0, 0, 0, 0), size)
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.syscall(number, 0, attributes, 0) == 0)


def main() -> None:
    """Become the command that is given, with weight."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m hil.weight COMMAND [ARGUMENT ...]")
    add_weight()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 -- the caller's own command
    except OSError as error:
        sys.exit(f"hil.weight: cannot run {sys.argv[1]!r}: {error.strerror}")


if __name__ == "__main__":
    main()
