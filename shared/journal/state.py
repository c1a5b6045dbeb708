"""The whole state of a machine as bytes, and a machine in that state from the bytes: what a replay starts from.

A ring forgets its oldest events, so that each of its segments begins with a snapshot. It is a tree of msgpack values: numbers
and text as they are, everything else a list that begins with a tag. Objects that may change are written once and referred
to by number after that, so that what was shared is shared again. What never changes (settings, plans, tables
made from them) is not written: it is referred to by its place in a list that both sides make in the same way.

Only classes of the modules that the machine is made of (`Known`) are written or built. They are built empty and filled, so
that reading runs none of their code, and a file can name nothing else. Rejected: pickle with a list of allowed names (its
opcodes set attributes of classes, too, and it would write the frames), a method for each class (forgotten in the next class
that is added), and copies of objects (they would be ten times as large, and the collector would look at them).
"""

from __future__ import annotations

import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from types import ModuleType
from typing import cast

import msgspec
import numpy as np

from shared.errors import JournalError
from shared.journal.marks import Blanks, Mark, mark

HOUSE = frozenset({"edge", "cloud", "shared"})
"""Packages whose classes may be part of a state."""

ATOMS = frozenset({type(None), bool, int, float, str})
DEEPEST = 200
"""Levels of a tree; a machine's state has about a tenth of that."""

REF, FIXED, TUPLE, LIST, DICT, SET, FROZENSET, DEQUE, ORDERED, COUNTER, ENUM, STRUCT, OBJECT, RANDOM, TENSOR = range(15)


class Known:
    """The classes that a machine's state may be made of: those of the module in which the machine's class `machine` is
    defined, and of all modules of the same house that it takes names from, and they in turn; exceptions are none of them.

    A list by hand was tried: the next class that a machine was given was not on it, and recording stopped in the field.
    """

    def __init__(self, machine: type) -> None:
        self.modules = tuple(_reached(machine.__module__))
        self.by_name: dict[str, type[object]] = {
            f"{module.__name__}:{name}": found
            for module in self.modules
            for name, found in vars(module).items()
            if isinstance(found, type) and found.__module__ == module.__name__ and not issubclass(found, BaseException)
        }
        self.names: dict[type[object], str] = {kind: name for name, kind in self.by_name.items()}


def _reached(start: str) -> list[ModuleType]:
    found: dict[str, ModuleType] = {}
    left = {start}
    while left:
        name = left.pop()
        found[name] = module = sys.modules[name]
        taken = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
        left |= {other for other in taken if other.partition(".")[0] in HOUSE and other not in found}
    return [found[name] for name in sorted(found)]


def fixed_parts(machine: object, paths: Sequence[str], *roots: object) -> list[object]:
    """What never changes of a machine, always in the same order: every struct in `roots` (settings and plans), and the
    attributes that `paths` name (as `scheduler.latency._ranges`)."""
    found: list[object] = []
    for root in roots:
        found += _structs(root)
    return found + [attrgetter(path)(machine) for path in paths]


def _structs(root: object) -> Iterator[object]:
    if isinstance(root, msgspec.Struct):
        yield root
        for field in root.__struct_fields__:
            yield from _structs(getattr(root, field))
    elif isinstance(root, tuple | list):
        for item in cast(Sequence[object], root):
            yield from _structs(item)
    elif isinstance(root, dict):
        for item in cast(dict[object, object], root).values():
            yield from _structs(item)


# --- writing -----------------------------------------------------------------------------------------------------------


def write_state(machine: object, known: Known, fixed: Sequence[object]) -> bytes:
    """The state of `machine`. Raises `JournalError` that names the class where one is not known, with where it stands."""
    writer = _Writer(known, fixed)
    try:
        tree = writer.value(machine)
        return msgspec.msgpack.encode([writer.layouts(), tree])
    except JournalError:
        raise
    except (RecursionError, AttributeError, OverflowError, ValueError) as error:
        raise JournalError(f"a snapshot of a machine's state failed: {error}") from None
    finally:
        writer.close()


