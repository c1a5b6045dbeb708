"""Making a failing run small: leave out what the failure does not need, as long as the same rule is broken.

Whole devices, nodes and clients first, then delta debugging (Zeller and Hildebrandt 2002) over the script's items, and both
once more while that helps. Each try plays the smaller script from its beginning; since every part of the world has a
random generator of its own, what is left out does not change what is left. What comes after the broken rule is cut off
first, which makes the tries short. There is a limit on time: the smallest script so far is what it ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hil.sim.script import Ask, Fault, Item, Script, Source

Breaks = Callable[[Script], bool]
"""Whether a script breaks the rule in question."""

Over = Callable[[], bool]
"""Whether the time is up."""

AFTER_NS = 1_000_000
"""What is left after the broken rule."""


def shrink(script: Script, broken_at: int | None, breaks: Breaks, over: Over) -> Script:
    """A smaller script that breaks the same rule. `broken_at` is the true time at which the script breaks it; None where that
    is found only at rest."""
    small = _cut_off(script, broken_at, breaks)
    while not over():
        before = (len(small.items), len(small.devices), len(small.nodes))
        small = _fewer_hosts(small, breaks, over)
        small = _fewer_items(small, breaks, over)
        if (len(small.items), len(small.devices), len(small.nodes)) == before:
            break
    return small


def _cut_off(script: Script, broken_at: int | None, breaks: Breaks) -> Script:
    if broken_at is None:
        return script
    end = broken_at + AFTER_NS
    short = msgspec.structs.replace(script, items=tuple(i for i in script.items if i.at <= end), end=end, rest_ns=1)
    return short if breaks(short) else script


def _fewer_items(script: Script, breaks: Breaks, over: Over) -> Script:
    """The least of its items, as far as leaving out ever smaller runs of them finds it."""
    items = list(script.items)
    parts = 2
    while len(items) >= 2 and not over():
        size = -(-len(items) // parts)
        smaller = _without_one_part(script, items, size, breaks, over)
        if smaller is not None:
            items = smaller
            parts = max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(items))
    if len(items) == 1 and breaks(_with(script, [])):
        items = []
    return _with(script, items)


def _without_one_part(
    script: Script, items: Sequence[Item], size: int, breaks: Breaks, over: Over
) -> list[Item] | None:
    for first in range(0, len(items), size):
        if over():
            return None
        left = [*items[:first], *items[first + size :]]
        if breaks(_with(script, left)):
            return left
    return None


def _with(script: Script, items: Sequence[Item]) -> Script:
    return msgspec.structs.replace(script, items=tuple(items))


def _fewer_hosts(script: Script, breaks: Breaks, over: Over) -> Script:
    small = script
    for device in script.devices:
        small = _try(small, _without_device(small, device.name), breaks, over)
    for node in script.nodes:
        small = _try(small, _without_node(small, node.name), breaks, over)
    for device in small.devices:
        for client in device.clients[:]:
            small = _try(small, _without_client(small, client), breaks, over)
    return small


def _try(script: Script, smaller: Script, breaks: Breaks, over: Over) -> Script:
    return smaller if not over() and smaller != script and breaks(smaller) else script


def _without_device(script: Script, name: str) -> Script:
    gone = next(device for device in script.devices if device.name == name)
    if len(script.devices) == 1:
        return script
    return msgspec.structs.replace(
        script,
        devices=tuple(d for d in script.devices if d.name != name),
        roads=tuple(r for r in script.roads if r.edge != name),
        items=tuple(i for i in script.items if not _concerns(i, {name, *gone.clients})),
    )


def _without_node(script: Script, name: str) -> Script:
    devices = tuple(
        msgspec.structs.replace(
            d,
            settings=msgspec.structs.replace(
                d.settings, nodes=tuple(node for node in d.settings.nodes if node.name != name)
            ),
        )
        for d in script.devices
    )
    return msgspec.structs.replace(
        script,
        nodes=tuple(n for n in script.nodes if n.name != name),
        devices=devices,
        roads=tuple(r for r in script.roads if r.node != name),
        items=tuple(i for i in script.items if not _concerns(i, {name})),
    )


def _without_client(script: Script, name: str) -> Script:
    devices = tuple(
        msgspec.structs.replace(d, clients=tuple(c for c in d.clients if c != name))
        if name in d.clients and len(d.clients) > 1
        else d
        for d in script.devices
    )
    if devices == script.devices:
        return script
    return msgspec.structs.replace(
        script, devices=devices, items=tuple(i for i in script.items if not _concerns(i, {name}))
    )


def _concerns(item: Item, names: set[str]) -> bool:
    match item:
        case Ask() | Source():
            return item.client in names
        case Fault():
            return not names.isdisjoint((item.target, *item.target.partition("+")[0].split(">")))
