"""The open requests of an edge: by number, by their client's sequence, by stream, and by when they are due."""

from __future__ import annotations

from collections.abc import Iterator

from edge.due import DueTimes
from edge.open_request import Open
from shared.errors import InvariantBroken
from shared.request import Request


class Register:
    """At most `max_open` requests; the caller sees to that before it adds one."""

    def __init__(self, max_open: int) -> None:
        self._open: dict[int, Open] = {}
        self._by_client: dict[tuple[str, int], int] = {}
        self._streams: dict[tuple[str, int], int] = {}
        self.due = DueTimes(self._open, max_open)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: object) -> bool:
        return number in self._open

    def __iter__(self) -> Iterator[Open]:
        """Every open request. Requests may end and be added meanwhile."""
        return iter(list(self._open.values()))

    def add(self, open_: Open) -> None:
        """A request is open from now on, and due at its `resolve_by`."""
        request = open_.request
        self._open[open_.id] = open_
        self._by_client[request.client, request.sequence] = open_.id
        if request.stream:
            self._streams[request.client, request.stream] = open_.id
        self.due.add(open_.resolve_by, open_.id)

    def remove(self, open_: Open) -> None:
        """A request is over."""
        request = open_.request
        del self._open[open_.id]
        del self._by_client[request.client, request.sequence]
        if self._streams.get((request.client, request.stream)) == open_.id:
            del self._streams[request.client, request.stream]

    def get(self, number: int) -> Open | None:
        """The request of this number, while it is open."""
        return self._open.get(number)

    def of(self, client: str, sequence: int) -> Open | None:
        """The request that this client knows by this sequence."""
        return self._open.get(self._by_client.get((client, sequence), 0))

    def of_client(self, client: str) -> list[Open]:
        """All requests of a client."""
        return [self._open[number] for (name, _), number in self._by_client.items() if name == client]

    def newest_of_stream(self, request: Request) -> Open | None:
        """The open request of the same stream that came last."""
        return self._open.get(self._streams.get((request.client, request.stream), 0))

    def validate(self) -> None:
        """Raises `InvariantBroken` where the books disagree, or nothing can answer a request any more."""
        if set(self._by_client.values()) != set(self._open):
            raise InvariantBroken("open requests and their clients' sequences disagree")
        untimed = set(self._open) - self.due.numbers()
        if untimed:
            raise InvariantBroken(f"requests {sorted(untimed)} are open without a timer")
        for open_ in self._open.values():
            if open_.held is None and open_.hopeless():
                raise InvariantBroken(f"request {open_.id} is open and nothing can answer it")
