"""What the groups of jobs that wait offer to a free executor, as long as it holds.

What a group offers is looked at for each free executor, while a group changes by its own requests only. So an offer is kept
with its lane (`shared.queue.Lane`) until the lane, what is known of times and aims, or the time itself says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from shared.latency import Latency
from shared.queue import DeadlineQueue, Job, Lane, Offer
from shared.running import NEVER_NS
from shared.targets import Targets

PLACE = attrgetter("place")


class Offers:
    """The offers of one queue."""

    def __init__(self, queue: DeadlineQueue, targets: Targets, latency: Latency, max_rows: Mapping[str, int]) -> None:
        """`max_rows` is the largest launch by contract."""
        self._queue = queue
        self._targets = targets
        self._latency = latency
        self._max_rows = max_rows
        self.known = 0
        """Counts what changes how lanes are looked at, besides the lanes."""

    def look(self, now: int, dropped: list[Job]) -> list[Offer]:
        """What each group that may begin now offers: the most important class first, in it what must start soonest. Those at
        the head of a group whose time allows a smaller batch than is aimed at (`shared.targets`), where more wait behind
        them, leave the queue."""
        queue = self._queue
        known, keep = self.known, not queue.deferred
        found: list[Offer] = []
        for lane in queue.lanes():
            offer = lane.offer
            if offer is None or offer.known != known or now > offer.until_ns:
                head = queue.head(lane, now)
                offer = None if head is None else self._offer(lane, head, now, dropped)
                if offer is None:
                    continue
                if keep:
                    lane.offer = offer
            found.append(offer)
        found.sort(key=PLACE)
        return found

    def _offer(self, lane: Lane, head: Job, now: int, dropped: list[Job]) -> Offer | None:
        """Look at a lane that has changed: None where nothing of it is left that may begin."""
        latency, most, lead = self._latency, self._max_rows[head.contract], self._latency.lead_ns
        until, aim = NEVER_NS, 1
        rows, takes = latency.batch_within(head.key, head.deadline_ns - now - lead, min(lane.rows, most))
        if rows < lane.rows and self._targets.aims:
            while not head.promised:
                aim = self._targets.of(head)
                target = min(aim, lane.rows)
                until = head.deadline_ns - latency.typical(head.key, target) if target > 1 else NEVER_NS
                if now <= until:
                    break
                self._queue.take((head,))
                dropped.append(head)
                found = self._queue.head(lane, now)
                if found is None:
                    return None
                head = found
            rows, takes = latency.batch_within(head.key, head.deadline_ns - now - lead, min(lane.rows, most))
        latest = head.deadline_ns - takes
        place = (head.priority, latest, head.id)
        until = until if until < latest else latest
        return Offer(place, head, rows, takes, latest, self.known, until, lane.rows <= rows or lane.rows <= aim)
