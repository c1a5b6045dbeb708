"""Pins: operators that must be on one side of every cut, by their names or those of what they make.

A pin concerns the ways through the cloud: what is pinned to the device is in the head of each, what is pinned to the cloud in
the tail. What insures requests on the device runs there from end to end whatever is pinned, since every request is to have
an answer without the cloud; where something is pinned to the cloud, it is insurance only and never what the plan chooses.

A private input pins what uses it to the device, and what uses the same in other numbers (`partitioner.graph.copies`).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from partitioner.graph.groups import Groups
from partitioner.graph.walk import node_outputs
from partitioner.options import split_pin
from partitioner.places import problem_of
from partitioner.search.answers import Impossible, find_plan
from partitioner.search.conditions import Conditions, Pins
from partitioner.search.network import Network
from shared.errors import Unsatisfiable, UserError

NEAR = 5


def find_pins(texts: Sequence[str], groups: Groups, *, private_input: bool) -> Pins:
    """The pins as groups of operators: what is pinned takes its group with it, which no cut divides.

    Raises `UserError` for a name that no operator and nothing that one makes has, with near ones, and `Unsatisfiable` where
    no cut obeys all pins, with two that contradict each other.
    """
    names = _names(groups)
    sides: dict[str, set[int]] = {"edge": set(), "cloud": set()}
    pinned_by: dict[tuple[str, int], str] = {}
    for text in texts:
        name, side = split_pin(text)
        for group in _matching(name, names, groups):
            sides[side].add(group)
            pinned_by.setdefault((side, group), text)
    if private_input:
        sides["edge"] |= _using_copies(groups)
    pins = Pins(frozenset(sides["edge"]), frozenset(sides["cloud"]), private_input)
    if texts:
        _check(pins, groups, pinned_by)
    return pins


def _using_copies(groups: Groups) -> set[int]:
    """The groups that use what is an input in other numbers: where the input is private, that must not cross either."""
    copies = groups.finder.copies
    return {user for value in groups.values if value.spec.name in copies for user in value.consumers}


def _names(groups: Groups) -> dict[str, set[int]]:
    """The groups of every operator's name and of everything that it makes."""
    nodes = groups.finder.model.proto.graph.node
    found: dict[str, set[int]] = {}
    for group, members in enumerate(groups.nodes):
        for index in members:
            for name in (nodes[index].name, *node_outputs(nodes[index])):
                if name:
                    found.setdefault(name, set()).add(group)
    return found


def _matching(name: str, names: dict[str, set[int]], groups: Groups) -> set[int]:
    if name in names:
        return names[name]
    found = {group for known, members in names.items() if fnmatchcase(known, name) for group in members}
    if found:
        return found
    if name in {spec.name for spec in groups.finder.model.inputs}:
        raise UserError(f"pin {name!r}: an input is made by no operator; --private-input keeps it on the device")
    near = difflib.get_close_matches(name, names, NEAR, 0.0)
    raise UserError(f"pin {name!r}: no operator and no tensor that one makes is called so; near are {', '.join(near)}")


def _check(pins: Pins, groups: Groups, pinned_by: dict[tuple[str, int], str]) -> None:
    problem = problem_of(groups, dict.fromkeys(groups.finder.order, 1.0), {}, [])
    found = find_plan(Network.of(problem), Conditions(), pins)
    if not isinstance(found, Impossible):
        return
    implied = found.groups is not None and ("edge", found.groups[0]) not in pinned_by
    if found.groups is not None and not implied:
        edge, cloud = found.groups
        raise Unsatisfiable(
            f"the pins contradict each other: --pin {pinned_by['edge', edge]} needs what --pin {pinned_by['cloud', cloud]} "
            "keeps in the cloud, and nothing returns from there; give up either"
        )
    if implied or found.constraint == "private input":
        first = next(text for (side, _), text in pinned_by.items() if side == "cloud")
        raise Unsatisfiable(
            f"--private-input and --pin {first} leave no cut: what is pinned uses the input itself; give up either"
        )
    raise Unsatisfiable(f"no cut obeys --pin {', --pin '.join(dict.fromkeys(pinned_by.values()))}")
