"""The house of a chaos run: an agent and two nodes that are struck, and one client that goes on asking meanwhile.

All of them are processes of their own, of small models whose every answer tells its input. Nothing here depends on how
fast the machine is: what has to come back is waited for with a generous bound.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path

import msgspec

from edge.client import Client
from edge.tickets import OutcomeFuture
from hil.chaos_account import Account, Tally
from hil.chaos_plan import Asking, Strike, draw_askings, draw_cycles
from hil.house import House
from hil.ledger import Claim, References, claim_of
from hil.references import references, telling_frames
from hil.services import Service, free_ports, run_folder
from hil.small_plans import Times, make_images, write_small
from hil.tap import tapped_client
from shared.bundle import Bundle, load_bundle
from shared.errors import HeadtailError
from shared.request import Answer, Array, Outcome
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Execution, NodeAddress, NodeGroup

PATIENCE_S = 60.0
"""How long anything may take that has to come back: a process, an answer, an outcome."""

LOOK_S = 0.25
"""How long one wait lasts, before the processes are looked at again."""

NODES = ("node-a", "node-b")
IMAGES = 24
SEED = 20240
SLOWDOWN = 4.0
TIMES = Times(whole_us=2000.0, small_us=800.0, cloud_us=60.0, slowdown=SLOWDOWN)

PLANS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "raw": (("small",), ("raw",)),
    "jpeg": (("small",), ("jpeg",)),
    "split": (("small",), ("split-int8",)),
    "local": (("whole", "small"), ()),
    "cloud": ((), ("split",)),
}
"""Rungs and routes of the plans that are asked for, so that every kind of answer comes."""


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of chaos: `attaches` is how often the one client found an agent, `back_s` how long after each strike on the
    agent was over its first answer came, `story` the strikes with the second at which they fell."""

    seed: int
    cycles: int
    seconds: float
    strikes: dict[str, int]
    attaches: int
    back_s: tuple[float, ...]
    tally: Tally
    story: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, doubled, made up or wrong."""
        return not self.tally.broken


class Watch:
    """Takes every delivery on the client's thread, keeps the account, and lets others wait for answers."""

    def __init__(self) -> None:
        self.account = Account()
        self._news = threading.Condition()
        self._latest_answered = 0
        self._claims: set[Claim] = set()

    def __call__(self, sequence: int, outcome: Outcome, now: int) -> None:
        """One delivery."""
        self.account.delivered(sequence, outcome, now)
        if isinstance(outcome, Answer):
            with self._news:
                self._latest_answered = max(self._latest_answered, sequence)
                self._claims.add(claim_of(outcome))
                self._news.notify_all()

    def forget_claims(self) -> None:
        """From now on claims count anew."""
        with self._news:
            self._claims.clear()

    def answered_after(self, sequence: int, look_s: float) -> bool:
        """Whether a request after `sequence` was answered; waits for it a moment."""
        with self._news:
            return self._news.wait_for(lambda: self._latest_answered > sequence, look_s)

    def missing(self, claims: set[Claim], look_s: float) -> set[Claim]:
        """Those of `claims` that no answer has made yet; waits a moment for all of them."""
        with self._news:
            self._news.wait_for(lambda: claims <= self._claims, look_s)
            return claims - self._claims


