"""How much of the processor another process has used, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path


def used_s(pid: int) -> float:
    """Seconds of the processor that a process and its threads have used. Raises `OSError` where it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
