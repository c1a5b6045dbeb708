"""The agent inside the application's own process: client, broker and connections in one loop.

For applications that would rather spare the copies over ipc than survive the death of their agent. Executors run on
threads of their own, as in the agent's process; the transports live in the client's loop.
"""

from __future__ import annotations

import time
import warnings

from edge.client_loop import Parts, room_for
from edge.direct import Direct
from edge.host import Host
from shared.driver import polling_of
from shared.process_settings import check_untouched
from shared.settings import EdgeSettings
from shared.settings_check import check

LOOP_HEAP_BYTES = 4 << 20
"""What the loop's thread has ready: with a quarter of it an application grew by 1.3 MB in half a million requests, in bursts
of answers that came when the application or the node went on after standing still."""


def embedded_parts(settings: EdgeSettings, name: str) -> Parts:
    """The parts of a client that carries its agent. Raises `SettingsError`, `BundleError`, `UserError`, and warns where the
    settings ask something of the process, which is the application's."""
    settings = check(settings)
    untouched = check_untouched(settings.process)
    if untouched:
        warnings.warn(untouched, stacklevel=3)
    host = Host(settings, time.time_ns(), own_process=False)
    try:
        return _parts(settings, name, host)
    except BaseException:
        host.close()
        raise


def _parts(settings: EdgeSettings, name: str, host: Host) -> Parts:
    limits, levels = settings.limits, settings.scheduling.priority_levels
    machine = Direct(name, limits.max_open, host.machine, host.models, levels, limits.max_streams)
    return Parts(
        machine,
        host.perform,
        host.close,
        completions=(host.finished,),
        transports=(host.nodes, *host.found),
        room=room_for(limits.max_open),
        idle=host.idle,
        save_journal=host.journal.save,
        heap_bytes=LOOP_HEAP_BYTES,
        polling=polling_of(settings.loop.poll_us),
        expects=host.broker.expects,
    )
