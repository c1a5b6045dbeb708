"""What a planted bug is: a name, what is wrong, where it shows, and the faulty code that takes the place of the right."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Bug:
    """`owner.name` is replaced by `faulty(right)`, where `right` is what was there; each part of a fault that spans several
    places is one such triple. `scenario` is the kind of runs in which it can show."""

    name: str
    what: str
    parts: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    scenario: str = "mixed"

    @contextmanager
    def planted(self) -> Generator[None]:
        """While this lasts the fault is there."""
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for owner, name, faulty in self.parts:
                patch.setattr(
                    owner, name, faulty(vars(owner)[name] if isinstance(owner, type) else getattr(owner, name))
                )
            yield


def bug(
    name: str, what: str, owner: Any, attribute: str, scenario: str = "mixed"
) -> Callable[[Callable[..., Any]], Bug]:
    """Make a fault of the decorated function, which is called as `faulty(right, *args)` in place of `owner.attribute`."""

    def of(faulty: Callable[..., Any]) -> Bug:
        def in_place_of(right: Any) -> Any:
            if isinstance(right, property):
                return property(lambda self: faulty(right.fget, self))
            return lambda *args, **more: faulty(right, *args, **more)

        return Bug(name, what, ((owner, attribute, in_place_of),), scenario)

    return of
