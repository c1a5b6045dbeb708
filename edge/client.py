"""The client: what an application asks its inferences of.

    with Client("ipc:///tmp/headtail-edge") as client:
        outcome = client.infer(image, deadline_ms=10)

Every request ends in one outcome, a value and never an exception: an `Answer`, or `Missed`, `Rejected` or `Superseded`.
What is wrong with the request itself (a tensor, a model's name, a deadline) is an `InputError`, which is a `ValueError`,
raised before anything is sent. A client may be shared by threads, but neither across a fork nor with another process: there
every use is refused with a `HeadtailError` that names the process it belongs to, and closing it does nothing.

The client owns outcome and timer, so that an agent that is killed or stopped hangs nobody; it attaches again by itself when
the agent is back. With `standby`, an agent that holds only the cheapest rung of each model answers meanwhile. Requests made
before the first attach wait for it, at most until their deadlines; as nobody has said yet what the models look like, a
mistake in such a request ends as `Rejected("input")`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Literal, cast

import msgspec

from edge.agents import PRIMARY, STANDBY
from edge.buckets import bind_to_bucket
from edge.client_loop import ClientLoop, Parts
from edge.client_stream import Stream
from edge.door import CLASSES, HIGHEST_CLASS, LATEST_NS, WHEN, Inputs, deadline, flag, own, whole
from edge.owed import Counts
from edge.tickets import AsyncTicket, FutureTicket, OutcomeFuture, Ticket, WaitTicket
from shared.errors import HeadtailError, InputError, shown
from shared.lateness import LatenessFigures
from shared.request import Outcome, Request
from shared.settings import AgentGroup, EdgeSettings
from shared.wire.messages import ModelInfo

DEFAULT_ENDPOINT = AgentGroup().endpoint
MAX_OPEN = 256
LONGEST_NAME = 64
HIGHEST_OPEN = 1 << 20


WHO: dict[int | None, Literal["agent", "standby"]] = {PRIMARY: "agent", STANDBY: "standby"}


class ClientHealth(msgspec.Struct, frozen=True):
    """How a client fares. `asking`: which agent is asked now (`agent`, `standby`; None: none is there). `lateness`: how long
    after its deadline each outcome was decided, in milliseconds; those decided before count as 0. That is the client's own
    part in being late, whatever the outcome was."""

    asking: Literal["agent", "standby"] | None
    counts: Counts
    faults: dict[str, int]
    lateness: LatenessFigures


class Client:
    """A connection to an edge agent, or the agent itself inside this process (`Client.embedded`).

    `endpoint` is the agent's (`ipc://PATH`); the agent need not be there yet. `standby` is that of a standby agent, which is
    asked while the other is away or silent. `max_open` bounds the requests that are open at once; one more is
    `Rejected("too-many-open")`. A context manager; `close()` ends what is open as `Rejected("closed")`.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        standby: str | None = None,
        name: str = "client",
        max_open: int = MAX_OPEN,
        parts: Parts | None = None,
    ) -> None:
        """`parts` replaces the connections: for the embedded form and for tests. Raises `UserError` (a `ValueError`) for an
        endpoint that is none, and `InputError` where `max_open` is not positive, `name` too long, or both agents are one."""
        max_open = whole("max_open", max_open, 1, HIGHEST_OPEN, "a positive number")
        name = _name(name)
        for what, where in (("endpoint", endpoint), ("standby", standby)):
            if not isinstance(cast(object, where), str) and (where is not None or what == "endpoint"):
                raise InputError(f"{what}: expected ipc://PATH, got {shown(where)}")
        endpoint, standby = str.__str__(endpoint), None if standby is None else str.__str__(standby)
        if standby == endpoint:
            raise InputError(f"standby: expected another agent than {endpoint}")
        self._name = name
        self._sequences = itertools.count(1)
        self._streams = itertools.count(1)
        self._closed = False
        parts = parts or _remote(endpoint, standby, name, max_open)
        try:
            self._loop = ClientLoop(name, parts)
        except BaseException:
            parts.release()
            raise
        self._finalizer = weakref.finalize(self, ClientLoop.shutdown, self._loop)

    @classmethod
    def embedded(cls, settings: EdgeSettings | str | os.PathLike[str], *, name: str = "client") -> Client:
        """A client with its agent in this very process: no second process, no copies over ipc, the same broker.

        `settings` or the path of a configuration file say which bundles to load and which nodes to use. Returns when the
        models are warm. Raises `SettingsError`, `BundleError` and `InputError`. Killing this process kills the agent with it.
        """
        from edge.embedded import embedded_parts
        from shared.settings_file import load_edge

        name = _name(name)
        tree = settings if isinstance(settings, EdgeSettings) else load_edge(_path("settings", settings))
        return cls(name=name, parts=embedded_parts(tree, name))

    # --- asking -------------------------------------------------------------------------------------------------------

    def infer(
        self,
        inputs: Inputs,
        deadline_ms: float = 10.0,
        *,
        deadline_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
    ) -> Outcome:
        """Ask and block until the outcome is there, no later than the deadline.

        `inputs`: one array, or a mapping from input names to arrays, with the model's dtypes and shapes; the first axis may
        have several rows where the model is batchable. They are copied before this returns or blocks. `deadline_ms` counts
        from now; `deadline_ns`, an absolute time of `time.monotonic_ns()`, replaces it. `model` may be left out where the
        agent has one only. `priority` 0 is the most important. Raises `InputError`, and `HeadtailError` in a future's
        callback, which may `submit`.
        """
        self._loop.check_may_wait("infer()")
        request = self._request(inputs, deadline_ms, deadline_ns=deadline_ns, model=model, priority=priority)
        try:
            return self._loop.ask(request, WaitTicket())
        except BaseException:
            self._loop.withdraw(request.sequence)
            raise

    def submit(
        self,
        inputs: Inputs,
        deadline_ms: float = 10.0,
        *,
        deadline_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
    ) -> OutcomeFuture:
        """Ask and return at once: a future of the outcome. `cancel()` withdraws the request. Else as `infer`."""
        future = OutcomeFuture(self._loop)
        future.sequence = self.start(
            FutureTicket(future), inputs, deadline_ms, deadline_ns=deadline_ns, model=model, priority=priority
        )
        return future

    def asubmit(
        self,
        inputs: Inputs,
        deadline_ms: float = 10.0,
        *,
        deadline_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
    ) -> asyncio.Future[Outcome]:
        """Ask from a coroutine: an asyncio future of the running loop. Cancelling it withdraws the request.
        Raises as `infer`."""
        self._loop.check_may_wait("asubmit()")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        sequence = self.start(
            AsyncTicket(loop, future), inputs, deadline_ms, deadline_ns=deadline_ns, model=model, priority=priority
        )

        def withdraw(done: asyncio.Future[Outcome]) -> None:
            if done.cancelled():
                self._loop.withdraw(sequence)

        future.add_done_callback(withdraw)
        return future

    async def ainfer(
        self,
        inputs: Inputs,
        deadline_ms: float = 10.0,
        *,
        deadline_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
    ) -> Outcome:
        """Ask from a coroutine and wait for the outcome. Cancelling the waiting task withdraws the request."""
        return await self.asubmit(inputs, deadline_ms, deadline_ns=deadline_ns, model=model, priority=priority)

    def stream(
        self,
        *,
        period_ms: float,
        deadline_ms: float = 10.0,
        latest_wins: bool = True,
        rows: int = 1,
        model: str | None = None,
        priority: int = 1,
    ) -> Stream:
        """A periodic source, as a camera is, whose frames have `rows` rows each. It is announced to the agent, which says
        what it promises (`Stream.promise`). With `latest_wins` a newer frame takes the place of an older one that still waits
        in the agent, which ends as `Superseded`. Raises `InputError`: a period or deadline that is not positive, an
        unknown model, more rows than it takes, too many streams."""
        self._loop.check_process()
        return Stream(
            self,
            self._loop,
            number=next(self._streams),
            period_ms=period_ms,
            deadline_ms=deadline_ms,
            latest_wins=latest_wins,
            rows=rows,
            model=model,
            priority=priority,
        )

    def start(
        self,
        ticket: Ticket,
        inputs: Inputs,
        deadline_ms: float,
        *,
        deadline_ns: int | None = None,
        scheduled_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
        stream: int = 0,
        latest_wins: bool = False,
    ) -> int:
        """Check a request, copy its inputs and hand it to the loop, which gives `ticket` the outcome; its sequence.

        What all the other ways of asking are made of. `scheduled_ns` is when it was due (now, where None). Raises
        `InputError`.
        """
        request = self._request(
            inputs,
            deadline_ms,
            deadline_ns=deadline_ns,
            scheduled_ns=scheduled_ns,
            model=model,
            priority=priority,
            stream=stream,
            latest_wins=latest_wins,
        )
        self._loop.post(request, ticket)
        return request.sequence

    def _request(
        self,
        inputs: Inputs,
        deadline_ms: float,
        *,
        deadline_ns: int | None = None,
        scheduled_ns: int | None = None,
        model: str | None = None,
        priority: int = 1,
        stream: int = 0,
        latest_wins: bool = False,
    ) -> Request:
        """A request that has been checked, with its inputs copied. Raises `InputError`."""
        self._loop.check_process()
        now = time.monotonic_ns()
        due_from = now if scheduled_ns is None else whole("scheduled_ns", scheduled_ns, 0, LATEST_NS, WHEN)
        due_ns = deadline(now, due_from, deadline_ms, deadline_ns)
        priority = whole("priority", priority, 0, HIGHEST_CLASS, CLASSES)
        stream = whole("stream", stream, 0, LATEST_NS, "0, or the number of a stream")
        latest_wins = flag("latest_wins", latest_wins)
        sequence = next(self._sequences)
        machine = self._loop.machine
        models = machine.models
        if models:
            info, arrays, rows, length = bind_to_bucket(models, model, inputs)
            request = Request(
                self._name,
                sequence,
                info.contract,
                arrays,
                rows,
                due_from,
                due_ns,
                priority,
                stream,
                latest_wins,
                length,
            )
        else:
            given = own(inputs)
            request = Request(self._name, sequence, "", (), 1, due_from, due_ns, priority, stream, latest_wins)
            machine.defer(sequence, model, given)
        return request

    def withdraw(self, sequence: int) -> None:
        """Forget the request with this sequence: it will have no outcome, and the agent stops working on it."""
        self._loop.withdraw(whole("sequence", sequence, 0, LATEST_NS, "the sequence of a request"))

    # --- looking ------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, ModelInfo]:
        """The agent's models by name, as it last told; empty before the first attach."""
        self._loop.check_process()
        return dict(self._loop.machine.models)

    @property
    def attached(self) -> bool:
        """Whether an agent is there, be it the standby; False once the client is closed."""
        self._loop.check_process()
        return self._loop.attached

    @property
    def asking(self) -> Literal["agent", "standby"] | None:
        """Which agent is asked now; None where none is there, and once the client is closed."""
        self._loop.check_process()
        return WHO.get(self._loop.asking)

    def wait_attached(self, timeout_s: float = 10.0) -> bool:
        """Block until an agent is there; False where none is after `timeout_s`, which may be infinite. Raises `InputError`
        for what is no time, and `HeadtailError` in a future's callback, where the client would wait for itself."""
        return self._loop.wait_attached(timeout_s)

    def stats(self) -> Counts:
        """What came of the requests so far."""
        self._loop.check_process()
        return msgspec.structs.replace(self._loop.machine.counts)

    def faults(self) -> dict[str, int]:
        """What agents said that was refused, by reason; `standby-contract` counts models of which the standby has another
        version, so that it is not asked for them."""
        self._loop.check_process()
        return dict(self._loop.machine.faults)

    @property
    def health(self) -> ClientHealth:
        """All of the above in one record, and how late outcomes were decided."""
        return ClientHealth(self.asking, self.stats(), self.faults(), self._loop.machine.lateness.figures())

    def save_journal(self, path: str | os.PathLike[str]) -> int:
        """Write what the embedded agent's journal holds to `path`, for `headtail replay`; how many steps that is. It holds no
        tensor's contents. Raises `JournalError` where the agent is another process, or the file cannot be written."""
        return self._loop.save_journal(_path("path", path))

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every open request as `Rejected("closed")` and release everything. It is done when this returns, unless a
        future's callback calls. May be called more than once; does nothing in a forked child, where the parent's requests go
        on."""
        self._loop.shutdown()

    def __reduce__(self) -> str | tuple[object, ...]:
        raise HeadtailError(
            f"a client cannot be copied or sent to another process than {self._loop.pid}; make one there"
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _remote(endpoint: str, standby: str | None, name: str, max_open: int) -> Parts:
    from edge.client_link import agent_link

    return agent_link(endpoint, f"{name}-{os.getpid()}", time.time_ns(), max_open, standby)


def _name(value: object) -> str:
    """`value` as the name of a client. Raises `InputError`."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_NAME:
        raise InputError(f"name: expected up to {LONGEST_NAME} printable characters, got {shown(value)}")
    return str.__str__(value)


def _path(name: str, value: object) -> Path:
    """`value` as a path of a file. Raises `InputError`."""
    try:
        return Path(cast(str, value))
    except TypeError:
        raise InputError(f"{name}: expected a path, got {shown(value)}") from None
