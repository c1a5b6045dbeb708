"""Where a request goes: the policy for choosing among nodes, by the name that the setting `balance` gives it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A place, by its name, that could take a piece of work, and when it is predicted to have it done (nanoseconds)."""

    place: str
    finish_ns: int


class LeastPredictedFinish:
    """The policy for choosing among places (nodes): the one that is predicted to finish first.

    Where published schedulers were simulated side by side (after Clockwork, Nexus, Shepherd and Symphony), a queue for each
    device with round robin did worst of all: one slow place then delays every n-th request. An edge has one policy for all
    its requests, so that one with a memory could keep it here.
    """

    def pick(self, offers: Sequence[Offer]) -> Offer | None:
        """The offer to take, of equal ones the first; None where there is none."""
        return min(offers, key=lambda offer: offer.finish_ns, default=None)
