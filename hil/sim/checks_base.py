"""What a check is: a number, what it listens to, and what it looks at now and then."""

from __future__ import annotations

from typing import NoReturn

from hil.sim.books import Book, ClientBook, EdgeBook, NodeBook
from hil.sim.broken import Broken
from hil.sim.checks_hear import Ears


class AllEars:
    """Who listens to clients, brokers and nodes."""

    def __init__(self) -> None:
        self.client: Ears[ClientBook] = Ears()
        self.edge: Ears[EdgeBook] = Ears()
        self.node: Ears[NodeBook] = Ears()


class Shelf:
    """The books of all processes that are alive."""

    def __init__(self) -> None:
        self.clients: list[ClientBook] = []
        self.edges: list[EdgeBook] = []
        self.nodes: list[NodeBook] = []

    def node(self, name: str) -> NodeBook | None:
        """The node of this name that is alive."""
        return next((book for book in self.nodes if book.host.name == name), None)

    def edge(self, peer: str, incarnation: int) -> EdgeBook | None:
        """The edge that greets nodes so, if it is alive."""
        return next((b for b in self.edges if (b.peer, b.incarnation) == (peer, incarnation)), None)

    def all(self) -> list[Book]:
        """Every book."""
        return [*self.clients, *self.edges, *self.nodes]


class Check:
    """One rule. It holds after every step, or it raises `Broken` with its number and the story."""

    number = 0

    def listen(self, ears: AllEars) -> None:
        """Say what concerns it."""

    def sweep(self, shelf: Shelf, at: int) -> None:
        """Look at everything, not only at what changed."""

    def rest(self, shelf: Shelf, at: int) -> None:
        """All traffic is over: look at what is left."""

    def broken(self, book: Book, story: str) -> NoReturn:
        """Raises `Broken`."""
        raise Broken(self.number, f"{book.name}: {story}")
