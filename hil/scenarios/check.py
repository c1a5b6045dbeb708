"""What has to hold between the keys of a scenario. Each rule names the key, its value and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hil.scenarios.scenario import DEVICE, IN_USE, Fault, LinkPart, Scenario
from shared.errors import SettingsError

LASTING = frozenset({"stop", "suspend", "heat", "meddle", "stall", "dark", "shape", "cpu", "memory", "disk", "crowd"})
"""Faults that have to end."""

ON_LINKS = frozenset({"stall", "dark", "shape", "readdress"})
ROUTES = {"raw": "0/raw", "jpeg": "0/jpeg90", "split": "1/raw", "split-int8": "1/int8"}
"""What `model.routes` may have, and what an agent calls each (`hil.small_plans.ROUTES`)."""

ON_THE_WHOLE = ("best", "device")
"""What an agent's setting `route` may be beside the name of a route."""

FOLDER = re.compile(r"\w[\w .-]*")


def check_scenario(scenario: Scenario) -> None:
    """Raise `SettingsError` where keys do not fit each other."""
    folder = "letters, digits, '_', '-', '.' and spaces, one of the first three at the beginning: it names a folder"
    _expect(bool(FOLDER.fullmatch(scenario.name)), "name", scenario.name, folder)
    for route in scenario.model.routes:
        _expect(route in ROUTES, "model.routes", route, f"one of {', '.join(ROUTES)}")
    taken = (*ON_THE_WHOLE, *(ROUTES[route] for route in scenario.model.routes))
    _expect(scenario.fleet.route in taken, "fleet.route", scenario.fleet.route, f"one of {', '.join(taken)}")
    stream = scenario.stream
    _expect(stream.block_s * 2 <= stream.seconds, "stream.block_s", stream.block_s, "at most half of stream.seconds")
    if stream.block_s:
        _expect(stream.control_every == 1, "stream.control_every", stream.control_every, "1 beside stream.block_s")
    names = [link.name for link in scenario.links]
    for index, link in enumerate(scenario.links):
        _check_link(f"links[{index}]", link)
        _expect(names.count(link.name) == 1, f"links[{index}].name", link.name, "each name once")
    for index, fault in enumerate(scenario.faults):
        _check_fault(f"faults[{index}]", fault, scenario)


def _check_link(path: str, link: LinkPart) -> None:
    given = [key for key in ("trace", "model") if getattr(link, key)]
    _expect(len(given) < 2, f"{path}.model", link.model, "a trace or a model, not both")


def _check_fault(path: str, fault: Fault, scenario: Scenario) -> None:
    last_s = fault.at_s + (fault.repeat - 1) * fault.every_s
    _expect(last_s < scenario.stream.seconds, f"{path}.at_s", last_s, f"less than {scenario.stream.seconds:g}, the end")
    if fault.kind in LASTING:
        _expect(fault.for_s > 0, f"{path}.for_s", fault.for_s, f"more than 0, since a fault {fault.kind!r} lasts")
    if fault.repeat > 1:
        _expect(fault.every_s > fault.for_s, f"{path}.every_s", fault.every_s, f"more than for_s, {fault.for_s:g}")
    on_check = CHECKS_OF_ON.get(fault.kind)
    if on_check is None:
        _expect(not fault.on, f"{path}.on", fault.on, f"nothing: a fault {fault.kind!r} is on no process")
    else:
        able = on_check(scenario)
        _expect(fault.on in able, f"{path}.on", fault.on, f"one of {', '.join(able)}")
    known = [link.name for link in scenario.links]
    if fault.kind in ON_LINKS:
        expected = ["", *known] if fault.kind != "readdress" else known
        _expect(fault.link in expected, f"{path}.link", fault.link, f"one of {', '.join(known)}")
    else:
        _expect(not fault.link, f"{path}.link", fault.link, f"nothing: a fault {fault.kind!r} is on no link")
    if fault.kind in ("shape", "stall", "dark"):
        link = next((link for link in scenario.links if link.name == fault.link), None)
        traced = [one.name for one in (scenario.links if link is None else (link,)) if one.trace or one.model]
        expected_link = f"a link of constant shape, which {', '.join(traced)} is not: outages are in its trace"
        _expect(not traced, f"{path}.link", fault.link, expected_link)
    _expect((fault.kind == "meddle") == bool(fault.what), f"{path}.what", fault.what, "a list for meddle, only there")
    if fault.kind == "meddle" and fault.on not in scenario.nodes:
        wrong = [what for what in fault.what if what not in ("corrupt", "truncate")]
        _expect(not wrong, f"{path}.what", wrong, "corrupt or truncate, which alone an agent does")


def _processes(scenario: Scenario) -> tuple[str, ...]:
    return (*scenario.vehicle, *scenario.nodes, IN_USE)


CHECKS_OF_ON: Mapping[str, Callable[[Scenario], tuple[str, ...]]] = {
    "kill": _processes,
    "stop": _processes,
    "restart": _processes,
    "suspend": lambda scenario: (DEVICE, *scenario.nodes, IN_USE),
    "clock_step": lambda scenario: (*scenario.vehicle, *scenario.nodes, IN_USE),
    "heat": lambda scenario: (DEVICE, *scenario.nodes, IN_USE),
    "meddle": lambda scenario: (*scenario.vehicle[:1], *scenario.nodes),
}
"""What `on` may name, by the kind of fault."""


def _expect(holds: bool, path: str, value: object, expected: str) -> None:
    if not holds:
        raise SettingsError(f"{path}: is {value!r}; expected {expected}")
