"""What a scheduler decides at one time."""

from __future__ import annotations

import msgspec

from shared.events import Run
from shared.queue import Job
from shared.running import Launch


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What `schedule` found: runs to launch now; jobs that can no longer be on time; jobs whose promise was revoked, since
    not all can be kept any more; launches whose executor has become suspect. Jobs that are `expired` or `revoked` have left
    the queue. Where there is something in `revoked` or `overdue`, nothing was launched yet: the owner finds other work
    for them first and calls again."""

    runs: tuple[Run, ...] = ()
    expired: tuple[Job, ...] = ()
    revoked: tuple[Job, ...] = ()
    overdue: tuple[Launch, ...] = ()

    @property
    def final(self) -> bool:
        """Whether the owner need not call again."""
        return not self.revoked and not self.overdue


NOTHING = Decision()
