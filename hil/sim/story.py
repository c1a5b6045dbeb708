"""What happened before a rule was broken, for a person to read: times in ms, who did what, the broken rule at the end.

A `Scribe` writes down the steps of clients, brokers and nodes as they are; only where something is broken are they put
into words, and only what says something: probes, greetings that are answered, wake-ups that lead to nothing and what a
process does again and again are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hil.sim.books import MS, Book
from hil.sim.broken import Broken
from hil.sim.script import START_NS, Ask, Fault, Item, Script, Source
from shared.events import (
    Abort,
    Action,
    AddressesChanged,
    Arrived,
    ClientGone,
    ClockJumped,
    Dial,
    DirectorySeen,
    Draining,
    Event,
    Failed,
    Finished,
    Granted,
    HangUp,
    Hold,
    Keep,
    Leave,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Run,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.request import Answer, Missed, Outcome, Rejected, Request, Superseded
from shared.wire.messages import (
    Attach,
    Attached,
    Bye,
    Cancel,
    Final,
    Infer,
    Message,
    Probe,
    ProbeReply,
    Provisional,
    Refusal,
    Reply,
    Submit,
    Welcome,
    Withdraw,
)

KEPT_STEPS = 4000
"""So many steps are kept before the broken one."""

SHOWN_LINES = 80
"""So many lines are shown of them."""

SILENT = (Probe, ProbeReply, Attach, Attached)
"""Messages that a story is better without."""


class Step:
    """One step of a machine, as it was seen."""

    __slots__ = ("actions", "at", "book", "event", "now")

    def __init__(self, at: int, book: Book, event: Event, actions: Sequence[Action], now: int) -> None:
        self.at = at
        self.book = book
        self.event = event
        self.actions = actions
        self.now = now


class Scribe:
    """Keeps the last steps. `at` is true time, of the last step or look that had one."""

    def __init__(self) -> None:
        self.at = START_NS
        self._steps: deque[Step] = deque(maxlen=KEPT_STEPS)

    def note(self, book: Book, event: Event, actions: Sequence[Action], now: int) -> None:
        """A machine has taken a step at its local time `now`."""
        at = max(self.at, self.at + now - book.host.local(self.at))
        self._steps.append(Step(at, book, event, actions, now))

    def lines(self, most: int = SHOWN_LINES) -> list[str]:
        """The last steps in words, at most so many."""
        found: list[str] = []
        told: set[tuple[str, str]] = set()
        for step in reversed(self._steps):
            line = _line(step, whole=not found)
            if line and (step.book.name, line) not in told:
                told.add((step.book.name, line))
                found.append(f"{_time(step.at)}  {line}")
            if len(found) >= most:
                found.append("      ...")
                break
        return found[::-1]


def tell(script: Script, seed: int, scribe: Scribe, broken: Broken) -> str:
    """The whole story: who was there, what was asked and went wrong, what they did, which rule is broken."""
    return "\n".join(
        [
            f"seed {seed} of {script.scenario}: {len(script.devices)} devices, {len(script.nodes)} nodes, "
            f"{sum(isinstance(i, Ask) for i in script.items)} requests, "
            f"{sum(isinstance(i, Fault) for i in script.items)} faults",
            *(_device(script, index) for index in range(len(script.devices))),
            *(f"  {p.name}: {', '.join(p.models)}; {p.settings.execution.executors} executors" for p in script.nodes),
            "what is asked and goes wrong:",
            *(f"{_time(item.at)}  {_item(item)}" for item in _shown(script.items)),
            "what they did:",
            *scribe.lines(),
            f"{_time(scribe.at)}  broken: {broken}",
        ]
    )


def _device(script: Script, index: int) -> str:
    device = script.devices[index]
    settings = device.settings
    what = "carries its agent" if device.embedded else f"{len(device.clients)} clients"
    nodes = ", ".join(node.name for node in settings.nodes) or "no node"
    return (
        f"  {device.name}: {what}; {', '.join(device.models)}; {settings.execution.executors} executors; knows {nodes}"
    )


def _shown(items: Sequence[Item]) -> list[Item]:
    """All that goes wrong and all streams; of the requests, where there are many, the last."""
    asks = [item for item in items if isinstance(item, Ask)][-SHOWN_LINES:]
    return sorted([*asks, *(item for item in items if not isinstance(item, Ask))], key=lambda item: item.at)


def _time(at: int) -> str:
    return f"{(at - START_NS) / MS:11.3f}"


def _item(item: Ask | Source | Fault) -> str:
    match item:
        case Ask():
            extra = f", stream {item.stream}" if item.stream else ""
            extra += f", {item.early_ns / MS:.3f} ms after it was due" if item.early_ns else ""
            extra += f", withdraws after {item.withdraw_ns / MS:.3f} ms" if item.withdraw_ns else ""
            rows, due = _rows(item.rows), item.deadline_ns / MS
            return f"{item.client} asks for {item.model}, {rows}, by {due:.3f} ms, class {item.priority}{extra}"
        case Source():
            every, due = item.period_ns / MS, item.deadline_ns / MS
            return (
                f"{item.client} opens stream {item.stream} for {item.model}, {_rows(item.rows)} every {every:.3f} ms, "
                f"by {due:.3f} ms, class {item.priority}{', latest wins' if item.latest_wins else ''}"
            )
        case Fault():
            amount = f" {item.amount:g}" if item.amount else ""
            return f"{item.kind}{amount} of {item.target} for {item.lasts_ns / MS:.3f} ms"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _line(step: Step, *, whole: bool) -> str:
    """A step in words; empty where it says nothing, unless it is to be told in any case."""
    event = step.event
    deeds = [text for action in step.actions if (text := _action(action, step.now))]
    silent = isinstance(event, Received) and isinstance(event.message, SILENT)
    if (silent or isinstance(event, Tick)) and not (deeds or whole):
        return ""
    does = "; ".join(deeds) or "-"
    return f"{step.book.name:<12} {_event(event, step.now)}  =>  {does}"


def _event(event: Event, now: int) -> str:
    match event:
        case Arrived():
            return f"asked {_request(event.request, now)}"
        case Received():
            return f"from {event.link}: {_message(event.message)}"
        case Finished():
            jobs = ", ".join(f"{r.job}{' failed: ' + r.error if r.error else ''}" for r in event.results)
            return f"run {event.run} done after {(event.ended_ns - event.began_ns) / MS:.3f} ms (jobs {jobs})"
        case Failed():
            return f"run {event.run} failed: {event.reason} {event.detail}".rstrip()
        case Tick():
            return f"wakes up{f' {event.late_ns / MS:.3f} ms late' if event.late_ns else ''}"
        case Withdrawn():
            return f"{event.client}/{event.sequence} is withdrawn"
        case ClientGone():
            return f"client {event.client} is gone"
        case LinkUp() | LinkDown():
            return f"{event.link} is {'up' if isinstance(event, LinkUp) else 'down'}"
        case SendFailed():
            return f"could not send to {event.link}: {_message(event.message)}"
        case ClockJumped():
            return f"was suspended for {event.jump_ns / MS:.3f} ms"
        case StreamOpened():
            return f"{event.client} opens stream {event.stream}"
        case StreamClosed():
            return f"{event.client} closes stream {event.stream}"
        case Draining():
            return "is told to leave"
        case DirectorySeen():
            return f"finds the directory of epoch {event.directory.epoch}"
        case AddressesChanged():
            return f"its addresses change: {event.left} left, {event.came} came"


def _request(request: Request, now: int) -> str:
    due = (request.deadline_ns - now) / MS
    return f"{request.client}/{request.sequence}: {_rows(request.rows)}, due in {due:.3f} ms, class {request.priority}"


def _action(action: Action, now: int) -> str:
    match action:
        case Run():
            jobs = ", ".join(str(row.job) for row in action.rows)
            part = action.range
            return (
                f"runs {action.run} on executor {action.executor}: program {part.program} [{part.first}, {part.last}), "
                f"jobs {jobs}, not after {(action.latest_ns - now) / MS:.3f} ms from now"
            )
        case Abort():
            return f"aborts run {action.run}"
        case Send():
            return "" if isinstance(action.message, SILENT) else f"to {action.link}: {_message(action.message)}"
        case Hold():
            return f"pushes {action.client}/{action.sequence} {_outcome(action.answer)}"
        case Resolve():
            return f"resolves {action.client}/{action.sequence}: {_outcome(action.outcome)}"
        case Granted():
            return (
                f"grants {action.client}'s stream {action.stream} {action.rung or 'nothing'} {action.reason}".rstrip()
            )
        case WakeAt():
            return ""
        case Leave():
            return "leaves"
        case Dial():
            return f"connects {action.link} anew"
        case HangUp():
            return f"ends {action.link}"
        case Keep():
            return f"keeps the directory of epoch {action.directory.epoch}"


def _outcome(outcome: Outcome) -> str:
    match outcome:
        case Answer():
            where = outcome.node or outcome.source
            return f"answer of {where} by {outcome.rung}, {outcome.fidelity}{'' if outcome.on_time else ', late'}"
        case Missed():
            return f"missed ({outcome.stage}: {outcome.detail})"
        case Rejected():
            return f"rejected ({outcome.reason}: {outcome.detail})"
        case Superseded():
            return "superseded"


def _message(message: Message) -> str:
    match message:
        case Infer():
            what = f"cut {message.cut} {message.coding}, {_rows(message.rows)}, {message.budget_ns / MS:.3f} ms left"
            return f"infer {message.sequence}/{message.attempt} {what}"
        case Reply():
            return f"reply {message.sequence}/{message.attempt}, {message.load.credits} credits"
        case Refusal():
            why = f"{message.reason} {message.detail}".rstrip()
            return f"refusal {message.sequence}/{message.attempt}: {why}, {message.load.credits} credits"
        case Cancel():
            return f"cancel {message.sequence}/{message.attempt}"
        case Welcome():
            return f"welcome, incarnation {message.incarnation}, {message.credits} credits"
        case Submit():
            return f"submit {message.sequence}, {_rows(message.rows)}"
        case Withdraw():
            return f"withdraw {message.sequence}"
        case Provisional():
            return f"provisional {message.sequence} by {message.answer.rung}"
        case Final():
            return f"final {message.sequence}: {message.kind} {message.reason}".rstrip()
        case Bye():
            return f"bye {message.reason}"
        case _:
            return type(message).__name__.lower()
