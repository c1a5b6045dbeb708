"""What happens and what is done about it: the vocabulary of the pure machines.

`edge.broker.Broker` and `cloud.session.Session` have one entry, `handle(event, now) -> list[Action]`. Whoever drives
them (the real loop in `shared.driver`, an in-memory pair in a test) feeds events in and carries actions out. Nothing here
reads a clock or touches a socket. `now` and every `*_ns` is nanoseconds of the local CLOCK_MONOTONIC.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.directory import Directory
from shared.plan import Coding, SegmentRange
from shared.request import Answer, Array, Buffer, Outcome, Request
from shared.wire.messages import Message

# --- work --------------------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True, gc=False):
    """One job's part of a launch: `rows` rows of its tensors.

    `inputs` holds one array or one received frame for each tensor at the range's entry. Frames are decoded with `decode`
    at staging. `encode`, where set, is applied to the tensors at the range's exit, and the results are frames.
    """

    job: int
    rows: int
    inputs: tuple[Array | Buffer, ...]
    decode: Coding
    encode: Coding | None = None


class RowResult(msgspec.Struct, frozen=True, gc=False):
    """What came of one `Row`: its outputs (arrays, or frames where it was encoded), or `error` (then no outputs)."""

    job: int
    outputs: tuple[Array | Buffer, ...]
    error: str = ""


# --- events ------------------------------------------------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A client asks. (edge)"""

    request: Request


class Withdrawn(msgspec.Struct, frozen=True, gc=False):
    """A client no longer wants an outcome for this request. (edge)"""

    client: str
    sequence: int


class ClientGone(msgspec.Struct, frozen=True, gc=False):
    """A client has left: none of its requests is wanted. (edge)"""

    client: str


class StreamOpened(msgspec.Struct, frozen=True, gc=False):
    """A client announces a source of requests: one of `rows` rows every `period_ns`, each due `deadline_ns` after it was
    scheduled, of class `priority`. Its frames come as `Arrived` with this `stream`. Answered by `Granted`, each time that
    what is granted changes. Opening an open stream again replaces what was said of it. (edge)"""

    client: str
    stream: int
    plan: str
    rows: int
    period_ns: int
    deadline_ns: int
    priority: int
    latest_wins: bool


class StreamClosed(msgspec.Struct, frozen=True, gc=False):
    """No more frames of this stream will come; those that are open keep their outcomes. (edge)"""

    client: str
    stream: int


TOGETHER = 16
"""Messages that came in one turn and may be decided on together; behind so many, what came first would wait too long."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A well-formed message came in. On the edge `link` names the connection (`NODE/data`, `NODE/probe`), on a node the
    peer's routing id. `more`: the next event is at hand, so that what is to be launched may be decided after it."""

    link: str
    message: Message
    frames: tuple[Buffer, ...] = ()
    more: bool = False


class LinkUp(msgspec.Struct, frozen=True, gc=False):
    """A connection was made at the transport's level. `local` is the address of this host that it leaves from, where that is
    known. (edge)"""

    link: str
    local: str = ""


class LinkDown(msgspec.Struct, frozen=True, gc=False):
    """A connection was lost at the transport's level. (edge)"""

    link: str


class SendFailed(msgspec.Struct, frozen=True, gc=False):
    """A `Send` could not be handed to the transport: its peer is not connected, or its queue is full."""

    link: str
    message: Message


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A run ended. `began_ns` to `ended_ns` is the whole of it, of which `codec_ns` went to decoding and encoding."""

    run: int
    results: tuple[RowResult, ...]
    began_ns: int
    ended_ns: int
    codec_ns: int = 0


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A run came to nothing. `window`: it could not begin by its `latest_ns`. `aborted`: as asked. `error`: the runtime
    refused, as `detail` tells."""

    run: int
    reason: Literal["window", "aborted", "error"]
    detail: str = ""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """The wake-up that was asked for. `late_ns` is how much later than asked it came."""

    late_ns: int = 0


class ClockJumped(msgspec.Struct, frozen=True, gc=False):
    """Boot time ran `jump_ns` further than monotonic time: the host was suspended."""

    jump_ns: int


class Address(msgspec.Struct, frozen=True, gc=False):
    """An address of this host, and the interface that has it."""

    interface: str
    address: str


class AddressesChanged(msgspec.Struct, frozen=True, gc=False):
    """Addresses came to this host, or left it. `missed`: there was more than is told here. (edge)"""

    came: tuple[Address, ...]
    left: tuple[Address, ...]
    missed: bool = False


class DirectorySeen(msgspec.Struct, frozen=True, gc=False):
    """A directory of the fleet was found, as a file or elsewhere. An edge takes its nodes from it, a node tells its edges of
    it, where it is newer than what they have."""

    directory: Directory


class Draining(msgspec.Struct, frozen=True, gc=False):
    """The node is to leave: it lets nothing more in, answers what is there, and asks to `Leave`. (node)"""


Event = (
    Arrived
    | Withdrawn
    | ClientGone
    | StreamOpened
    | StreamClosed
    | Received
    | LinkUp
    | LinkDown
    | SendFailed
    | Finished
    | Failed
    | Tick
    | ClockJumped
    | Draining
    | AddressesChanged
    | DirectorySeen
)

# --- actions -----------------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True, gc=False):
    """Launch a segment range for some rows on an executor, into the leased slot `slot` of the range's entry.

    The executor refuses to begin after `latest_ns` (`Failed("window")`). `in_place` asks that the loop's own thread carry it
    out, since it is shorter than waking another would take. `generation` is the lease's.
    """

    run: int
    executor: int
    contract: str
    range: SegmentRange
    rows: tuple[Row, ...]
    slot: int
    latest_ns: int
    in_place: bool = False
    generation: int = 0


class Abort(msgspec.Struct, frozen=True, gc=False):
    """Stop a run if that is still possible. It ends as `Failed("aborted")` or, where too late, as `Finished`."""

    run: int
    executor: int


class Send(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the transport, never blocking."""

    link: str
    message: Message
    frames: tuple[Array | Buffer, ...] = ()


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Push the best answer so far to the client, to be delivered just before the deadline if nothing better comes. (edge)"""

    client: str
    sequence: int
    answer: Answer


class Resolve(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a request. `held` says that it is the very answer of the last `Hold`. (edge)"""

    client: str
    sequence: int
    outcome: Outcome
    held: bool = False


class Granted(msgspec.Struct, frozen=True, gc=False):
    """What a stream is promised from now on: `rung` is the local answer that each of its frames can count on, empty where
    none is promised (its frames are best effort), and `reason` says why then. (edge)"""

    client: str
    stream: int
    rung: str
    reason: str = ""


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Wake the machine with a `Tick` at this time. Each replaces the one before."""

    at_ns: int


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Make a connection and keep it, anew where there is one of this name: from then on `LinkUp` and `LinkDown` tell how it
    fares. `source` is the local address or interface that it leaves from. (edge)"""

    link: str
    endpoint: str
    source: str


class HangUp(msgspec.Struct, frozen=True, gc=False):
    """End a connection for good. (edge)"""

    link: str


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Keep this directory for the next start. (edge)"""

    directory: Directory


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Nothing is left to do: the process may end. (node)"""


Action = Dial | HangUp | Keep | Leave | Run | Abort | Send | Hold | Resolve | Granted | WakeAt
