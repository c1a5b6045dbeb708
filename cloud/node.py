"""The cloud node: a process that runs the tails of plans for many edges.

It loads and warms its bundles before it binds its endpoint, so that a node that can be reached can answer, and then says so
in one line:

    ready tcp://127.0.0.1:7711 NAME (incarnation N): MODEL, ...

SIGTERM and SIGINT end it with status 0: it lets nothing more in, answers what is there (for `node.drain_ms` at most) and
tells its edges; a second one ends it at once. SIGUSR1 has it save its journal, SIGUSR2 write one line of JSON (`NodeStats`),
among it its own count of launches by range and rows; with `--stats` that is its last line as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cloud.journal import NODE, build_session, node_setup
from cloud.launches import LaunchCount, Launches
from cloud.letters import NodeLetters
from cloud.pressure import PressureFigures
from shared.directory import check_length
from shared.directory_file import DirectoryWatch
from shared.driver import Driver, polling_of
from shared.errors import SettingsError
from shared.events import Action, Draining, Event, Leave, Received, Run, Send, SendFailed, Tick
from shared.journal.keeper import Keeper
from shared.lateness import LatenessFigures
from shared.letter_box import LetterBox
from shared.letters import Letters
from shared.measurer import Measurer
from shared.measuring import Measuring
from shared.memory import ArenaFigures
from shared.message_sizes import rows_in_a_message
from shared.ports import Machine
from shared.process_host import Adaptation
from shared.process_settings import Effect
from shared.settings import CloudSettings
from shared.settings_file import load_cloud
from shared.signals import Wish, outlive_signals, save_on_signal, stop_on_signals, tell_on_signal
from shared.standard_streams import say
from shared.transport import Router
from shared.wire.codec import MAX_WORD, decode_edge
from shared.wire.messages import Infer
from shared.workshop import Workshop

LAST_WORDS_MS = 500
"""How long a node that leaves waits for its last messages to be sent."""


class NodeStats(msgspec.Struct, frozen=True):
    """What a node tells of itself when it ends. `counters` are the session's, `wire` the messages refused by reason,
    `lateness` how late the loop handled its wake-ups, `process` what became of the settings of the process, `memory` what
    became of the slots, `stalls` for how long the loop did not look at what had come, `polled_s` for how long in all it
    looked for what was to come, `pressure` what its edges were told, `settings` are those in force."""

    node: str
    incarnation: int
    launches: tuple[LaunchCount, ...]
    counters: dict[str, int]
    wire: dict[str, int]
    lateness: LatenessFigures = LatenessFigures()
    process: tuple[Effect, ...] = ()
    memory: ArenaFigures = ArenaFigures()
    stalls: LatenessFigures = LatenessFigures()
    polled_s: float = 0.0
    pressure: PressureFigures = PressureFigures()
    settings: CloudSettings = CloudSettings()


class Node:
    """One node, built and warmed, not yet running. Raises `BundleError`, `SettingsError`, `UserError` (endpoint)."""

    def __init__(self, settings: CloudSettings) -> None:
        self._settings = settings
        self._name = settings.node.name
        self._incarnation = time.time_ns()
        self._process = Adaptation(settings.process)
        self._launches = Launches()
        with ExitStack() as made:
            self._shop = Workshop(
                settings.node.models,
                "node.models",
                side="cloud",
                execution=settings.execution,
                batching=settings.batching,
                memory=settings.memory,
            )
            made.callback(self._shop.close)
            for plan in self._shop.plans.values():
                rows_in_a_message(plan, 1, settings.limits.max_message_mb)
            setup = node_setup(settings, self._shop.plans, self._name, self._incarnation)
            self._session = build_session(setup)
            self._router = Router(settings.node.endpoint, decode_edge, max_message_mb=settings.limits.max_message_mb)
            made.callback(self._router.close)
            self._journal = Keeper(self._session, NODE, setup, settings.journal, own_process=True)
            made.callback(self._journal.close)
            self._machine: Machine = self._journal.machine
            keeping = settings.dead_letters
            letters = Letters(keeping.keep, keeping.keep_mb << 20)
            if keeping.keep:
                self._machine = NodeLetters(
                    self._machine, self._session, self._shop.plans, letters, inputs=keeping.inputs
                )
            self._letter_box = LetterBox(
                letters,
                "node",
                self._name,
                self._incarnation,
                send=self._router.send,
                forbidden="" if settings.node.show_dead_letters else "this node's node.show_dead_letters is false",
            )
            self._measurer = Measurer(
                Measuring(
                    self._shop.plans,
                    settings.execution.provider,
                    settings.limits.max_message_mb << 20,
                    _forbidden(settings),
                ),
                self._shop.folders,
                settings.execution,
                self._name,
                send=self._router.send,
                busy=self._session.busy,
                cores=settings.process.executor_cores,
            )
            made.callback(self._measurer.close)
            found: tuple[DirectoryWatch, ...] = ()
            if settings.node.directory:
                found = (DirectoryWatch(Path(settings.node.directory), say, announce=True),)
                made.callback(found[0].close)
                check_length(found[0].first)
            self._leaving = Wish(Draining(), self.stop)
            made.callback(self._leaving.close)
            self._driver = Driver(
                self,
                self._perform,
                completions=(self._shop.finished, self._measurer),
                transports=(self._router,),
                arrivals=(self._leaving, *found),
                own_process=self._process.interpreter(),
                idle=self._idle,
                polling=polling_of(settings.loop.poll_us, realtime=settings.process.realtime_priority > 0),
                expects=self._expects,
            )
            made.callback(self._driver.close)
            self._made = made.pop_all()

    def adapt(self) -> None:
        """Do to this process what its settings ask, on the thread that will call `run`. Raises `SettingsError`."""
        self._process.apply(self._router.threads)

    @property
    def endpoint(self) -> str:
        """Where it is bound, with the port that was chosen."""
        return self._router.endpoint

    @property
    def models(self) -> Mapping[str, str]:
        """Contract digests by model name."""
        return {plan.name: contract for contract, plan in self._shop.plans.items()}

    @property
    def incarnation(self) -> int:
        """Tells this start of the process from others."""
        return self._incarnation

    def handle(self, event: Event, now: int) -> list[Action]:
        """The session's own `handle`, with the launches counted, and what is measured beside. For the driver only."""
        if not isinstance(event, Received):
            self._launches.ended(event)
        elif not isinstance(event.message, Infer) and (
            self._measurer.takes(event, now) or self._letter_box.takes(event, now)
        ):
            # Requests that came together with it may be put off until the last of all is here.
            return [] if event.more else self._machine.handle(Tick(0), now)
        actions = self._machine.handle(event, now)
        self._measurer.look(now)
        return actions

    def run(self) -> None:
        """Serve until `stop()`; then release everything."""
        with self._made:
            self._driver.run()

    def close(self) -> None:
        """Release everything, where `run` was never called; nothing is left to do where it was."""
        self._made.close()

    def leave(self) -> None:
        """Let nothing more in, answer what is there, tell the edges, then end `run()`, within the settings' `drain_ms`; at
        once where it is asked for again. Safe from signal handlers."""
        self._leaving.ask()

    def stop(self) -> None:
        """End `run()` at once. Safe from signal handlers and other threads."""
        self._driver.stop()

    def save_journal(self) -> None:
        """Have the journal saved, soon. Safe from signal handlers and other threads."""
        self._journal.ask("signal")

    def stats(self) -> NodeStats:
        """What came so far."""
        counters = dict(self._session.counters)
        return NodeStats(
            self._name,
            self._incarnation,
            self._launches.counts(),
            counters,
            dict(self._router.counters),
            self._driver.lateness.figures(),
            self._process.effects,
            self._session.scheduler.arena.figures(),
            self._driver.stalls.figures(),
            self._driver.polled_s,
            self._session.pressure.figures(),
            self._settings,
        )

    def _expects(self) -> str | None:
        """What the loop waits for; None while an executor's thread works, which needs the interpreter when it has done."""
        return None if self._session.scheduler.running else "request"

    def _idle(self, slack_ns: int) -> None:
        """The journal first, so that its snapshots are of what events alone have led to."""
        if self._journal.idle is not None:
            self._journal.idle(slack_ns)
        self._session.idle()

    def _perform(self, action: Action) -> Event | None:
        if isinstance(action, Send):
            return None if self._router.send(action) else SendFailed(action.link, action.message)
        if isinstance(action, Leave):
            self._router.linger(LAST_WORDS_MS)
            self._driver.stop()
            return None
        if isinstance(action, Run):
            self._launches.started(action)
        return self._shop.perform(action)


