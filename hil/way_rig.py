"""One node behind the shaping proxy and one agent, each a process of its own, for asking one way to answer at a time.

As `hil.rig`, but with a single node, no second agent and plans that leave no choice (`hil.one_way`). Deadlines are so late
that nothing is given up, and a request is asked only when the one before it is over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from edge.client import Client
from hil.phases import LinkShape
from hil.proxy_control import Proxy, RouteAddress
from hil.services import Service, free_ports, run_folder, wait_ready
from shared.errors import HeadtailError
from shared.request import Answer, Array, Stages
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Link, NodeAddress, NodeGroup

NODE = "node"
READY_S = 120.0
DEADLINE_MS = 5000.0
BLOCK = 8
"""Requests of a model that follow each other and are counted; one more before them is not."""


class WayRig:
    """Starts all of it when it is entered, ends it when it is left. `folder` takes settings and outputs. `link` is what the
    proxy plays and what the agent is told to expect; None is the bare loopback, without a proxy.

    Raises `HeadtailError` where a process does not start, ends, or answers otherwise than it must.
    """

    def __init__(self, folder: Path, bundles: Sequence[Path], link: LinkShape | None) -> None:
        self._folder = folder
        self._bundles = tuple(str(path.resolve()) for path in bundles)
        self._link = link
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def ask(self, model: str, inputs: dict[str, Array], source: Literal["edge", "cloud"]) -> Answer:
        """One request of this model, and its answer, which must come from `source`."""
        outcome = self._client.infer(inputs, DEADLINE_MS, model=model)
        if not isinstance(outcome, Answer) or outcome.source != source:
            raise HeadtailError(f"model {model!r}: expected an answer of the {source}, got {outcome!r:.300}")
        return outcome

    def wait_answered(self, asked: Sequence[Asked]) -> None:
        """Ask each until it is answered as it must be: agent and node may not have greeted each other yet. Raises
        `HeadtailError` where one is not."""
        end = time.monotonic() + READY_S
        for one in asked:
            while True:
                try:
                    self.ask(one.model, one.rows[0], one.source)
                    break
                except HeadtailError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)

    def _build(self) -> None:
        sockets = run_folder()
        self._stack.callback(shutil.rmtree, sockets, ignore_errors=True)
        (port,) = free_ports(1)
        seen = port
        if self._link is not None:
            self.proxy = Proxy((RouteAddress(NODE, port),))
            self._stack.callback(self.proxy.close)
            self.proxy.shape(self._link.shape(), self._link.shape())
            seen = self.proxy.port(NODE)
        node = NodeGroup(name=NODE, endpoint=f"tcp://127.0.0.1:{port}", models=self._bundles)
        known = self._link or LinkShape(10_000.0, 0.2)
        edge = EdgeSettings(
            agent=AgentGroup(name="agent", endpoint=f"ipc://{sockets}/agent", models=self._bundles),
            nodes=(NodeAddress(name=NODE, endpoint=f"tcp://127.0.0.1:{seen}"),),
            link=Link(rate_mbit=known.rate_mbit, rtt_ms=known.rtt_ms),
        )
        services = (
            Service(NODE, "cloud", CloudSettings(node=node), self._folder),
            Service("agent", "edge", edge, self._folder),
        )
        for service in services:
            self._stack.callback(service.end)
            service.start()
        wait_ready(services, READY_S)
        self._client = self._stack.enter_context(Client(edge.agent.endpoint, name="ways"))
        if not self._client.wait_attached(READY_S):
            raise HeadtailError(f"the agent cannot be reached after {READY_S:g} s")


class Asked(msgspec.Struct, frozen=True):
    """What is asked again and again: a model that has one way to answer, where the answer must come from, and the rows that
    are sent in turn, tensors by name."""

    model: str
    source: Literal["edge", "cloud"]
    rows: tuple[dict[str, Array], ...]


class Taken(msgspec.Struct, frozen=True):
    """How long one request took from its submission to its outcome, in microseconds, and its stages."""

    time_us: float
    stages: Stages


class Asker(Protocol):
    """Something that answers one request of a model, as `WayRig.ask` does."""

    def ask(self, model: str, inputs: dict[str, Array], source: Literal["edge", "cloud"]) -> Answer:
        """The answer."""
        ...


def play(
    rig: Asker, asked: Sequence[Asked], rounds: int, cadence_hz: float, between: Callable[[], object] = lambda: None
) -> dict[str, list[Taken]]:
    """What every request took, by model: `rounds` rounds of a block of requests of each, at this pace, and something else
    after each block. The first of a block is not counted, since another model ran before it; so every model meets the
    machine as it is at the time."""
    taken: dict[str, list[Taken]] = {one.model: [] for one in asked}
    period_s = 1.0 / cadence_hz
    due_s = time.perf_counter()
    for _ in range(rounds):
        for one in asked:
            for number in range(BLOCK + 1):
                due_s = max(due_s + period_s, time.perf_counter())
                time.sleep(max(0.0, due_s - time.perf_counter()))
                row = one.rows[number % len(one.rows)]
                began_s = time.perf_counter()
                answer = rig.ask(one.model, row, one.source)
                took_us = (time.perf_counter() - began_s) * 1e6
                if number:
                    taken[one.model].append(Taken(took_us, answer.stages))
            between()
    return taken
