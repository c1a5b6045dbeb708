"""A client's connections to the agents of this host: ZeroMQ over ipc, behind the client's loop."""

from __future__ import annotations

from edge.client_loop import Parts, room_for
from edge.outcomes import Outcomes
from edge.stub import AGENT, STANDBY_AGENT, Stub
from shared.events import Action, Event, Send, SendFailed
from shared.transport import Dealers
from shared.wire.codec import decode_agent

SEND_MARK = 64
"""Requests that may wait to leave. What a stopped agent leaves lying is bounded by it and by the kernel's own buffer."""

MESSAGE_MB = 2047
"""The largest message of the agent that is taken: what the agent's own settings allow at most."""


def agent_link(endpoint: str, name: str, incarnation: int, max_open: int, standby: str | None = None) -> Parts:
    """The parts of a client that talks to the agent at `endpoint`, and to the one at `standby` while that is away. Raises
    `UserError` for a malformed endpoint."""
    transport = Dealers(name, incarnation, decode_agent, max_message_mb=MESSAGE_MB, send_mark=SEND_MARK)
    try:
        transport.connect(AGENT, endpoint)
        if standby is not None:
            transport.connect(STANDBY_AGENT, standby)
    except BaseException:
        transport.close()
        raise

    def perform(action: Action) -> Event | None:
        if isinstance(action, Send) and not transport.send(action):
            return SendFailed(action.link, action.message)
        return None

    stub = Stub(name, incarnation, Outcomes(name, max_open, standby=standby is not None))
    return Parts(stub, perform, transport.close, transports=(transport,), room=room_for(max_open))
