"""What a check is: a number, what it listens to, and what it looks at now and then."""

from __future__ import annotations

from typing import NoReturn

from hil.sim.books import Book, ClientBook, EdgeBook, NodeBook
from hil.sim.broken import Broken
from hil.sim.checks_hear import Ears
from hil.sim.watch import Seen


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
        self.node_of: dict[str, NodeBook] = {}
        """Nodes that are alive, by name."""
        self.edge_of: dict[tuple[str, int], EdgeBook] = {}
        """Edges that are alive, by how they greet nodes: name and incarnation."""

    def add(self, book: ClientBook | EdgeBook | NodeBook) -> None:
        """A process is alive."""
        if isinstance(book, ClientBook):
            self.clients.append(book)
        elif isinstance(book, EdgeBook):
            self.edges.append(book)
            self.edge_of[book.peer, book.incarnation] = book
        else:
            self.nodes.append(book)
            self.node_of[book.host.name] = book

    def remove(self, host: Seen) -> None:
        """A process is not alive any more."""
        self.clients = [book for book in self.clients if book.host is not host]
        self.edges = [book for book in self.edges if book.host is not host]
        self.nodes = [book for book in self.nodes if book.host is not host]
        self.node_of = {name: book for name, book in self.node_of.items() if book.host is not host}
        self.edge_of = {peer: book for peer, book in self.edge_of.items() if book.host is not host}


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
