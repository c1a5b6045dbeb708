"""A client's connection to the agent of this host: ZeroMQ over ipc, behind the client's loop."""

from __future__ import annotations

from edge.client_loop import Parts
from edge.outcomes import Outcomes
from edge.stub import AGENT, Stub
from shared.events import Action, Event, Send, SendFailed
from shared.transport import Dealers
from shared.wire.codec import decode_agent

SEND_MARK = 64
"""Requests that may wait to leave. What a stopped agent leaves lying is bounded by it and by the kernel's own buffer."""

MESSAGE_MB = 2047
"""The largest message of the agent that is taken: what the agent's own settings allow at most."""


def agent_link(endpoint: str, name: str, incarnation: int, max_open: int) -> Parts:
    """The parts of a client that talks to the agent at `endpoint`. Raises `UserError` for a malformed endpoint."""
    transport = Dealers(name, incarnation, decode_agent, max_message_mb=MESSAGE_MB, send_mark=SEND_MARK)
    try:
        transport.connect(AGENT, endpoint)
    except BaseException:
        transport.close()
        raise

    def perform(action: Action) -> Event | None:
        if isinstance(action, Send) and not transport.send(action):
            return SendFailed(action.link, action.message)
        return None

    stub = Stub(name, incarnation, Outcomes(name, max_open))
    return Parts(stub, perform, transport.close, transports=(transport,))
