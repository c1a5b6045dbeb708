"""The edge agent: the process that answers for the applications of one host.

It loads and warms its models before it binds its endpoint, so that an agent that can be reached can answer, and then
says so in one line:

    ready ipc:///tmp/headtail-edge NAME (incarnation N): MODEL, ...

A standby says `standby N` for `incarnation N`.

SIGTERM and SIGINT end it with status 0, SIGUSR1 has it save its journal,
SIGUSR2 write one line of JSON (`AgentStats`). A second agent on one path is refused: the path's
lock belongs to the first.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from edge.front import Front
from edge.host import Host
from edge.letters import EdgeLetters
from edge.nodes import REPLACED
from shared.driver import Driver, polling_of
from shared.events import Action, Event, Received, Send, SendFailed
from shared.lateness import LatenessFigures
from shared.letter_box import LetterBox
from shared.letters import Letters
from shared.measurer import Measurer
from shared.measuring import Measuring
from shared.memory import ArenaFigures
from shared.ports import Machine
from shared.process_host import Adaptation
from shared.process_settings import Effect
from shared.settings import EdgeSettings
from shared.settings_file import load_edge
from shared.signals import outlive_signals, save_on_signal, stop_on_signals, tell_on_signal
from shared.standard_streams import say
from shared.transport import Router
from shared.wire.codec import decode_client
from shared.wire.messages import Bye

SEND_MARK = 256
"""Messages that may wait for one client."""


class AgentStats(msgspec.Struct, frozen=True):
    """What an agent tells of itself when it ends. `counters` are the broker's, `refused` what clients were refused, by
    reason, `wire` the messages of clients and nodes that were no messages, by reason, `lateness` how late the loop handled
    its wake-ups, `process` what became of the settings of the process, `memory` what became of the slots,
    `stalls` for how long the loop did not look at what had come, `polled_s` for how long in all it looked for what
    was to come, `pressure` what each node told last (thousandths of each class that had better step back), `settings` are
    those in force."""

    agent: str
    incarnation: int
    clients: int
    counters: dict[str, int]
    refused: dict[str, int]
    wire: dict[str, int]
    lateness: LatenessFigures = LatenessFigures()
    process: tuple[Effect, ...] = ()
    memory: ArenaFigures = ArenaFigures()
    stalls: LatenessFigures = LatenessFigures()
    polled_s: float = 0.0
    pressure: dict[str, tuple[int, ...]] = {}
    settings: EdgeSettings = EdgeSettings()


class Agent:
    """One agent, built and warmed, not yet running. Raises `BundleError`, `SettingsError`, `UserError` (endpoint)."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._name = settings.agent.name
        self.incarnation = time.time_ns()
        self._process = Adaptation(settings.process)
        self._told_replaced = False
        with ExitStack() as made:
            self._host = Host(settings, self.incarnation, own_process=True)
            made.callback(self._host.close)
            machine: Machine = self._host.machine
            keeping = settings.dead_letters
            letters = Letters(keeping.keep, keeping.keep_mb << 20)
            if keeping.keep:
                machine = EdgeLetters(machine, self._host.plans, letters, inputs=keeping.inputs)
            self._front = Front(settings, self._host.plans, self.incarnation, machine)
            self._clients = Router(
                settings.agent.endpoint,
                decode_client,
                max_message_mb=settings.limits.max_message_mb,
                send_mark=SEND_MARK,
            )
            made.callback(self._clients.close)
            self._measurer = Measurer(
                Measuring(
                    self._host.plans,
                    settings.execution.provider,
                    settings.limits.max_message_mb << 20,
                    _forbidden(settings),
                ),
                self._host.folders,
                settings.execution,
                self._name,
                send=self._clients.send,
                busy=self._host.broker.busy,
                cores=settings.process.executor_cores,
            )
            made.callback(self._measurer.close)
            self._letter_box = LetterBox(
                letters,
                "agent",
                self._name,
                self.incarnation,
                send=self._clients.send,
                forbidden="" if settings.agent.show_dead_letters else "this agent's agent.show_dead_letters is false",
            )
            self._driver = Driver(
                self,
                self._perform,
                completions=(self._host.finished, self._measurer),
                transports=(self._host.nodes, self._clients),
                arrivals=self._host.found,
                own_process=self._process.interpreter(),
                idle=self._host.idle,
                polling=polling_of(settings.loop.poll_us, realtime=settings.process.realtime_priority > 0),
                expects=self._host.broker.expects,
            )
            made.callback(self._driver.close)
            self._made = made.pop_all()

    def adapt(self) -> None:
        """Do to this process what its settings ask, on the thread that will call `run`. Raises `SettingsError`."""
        self._process.apply(self._host.nodes.threads | self._clients.threads)

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return self._clients.endpoint

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be, for a person: addresses that cannot be watched, a list of nodes that cannot be
        read."""
        return self._host.notes

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(self._host.models)

    def handle(self, event: Event, now: int) -> list[Action]:
        """The front's own `handle`, and what is measured beside. For the driver only."""
        if self._measurer.takes(event, now) or self._letter_box.takes(event, now):
            return []
        actions = self._front.handle(event, now)
        if isinstance(event, Received) and isinstance(event.message, Bye) and event.message.reason == REPLACED:
            self._replaced(event.link)
        self._measurer.look(now)
        return actions

    def _replaced(self, link: str) -> None:
        """A node serves another agent of this name: whoever runs this one is told, once."""
        if link in self._host.nodes.links and not self._told_replaced:
            self._told_replaced = True
            node = link.rpartition("/")[0]
            say(
                f"the node {node} serves another agent {self._name!r}, started later, in place of this one: give each agent "
                "a name of its own (agent.name)"
            )

    def run(self) -> None:
        """Serve until `stop()`; then release everything."""
        with self._made:
            self._driver.run()

    def close(self) -> None:
        """Release everything, where `run` was never called; nothing is left to do where it was."""
        self._made.close()

    def stop(self) -> None:
        """End `run()`. Safe from signal handlers and other threads."""
        self._driver.stop()

    def save_journal(self) -> None:
        """Have the journal saved, soon. Safe from signal handlers and other threads."""
        self._host.journal.ask("signal")

    def stats(self) -> AgentStats:
        """What came so far."""
        wire = dict(self._clients.counters)
        for reason, count in self._host.nodes.counters.items():
            wire[reason] = wire.get(reason, 0) + count
        return AgentStats(
            self._name,
            self.incarnation,
            self._front.clients,
            dict(self._host.broker.counters),
            dict(self._front.refused),
            wire,
            self._driver.lateness.figures(),
            self._process.effects,
            self._host.broker.scheduler.arena.figures(),
            self._driver.stalls.figures(),
            self._driver.polled_s,
            {name: node.pressure for name, node in self._host.broker.nodes.by_name.items()},
            self._settings,
        )

    def _perform(self, action: Action) -> Event | None:
        if isinstance(action, Send) and action.link not in self._host.nodes.links:
            return None if self._clients.send(action) else SendFailed(action.link, action.message)
        return self._host.perform(action)


