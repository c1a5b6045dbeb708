"""Sees which requests of a node end without an answer in time, and keeps them as dead letters. Pure.

It stands around the session and looks at what goes in and out, so that the session's state, and with it every snapshot of the
journal, stays free of it. What its edge took back, most often since another answer came first, is no dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cloud.kept import Identity
from cloud.session import Session
from shared.events import Action, ClockJumped, Event, Received, Send, SendFailed
from shared.letters import Letter, Letters
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Buffer, Stages
from shared.wire.messages import Bye, Hello, Infer, Refusal, Reply

PEERS_CHANGE = (SendFailed, ClockJumped, Hello, Bye)
"""Events and messages with which a peer may be gone."""


class _Came(msgspec.Struct, frozen=True, gc=False):
    """A request that is here, and when it came."""

    message: Infer
    frames: tuple[Buffer, ...]
    ns: int


class NodeLetters:
    """A session that is another, and whose failures go into `letters`. `inputs`: whether with what they held."""

    def __init__(
        self, machine: Machine, session: Session, plans: Mapping[str, Plan], letters: Letters, *, inputs: bool = False
    ) -> None:
        """`machine` is `session`, or stands around it. `plans` by contract digest."""
        self._handle = machine.handle
        self._session = session
        self._models = {contract: plan.name for contract, plan in plans.items()}
        self._letters = letters
        self._inputs = inputs
        self._open: dict[Identity, _Came] = {}

    def handle(self, event: Event, now: int) -> list[Action]:
        """What the session says."""
        actions = self._handle(event, now)
        self.see(event, actions, now)
        return actions

    def see(self, event: Event, actions: Sequence[Action], now: int) -> None:
        """Take a step that the session has made."""
        fresh: _Came | None = None
        peers_change = False
        if not isinstance(event, Received):
            peers_change = isinstance(event, PEERS_CHANGE)
        elif isinstance(event.message, Infer):
            fresh = _Came(event.message, event.frames if self._inputs else (), now)
            self._open.setdefault(self._identity(event.link, event.message), fresh)
        else:
            peers_change = isinstance(event.message, PEERS_CHANGE)
        for action in actions:
            if isinstance(action, Send):
                told = action.message
                if isinstance(told, (Reply, Refusal)):
                    self._ended(self._identity(action.link, told), told, fresh, now)
        if peers_change:
            for identity in [i for i in self._open if not self._session.is_open(i)]:
                self._bury(identity, self._open.pop(identity), "gone", "whoever asked is gone", now)

    def _ended(self, identity: Identity, message: Reply | Refusal, fresh: _Came | None, now: int) -> None:
        if isinstance(message, Refusal) and message.reason == "duplicate" and fresh is not None:
            # The one of the same name goes on, where it is not over.
            self._bury(identity, fresh, message.reason, message.detail, now)
            if not self._session.is_open(identity):
                self._open.pop(identity, None)
            return
        came = self._open.pop(identity, None)
        if came is None:
            return
        if isinstance(message, Reply):
            if now > came.ns + came.message.budget_ns:
                self._bury(identity, came, "late", "answered after its deadline", now, message.stages)
        elif message.reason != "cancelled":
            self._bury(identity, came, message.reason, message.detail, now)

    def _bury(
        self, identity: Identity, came: _Came, reason: str, detail: str, now: int, stages: Stages | None = None
    ) -> None:
        asked = came.message
        if stages is None:
            stages = {"tail" if reason == "failed" else "cloud_queue": now - came.ns}
        letter = Letter(
            who=identity[0],
            incarnation=asked.incarnation,
            sequence=asked.sequence,
            attempt=asked.attempt,
            model=self._models.get(asked.contract, ""),
            contract=asked.contract,
            priority=asked.priority,
            rows=asked.rows,
            cut=asked.cut,
            coding=asked.coding,
            came_ns=came.ns,
            due_ns=came.ns + asked.budget_ns,
            ended_ns=now,
            reason=reason,
            detail=detail,
            stages=stages,
        )
        self._letters.add(letter, came.frames, asked.tensors)

    def _identity(self, link: str, message: Infer | Reply | Refusal) -> Identity:
        peer = self._session.peers.of_link(link)
        return (link if peer is None else peer.name, message.incarnation, message.sequence, message.attempt)