def _forbidden(settings: CloudSettings) -> str:
    """Why nothing may be measured; empty where something may."""
    return "" if settings.node.allow_profile else "this node may not be measured: its node.allow_profile is false"


def main(
    config: Annotated[Path, typer.Option(help="The node's configuration file (TOML).")],
    endpoint: Annotated[str, typer.Option(help="Listen here instead of where the file says.")] = "",
    name: Annotated[str, typer.Option(help="Be called this instead of what the file says.")] = "",
    stats: Annotated[bool, typer.Option("--stats", help="End with one line of JSON: what was run, how often.")] = False,
) -> None:
    """Run a cloud node: the tails of the configured models, for every edge that asks. Ends with SIGTERM or Ctrl-C."""
    settings = load_cloud(config)
    group = settings.node
    group = msgspec.structs.replace(group, endpoint=endpoint or group.endpoint, name=name or group.name)
    if len(group.name) > MAX_WORD:
        raise SettingsError(f"--name: {len(group.name)} characters; expected at most {MAX_WORD}")
    node = Node(msgspec.structs.replace(settings, node=group))
    with closing(node):
        node.adapt()
        stop_on_signals(node.leave)
        save_on_signal(node.save_journal)
        tell_on_signal(lambda: msgspec.json.encode(node.stats()))
        models = ", ".join(node.models)
        sys.stdout.write(f"ready {node.endpoint} {group.name} (incarnation {node.incarnation}): {models}\n")
        sys.stdout.flush()
        node.run()
    outlive_signals()
    if stats:
        sys.stdout.write(msgspec.json.encode(node.stats()).decode() + "\n")
        sys.stdout.flush()
