"""The application of a leak run, in a process of its own: `python -m hil.leak_load ARRANGEMENT`.

Each line on its standard input is an `Order`, answered by one line, an `Account`, once everything that was ordered is
over: no request is open, and what the collector can find is gone. Three threads ask: one keeps many requests open, one
blocks, one is an asyncio loop. Of the requests some are withdrawn, some can only miss their deadline, some are frames
of a stream in which the latest wins; they have one row or several, and some that no model takes are refused at the door. A
fourth thread lets strangers come to the node (`hil.leak_strangers`), and clients to the agent that leave with their requests
open. Now and then the interpreter is held for a while, as an application's own work
does, so that answers and calls gather in every queue; those bursts are as large in the first stretch as ever after.
Nothing is kept of a request that is over, or this process would grow by itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from edge.client import Client
from edge.owed import Counts
from edge.tickets import OutcomeFuture
from hil.leak_census import Census, tell_census
from hil.leak_strangers import Strangers
from hil.small_plans import make_images
from shared.errors import HeadtailError, InputError
from shared.process import SteadyHeap
from shared.request import Array

PATIENCE_S = 60.0
SHARES = (0.94, 0.03, 0.03)
"""Of the requests, by the three threads: many open, blocking, asyncio."""

OPEN = 16
"""Requests that the first thread keeps open: admission looks at all of them for each, so that many more would be slower."""

TOGETHER = 8
DEADLINES_MS = (5.0, 10.0, 20.0, 100.0)
HOPELESS_MS = 0.4
WITHDRAWN, LATER, HOPELESS, STREAMED = 0.06, 0.10, 0.16, 0.30
"""Shares of the requests that are withdrawn at once, withdrawn later, or hopeless, and of frames, each on top of those
before it."""

ROWS = (1, 1, 2, 3, 4)
"""Rows of a request, each as likely."""

REFUSED_EVERY = 100
"""One more request that no model takes after so many."""

COMES_EVERY = 250
"""One stranger, and one client that leaves at once, for so many requests."""

HOLD_EVERY, HOLD_S = 1_500, 0.02
"""The first thread holds the interpreter for so long, each time after so many requests."""


class Arrangement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `settings`, the file of an embedded agent, or `endpoint`, that of an agent; the models to ask for; the node's
    own endpoint and a bundle that it serves, for those who come to it as strangers."""

    models: tuple[str, ...]
    node: str
    bundle: str
    settings: str = ""
    endpoint: str = ""
    seed: int = 0


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`open` the client, `ask` for `count` outcomes, open and close `count` more clients one after the other (`churn`; not
    where the agent is embedded), `close` the client."""

    do: Literal["open", "ask", "churn", "close"]
    count: int = 0


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the client counted, what it holds, and the names of the threads there are."""

    counts: Counts
    census: Census
    threads: tuple[str, ...]


