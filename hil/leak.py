"""What a long run leaves behind: resident memory, descriptors, threads, leases, timers, of every process that took part.

An application asks (`hil.leak_load`), in one form of an agent that it carries itself, in the other of an agent of its own
process; a node answers behind either, and stands still now and then, so that what it was asked and what it answers gather
in every queue, in the first stretch as ever after. Requests have one row or several, some are withdrawn or wrong, and others
come and go meanwhile. They are looked at only when nothing is under way: first when all are up,
then after every so many requests, last when the client has gone. Memory is held against what it was after the first of these
stretches, when every buffer, window and pool has found its size.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from hil.child import LineChild
from hil.leak_census import Census
from hil.leak_load import Account, Arrangement, Order
from hil.leak_probe import PREFIX
from hil.services import Service, free_ports, run_folder
from hil.small_plans import Times, write_small
from hil.toml import to_toml
from shared.errors import HeadtailError
from shared.memory import ArenaFigures
from shared.settings import (
    AgentGroup,
    CloudLimits,
    CloudSettings,
    EdgeSettings,
    Execution,
    Memory,
    NodeAddress,
    NodeGroup,
)

Form = Literal["embedded", "agent"]
FORMS: tuple[Form, ...] = ("embedded", "agent")

GROWTH = 0.01
"""Resident memory may grow by so much after the first stretch, or the first `SETTLE_S` where the run is timed."""

SETTLE_S = 60.0
HITS = 0.99
"""At least so often there must have been a slot where one was asked for."""

PATIENCE_S = 60.0
PLANS: Mapping[str, tuple[str, ...]] = {"raw": ("raw",), "split": ("split-int8",), "jpeg": ("jpeg",), "local": ()}
"""Models and their routes; all of them have a rung as well."""

CHURN = 20
SETTLING = 400
"""Clients that come and go before a timed run of an agent, so that the heaps of both sides have taken their tears."""

STALL_EVERY_S, STALL_S = 2.0, 0.2
"""How often the node stands still while requests are made, and for how long: far beyond every deadline."""

PROBE = (sys.executable, "-m", "hil.leak_probe")
APPLICATION = "application"
MOST_MORE, LEAST_MORE = 0.001, 5
"""A container may hold so many entries more for each request, which is far from one for each; and so many in any case."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process at rest, after so many requests: resident kilobytes, descriptors, threads."""

    requests: int
    resident_kb: int
    descriptors: int
    threads: int


