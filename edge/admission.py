"""What is refused at the broker's door, before anything is reserved for it."""

from __future__ import annotations

from shared.plan import Plan
from shared.request import Rejected, Request


def refusal(
    request: Request, plan: Plan | None, *, known: bool, open_now: int, max_open: int, decide_by: int, now: int
) -> Rejected | None:
    """Why this request is refused, or None. `plan` is None where its contract is not served, `known` whether its sequence is
    open already, `decide_by` the latest time (nanoseconds) at which its outcome may be decided."""
    if plan is None:
        return Rejected("no-route", f"contract {request.plan[:12]} is not served here")
    if open_now >= max_open:
        return Rejected("too-many-open", f"{open_now} requests are open")
    if known:
        return Rejected("duplicate", f"sequence {request.sequence} is open already")
    if now >= decide_by:
        return Rejected("expired", "the deadline is past, or too near to do anything")
    return None
