"""How the books are kept: what each event, message and action changes in them.

Of each step `open_*` hear first, and leave in the book what the step is about (the request that an outcome ends, the attempt
that a reply answers); the checks come after them and find the state before and the thing in hand; `close_*` hear last, and
carry over.
"""

from __future__ import annotations

from heapq import heappush

from edge.outcomes import outcome_kind
from hil.sim import books_inside as inside
from hil.sim.books import (
    Asked,
    Attempt,
    Book,
    ClientBook,
    EdgeBook,
    EdgeRequest,
    Greeted,
    LetIn,
    NodeBook,
    NodeView,
    OutRun,
    WorkBook,
    work_key,
)
from hil.sim.checks_hear import Ears
from shared.events import (
    Abort,
    Arrived,
    ClientGone,
    ClockJumped,
    Event,
    Failed,
    Finished,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Run,
    Send,
    SendFailed,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.request import Rejected
from shared.wire.messages import Bye, Hello, Infer, Probe, ProbeReply, Refusal, Reply, Welcome

NOBODYS = (("", 0), 0)

# --- every process -------------------------------------------------------------------------------------------------------


def _ticked(book: Book, event: Tick, now: int) -> None:
    book.wake_ns = None


def _woken_at(book: Book, action: WakeAt, event: Event, now: int) -> None:
    book.wake_ns = action.at_ns


def _carry_over(book: Book, event: Event, now: int) -> None:
    book.wake_before_ns = book.wake_ns
    book.before_ns = now
    book.step += 1


# --- clients -------------------------------------------------------------------------------------------------------------


def open_client(ears: Ears[ClientBook]) -> None:
    """What is known of a client before the checks look."""
    ears.event(Tick, _ticked)
    ears.action(WakeAt, _woken_at)
    ears.event(Arrived, _reached_client)
    ears.event(Withdrawn, _withdrawn_by_client)
    ears.action(Resolve, _resolved_by_client)


def close_client(ears: Ears[ClientBook]) -> None:
    """What is carried over."""
    ears.end(_carry_over)


def _reached_client(book: ClientBook, event: Arrived, now: int) -> None:
    request = book.waiting.pop(event.request.sequence, None)
    if request is not None:
        book.asked += 1
        book.open[request.sequence] = Asked(request, now)
        heappush(book.due, (request.deadline_ns, request.sequence))


def _withdrawn_by_client(book: ClientBook, event: Withdrawn, now: int) -> None:
    book.delivered.pop(event.sequence, None)
    if book.open.pop(event.sequence, None) is not None:
        book.withdrawn += 1


def _resolved_by_client(book: ClientBook, action: Resolve, event: Event, now: int) -> None:
    book.closing = book.open.pop(action.sequence, None)
    book.ended[outcome_kind(action.outcome)] += 1


# --- executors -----------------------------------------------------------------------------------------------------------


def open_work(ears: Ears[EdgeBook] | Ears[NodeBook]) -> None:
    """What is known of a process's runs before the checks look."""
    ears.event(Tick, _ticked)
    ears.action(WakeAt, _woken_at)
    ears.event(Finished, _run_ends)
    ears.event(Failed, _run_ends)
    ears.action(Run, _run_starts)
    ears.action(Abort, _run_aborted)
    ears.end(_look_for_overruns)


def close_work(ears: Ears[EdgeBook] | Ears[NodeBook]) -> None:
    """What is carried over."""
    ears.event(Finished, _run_is_over)
    ears.event(Failed, _run_is_over)
    ears.action(Run, _run_is_out)
    ears.end(_carry_over_runs)


def _run_starts(book: WorkBook, run: Run, event: Event, now: int) -> None:
    key = work_key(run)
    rows = sum([row.rows for row in run.rows])
    latency = book.scheduler.latency
    book.launched = OutRun(run, key, now, latency.typical(key, rows), latency.pessimistic(key, rows))


def _run_is_out(book: WorkBook, run: Run, event: Event, now: int) -> None:
    out = book.launched
    if out is None:
        return
    book.changed = True
    book.out[run.run] = out
    book.busy[run.executor] += 1
    book.last_run = run.run
    for row in run.rows:
        book.jobs[row.job] = run.run
    if out.pool is not None:
        book.slots[out.pool, run.slot] = run.run


def _run_ends(book: WorkBook, event: Finished | Failed, now: int) -> None:
    book.ended = out = book.out.get(event.run)
    if out is not None and now > out.due_ns:
        book.slow_ns = now


def _run_is_over(book: WorkBook, event: Finished | Failed, now: int) -> None:
    out = book.out.pop(event.run, None)
    if out is None:
        return
    book.changed = True
    book.busy[out.run.executor] -= 1
    for row in out.run.rows:
        book.jobs.pop(row.job, None)
    if out.pool is not None:
        book.slots.pop((out.pool, out.run.slot), None)
        book.freed[out.pool, out.run.slot] += 1


def _run_aborted(book: WorkBook, action: Abort, event: Event, now: int) -> None:
    out = book.out.get(action.run)
    if out is not None:
        out.aborted = True


def _carry_over_runs(book: WorkBook, event: Event, now: int) -> None:
    book.changed = False
    book.wake_before_ns = book.wake_ns
    book.before_ns = now
    book.step += 1


def _look_for_overruns(book: WorkBook, event: Event, now: int) -> None:
    for out in book.out.values():
        if now > out.due_ns:
            book.slow_ns = now


# --- edges ---------------------------------------------------------------------------------------------------------------


def open_edge(ears: Ears[EdgeBook]) -> None:
    """What is known of a broker before the checks look."""
    open_work(ears)
    ears.event(Finished, _heads_done)
    ears.event(Failed, _runs_failed)
    ears.event(Arrived, _arrived)
    ears.event(Withdrawn, _withdrawn)
    ears.event(ClientGone, _client_gone)
    ears.event(LinkUp, _link_up)
    ears.event(LinkDown, _link_down)
    ears.event(SendFailed, _unsent)
    ears.received(Reply, _answered)
    ears.received(Refusal, _answered)
    ears.received(ProbeReply, _probed)
    ears.received(Welcome, _welcomed)
    ears.received(Bye, _node_leaves)
    ears.action(Resolve, _resolved)
    ears.action(Hold, _held)
    ears.action(Run, _whose)
    ears.sent(Infer, _asked)
    ears.sent(Probe, _probing)


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


def _withdrawn(book: EdgeBook, event: Withdrawn, now: int) -> None:
    _close(book, (event.client, event.sequence))


def _client_gone(book: EdgeBook, event: ClientGone, now: int) -> None:
    for key in [key for key in book.open if key[0] == event.client]:
        _close(book, key)


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


def _view(book: EdgeBook, link: str) -> NodeView | None:
    return book.nodes.get(link.rpartition("/")[0])


def _link_up(book: EdgeBook, event: LinkUp, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and event.link.endswith("/probe"):
        view.probes = 0
    elif view is not None:
        view.linked = True
        view.welcomed = False


def _link_down(book: EdgeBook, event: LinkDown, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and event.link.endswith("/data"):
        view.linked = False
        view.lose()


def _unsent(book: EdgeBook, event: SendFailed, now: int) -> None:
    view = _view(book, event.link)
    if view is not None and isinstance(event.message, Infer):
        view.out.pop((event.message.sequence, event.message.attempt), None)


def _answered(book: EdgeBook, message: Reply | Refusal, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is None:
        return
    _moved(book, view, event.link)
    view.credits = message.load.credits
    if message.incarnation == book.incarnation:
        attempt = view.out.pop((message.sequence, message.attempt), None)
        book.replied = None if attempt is None else (view, attempt)
    if isinstance(message, Refusal) and message.reason == "hello":
        view.welcomed = False


def _moved(book: EdgeBook, view: NodeView, link: str) -> None:
    if link.endswith("/data"):
        view.moved_step = book.step


def _probed(book: EdgeBook, message: ProbeReply, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is not None:
        view.probes = 0
        view.credits = message.load.credits
        _moved(book, view, event.link)


def _welcomed(book: EdgeBook, message: Welcome, event: Received, now: int) -> None:
    view = _view(book, event.link)
    if view is None or not event.link.endswith("/data"):
        return
    if view.incarnation != message.incarnation:
        view.lose()
    view.welcomed = True
    view.incarnation = message.incarnation
    view.contracts = message.contracts
    view.credits = message.credits
    _moved(book, view, event.link)


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
    out = inside.edge_nodes(book.broker)[view.name].out.get((message.sequence, message.attempt))
    attempt = Attempt(message, key or NOBODYS[0], now, now if out is None else out.typical_ns, book.step)
    view.out[message.sequence, message.attempt] = attempt
    book.sending = (view, attempt)


def _probing(book: EdgeBook, message: Probe, action: Send, event: Event, now: int) -> None:
    view = _view(book, action.link)
    if view is None:
        return
    if view.probes >= book.probe_losses:
        view.lose()
    view.probes += 1


# --- nodes ---------------------------------------------------------------------------------------------------------------


def open_node(ears: Ears[NodeBook]) -> None:
    """What is known of a session before the checks look."""
    open_work(ears)
    ears.received(Infer, _came)
    ears.received(Bye, _edge_leaves)
    ears.event(SendFailed, _edge_is_gone)
    ears.event(ClockJumped, _all_gone)
    ears.sent(Welcome, _greeted)
    ears.sent(Reply, _replies)
    ears.sent(Refusal, _refuses)


def close_node(ears: Ears[NodeBook]) -> None:
    """What is carried over."""
    ears.sent(Reply, _is_over)
    ears.sent(Refusal, _is_over)
    ears.end_of(Received, _nothing_arrived)
    close_work(ears)


def _came(book: NodeBook, message: Infer, event: Received, now: int) -> None:
    greeted = book.links.get(event.link)
    peer = event.link if greeted is None else greeted.peer
    identity = (peer, message.incarnation, message.sequence, message.attempt)
    book.arrived = identity
    job = inside.job_of(book.session, identity)
    if greeted is None or job is None or identity in book.open:
        return
    book.arrived = None
    known = book.session.peers.of_link(event.link)
    low = None if known is None else inside.bounds(known.offset, now)[0]
    deadline = message.sent_ns + message.budget_ns - (low if low is not None else message.sent_ns - now)
    let_in = LetIn(identity, event.link, message, event.frames, job, now, deadline)
    book.open[identity] = book.by_job[job] = let_in
    book.accounts[let_in.account] += 1


def _nothing_arrived(book: NodeBook, event: Received, now: int) -> None:
    book.arrived = None


def _edge_leaves(book: NodeBook, message: Bye, event: Received, now: int) -> None:
    _gone(book, event.link)


def _edge_is_gone(book: NodeBook, event: SendFailed, now: int) -> None:
    _gone(book, event.link)


def _all_gone(book: NodeBook, event: ClockJumped, now: int) -> None:
    for account in sorted({(g.peer, g.incarnation) for g in book.links.values()} | set(book.accounts)):
        book.forget(account)


def _gone(book: NodeBook, link: str) -> None:
    greeted = book.links.get(link)
    if greeted is not None:
        book.forget((greeted.peer, greeted.incarnation))


def _greeted(book: NodeBook, message: Welcome, action: Send, event: Event, now: int) -> None:
    if not isinstance(event, Received) or not isinstance(event.message, Hello):
        return
    hello = event.message
    former = book.links.get(event.link)
    if former is not None and former.peer != hello.peer:
        book.forget((former.peer, former.incarnation))
    known = {(g.peer, g.incarnation) for g in book.links.values()} | set(book.accounts)
    for account in sorted(known):
        if account[0] == hello.peer and account[1] != hello.incarnation:
            book.forget(account)
    for link, g in list(book.links.items()):
        if (g.peer, g.connection) == (hello.peer, hello.connection):
            del book.links[link]
    book.links[event.link] = Greeted(hello.peer, hello.incarnation, hello.connection)


def _named(book: NodeBook, message: Reply | Refusal, link: str) -> tuple[str, int, int, int]:
    greeted = book.links.get(link)
    peer = link if greeted is None else greeted.peer
    return (peer, message.incarnation, message.sequence, message.attempt)


def _replies(book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
    book.closing = book.open.get(_named(book, message, action.link))


def _refuses(book: NodeBook, message: Refusal, action: Send, event: Event, now: int) -> None:
    identity = _named(book, message, action.link)
    book.closing = None if identity == book.arrived else book.open.get(identity)


def _is_over(book: NodeBook, message: Reply | Refusal, action: Send, event: Event, now: int) -> None:
    if book.closing is not None:
        book.over(book.closing)
    elif isinstance(message, Refusal):
        book.arrived = None
