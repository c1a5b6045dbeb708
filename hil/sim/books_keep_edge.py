"""How the book of a broker is kept (`hil.sim.books_keep` says how that goes)."""

from __future__ import annotations

from heapq import heappush

from hil.sim import books_inside as inside
from hil.sim.books import (
    Attempt,
    EdgeBook,
    EdgeRequest,
    PathView,
    link_parts,
)
from hil.sim.books_keep import close_work, open_work
from hil.sim.checks_hear import Ears
from shared.events import (
    Arrived,
    ClientGone,
    Dial,
    DirectorySeen,
    Event,
    Failed,
    Finished,
    HangUp,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Run,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Withdrawn,
)
from shared.request import Rejected
from shared.wire.messages import Bye, Drain, Hello, Infer, Probe, ProbeReply, Refusal, Reply, Welcome

NOBODYS = (("", 0), 0)
OF_ONE_COPY = frozenset({"duplicate", "hello", "size", "input"})
"""Refusals that say nothing of an attempt's other copies."""


def open_edge(ears: Ears[EdgeBook]) -> None:
    """What is known of a broker before the checks look."""
    open_work(ears)
    ears.event(Finished, _heads_done)
    ears.event(Failed, _runs_failed)
    ears.event(Arrived, _arrived)
    ears.event(Withdrawn, _withdrawn)
    ears.event(ClientGone, _client_gone)
    ears.event(StreamOpened, _stream_opened)
    ears.event(StreamClosed, _stream_closed)
    ears.event(LinkUp, _link_up)
    ears.event(LinkDown, _link_down)
    ears.action(Dial, _dialled)
    ears.action(HangUp, _hung_up)
    ears.event(DirectorySeen, _directory)
    ears.event(SendFailed, _unsent)
    ears.received(Reply, _answered)
    ears.received(Refusal, _answered)
    ears.received(ProbeReply, _probed)
    ears.received(Welcome, _welcomed)
    ears.received(Drain, _node_drains)
    ears.received(Bye, _node_leaves)
    ears.action(Resolve, _resolved)
    ears.action(Hold, _held)
    ears.action(Run, _whose)
    ears.sent(Infer, _asked)
    ears.sent(Probe, _probing)
    ears.sent(Hello, _greeting)


def close_edge(ears: Ears[EdgeBook]) -> None:
    """What is carried over."""
    ears.end_of(Finished, _forget_work)
    ears.end_of(Failed, _forget_work)
    ears.end_of(Arrived, _forget_twice)
    ears.end_of(Received, _forget_reply)
    close_work(ears)


def _heads_done(book: EdgeBook, event: Finished, now: int) -> None:
    for result in event.results:
        key, attempt = book.work_of.get(result.job, NOBODYS)
        request = book.open.get(key)
        if request is None:
            continue
        if result.error:
            request.broken_run = True
        elif attempt:
            request.heads.append(result.outputs)


def _runs_failed(book: EdgeBook, event: Failed, now: int) -> None:
    for row in book.ended.run.rows if book.ended is not None else ():
        request = book.open.get(book.work_of.get(row.job, NOBODYS)[0])
        if request is not None:
            request.broken_run = True


def _arrived(book: EdgeBook, event: Arrived, now: int) -> None:
    request = event.request
    key = (request.client, request.sequence)
    if key in book.open:
        book.twice = key
        return
    entry = inside.opened(book.broker, *key)
    number = 0 if entry is None else entry.id
    if number:
        book.numbers[number] = key
    resolve_by = request.deadline_ns - book.guard_ns
    book.open[key] = EdgeRequest(request, now, resolve_by, number)
    heappush(book.due, (resolve_by, key))


def _stream_opened(book: EdgeBook, event: StreamOpened, now: int) -> None:
    known = book.streams.get((event.client, event.stream), event.priority)
    book.streams[event.client, event.stream] = min(known, event.priority)


def _stream_closed(book: EdgeBook, event: StreamClosed, now: int) -> None:
    book.streams.pop((event.client, event.stream), None)


def _withdrawn(book: EdgeBook, event: Withdrawn, now: int) -> None:
    _close(book, (event.client, event.sequence))


def _client_gone(book: EdgeBook, event: ClientGone, now: int) -> None:
    for key in [key for key in book.open if key[0] == event.client]:
        _close(book, key)
    for stream in [stream for stream in book.streams if stream[0] == event.client]:
        del book.streams[stream]


def _close(book: EdgeBook, key: tuple[str, int]) -> None:
    book.closing = request = book.open.pop(key, None)
    if request is not None:
        book.numbers.pop(request.number, None)