class Load:
    """Asks at a steady rate on a thread of its own, never slower for what happens to the agent."""

    def __init__(
        self,
        client: Client,
        account: Account,
        contracts: Sequence[tuple[str, str]],
        images: Sequence[Array],
        askings: Iterator[Asking],
        rate_hz: float,
    ) -> None:
        """`contracts` are the models' names and contract digests, in the order of `Asking.model`."""
        self._client = client
        self._account = account
        self._contracts = contracts
        self._images = images
        self._askings = askings
        self._period_ns = round(1e9 / rate_hz)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos-load", daemon=True)
        self.futures: list[OutcomeFuture] = []
        self._thread.start()

    @property
    def last(self) -> int:
        """The sequence of the newest request."""
        return self.futures[-1].sequence if self.futures else 0

    def check(self) -> None:
        """Raise whatever ended the thread."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Ask no more; returns when the last request has been made."""
        self._ended.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            self._ask_on()
        except BaseException as error:
            self._error = error

    def _ask_on(self) -> None:
        name, _ = self._contracts[0]
        period_ms = 2 * self._period_ns / 1e6
        with self._client.stream(period_ms=period_ms, deadline_ms=20.0, latest_wins=True, model=name) as stream:
            due_ns = time.monotonic_ns()
            for asking in self._askings:
                self._ended.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                if self._ended.is_set():
                    return
                name, contract = self._contracts[asking.model]
                image = self._images[asking.image]
                if asking.streamed:
                    future = stream.submit(image)
                else:
                    future = self._client.submit(image, asking.deadline_ms, model=name)
                self._account.asked(future.sequence, contract, asking.image, due_ns)
                self.futures.append(future)
                due_ns += self._period_ns


