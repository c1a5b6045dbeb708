"""The partitioner. Its functions are those of `partitioner.api`, which is imported when one of them is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partitioner.api import Planned, Report, draw, explain, inspect, plan, profile, read_plan, report, verify

__all__ = ["Planned", "Report", "draw", "explain", "inspect", "plan", "profile", "read_plan", "report", "verify"]


def __getattr__(name: str) -> object:
    if name in __all__:
        found: object = getattr(import_module("partitioner.api"), name)
        return found
    raise AttributeError(f"module 'partitioner' has no attribute {name!r}")