class Leak(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One form's run. `before` is every process before the client came, `samples` after each stretch, `after` when the
    client had gone. `outcomes` is the client's own count. `broken` says in words what was left, if anything; `growth` how
    much resident memory grew since the first of `samples` as a share; `slots` what became of each process's slots."""

    form: Form
    requests: int
    seconds: float
    outcomes: dict[str, int]
    before: dict[str, Sample]
    samples: dict[str, tuple[Sample, ...]]
    after: dict[str, Sample]
    growth: dict[str, float]
    slots: dict[str, ArenaFigures]
    broken: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether resident memory stayed within its limit, and there were slots enough."""
        return all(share < GROWTH for share in self.growth.values()) and all(
            figures.hit_rate >= HITS for figures in self.slots.values()
        )


class LeakRig:
    """The processes of one form. Use it as a context manager. Raises `HeadtailError` where one of them fails."""

    def __init__(self, form: Form, folder: Path) -> None:
        self._form: Form = form
        self._folder = folder
        self._stack = ExitStack()
        self._sockets = run_folder()
        self._stack.callback(shutil.rmtree, self._sockets, ignore_errors=True)
        self._probed: dict[str, Service] = {}

    def __enter__(self) -> LeakRig:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *ending: object) -> None:
        self._stack.close()

    def run(self, requests: int, stretch: int, told: Callable[[str], None], seconds: float = 0.0) -> Leak:
        """Ask for so many outcomes, `stretch` at a time; with `seconds` only for so long, and what is seen in the first
        `SETTLE_S` does not count."""
        began_s = time.monotonic()
        # What the libraries of a process make once, and keep, is there from its first client on; the fork of a census ends
        # numpy's own threads, for good.
        self._order("open")
        self._order("close")
        for name in self._probed:
            self._rest(name)
        before = self._samples(0)
        self._order("open")
        if seconds and self._form == "agent":
            self._order("churn", SETTLING)
        samples: dict[str, list[Sample]] = {}
        censuses: list[dict[str, Census]] = []
        asked = 0
        first_s = time.monotonic()
        while asked < requests and not (seconds and time.monotonic() - first_s >= seconds):
            more = min(stretch, requests - asked)
            with self._stalls():
                account = self._order("ask", more)
            asked += more
            censuses.append({name: self._rest(name) for name in self._probed} | {APPLICATION: account.census})
            for name, sample in self._samples(asked).items():
                samples.setdefault(name, []).append(sample)
            told(f"{self._form}: {asked} of {requests}, {_sizes(samples)}")
            if seconds and asked < requests and time.monotonic() - first_s < min(SETTLE_S, seconds / 2):
                censuses.clear()
                samples.clear()
        broken = _left(censuses, stretch)
        if self._form == "agent":
            self._order("churn", CHURN)
        closed = self._order("close")
        after = self._samples_as_before(asked, before)
        broken += _differences(before, after)
        broken += _sums(closed, asked)
        counts = closed.counts
        return Leak(
            form=self._form,
            requests=asked,
            seconds=time.monotonic() - began_s,
            outcomes={name: value for name, value in msgspec.to_builtins(counts).items() if value},
            before=before,
            samples={name: tuple(of) for name, of in samples.items()},
            after=after,
            growth={name: of[-1].resident_kb / of[0].resident_kb - 1 for name, of in samples.items()},
            slots={name: census.slots for name, census in censuses[-1].items() if census.slots is not None},
            broken=tuple(broken),
        )

    @contextmanager
    def _stalls(self) -> Generator[None]:
        """The node stands still now and then; it goes on when the context is left."""
        node, over = self._probed["node"], threading.Event()

        def stall() -> None:
            while not over.wait(STALL_EVERY_S):
                node.stop()
                over.wait(STALL_S)
                node.resume()

        thread = threading.Thread(target=stall)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # --- looking ------------------------------------------------------------------------------------------------------

    def _order(self, do: Literal["open", "ask", "churn", "close"], count: int = 0) -> Account:
        self._check()
        answer = self._application.ask(msgspec.json.encode(Order(do, count)))
        return msgspec.json.decode(answer, type=Account)

    def _samples(self, requests: int) -> dict[str, Sample]:
        pids = {name: service.pid for name, service in self._probed.items()} | {APPLICATION: self._application.pid}
        return {name: _sample(pid, requests) for name, pid in pids.items()}

    def _samples_as_before(self, requests: int, before: Mapping[str, Sample]) -> dict[str, Sample]:
        """Samples, once descriptors and threads are as they were before; else as they are when patience is over."""
        end = time.monotonic() + PATIENCE_S
        while True:
            after = self._samples(requests)
            if not _differences(before, after) or time.monotonic() > end:
                return after
            time.sleep(0.05)

    def _rest(self, name: str) -> Census:
        """The census of a process as soon as nothing is under way in it; else as it is when patience is over."""
        end = time.monotonic() + PATIENCE_S
        while True:
            census = self._census(self._probed[name], end)
            if census.at_rest or time.monotonic() > end:
                return census
            time.sleep(0.05)

    def _census(self, service: Service, end: float) -> Census:
        said = service.log.stat().st_size
        os.kill(service.pid, signal.SIGUSR1)
        while time.monotonic() < end:
            self._check()
            with service.log.open("rb") as log:
                log.seek(said)
                lines = log.read().split(b"\n")[:-1]
            for line in lines:
                if line.startswith(PREFIX.encode()):
                    return msgspec.json.decode(line[len(PREFIX) :], type=Census)
            time.sleep(0.01)
        raise HeadtailError(f"the process {service.name!r} does not say what it holds: {service.log}")

    def _check(self) -> None:
        for service in self._probed.values():
            service.check()

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        bundles = [
            write_small(self._folder, name, rungs=("small",), routes=routes, times=Times(), seed=number)
            for number, (name, routes) in enumerate(PLANS.items())
        ]
        models = tuple(str(bundle) for bundle in bundles)
        jpeg = models[list(PLANS).index("jpeg")]
        node_at = f"tcp://127.0.0.1:{free_ports(1)[0]}"
        # A debug run: whoever holds a slot too long is found out as well.
        memory = Memory(poison=True)
        cloud = CloudSettings(
            node=NodeGroup(name="node", endpoint=node_at, models=models),
            memory=memory,
            limits=CloudLimits(max_peers=16),
        )
        self._start("node", "cloud", cloud)
        edge = EdgeSettings(
            agent=AgentGroup(name="edge", endpoint=f"ipc://{self._sockets}/agent", models=models),
            nodes=(NodeAddress(name="node", endpoint=node_at),),
            memory=memory,
            # One form runs everything on the executor's thread, the other on the loop's own wherever that is allowed.
            execution=Execution(in_place_us=0.0 if self._form == "embedded" else Execution().in_place_us),
        )
        if self._form == "agent":
            self._start("agent", "edge", edge)
            arrangement = Arrangement(tuple(PLANS), node_at, jpeg, endpoint=edge.agent.endpoint)
        else:
            file = self._folder / "embedded.toml"
            file.write_text(to_toml(edge), encoding="utf-8")
            arrangement = Arrangement(tuple(PLANS), node_at, jpeg, settings=str(file))
        end = time.monotonic() + PATIENCE_S
        for service in self._probed.values():
            while not service.ready:
                if time.monotonic() > end:
                    raise HeadtailError(f"the process {service.name!r} was not ready after {PATIENCE_S:g} s")
                time.sleep(0.02)
        self._application = self._stack.enter_context(
            LineChild("hil.leak_load", (msgspec.json.encode(arrangement).decode(),))
        )

    def _start(self, name: str, verb: str, settings: EdgeSettings | CloudSettings) -> None:
        service = self._probed[name] = Service(name, verb, settings, self._folder, PROBE)
        self._stack.callback(service.end)
        service.start()


def _sample(pid: int, requests: int) -> Sample:
    """What the kernel says of a process. Raises `HeadtailError` where there is none."""
    folder = Path(f"/proc/{pid}")
    try:
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
        threads = len(list((folder / "task").iterdir()))
        return Sample(requests, resident, len(list((folder / "fd").iterdir())), threads)
    except OSError as error:
        raise HeadtailError(f"a process of the run is gone: {error}") from error


def _sizes(samples: Mapping[str, list[Sample]]) -> str:
    return ", ".join(f"{name} {of[-1].resident_kb / 1024:.1f} MB" for name, of in samples.items())


def _left(censuses: Sequence[Mapping[str, Census]], stretch: int) -> list[str]:
    """What is under way at rest after the last stretch, and which containers have grown all the while: from the first
    stretch to the middle, and from there to the end. What finds its bound late does not."""
    first, middle, last = censuses[0], censuses[len(censuses) // 2], censuses[-1]
    words = [
        f"{name}: {count} {what} are left"
        for name, census in last.items()
        for what, count in census.left.items()
        if count
    ]
    most = max(LEAST_MORE, round(MOST_MORE * stretch * len(censuses) / 2))
    for name, census in last.items():
        before = middle[name].grown(first[name], most)
        for path, (half, now) in census.grown(middle[name], most).items():
            if path in before:
                words.append(
                    f"{name}: {path} holds {now} entries, {before[path][0]} after the first stretch, then {half}"
                )
    return words


def _differences(before: Mapping[str, Sample], after: Mapping[str, Sample]) -> list[str]:
    """Descriptors and threads that there are now and were not before, or the other way round."""
    return [
        f"{name}: {getattr(sample, what)} {what}, {getattr(before[name], what)} before"
        for name, sample in after.items()
        for what in ("descriptors", "threads")
        if getattr(sample, what) != getattr(before[name], what)
    ]


def _sums(account: Account, asked: int) -> list[str]:
    counts = account.counts
    over = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded + counts.withdrawn
    if counts.open or counts.asked != over or counts.asked != asked:
        return [f"{asked} requests were made, but the client's sums are {counts}"]
    return []
