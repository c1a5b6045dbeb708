"""Schedulers by name: headtail's own, and published ones written from their papers, to be compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hil.goodput.case import Case
from hil.goodput.policies.clockwork import Clockwork
from hil.goodput.policies.fcfs import FirstCome
from hil.goodput.policies.headtail import Headtail
from hil.goodput.policies.nexus import Nexus
from hil.goodput.policies.shepherd import Shepherd
from hil.goodput.policies.symphony import Symphony
from hil.goodput.policies.window import Window
from hil.goodput.world import Policy

POLICIES: Mapping[str, Callable[[Case], Policy]] = {
    "headtail": Headtail,
    "fcfs": FirstCome,
    "clockwork": Clockwork,
    "nexus": Nexus,
    "window": Window,
    "shepherd": Shepherd,
    "symphony": Symphony,
    "symphony+1": lambda case: Symphony(case, early=1.0),
}
"""Each makes a policy for a case. See their modules for sources."""