class _Writer:
    def __init__(self, known: Known, fixed: Sequence[object]) -> None:
        self._names = known.names
        self._fixed = {id(part): place for place, part in enumerate(fixed)}
        self._seen: dict[int, int] = {}
        self._layouts: dict[tuple[str, tuple[str, ...]], int] = {}
        self._by_type: dict[type, Callable[[object], object]] = {
            tuple: self._tuple,
            list: self._list,
            dict: self._dict,
            set: self._set,
            frozenset: self._frozenset,
            deque: self._deque,
            OrderedDict: self._dict,
            Counter: self._dict,
            random.Random: self._random,
            np.ndarray: self._tensor,
            bytes: self._tensor,
            bytearray: self._tensor,
            memoryview: self._tensor,
        }

    def close(self) -> None:
        """Let go of what would keep this until the collector comes."""
        self._by_type.clear()

    def layouts(self) -> list[tuple[str, tuple[str, ...]]]:
        """Name and attributes of each kind of object that was written."""
        return list(self._layouts)

    def value(self, found: object) -> object:
        """The tree of any value."""
        kind = type(found)
        if kind in ATOMS:
            return found
        place = self._fixed.get(id(found))
        if place is not None:
            return [FIXED, place]
        write = self._by_type.get(kind)
        if write is None:
            write = self._by_type[kind] = self._writer_of(kind)
        return write(found)

    def values(self, found: Iterable[object]) -> list[object]:
        """The trees of some values."""
        items = list(found)
        if ATOMS.issuperset(map(type, items)):
            return items
        return [item if type(item) in ATOMS else self.value(item) for item in items]

    def _again(self, found: object) -> list[object] | None:
        place = self._seen.get(id(found))
        if place is not None:
            return [REF, place]
        self._seen[id(found)] = len(self._seen)
        return None

    def _tuple(self, found: object) -> object:
        return [TUPLE, *self.values(cast(tuple[object, ...], found))]

    def _list(self, found: object) -> object:
        return self._again(found) or [LIST, *self.values(cast(list[object], found))]

    def _deque(self, found: object) -> object:
        items = cast(deque[object], found)
        return self._again(found) or [DEQUE, items.maxlen, *self.values(items)]

    def _dict(self, found: object) -> object:
        items = cast(dict[object, object], found)
        tag = {dict: DICT, OrderedDict: ORDERED, Counter: COUNTER}[type(items)]
        return self._again(found) or [tag, self.values(items), self.values(items.values())]

    def _set(self, found: object) -> object:
        return self._again(found) or [SET, *self._sorted(found)]

    def _frozenset(self, found: object) -> object:
        return [FROZENSET, *self._sorted(found)]

    def _sorted(self, found: object) -> list[object]:
        return sorted(self.values(cast(set[object], found)), key=msgspec.msgpack.encode)

    def _random(self, found: object) -> object:
        return self._again(found) or [RANDOM, *cast(random.Random, found).getstate()]

    def _tensor(self, found: object) -> object:
        return [TENSOR, mark(cast(bytes, found))]

    def _writer_of(self, kind: type) -> Callable[[object], object]:
        name = self._names.get(kind)
        if name is None:
            raise JournalError(
                f"a {kind.__module__}.{kind.__qualname__} in a machine's state, of no module that the journal knows"
            )
        if issubclass(kind, Enum):
            return lambda found: [ENUM, self._layout(name, ()), cast(Enum, found).value]
        if issubclass(kind, msgspec.Struct):
            return self._struct_writer(name, kind)
        slots = tuple(slot for base in kind.__mro__ for slot in cast(Iterable[str], getattr(base, "__slots__", ())))
        return lambda found: self._object(found, name, slots)

    def _struct_writer(self, name: str, kind: type[msgspec.Struct]) -> Callable[[object], object]:
        fields = kind.__struct_fields__
        layout = self._layout(name, fields)
        frozen = kind.__struct_config__.frozen

        def write(found: object) -> object:
            if not frozen:
                again = self._again(found)
                if again is not None:
                    return again
            return [STRUCT, layout, *self.values([getattr(found, field) for field in fields])]

        return write

    def _object(self, found: object, name: str, slots: tuple[str, ...]) -> object:
        again = self._again(found)
        if again is not None:
            return again
        names = (*slots, *getattr(found, "__dict__", ()))
        return [OBJECT, self._layout(name, names), *self.values([getattr(found, each) for each in names])]

    def _layout(self, name: str, attributes: tuple[str, ...]) -> int:
        return self._layouts.setdefault((name, attributes), len(self._layouts))


# --- reading -----------------------------------------------------------------------------------------------------------


def read_state(data: bytes, known: Known, fixed: Sequence[object], kind: type) -> object:
    """A machine of class `kind` in the state that `data` holds. `fixed` is that of a machine built from the same settings and
    plans. Raises `JournalError` where the data is damaged, names what is not known, or was made by other code."""
    try:
        layouts, tree = msgspec.msgpack.decode(data, type=tuple[list[tuple[str, tuple[str, ...]]], object])
        found = _Reader(known, fixed, layouts).value(tree, 0)
    except JournalError:
        raise
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise JournalError(f"a snapshot is damaged: {error}") from None
    except (RecursionError, MemoryError, OverflowError) as error:
        raise JournalError(f"a snapshot is damaged: {type(error).__name__}") from None
    if type(found) is not kind:
        raise JournalError(f"a snapshot is of a {type(found).__name__}; expected a {kind.__name__}")
    return found


