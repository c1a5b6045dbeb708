"""What a node's journal must know of its session: how it is built, what its state is made of, what of it never changes."""

from __future__ import annotations

from collections.abc import Mapping

from cloud.session import Session
from shared.errors import InvariantBroken
from shared.journal.kind import MachineKind, Setup
from shared.journal.state import Known
from shared.plan import Plan
from shared.settings import CloudSettings


def node_setup(settings: CloudSettings, plans: Mapping[str, Plan], name: str, incarnation: int) -> Setup:
    """What a session is built from."""
    return NODE.normal(Setup(name, incarnation, 0, settings, dict(plans)))


def build_session(setup: Setup) -> Session:
    """A new session of `setup`."""
    if not isinstance(setup.settings, CloudSettings):
        raise InvariantBroken("a session is built from an edge's settings")
    return Session(setup.settings, setup.plans, setup.name, setup.incarnation)


NODE = MachineKind(
    name="node",
    settings=CloudSettings,
    machine=Session,
    known=Known(Session),
    fixed=(
        "_door._tensors",
        "_door._entries",
        "scheduler.latency._ranges",
        "scheduler.latency._codecs",
        "_door.outputs",
    ),
    build=build_session,
)
