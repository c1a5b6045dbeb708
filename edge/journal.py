"""What an edge's journal must know of its broker: how it is built, what its state is made of, what of it never changes."""

from __future__ import annotations

import random
from collections.abc import Mapping

from edge.broker import Broker
from shared.errors import InvariantBroken
from shared.journal.kind import MachineKind, Setup
from shared.journal.state import Known
from shared.plan import Plan
from shared.settings import EdgeSettings


def edge_setup(settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, seed: int | str) -> Setup:
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
    known=Known(Broker),
    fixed=("_ways._facts", "scheduler.latency._ranges", "scheduler.latency._codecs", "_ways._tails"),
    build=build_broker,
)
