"""A bundle out of which all ways but one were taken, so that an agent has no choice.

An agent picks among the routes and rungs of a plan by what it predicts. Whoever wants to see one of them at work gives it
the same segments with a plan that has this route and no ladder, or this rung and no route. The contract is another one, as
it must be: what may answer is another.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from shared.bundle import Bundle, write_manifest
from shared.errors import UserError
from shared.plan import MANIFEST, PLAN_FILE, Plan


def only_route(plan: Plan, name: str, cut: str, coding: str) -> Plan:
    """The plan called `name` whose only way to answer is to send this cut in this coding. Raises `UserError` where it has no
    such route."""
    for route in plan.routes:
        if (plan.cuts[route.cut].name, route.coding) == (cut, coding):
            return msgspec.structs.replace(plan, name=name, routes=(route,), ladder=())
    raise UserError(f"plan {plan.name!r} has no route that sends {cut!r} as {coding}")


def only_rung(plan: Plan, name: str, rung: str) -> Plan:
    """The plan called `name` whose only way to answer is this rung. Raises `UserError` where it has no such rung."""
    for one in plan.ladder:
        if one.name == rung:
            return msgspec.structs.replace(plan, name=name, routes=(), ladder=(one,))
    raise UserError(f"plan {plan.name!r} has no rung {rung!r}")


def write_variant(bundle: Bundle, plan: Plan, folder: Path) -> Path:
    """Write a bundle with another plan of the same files into `folder`, named as the plan is, and return its path. The files
    are shared with `bundle`, as hard links."""
    path = folder / f"{plan.name}.plan"
    path.mkdir(parents=True)
    for file in bundle.path.iterdir():
        if file.name not in {MANIFEST, PLAN_FILE}:
            os.link(file, path / file.name)
    (path / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    write_manifest(path)
    return path
