"""Reads what the machine of a load generator is."""

from __future__ import annotations

import os
import platform
import socket
import sys

from hil.load.report import Environment
from partitioner.costs.machine import device_name, library_version

LIBRARIES = ("headtail", "msgspec", "numpy", "onnxruntime", "pyzmq")


def environment() -> Environment:
    """This machine, now."""
    return Environment(
        host=socket.gethostname(),
        processor=device_name(),
        cores=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        load=round(os.getloadavg()[0], 2),
        versions={name: library_version(name) for name in LIBRARIES},
    )