class _Reader:
    def __init__(self, known: Known, fixed: Sequence[object], layouts: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        self._fixed = fixed
        self._seen: list[object] = []
        self._blanks = Blanks()
        self._layouts = [(_class(name, known.by_name), attributes) for name, attributes in layouts]

    def value(self, tree: object, depth: int) -> object:
        if type(tree) in ATOMS:
            return tree
        if depth > DEEPEST or not isinstance(tree, list):
            raise JournalError(f"a snapshot is damaged: a {type(tree).__name__} at level {depth}")
        tag, *rest = cast(list[object], tree)
        match tag:
            case 0:
                return self._seen[_number(rest[0])]
            case 1:
                return self._fixed[_number(rest[0])]
            case 2:
                return tuple(self._values(rest, depth))
            case 3:
                made: list[object] = []
                self._seen.append(made)
                made += self._values(rest, depth)
                return made
            case 4:
                return self._fill({}, rest, depth)
            case 5:
                group: set[object] = set()
                self._seen.append(group)
                group.update(self._values(rest, depth))
                return group
            case 6:
                return frozenset(self._values(rest, depth))
            case 7:
                most = None if rest[0] is None else _number(rest[0])
                row: deque[object] = deque(maxlen=most)
                self._seen.append(row)
                row.extend(self._values(rest[1:], depth))
                return row
            case 8:
                return self._fill(OrderedDict(), rest, depth)
            case 9:
                return self._fill(cast(dict[object, object], Counter()), rest, depth)
            case 10:
                return self._kind(rest[0], Enum)(rest[1])
            case 11:
                return self._struct(rest, depth)
            case 12:
                return self._object(rest, depth)
            case 13:
                return self._random(rest)
            case 14:
                return self._blanks.tensor(msgspec.convert(rest[0], Mark))
            case _:
                raise JournalError(f"a snapshot is damaged: tag {tag!r:.40}")

    def _values(self, trees: Iterable[object], depth: int) -> list[object]:
        return [tree if type(tree) in ATOMS else self.value(tree, depth + 1) for tree in trees]

    def _fill(self, made: dict[object, object], rest: list[object], depth: int) -> dict[object, object]:
        self._seen.append(made)
        keys, values = (cast(list[object], part) for part in rest)
        # Keys before values, as they were written: the numbers of what is shared follow that order.
        read = self._values(keys, depth)
        for key, value in zip(read, self._values(values, depth), strict=True):
            made.setdefault(key, value)
        return made

    def _kind(self, layout: object, base: type) -> Callable[..., object]:
        kind, _ = self._layouts[_number(layout)]
        if not issubclass(kind, base):
            raise JournalError(f"a snapshot is damaged: a {kind.__name__} stands where a {base.__name__} is expected")
        return kind

    def _struct(self, rest: list[object], depth: int) -> object:
        make = self._kind(rest[0], msgspec.Struct)
        frozen = cast(type[msgspec.Struct], make).__struct_config__.frozen
        place = len(self._seen)
        if not frozen:
            self._seen.append(None)
        found = make(*self._values(rest[1:], depth))
        if not frozen:
            self._seen[place] = found
        return found

    def _object(self, rest: list[object], depth: int) -> object:
        kind, attributes = self._layouts[_number(rest[0])]
        if issubclass(kind, msgspec.Struct | Enum):
            raise JournalError(f"a snapshot is damaged: a {kind.__name__} stands where an object is expected")
        found: object = object.__new__(kind)
        self._seen.append(found)
        for attribute, value in zip(attributes, self._values(rest[1:], depth), strict=True):
            object.__setattr__(found, attribute, value)
        return found

    def _random(self, rest: list[object]) -> random.Random:
        made = random.Random()
        self._seen.append(made)
        version, numbers, gauss = rest
        made.setstate((_number(version), tuple(_number(n) for n in cast(list[object], numbers)), gauss))
        return made


def _class(name: str, by_name: Mapping[str, type[object]]) -> type[object]:
    found = by_name.get(name)
    if found is None:
        raise JournalError(f"a snapshot names {name!r:.80}, which is no class of a machine's state here")
    return found


def _number(found: object) -> int:
    if type(found) is not int or found < 0:
        raise JournalError(f"a snapshot is damaged: {found!r:.40} stands where a number is expected")
    return found
