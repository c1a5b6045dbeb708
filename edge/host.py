"""What carries a broker: the models, the executors and the connections to the nodes.

The agent's process and the embedded form are made of the same host; they differ only in how clients reach the broker.
"""

from __future__ import annotations

import random

from edge.broker import Broker
from edge.front import model_info
from shared.events import Action, Event, Send, SendFailed
from shared.settings import EdgeSettings
from shared.transport import Dealers
from shared.wire.codec import decode_node
from shared.wire.messages import ModelInfo
from shared.workshop import Workshop

SEND_MARK = 4
"""Messages that may wait to leave to one node: what waits longer than that is late anyway."""


class Host:
    """Bundles loaded, executors warm, links to the nodes opened. Raises `BundleError`, `SettingsError`, `UserError`."""

    def __init__(self, settings: EdgeSettings, incarnation: int) -> None:
        self._settings = settings
        self._shop = Workshop(
            settings.agent.models,
            "agent.models",
            side="edge",
            execution=settings.execution,
            batching=settings.batching,
            memory=settings.memory,
        )
        self.plans = self._shop.plans
        self.finished = self._shop.finished
        self.nodes = Dealers(
            settings.agent.name,
            incarnation,
            decode_node,
            max_message_mb=settings.limits.max_message_mb,
            send_buffer_kb=settings.link.send_buffer_kb,
            send_mark=SEND_MARK,
        )
        try:
            for node in settings.nodes:
                for kind in ("data", "probe"):
                    self.nodes.connect(f"{node.name}/{kind}", node.endpoint)
            self.broker = Broker(settings, self.plans, incarnation, random.Random(incarnation))
        except BaseException:
            self.close()
            raise

    @property
    def models(self) -> dict[str, ModelInfo]:
        """What clients are told of the models, by name."""
        return {plan.name: model_info(plan, contract, self._settings) for contract, plan in self.plans.items()}

    def perform(self, action: Action) -> Event | None:
        """Carry out what concerns executors and nodes."""
        if isinstance(action, Send):
            return None if self.nodes.send(action) else SendFailed(action.link, action.message)
        return self._shop.perform(action)

    def close(self) -> None:
        """End the executors and close the connections."""
        self._shop.close()
        self.nodes.close()
