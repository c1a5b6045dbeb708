"""Processes of the rigs run the very code that starts them, and not what lies in the folder where the command was given.

`python -m` and `python -c` look there first: in another checkout, in a project with a folder `shared` or a file `queue.py`.
"""

from __future__ import annotations

import os
import site
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
"""Where these packages are."""


def environment() -> dict[str, str]:
    """This process's environment for an interpreter that it starts: without the folder where the command was given, and with
    these packages, where they are not installed."""
    found = {**os.environ, "PYTHONSAFEPATH": "1"}
    if ROOT not in site.getsitepackages():
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    return found
