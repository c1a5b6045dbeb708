"""The typed headers of every message, between edge and node and between client and agent.

A message is one msgpack header of at most `MAX_HEADER` bytes and then one raw frame for each of its tensors. The header
is a map; `t` names the kind. Receivers ignore keys they do not know. Times named `*_ns` that do not say otherwise are
nanoseconds of the sender's own CLOCK_MONOTONIC; `budget_ns` is what remained of the deadline when the message was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from shared.padding import Padding
from shared.request import Fidelity, Stages, TensorSpec

PROTOCOL = 1
MAX_PATHS = 32
"""Paths of one edge that a node takes: as many as an edge's settings may name."""

MAX_HEADER = 4096
MAX_TENSORS = 64


class Tensor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one frame decodes to. The frame's own length must fit: exactly for raw and int8, at most for jpeg."""

    dtype: str
    shape: tuple[int, ...]


def tensor_table(specs: Iterable[TensorSpec], max_rows: int) -> tuple[tuple[Tensor, ...], ...]:
    """The tensors that `specs` are with 0, 1, ... `max_rows` rows: made once, since every message needs them."""
    known = tuple(specs)
    return tuple(tuple(Tensor(s.dtype, s.at(rows)) for s in known) for rows in range(max_rows + 1))


class Load(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node's state, on every reply: predicted wait of a new row, and the credits that this edge may use."""

    wait_ns: int
    credits: int


Pressure = tuple[int, ...]
"""How pressed a node is, beside each `Load`: of each class from 0 on, how many thousandths of its requests would better be
done without this node; classes beyond are like the last. Empty, and not sent, where it is not pressed."""
FULL_PRESSURE = 1000
MAX_CLASSES = 16

# --- edge and node -------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="hello", omit_defaults=True):
    """First message of an edge on each connection. `connection` is `data` or `probe`; only `data` carries requests.
    `contracts` are the digests that the edge means to ask for. `path` tells the connections of an edge to one node apart:
    each has one of each kind."""

    protocol: int
    peer: str
    incarnation: int
    connection: Literal["data", "probe"]
    contracts: tuple[str, ...]
    path: int = 0


class Welcome(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="welcome", omit_defaults=True):
    """A node's answer to `Hello`. `contracts` are the digests, of those asked for, that it can run now. `paths` is how many
    paths of one edge it takes, numbered from 0."""

    protocol: int
    node: str
    incarnation: int
    contracts: tuple[str, ...]
    credits: int
    paths: int = 1


class Infer(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="infer"):
    """A request for the tail: the tensors of cut `cut` of the plan `contract`, written in `coding`, one frame each."""

    incarnation: int
    sequence: int
    attempt: int
    contract: str
    cut: int
    coding: str
    rows: int
    priority: int
    budget_ns: int
    sent_ns: int
    tensors: tuple[Tensor, ...]


class Reply(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="reply", omit_defaults=True):
    """An answer: the plan's outputs, raw, one frame each. It echoes all that names the attempt. `stages` is the node's
    part of the time (`cloud_queue`, `codec`, `tail`), from the receipt of the request to the sending of the reply."""

    incarnation: int
    sequence: int
    attempt: int
    contract: str
    cut: int
    coding: str
    rows: int
    tensors: tuple[Tensor, ...]
    stages: Stages
    sent_ns: int
    load: Load
    pressure: Pressure = ()


class Refusal(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="refusal", omit_defaults=True):
    """No answer will come for this attempt. `reason`: `expired`, `overload`, `credit`, `contract`, `input`, `size`,
    `hello`, `duplicate`, `failed`, `cancelled`, `draining`."""

    incarnation: int
    sequence: int
    attempt: int
    reason: str
    detail: str
    sent_ns: int
    load: Load
    pressure: Pressure = ()


class Cancel(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="cancel"):
    """The edge no longer wants this attempt. It is answered by a `Refusal` (`cancelled`) unless it had already been
    answered, so that credit is always returned."""

    incarnation: int
    sequence: int
    attempt: int


class Probe(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="probe"):
    """A liveness and clock probe. `last_sent_ns` and `last_received_ns` are the previous `ProbeReply`'s `sent_ns` and when
    it came in at the edge (0, 0 at first): with them the node, too, can bound the clock offset from both sides. `tensors`
    are padding, which keeps an idle data connection warm: their frames are dropped where they arrive."""

    number: int
    sent_ns: int
    last_sent_ns: int
    last_received_ns: int
    tensors: tuple[Tensor, ...] = ()


class ProbeReply(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="probed", omit_defaults=True):
    """Echo of a probe: its `number` and `sent_ns` (edge's clock), when it came in and when this left (node's clock)."""

    number: int
    probe_sent_ns: int
    received_ns: int
    sent_ns: int
    load: Load
    pressure: Pressure = ()


class NodeEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node of a fleet: its name, where it listens, how many connections an edge should keep on each way to it, and its
    further addresses."""

    name: str
    endpoint: str
    connections: int
    more: tuple[str, ...]


class NodeList(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="nodes"):
    """The nodes that there are, as of `epoch`: an edge takes a list of a higher epoch than its own in its place."""

    epoch: int
    nodes: tuple[NodeEntry, ...]


class Drain(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="drain"):
    """The node is about to leave: it answers what is there and lets nothing more in. It says `bye` when it goes."""

    incarnation: int


class Bye(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="bye"):
    """The sender is leaving or refuses to talk. `reason`: `closing`, `version`, `hello`, `full`, `replaced`."""

    reason: str


class Measure(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="measure"):
    """Asks a node or an agent to measure, while it is idle, what a model that it serves takes there: `model` is the plan's
    own digest of it, `batches` the rows of a launch (none: its choice), at `cadence_hz` runs a second for about `seconds`. It
    needs no greeting, and is sent again every second while the answer is wanted. `number` tells one wish from the next."""

    protocol: int
    number: int
    model: str
    batches: tuple[int, ...]
    cadence_hz: float
    seconds: float


class Measured(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="measured"):
    """How far that is: `share` of it is done, at `state`. `waiting` is for the process to be idle. `refused` and `done` are
    the last word: `detail` says why; the one tensor of `done` is what was measured (`shared.measured`)."""

    number: int
    state: Literal["refused", "waiting", "running", "done"]
    share: float = 0.0
    detail: str = ""
    tensors: tuple[Tensor, ...] = ()


class AskLetters(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="ask-letters"):
    """Asks a node or an agent for its dead letters (`shared.letters`): for all of them, or, where `letter` is the number of
    one, for that one with its inputs. It needs no greeting. `number` tells one wish from the next."""

    protocol: int
    number: int
    letter: int = 0


class ToldLetters(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="letters"):
    """The answer. `detail` says why there is none, empty where there is one: the first tensor is a `LetterList` as JSON, with
    one letter or with all, the others that letter's inputs as bytes."""

    number: int
    detail: str = ""
    tensors: tuple[Tensor, ...] = ()


EdgeMessage = Hello | Infer | Cancel | Probe | Measure | AskLetters | Bye
"""What an edge may send to a node."""

NodeMessage = Welcome | Reply | Refusal | ProbeReply | Measured | ToldLetters | Drain | NodeList | Bye
"""What a node may send to an edge."""

# --- client and agent, on one host: they share one CLOCK_MONOTONIC, so times are absolute ------------------------------


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client needs to know to check a request at its own door, and, where the plan has a `padding`, to fill a shorter
    one up and to cut its answer back."""

    name: str
    contract: str
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    outputs: tuple[str, ...]
    batchable: bool
    max_batch: int
    padding: Padding | None = None


class Attach(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="attach"):
    """First message of a client. It is repeated until `Attached` comes, and after each reconnect."""

    protocol: int
    client: str
    incarnation: int


class Attached(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="attached"):
    """The agent's answer, with the incarnation of the agent's process."""

    protocol: int
    agent: str
    incarnation: int
    models: tuple[ModelInfo, ...]


class Submit(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="submit"):
    """A request: the tensors of cut 0, raw, one frame each, in the plan's order."""

    sequence: int
    model: str
    rows: int
    scheduled_ns: int
    deadline_ns: int
    priority: int
    stream: int
    latest_wins: bool
    tensors: tuple[Tensor, ...]


class Withdraw(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="withdraw"):
    """The client has resolved or dropped this request: the agent stops working on it."""

    sequence: int


class OpenStream(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="open"):
    """The client announces stream `stream`: requests of `rows` rows for `model` every `period_ns`, each due `deadline_ns`
    after it was scheduled. Sent again after each attach. Answered by `StreamState`."""

    stream: int
    model: str
    rows: int
    period_ns: int
    deadline_ns: int
    priority: int
    latest_wins: bool


class CloseStream(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="close"):
    """No more requests of this stream will come."""

    stream: int


class AnswerHeader(msgspec.Struct, frozen=True, gc=False):
    """An `Answer` without its tensors, which are the message's frames."""

    source: Literal["edge", "cloud"]
    node: str | None
    rung: str
    cut: int | None
    fidelity: Fidelity
    contract: str
    stages: Stages
    tensors: tuple[Tensor, ...]


class Provisional(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="provisional"):
    """The best answer so far. The client keeps it, and delivers it just before the deadline if nothing better comes."""

    sequence: int
    answer: AnswerHeader


class Final(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="final"):
    """The agent's outcome. `kind` is `answer` (with `answer` and frames), `provisional` (deliver what was pushed before),
    `missed` (`reason` is the stage), `rejected` (`reason`) or `superseded`."""

    sequence: int
    kind: Literal["answer", "provisional", "missed", "rejected", "superseded"]
    answer: AnswerHeader | None = None
    reason: str = ""
    detail: str = ""


class StreamState(msgspec.Struct, frozen=True, gc=False, tag_field="t", tag="stream"):
    """What the stream is promised from now on: the local answer `rung` for each request, or none (empty), for `reason`."""

    stream: int
    rung: str
    reason: str = ""


ClientMessage = Attach | Submit | Withdraw | OpenStream | CloseStream | Measure | AskLetters | Bye
"""What a client may send to its agent."""

AgentMessage = Attached | Provisional | Final | StreamState | Measured | ToldLetters | Bye
"""What an agent may send to a client."""

Message = EdgeMessage | NodeMessage | ClientMessage | AgentMessage
