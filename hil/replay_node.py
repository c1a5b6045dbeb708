"""Attempts as a node's journal shows them. An attempt is called `PEER:INCARNATION:SEQUENCE:ATTEMPT`."""

from __future__ import annotations

from cloud.kept import Identity
from cloud.session import Session
from hil.replay_lives import Life, Runs, came, ms, nbytes
from shared.events import Abort, Action, Event, Failed, Finished, Received, Run, Send, SendFailed
from shared.journal.replay import Replayed
from shared.wire.messages import Bye, Cancel, Hello, Infer, Refusal, Reply

LATE = frozenset({"expired", "overload", "failed", "credit"})
"""Refusals that leave an edge without an answer that it should have had."""


class NodeLives:
    """Reads attempts off the replay of a session."""

    def __init__(self, session: Session) -> None:
        self.all: list[Life] = []
        self._session = session
        self._runs = Runs()
        self._open: dict[Identity, Life] = {}
        self._names = {link: peer.name for peer in session.peers.all() for link in peer.links.values()}

    def see(self, step: Replayed) -> None:
        """Take the next step."""
        now = step.now_ns
        self._event(step.event, now)
        for action in step.actions:
            self._action(action, now)

    def _event(self, event: Event, now: int) -> None:
        match event:
            case Received(message=Hello() as message):
                self._names[event.link] = message.peer
                self._leave([i for i in self._open if i[0] == message.peer and i[1] != message.incarnation], now)
            case Received(message=Infer() as message):
                self._came_in(event, message, now)
            case Received(message=Cancel() as message):
                life = self._open.get(self._identity(event.link, message))
                if life is not None:
                    life.saw(now, came(event, "its edge"))
            case Finished():
                for life in self._runs.finished(event, now):
                    life.spent("cloud_queue", event.began_ns - life.arrived_ns - sum(life.stages.values()))
                    life.spent("codec", event.codec_ns)
                    life.spent("tail", event.ended_ns - event.began_ns - event.codec_ns)
            case Failed():
                self._runs.failed(event, now)
            case Received(message=Bye()) | SendFailed():
                name = self._names.get(event.link)
                if self._session.peers.of_link(event.link) is None:
                    self._leave([identity for identity in self._open if identity[0] == name], now)
            case _:
                pass

    def _came_in(self, event: Received, message: Infer, now: int) -> None:
        identity = self._identity(event.link, message)
        rows = f"{message.rows} row{'s' * (message.rows != 1)}"
        life = Life(
            id=":".join(map(str, identity)),
            about=f"cut {message.cut} as {message.coding}, class {message.priority}, {rows}",
            began_ns=now,
            arrived_ns=now,
            budget_ns=message.budget_ns,
        )
        life.saw(now, f"{came(event, identity[0])}: {life.about}, {ms(message.budget_ns)} ms left when it was sent")
        self.all.append(life)
        # A second of the same name is refused, and the first goes on.
        self._open.setdefault(identity, life)

    def _action(self, action: Action, now: int) -> None:
        match action:
            case Run():
                identities = [self._session.owner(row.job) for row in action.rows]
                self._runs.launched(
                    action, [self._open[i] for i in identities if i is not None and i in self._open], now
                )
            case Abort():
                self._runs.aborted(action, now)
            case Send(message=Reply() | Refusal() as message):
                self._answered(action, message, now)
            case _:
                pass

    def _answered(self, send: Send, message: Reply | Refusal, now: int) -> None:
        identity = self._identity(send.link, message)
        life = self._open.get(identity)
        if isinstance(message, Refusal) and message.reason == "duplicate":
            life = self.all[-1] if self.all else None
        else:
            self._open.pop(identity, None)
        if life is None:
            return
        if isinstance(message, Reply):
            life.stages = dict(message.stages)
            life.ended(now, "reply", on_time=True)
            life.saw(now, f"answered: {nbytes(send.frames)} bytes")
        else:
            detail = f"{message.reason}: {message.detail}" if message.detail else message.reason
            life.ended(now, "refused", on_time=False if message.reason in LATE else None, detail=detail)
            life.saw(now, f"refused: {detail}")

    def _leave(self, identities: list[Identity], now: int) -> None:
        for identity in identities:
            life = self._open.pop(identity)
            life.saw(now, "its edge is gone")
            life.ended(now, "gone", detail="its edge is gone")

    def _identity(self, link: str, message: Infer | Cancel | Reply | Refusal) -> Identity:
        peer = self._session.peers.of_link(link)
        name = self._names.get(link) or (link if peer is None else peer.name)
        return (name, message.incarnation, message.sequence, message.attempt)