class Application:
    """One client and those who ask it."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._arrangement = arrangement
        self._images = make_images(16, arrangement.seed)
        self._batches = _batches(self._images, random.Random(arrangement.seed))
        self._strangers = Strangers(arrangement.node, Path(arrangement.bundle))
        self._rounds = 0
        self._client: Client | None = None
        self._counts = Counts()

    def obey(self, order: Order) -> Account:
        """Do as is told, and tell what is left."""
        if order.do == "open":
            self._client = self._connect("leak")
        elif order.do == "ask":
            self._ask(order.count)
        elif order.do == "churn":
            for number in range(order.count):
                with self._connect(f"leak-{number}") as client:
                    client.infer(self._images[0], 1000.0, model=self._arrangement.models[0])
        elif self._client is not None:
            self._client.close()
            self._counts, self._client = self._client.stats(), None
        return self._account()

    def _connect(self, name: str) -> Client:
        if self._arrangement.settings:
            return Client.embedded(Path(self._arrangement.settings), name=name)
        client = Client(self._arrangement.endpoint, name=name)
        if not client.wait_attached(PATIENCE_S):
            raise HeadtailError(f"the agent cannot be reached at {self._arrangement.endpoint}")
        return client

    def _ask(self, count: int) -> None:
        client = self._client
        if client is None:
            raise HeadtailError("there is no client yet")
        self._rounds += 1
        parts = [round(count * share) for share in SHARES]
        parts[0] += count - sum(parts)
        errors: list[BaseException] = []
        works = (self._many, self._blocking, self._coroutines, self._passing)
        parts.append(count // COMES_EVERY)
        threads = [
            threading.Thread(target=_caught, args=(errors, work, client, part, f"{self._rounds} {number}"))
            for number, (work, part) in enumerate(zip(works, parts, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        end = time.monotonic() + PATIENCE_S
        while client.stats().open:
            if time.monotonic() > end:
                raise HeadtailError(f"{client.stats().open} requests are still open after {PATIENCE_S:g} s")
            time.sleep(0.01)

    def _many(self, client: Client, count: int, seed: str) -> None:
        rng = random.Random(f"{self._arrangement.seed} {seed}")
        waiting: deque[OutcomeFuture] = deque()
        first = self._arrangement.models[0]
        with client.stream(period_ms=5, deadline_ms=20, latest_wins=True, model=first) as stream:
            for number in range(count):
                if number % HOLD_EVERY == HOLD_EVERY - 1:
                    _hold_interpreter()
                if number % REFUSED_EVERY == REFUSED_EVERY - 1:
                    _refused(client, first)
                draw = rng.random()
                if HOPELESS <= draw < STREAMED:
                    waiting.append(stream.submit(rng.choice(self._images)))
                else:
                    deadline_ms = HOPELESS_MS if LATER <= draw < HOPELESS else rng.choice(DEADLINES_MS)
                    batch = rng.choice(self._batches)
                    future = client.submit(batch, deadline_ms, model=rng.choice(self._arrangement.models))
                    waiting.append(future)
                    if draw < WITHDRAWN:
                        future.cancel()
                    elif draw < LATER:
                        rng.choice(waiting).cancel()
                while len(waiting) >= OPEN:
                    _end(waiting.popleft())
            while waiting:
                _end(waiting.popleft())

    def _blocking(self, client: Client, count: int, seed: str) -> None:
        rng = random.Random(f"{self._arrangement.seed} {seed}")
        for _ in range(count):
            batch = rng.choice(self._batches)
            client.infer(batch, rng.choice(DEADLINES_MS), model=rng.choice(self._arrangement.models))

    def _coroutines(self, client: Client, count: int, seed: str) -> None:
        asyncio.run(_gathered(client, self._images, self._arrangement.models, count, random.Random(seed)))

    def _passing(self, client: Client, count: int, seed: str) -> None:
        """Those who come and go meanwhile."""
        del client
        rng = random.Random(seed)
        for number in range(count):
            self._strangers.come(1, rng)
            if self._arrangement.endpoint:
                with self._connect(f"passing-{number}") as passing:
                    for _ in range(3):
                        passing.submit(rng.choice(self._batches), 100.0, model=self._arrangement.models[0])

    def _account(self) -> Account:
        gc.collect()
        if self._client is not None:
            self._counts = self._client.stats()
        names = tuple(sorted(thread.name for thread in threading.enumerate()))
        census = msgspec.json.decode(tell_census(self._client), type=Census)
        return Account(self._counts, census, names)


async def _gathered(
    client: Client, images: Sequence[Array], models: Sequence[str], count: int, rng: random.Random
) -> None:
    for start in range(0, count, TOGETHER):
        tasks = [
            asyncio.ensure_future(client.ainfer(rng.choice(images), rng.choice(DEADLINES_MS), model=rng.choice(models)))
            for _ in range(min(TOGETHER, count - start))
        ]
        await asyncio.sleep(0)
        tasks[rng.randrange(len(tasks))].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _batches(images: Sequence[Array], rng: random.Random) -> tuple[Array, ...]:
    """As many requests' inputs as there are images, of one row or several."""
    return tuple(np.concatenate(rng.sample(list(images), rng.choice(ROWS))) for _ in images)


def _refused(client: Client, model: str) -> None:
    """Ask what no model takes."""
    try:
        client.submit(np.zeros((1, 2), np.float64), 100.0, model=model)
    except InputError:
        return
    raise HeadtailError("a request that does not fit the model was taken")


def _hold_interpreter() -> None:
    # Called in this way, unlike time.sleep, C keeps the interpreter's lock.
    ctypes.PyDLL(None).usleep(round(HOLD_S * 1e6))


def _end(future: OutcomeFuture) -> None:
    try:
        future.result(PATIENCE_S)
    except CancelledError:
        return


def _caught(errors: list[BaseException], work: Callable[..., None], *arguments: object) -> None:
    try:
        work(*arguments)
    except BaseException as error:
        errors.append(error)


def main() -> None:
    """Obey orders until the input ends."""
    arrangement = msgspec.json.decode(sys.argv[1], type=Arrangement)
    # As docs/promise.md says that an application may that carries its agent for days.
    heap = SteadyHeap() if arrangement.settings else None
    application = Application(arrangement)
    for line in sys.stdin.buffer:
        account = application.obey(msgspec.json.decode(line, type=Order))
        os.write(sys.stdout.fileno(), msgspec.json.encode(account) + b"\n")
    del heap


if __name__ == "__main__":
    main()