def _forbidden(settings: EdgeSettings) -> str:
    """Why nothing may be measured; empty where something may."""
    if settings.agent.standby:
        return "a standby agent does not hold the whole model: ask the agent that it stands by"
    return "" if settings.agent.allow_profile else "this agent may not be measured: its agent.allow_profile is false"


def main(
    config: Annotated[Path, typer.Option(help="The agent's configuration file (TOML).")],
    endpoint: Annotated[str, typer.Option(help="Listen here instead of where the file says.")] = "",
    stats: Annotated[bool, typer.Option("--stats", help="End with one line of JSON: what came, how often.")] = False,
) -> None:
    """Run the edge agent: answers this host's applications, with the help of cloud nodes. Ends with SIGTERM or Ctrl-C."""
    settings = load_edge(config)
    group = msgspec.structs.replace(settings.agent, endpoint=endpoint or settings.agent.endpoint)
    agent = Agent(msgspec.structs.replace(settings, agent=group))
    with closing(agent):
        agent.adapt()
        for note in agent.notes:
            sys.stderr.write(f"{note}\n")
        stop_on_signals(agent.stop)
        save_on_signal(agent.save_journal)
        tell_on_signal(lambda: msgspec.json.encode(agent.stats()))
        models = ", ".join(agent.models)
        kind = "standby" if group.standby else "incarnation"
        sys.stdout.write(f"ready {agent.endpoint} {group.name} ({kind} {agent.incarnation}): {models}\n")
        sys.stdout.flush()
        agent.run()
    outlive_signals()
    if stats:
        sys.stdout.write(msgspec.json.encode(agent.stats()).decode() + "\n")
        sys.stdout.flush()
