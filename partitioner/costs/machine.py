"""What this machine and the libraries on it are called: for the reports, so that their figures can be compared."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def device_name() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def library_version(name: str) -> str:
    """The version of an installed distribution, or words that say that there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