def _resolved(book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
    key = (action.client, action.sequence)
    if key == book.twice and isinstance(action.outcome, Rejected) and action.outcome.reason == "duplicate":
        book.closing = None
    else:
        _close(book, key)
        book.twice = None if key == book.twice else book.twice


def _held(book: EdgeBook, action: Hold, event: Event, now: int) -> None:
    book.closing = request = book.open.get((action.client, action.sequence))
    if request is not None:
        request.held = action.answer


def _whose(book: EdgeBook, run: Run, event: Event, now: int) -> None:
    for row in run.rows:
        number, attempt = inside.job_owner(book.broker, row.job)
        book.work_of[row.job] = (book.numbers.get(number, NOBODYS[0]), attempt)


def _forget_twice(book: EdgeBook, event: Arrived, now: int) -> None:
    book.twice = None


def _forget_reply(book: EdgeBook, event: Received, now: int) -> None:
    book.replied = None


def _forget_work(book: EdgeBook, event: Finished | Failed, now: int) -> None:
    if book.ended is not None:
        for row in book.ended.run.rows:
            book.work_of.pop(row.job, None)


def _view(book: EdgeBook, link: str) -> PathView | None:
    name, _, number = link_parts(link)
    node = book.nodes.get(name)
    return node.paths[number] if node is not None and number < len(node.paths) else None


def _is_data(link: str) -> bool:
    return link_parts(link)[1] == "data"


def _link_up(book: EdgeBook, event: LinkUp, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and not _is_data(event.link):
        view.probes = 0
    elif view is not None:
        view.linked = True
        view.welcomed = False


def _link_down(book: EdgeBook, event: LinkDown, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and _is_data(event.link):
        view.linked = False
        view.lose()


def _dialled(book: EdgeBook, action: Dial, event: Event, now: int) -> None:
    """A connection is made anew: what was out on it is lost."""
    view = _view(book, action.link)
    if view is not None and _is_data(action.link):
        lost = view.lost
        view.linked = False
        view.lose()
        # Not the node was lost.
        view.lost = lost


def _hung_up(book: EdgeBook, action: HangUp, event: Event, now: int) -> None:
    view = _view(book, action.link)
    if view is not None and _is_data(action.link):
        view.forget()


def _directory(book: EdgeBook, event: DirectorySeen, now: int) -> None:
    if event.directory.epoch > book.epoch:
        book.epoch = event.directory.epoch
        listed = {node.name for node in event.directory.nodes}
        for node in book.nodes.values():
            node.listed = node.name in listed


def _unsent(book: EdgeBook, event: SendFailed, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and isinstance(event.message, Infer):
        view.drop((event.message.sequence, event.message.attempt))


def _answered(book: EdgeBook, message: Reply | Refusal, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is None:
        return
    _moved(book, view, event.link)
    view.node.credits = message.load.credits
    if message.incarnation == book.incarnation:
        key = (message.sequence, message.attempt)
        attempt = view.out.get(key)
        view.seen = view.seen or attempt is not None
        view.drop(key)
        if attempt is not None and not (isinstance(message, Refusal) and message.reason in OF_ONE_COPY):
            # The first answer on any path is the attempt's.
            view.node.out.pop(key, None)
        book.replied = None if attempt is None else (view.node, attempt)


def _moved(book: EdgeBook, view: PathView, link: str) -> None:
    if _is_data(link):
        view.moved_step = book.step


def _probed(book: EdgeBook, message: ProbeReply, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is not None:
        view.seen = True
        view.probes = view.probes if _is_data(event.link) else 0
        view.node.credits = message.load.credits
        _moved(book, view, event.link)


def _welcomed(book: EdgeBook, message: Welcome, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is None or not _is_data(event.link):
        return
    if view.node.incarnation != message.incarnation:
        view.node.draining = False
        for path in view.node.paths:
            path.lose()
    if view.lost:
        view.lost = False
        if view.greeted_by != message.incarnation:
            view.return_ns = now + book.pause_ns
    view.greeted_by = message.incarnation
    view.welcomed = view.greeted = True
    view.node.incarnation = message.incarnation
    view.node.contracts = message.contracts
    view.node.credits = message.credits
    _moved(book, view, event.link)


def _node_drains(book: EdgeBook, message: Drain, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is not None:
        _moved(book, view, event.link)
        view.node.draining = view.node.draining or message.incarnation == view.node.incarnation


def _node_leaves(book: EdgeBook, message: Bye, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is not None:
        view.lose()


def _asked(book: EdgeBook, message: Infer, action: Send, event: Event, now: int) -> None:
    view = _view(book, action.link)
    if view is None:
        book.sending = None
        return
    key = book.numbers.get(message.sequence)
    if key is None and isinstance(event, Arrived):
        key = (event.request.client, event.request.sequence)
    number = (message.sequence, message.attempt)
    out = inside.path_of(book.broker, action.link).out.get(number)
    copy = number in view.node.out
    attempt = Attempt(message, key or NOBODYS[0], now, now if out is None else out.typical_ns, book.step, copy=copy)
    view.out[number] = attempt
    view.node.out.setdefault(number, attempt)
    view.node.asked.append(number)
    book.sending = (view, attempt)


def _greeting(book: EdgeBook, message: Hello, action: Send, event: Event, now: int) -> None:
    """A greeting on a data connection, after the node has said that it does not know this edge: nothing may be sent until it
    is answered. (A greeting of a node that is only stalled waits for any sign of life.)"""
    view = _view(book, action.link)
    refused = isinstance(event, Received) and isinstance(event.message, Refusal) and event.message.reason == "hello"
    if view is not None and refused and _is_data(action.link):
        view.welcomed = False


def _probing(book: EdgeBook, message: Probe, action: Send, event: Event, now: int) -> None:
    view = _view(book, action.link)
    if view is None or _is_data(action.link):
        return
    if view.probes >= book.probe_losses and view.greeted and not view.lost:
        view.lose()
    view.probes += 1
