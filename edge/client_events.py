"""What happens to a client's machine (`edge.outcomes`) and what it asks for, beside what `shared.events` has.

The machine takes `Withdrawn`, `Hold`, `Resolve`, `Tick` and `ClockJumped` of the common vocabulary as well, and gives its
`Resolve` and `WakeAt`. `agent` is `PRIMARY` or `STANDBY`.
"""

from __future__ import annotations

import msgspec

from edge.agents import PRIMARY
from shared.events import ClockJumped, Hold, Resolve, Tick, WakeAt, Withdrawn

# --- events ------------------------------------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The application asks for an outcome of request `sequence`, due at `deadline_ns`, counted from `scheduled_ns`."""

    sequence: int
    scheduled_ns: int
    deadline_ns: int


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The way to an agent is open; it has not been greeted yet."""

    agent: int = PRIMARY


class AgentAttached(msgspec.Struct, frozen=True, gc=False):
    """An agent has answered the greeting. `incarnation` changes at each start of its process."""

    incarnation: int
    agent: int = PRIMARY


class AgentLost(msgspec.Struct, frozen=True, gc=False):
    """The way to an agent is closed, or the agent will not be asked; with `again` a later greeting may help."""

    again: bool = False
    agent: int = PRIMARY


class Heard(msgspec.Struct, frozen=True, gc=False):
    """An agent has spoken: of a request (`word`), or of something else. A `Hold` or `Resolve` by itself is the primary's."""

    agent: int
    word: Hold | Resolve | None = None


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """The transport had no room for this request."""

    sequence: int
    agent: int = PRIMARY


class Declined(msgspec.Struct, frozen=True, gc=False):
    """This agent cannot be asked this request: it has not the same model."""

    sequence: int
    agent: int


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The application closes the client: open requests end now."""


ClientEvent = (
    Asked
    | Withdrawn
    | Hold
    | Resolve
    | Heard
    | Connected
    | AgentAttached
    | AgentLost
    | Unsent
    | Declined
    | Tick
    | ClockJumped
    | Closed
)

# --- actions -----------------------------------------------------------------------------------------------------------


class Greet(msgspec.Struct, frozen=True, gc=False):
    """Send an agent a greeting."""

    agent: int = PRIMARY


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Send an agent the request that has this sequence."""

    sequence: int
    agent: int = PRIMARY


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Tell an agent that this request is no longer wanted."""

    sequence: int
    agent: int = PRIMARY


ClientAction = Greet | Ask | Drop | Resolve | WakeAt
