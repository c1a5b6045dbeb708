"""What rigs of processes have in common: all of it is built when the rig is entered, and taken down when it is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class House(ABC):
    """A context manager. Where building fails, what was built is taken down before the error goes on."""

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @abstractmethod
    def _build(self) -> None:
        """Start everything."""

    @abstractmethod
    def _end(self) -> None:
        """End everything, as far as it was started."""
