"""How much a machine holds: every container that can be reached from it, and what ought to be none of at rest.

The objects are walked from their root by the names of their attributes, so that a container that is added tomorrow is
counted tomorrow, without a list of names that somebody forgets. What a standard container holds for a bounded while is
left out: a deque with a limit of its own, and a counter of words.

A census takes a megabyte or two for a moment. Where resident memory is what is measured, it is taken in a fork of the
process (`tell_census`), or the heap would show the traces of the counting.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec

from edge.due import DueTimes
from edge.register import Register
from shared.memory import Arena, ArenaFigures
from shared.queue import DeadlineQueue
from shared.running import Running

OURS = ("shared.", "edge.", "cloud.", "hil.")
BOUNDED = frozenset({"_sorted", "sorted", "records", "attempts", "_left", "residuals", "_ring"})
"""Attributes that take long to find their bounds: a window of samples that is kept sorted beside its deque, the last steps
that a journal keeps, the last attempts that a node remembers of an edge (`cloud.seen`), also of edges that have left, the
last samples of a connection for each octave of sizes (`edge.link_residuals`), and the dead letters."""


class Census(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`left`: leases, runs, jobs, open requests and their timers, all of them 0 at rest. `sizes`: entries of containers,
    by the path of attributes that leads to them, those of equal path together. `slots`: what became of the slots; none where
    there is no arena."""

    left: dict[str, int]
    sizes: dict[str, int]
    slots: ArenaFigures | None = None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way."""
        return not any(self.left.values())

    def grown(self, before: Census, more: int) -> dict[str, tuple[int, int]]:
        """The containers that hold over `more` entries more than `before`: both sizes by path."""
        return {
            path: (before.sizes.get(path, 0), size)
            for path, size in self.sizes.items()
            if size - before.sizes.get(path, 0) > more and not BOUNDED & set(path.replace("[]", "").split("."))
        }


def take_census(root: object) -> Census:
    """Count what `root` holds. It may change meanwhile, if only one thread at a time does so."""
    left: Counter[str] = Counter(leases=0, runs=0, jobs=0, requests=0, timers=0)
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    slots: ArenaFigures | None = None
    waiting: list[tuple[str, object]] = [(type(root).__name__, root)]
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        _count_left(value, left)
        if isinstance(value, Arena):
            slots = value.figures()
        items = _items(value)
        if items is None:
            waiting += [(f"{path}.{name}", part) for name, part in _parts(value)]
            continue
        if not isinstance(value, tuple | Counter) and getattr(value, "maxlen", None) is None:
            sizes[path] += len(items)
        waiting += [(f"{path}[]", item) for item in items if not isinstance(item, int | float | str | bytes)]
    return Census(dict(left), dict(sizes), slots)


def _items(value: object) -> list[object] | None:
    """What a container holds; None where it is none."""
    if isinstance(value, dict):
        return list(cast(Mapping[object, object], value).values())
    if isinstance(value, list | set | frozenset | deque | tuple):
        return list(cast(Iterable[object], value))
    return None


def tell_census(root: object) -> bytes:
    """`take_census` as JSON, made by a fork that sees the same objects and ends at once. The other threads of the process
    must be at rest, since the fork has none of them."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = msgspec.json.encode(take_census(root))
            while told:
                told = told[os.write(writing, told) :]
        finally:
            os._exit(0)
    os.close(writing)
    told = b""
    while part := os.read(reading, 1 << 16):
        told += part
    os.close(reading)
    os.waitpid(child, 0)
    return told


def _count_left(value: object, left: Counter[str]) -> None:
    match value:
        case Arena():
            left["leases"] += value.in_use()
        case Running():
            left["runs"] += len(value)
        case DeadlineQueue():
            left["jobs"] += len(value)
        case Register():
            left["requests"] += len(value)
        case DueTimes():
            left["timers"] += len(value)
        case _:
            pass


def _parts(value: object) -> Iterator[tuple[str, object]]:
    owner = getattr(value, "__self__", None)
    if owner is not None and type(value).__name__ == "method":
        yield "self", owner
        return
    kind = type(value)
    if not kind.__module__.startswith(OURS):
        return
    names: dict[str, None] = dict.fromkeys(getattr(value, "__dict__", {}))
    for base in kind.__mro__:
        slots: object = base.__dict__.get("__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else cast(tuple[str, ...], slots))
    names |= dict.fromkeys(cast(tuple[str, ...], getattr(kind, "__struct_fields__", ())))
    for name in names:
        part = getattr(value, name, None)
        if part is not None:
            yield name, part