class ChaosRig(House):
    """The processes, one client, and what is known of every right answer. Use it as a context manager.

    Raises `HeadtailError` where a process ends by itself, or something does not come back.
    """

    def __init__(self, folder: Path, seed: int, rate_hz: float) -> None:
        self._folder = folder
        self._seed = seed
        self._rate_hz = rate_hz
        self._sockets = run_folder()
        self._services: dict[str, Service] = {}
        self._watch = Watch()
        self._tell: Callable[[str], None] = lambda _: None
        self._load: Load | None = None
        self._began_s = time.monotonic()
        self.story: list[str] = []
        self.back_s: list[float] = []

    def run(self, cycles: int, told: Callable[[str], None] = lambda _: None) -> Report:
        """Ask, strike, and settle the account. Everything is answered in every way before the first strike and after the
        last one."""
        self._tell = told
        askings = draw_askings(self._seed, len(PLANS), IMAGES)
        load = Load(self._client, self._watch.account, self._contracts, self._images, askings, self._rate_hz)
        self._load = load
        began_s = time.monotonic()
        strikes = draw_cycles(self._seed, cycles)
        try:
            self._every_way()
            for cycle in strikes:
                self._play(cycle)
            for service in self._services.values():
                self._ready(service)
            self._every_way()
        finally:
            load.end()
        wait(load.futures, timeout=PATIENCE_S)
        hanging = {future.sequence for future in load.futures if not future.done()}
        kinds = [f"{strike.victim} {strike.kind}" for cycle in strikes for strike in cycle]
        counts = self._client.stats()
        tally = self._watch.account.close(self._known, hanging)
        broken = [*tally.broken]
        outcomes = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded
        if (counts.asked, counts.open, counts.withdrawn) != (outcomes, 0, 0) or counts.asked != tally.requests:
            broken.append(f"the client's own sums differ: {counts} of {tally.requests} requests")
        return Report(
            seed=self._seed,
            cycles=cycles,
            seconds=time.monotonic() - began_s,
            strikes={kind: kinds.count(kind) for kind in sorted(set(kinds))},
            attaches=counts.attaches,
            back_s=tuple(self.back_s),
            tally=msgspec.structs.replace(tally, broken=tuple(broken)),
            story=tuple(self.story),
        )

    # --- what happens -------------------------------------------------------------------------------------------------

    def _play(self, cycle: Sequence[Strike]) -> None:
        for strike in cycle:
            self._ready(self._services[strike.victim])
        began_s = time.monotonic()
        steps = [(strike.after_s, strike, True) for strike in cycle]
        steps += [(strike.after_s + strike.lasts_s, strike, False) for strike in cycle]
        for at_s, strike, begins in sorted(steps, key=lambda step: (step[0], step[2])):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            self._strike(strike, begins)
        if any(strike.victim == "agent" for strike in cycle):
            self._answered_again()

    def _strike(self, strike: Strike, begins: bool) -> None:
        service = self._services[strike.victim]
        if begins:
            self._say(str(strike))
            (service.kill if strike.kind == "kill" else service.stop)()
        else:
            (service.start if strike.kind == "kill" else service.resume)()

    def _answered_again(self) -> None:
        began_s, since = time.monotonic(), self._load.last if self._load is not None else 0
        while not self._watch.answered_after(since, LOOK_S):
            self._check(began_s, "the client got no answer again")
        self.back_s.append(time.monotonic() - began_s)

    def _every_way(self) -> None:
        self._watch.forget_claims()
        began_s = time.monotonic()
        while missing := self._watch.missing(self._claims, LOOK_S):
            self._check(began_s, f"no answer came of {', '.join(f'{c.kind} {c.name}'.strip() for c in missing)}")
        self._say("every way answers")

    def _ready(self, service: Service) -> None:
        began_s = time.monotonic()
        while not service.ready:
            self._check(began_s, f"the process {service.name!r} was not ready")
            time.sleep(0.02)

    def _check(self, began_s: float, what: str) -> None:
        for service in self._services.values():
            service.check()
        if self._load is not None:
            self._load.check()
        if time.monotonic() - began_s > PATIENCE_S:
            raise HeadtailError(f"{what} within {PATIENCE_S:g} s; seed {self._seed}: {'; '.join(self.story)}")

    def _say(self, words: str) -> None:
        self.story.append(f"{time.monotonic() - self._began_s:.2f} s: {words}")
        self._tell(self.story[-1])

    # --- what there is ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        bundles = [
            load_bundle(write_small(self._folder, name, rungs=rungs, routes=routes, times=TIMES, seed=number))
            for number, (name, (rungs, routes)) in enumerate(PLANS.items())
        ]
        self._images = make_images(IMAGES, SEED)
        self._known: dict[str, References] = {b.contract: references(b, self._images) for b in bundles}
        for known in self._known.values():
            if len(telling_frames(known)) != IMAGES:
                raise HeadtailError("two of the images have the same answer: a swap of them would not be seen")
        self._contracts = [(bundle.name, bundle.contract) for bundle in bundles]
        self._claims = {claim for bundle in bundles for claim in _usual(bundle)}
        models = tuple(str(bundle.path) for bundle in bundles)
        endpoints = {name: f"tcp://127.0.0.1:{port}" for name, port in zip(NODES, free_ports(len(NODES)), strict=True)}
        for name, endpoint in endpoints.items():
            node = NodeGroup(name=name, endpoint=endpoint, models=models)
            self._start(Service(name, "cloud", CloudSettings(node=node), self._folder))
        agent = EdgeSettings(
            agent=AgentGroup(name="agent", endpoint=f"ipc://{self._sockets}/agent", models=models),
            nodes=tuple(NodeAddress(name=name, endpoint=endpoint) for name, endpoint in endpoints.items()),
            execution=Execution(slowdown=SLOWDOWN),
        )
        self._start(Service("agent", "edge", agent, self._folder))
        for service in self._services.values():
            self._ready(service)
        self._client = tapped_client(agent.agent.endpoint, "chaos", self._watch)
        if not self._client.wait_attached(PATIENCE_S):
            raise HeadtailError(f"the agent cannot be reached after {PATIENCE_S:g} s")

    def _start(self, service: Service) -> None:
        self._services[service.name] = service
        service.start()

    def _end(self) -> None:
        client: Client | None = getattr(self, "_client", None)
        if client is not None:
            client.close()
        for service in reversed(self._services.values()):
            service.end()
        shutil.rmtree(self._sockets, ignore_errors=True)


def _usual(bundle: Bundle) -> Iterator[Claim]:
    """What answers of this plan claim while all is well: its routes, or its best rung where it has none."""
    plan = bundle.plan
    if not plan.routes:
        yield Claim(bundle.contract, plan.rung_fidelity(plan.ladder[0]).kind)
    for route in plan.routes:
        coding = plan.cuts[route.cut].coding(route.coding)
        lossy = coding is not None and coding.lossy
        yield Claim(bundle.contract, "lossy", route.coding, route.cut) if lossy else Claim(bundle.contract, "exact")
