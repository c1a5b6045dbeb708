"""What carries a broker: the models, the executors and the connections to the nodes.

The agent's process and the embedded form are made of the same host; they differ only in how clients reach the broker.
"""

from __future__ import annotations

from pathlib import Path

from edge.fleet import absent_sources, with_newest
from edge.front import model_infos
from edge.journal import EDGE, build_broker, edge_setup
from edge.paths import connections
from shared.addresses import AddressWatch
from shared.directory_file import DirectoryWatch, Keeping
from shared.events import Action, Dial, Event, HangUp, Keep, Run, Send, SendFailed
from shared.journal.keeper import Keeper
from shared.settings import EdgeSettings
from shared.standard_streams import say
from shared.transport import Dealers
from shared.wire.codec import decode_node
from shared.wire.messages import ModelInfo
from shared.workshop import Workshop

SEND_MARK = 4
"""Messages that may wait to leave to one node: what waits longer than that is late anyway."""


class Host:
    """Bundles loaded, executors warm, links to the nodes opened. Raises `BundleError`, `SettingsError`, `UserError`.

    `machine` is the broker to be driven, with its journal around it (`journal`); `found` are sources of what changes around
    it. `own_process` is whether the process is the agent's.
    """

    def __init__(self, settings: EdgeSettings, incarnation: int, *, own_process: bool) -> None:
        tell = say if own_process else _ignore
        self._keeping = Keeping(Path(settings.fleet.state), tell) if settings.fleet.state else None
        directory = settings.fleet.directory
        self._watch = DirectoryWatch(Path(directory), tell, announce=False) if directory else None
        settings, fault = with_newest(settings, self._watch.first if self._watch is not None else None)
        self._settings = settings
        self._shop = Workshop(
            settings.agent.models,
            "agent.models",
            side="standby" if settings.agent.standby else "edge",
            execution=settings.execution,
            batching=settings.batching,
            memory=settings.memory,
        )
        self.plans = self._shop.plans
        self.folders = self._shop.folders
        self.finished = self._shop.finished
        try:
            self.nodes = Dealers(
                settings.agent.name,
                incarnation,
                decode_node,
                max_message_mb=settings.limits.max_message_mb,
                send_buffer_kb=settings.link.send_buffer_kb,
                send_mark=SEND_MARK,
            )
        except BaseException:
            self._shop.close()
            raise
        addresses = AddressWatch()
        self.notes = (*(note for note in (fault, addresses.fault) if note), *absent_sources(settings))
        """What is not as it should be, for a person."""
        self.found: tuple[AddressWatch | DirectoryWatch, ...] = (addresses,)
        if self._watch is not None:
            self.found = (addresses, self._watch)
        try:
            for node in settings.nodes:
                for way in connections(node):
                    self.nodes.connect(way.link, way.endpoint, way.source)
            setup = edge_setup(settings, self.plans, incarnation, incarnation)
            self.broker = build_broker(setup)
            self.journal = Keeper(self.broker, EDGE, setup, settings.journal, own_process=own_process)
        except BaseException:
            self._release()
            raise
        self.machine = self.journal.machine

    @property
    def models(self) -> dict[str, ModelInfo]:
        """What clients are told of the models, by name."""
        return model_infos(self.plans, self._settings)

    def perform(self, action: Action) -> Event | None:
        """Carry out what concerns executors and nodes."""
        if isinstance(action, Send):
            return None if self.nodes.send(action) else SendFailed(action.link, action.message)
        if isinstance(action, Run):
            return self._shop.perform(action)
        if isinstance(action, Dial):
            self.nodes.redial(action.link, action.endpoint, action.source)
            return None
        if isinstance(action, HangUp):
            self.nodes.disconnect(action.link)
            return None
        if isinstance(action, Keep):
            if self._keeping is not None:
                self._keeping.keep(action.directory)
            return None
        return self._shop.perform(action)

    def idle(self, slack_ns: int) -> None:
        """The loop is about to sleep, for up to `slack_ns`: do what was put off. The journal first, so that its snapshots are
        of what events alone have led to."""
        if self.journal.idle is not None:
            self.journal.idle(slack_ns)
        self.broker.idle()

    def close(self) -> None:
        """End the executors and close the connections, once a journal that is being saved is there."""
        self.journal.close()
        self._release()

    def _release(self) -> None:
        self._shop.close()
        self.nodes.close()
        for source in self.found:
            source.close()
        if self._keeping is not None:
            self._keeping.close()


def _ignore(_line: str) -> None:
    """What an application's own process is not told: its output is its own."""
