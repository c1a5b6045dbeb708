"""The agent inside the application's own process: client, broker and connections in one loop.

For applications that would rather spare the copies over ipc than survive the death of their agent. Executors run on
threads of their own, as in the agent's process; the transports live in the client's loop.
"""

from __future__ import annotations

import time

from edge.client_loop import Parts
from edge.direct import Direct
from edge.host import Host
from edge.outcomes import Outcomes
from shared.settings import EdgeSettings


def embedded_parts(settings: EdgeSettings, name: str) -> Parts:
    """The parts of a client that carries its agent. Raises `SettingsError`, `BundleError`, `UserError`."""
    host = Host(settings, time.time_ns())
    machine = Direct(name, Outcomes(name, settings.limits.max_open), host.broker, host.models)
    return Parts(
        machine,
        host.perform,
        host.close,
        completions=(host.finished,),
        transports=(host.nodes,),
    )
