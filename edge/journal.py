"""What an edge's journal must know of its broker: how it is built, what its state is made of, what of it never changes."""

from __future__ import annotations

import random
from collections.abc import Mapping

import edge.attempts
import edge.balance
import edge.broker
import edge.cloud_way
import edge.due
import edge.grants
import edge.hold
import edge.insurance
import edge.late
import edge.link
import edge.local_work
import edge.nodes
import edge.open_request
import edge.register
import shared.events
import shared.latency
import shared.memory
import shared.offset
import shared.plan
import shared.queue
import shared.request
import shared.reserve
import shared.running
import shared.scheduler
import shared.settings
import shared.streams
import shared.wire.messages
from edge.broker import Broker
from shared.errors import InvariantBroken
from shared.journal.kind import MachineKind, Setup
from shared.journal.state import Known
from shared.plan import Plan
from shared.settings import EdgeSettings


def edge_setup(settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, seed: int) -> Setup:
    """What a broker is built from. `seed` is that of its random numbers."""
    return EDGE.normal(Setup(settings.agent.name, incarnation, seed, settings, dict(plans)))


def build_broker(setup: Setup) -> Broker:
    """A new broker of `setup`."""
    if not isinstance(setup.settings, EdgeSettings):
        raise InvariantBroken("a broker is built from a node's settings")
    return Broker(setup.settings, setup.plans, setup.incarnation, random.Random(setup.seed))


EDGE = MachineKind(
    name="edge",
    settings=EdgeSettings,
    machine=Broker,
    known=Known(
        (
            edge.attempts,
            edge.balance,
            edge.broker,
            edge.cloud_way,
            edge.due,
            edge.grants,
            edge.hold,
            edge.insurance,
            edge.late,
            edge.link,
            edge.local_work,
            edge.nodes,
            edge.open_request,
            edge.register,
            shared.events,
            shared.latency,
            shared.memory,
            shared.offset,
            shared.plan,
            shared.queue,
            shared.request,
            shared.reserve,
            shared.running,
            shared.scheduler,
            shared.settings,
            shared.streams,
            shared.wire.messages,
        )
    ),
    fixed=("_ways._facts", "scheduler.latency._ranges", "scheduler.latency._codecs"),
    build=build_broker,
)
