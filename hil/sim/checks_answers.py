"""Checks 9, 13 and 17: an answer is that of an attempt that was made for this very request, says what ran, and accounts for
its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hil.sim.books import ClientBook, EdgeBook, EdgeRequest, NodeBook, ms
from hil.sim.checks_base import AllEars, Check
from shared.errors import InvariantBroken
from shared.events import Event, Finished, Hold, Received, Resolve, Run, Send
from shared.plan import SegmentRange
from shared.request import EXACT, Answer, Array, Buffer, Fidelity, Missed, Outcome, Request, Stages
from shared.wire.messages import Infer, Reply, Submit

Expected = Callable[[Request, Answer], Mapping[str, Array]]
"""What the outputs of this answer to this request must be, by what it says of itself; `InvariantBroken` where it says what
cannot be."""


class RightAnswer(Check):
    """9. An answer's (contract, cut, coding, incarnation, sequence, attempt) equals an attempt that was sent, and its tensors
    are those of this very request.

    Three times over: at a node, a row runs on the very frames that came with its request, or on what the piece before gave,
    and its reply carries the outputs of its last; at a broker, an answer of the device carries the outputs of the run that
    was launched on this request's tensors, one of the cloud those of the reply to an attempt that is out; and what the
    application gets is computed anew from what it asked.
    """

    number = 9

    def __init__(self, expected: Expected | None) -> None:
        self._expected = expected

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.sent(Submit, self._submitted)
        ears.client.action(Resolve, self._client_resolves)
        ears.edge.action(Run, self._edge_runs)
        ears.edge.sent(Infer, self._edge_asks)
        ears.edge.action(Resolve, self._edge_resolves)
        ears.edge.action(Hold, self._edge_pushes)
        ears.node.action(Run, self._node_runs)
        ears.node.sent(Reply, self._node_replies)

    def _submitted(self, book: ClientBook, message: Submit, action: Send, event: Event, now: int) -> None:
        asked = book.open.get(message.sequence)
        if asked is not None:
            asked.contracts = (*asked.contracts, message.model)

    def _client_resolves(self, book: ClientBook, action: Resolve, event: Event, now: int) -> None:
        answer, asked = action.outcome, book.closing
        if asked is None or not isinstance(answer, Answer):
            return
        contracts = asked.contracts or (asked.request.plan,)
        if answer.contract not in contracts:
            self.broken(book, f"request {action.sequence} has an answer of a contract that it was not asked of")
        if self._expected is None:
            return
        try:
            expected = self._expected(asked.request, answer)
        except InvariantBroken as error:
            self.broken(book, f"request {action.sequence}: {error}")
        if not _same_outputs(expected, answer.outputs):
            made = f"{answer.source} by {answer.rung}, cut {answer.cut}, {answer.fidelity}"
            self.broken(book, f"request {action.sequence} has the tensors of something else ({made})")

    def _edge_runs(self, book: EdgeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            request = book.open.get(book.work_of[row.job][0])
            if request is not None and not _same_tensors(row.inputs, request.request.inputs):
                self.broken(book, f"run {run.run} has other tensors than request {_name(request)} came with")

    def _edge_asks(self, book: EdgeBook, message: Infer, action: Send, event: Event, now: int) -> None:
        request = book.open_by(message.sequence)
        if message.incarnation != book.incarnation or book.sending is None:
            self.broken(book, f"attempt {message.sequence}/{message.attempt} is sent in another's name, or to nobody")
        if request is None:
            self.broken(book, f"attempt {message.sequence}/{message.attempt} is sent for a request that is not open")
        asked = request.request
        if (message.contract, message.rows) != (asked.plan, asked.rows):
            self.broken(book, f"attempt {message.sequence}/{message.attempt} is not of its request's contract and rows")
        left = request.resolve_by - now
        # What the way takes at least is left out, once something is known of it.
        fits = message.budget_ns <= left if book.sending[0].seen else message.budget_ns == left
        if not fits or (message.sent_ns, message.priority) != (now, asked.priority):
            self.broken(
                book,
                f"attempt {message.sequence}/{message.attempt} says that {ms(message.budget_ns)} are left, of class "
                f"{message.priority}, and it is {ms(left)}, class {asked.priority}",
            )
        ready = request.heads if message.cut or message.coding != "raw" else [asked.inputs]
        if not any(action.frames is frames for frames in ready):
            self.broken(book, f"attempt {message.sequence}/{message.attempt} carries other tensors than its request")

    def _edge_resolves(self, book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
        request, outcome = book.closing, action.outcome
        if request is None or not isinstance(outcome, Answer):
            return
        if not action.held:
            self._made(book, request, outcome, event)
        elif request.held is None or outcome.replace(stages={}) != request.held.replace(stages={}):
            self.broken(book, f"request {_name(request)} ends with a held answer that is not the one that was pushed")

    def _edge_pushes(self, book: EdgeBook, action: Hold, event: Event, now: int) -> None:
        if book.closing is not None:
            self._made(book, book.closing, action.answer, event)

    def _made(self, book: EdgeBook, request: EdgeRequest, answer: Answer, event: Event) -> None:
        """The answer that came with this event is what the event brought for this request."""
        key = (request.request.client, request.request.sequence)
        if answer.contract != request.request.plan:
            self.broken(book, f"request {_name(request)} has an answer of another contract")
        if answer.source == "edge":
            outputs = _result(book, event, key)
            if outputs is None or not _same_tensors(tuple(answer.outputs.values()), outputs):
                self.broken(book, f"request {_name(request)} has an answer of the device that no run of it just gave")
            return
        replied = book.replied
        if replied is None or not isinstance(event, Received) or not isinstance(event.message, Reply):
            self.broken(
                book, f"request {_name(request)} has an answer of the cloud, and no attempt was answered just now"
            )
        view, attempt = replied
        asked, reply = attempt.infer, event.message
        if attempt.key != key:
            self.broken(book, f"request {_name(request)} has the answer to an attempt for {attempt.key}")
        said = (reply.incarnation, reply.sequence, reply.attempt, reply.contract, reply.cut, reply.coding, reply.rows)
        if said != (
            asked.incarnation,
            asked.sequence,
            asked.attempt,
            asked.contract,
            asked.cut,
            asked.coding,
            asked.rows,
        ):
            self.broken(book, f"request {_name(request)} takes a reply that answers {said}")
        if (answer.node, answer.cut) != (view.name, asked.cut):
            self.broken(
                book, f"request {_name(request)} names node {answer.node}, cut {answer.cut} for {view.name}'s reply"
            )
        if [a.tobytes() for a in answer.outputs.values()] != [bytes(frame) for frame in event.frames]:
            self.broken(book, f"request {_name(request)} has other tensors than the reply to its attempt")

    def _node_runs(self, book: NodeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            let_in = book.by_job.get(row.job)
            if let_in is not None and row.inputs is not let_in.frames:
                self.broken(book, f"run {run.run} has other frames than request {let_in.identity} came with")

    def _node_replies(self, book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
        let_in = book.closing
        if let_in is None:
            return
        asked = let_in.message
        said = (message.contract, message.cut, message.coding, message.rows)
        if said != (asked.contract, asked.cut, asked.coding, asked.rows) or action.link not in let_in.links:
            self.broken(book, f"the reply to {let_in.identity} says {said}, or goes to another connection")
        results = event.results if isinstance(event, Finished) else ()
        outputs = next((r.outputs for r in results if r.job == let_in.job), None)
        if outputs is None or action.frames is not outputs:
            self.broken(book, f"the reply to {let_in.identity} does not carry what its row gave")
        elif book.ended is not None and book.ended.run.range.last != len(book.plans[asked.contract].cuts) - 1:
            self.broken(book, f"the reply to {let_in.identity} carries what its row gave at a cut before the last")


def _name(request: EdgeRequest) -> str:
    return f"{request.request.client}/{request.request.sequence}"


def _result(book: EdgeBook, event: Event, key: tuple[str, int]) -> tuple[Array | Buffer, ...] | None:
    """What the event brought for this request's rung."""
    if isinstance(event, Finished):
        for result in event.results:
            if book.work_of.get(result.job) == (key, 0):
                return result.outputs
    return None


def _same_tensors(ours: Sequence[object], theirs: Sequence[object]) -> bool:
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):  # noqa: SIM110, at every answer: a generator costs three times this
        if a is not b:
            return False
    return True


def _same_outputs(expected: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
    if expected.keys() != outputs.keys():
        return False
    for name, right in expected.items():
        given = outputs[name]
        if right.dtype != given.dtype or right.shape != given.shape or right.tobytes() != given.tobytes():
            return False
    return True


class SaysWhatRan(Check):
    """13. Fidelity equals what ran.

    Worked out anew at the broker, from the plan and from what it launched or sent: the whole model with nothing lossy is
    exact, a lossy coding is named with the route's agreement, a cheaper rung with its own. That the tensors are those of
    what is named is check 9.
    """

    number = 13

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.action(Resolve, self._resolves)
        ears.edge.action(Hold, self._pushes)

    def _resolves(self, book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
        if isinstance(action.outcome, Answer) and not action.held and book.closing is not None:
            self._says(book, book.closing, action.outcome, event)

    def _pushes(self, book: EdgeBook, action: Hold, event: Event, now: int) -> None:
        if book.closing is not None:
            self._says(book, book.closing, action.answer, event)

    def _says(self, book: EdgeBook, request: EdgeRequest, answer: Answer, event: Event) -> None:
        ran = self._ran(book, request, answer, event)
        if ran != (answer.rung, answer.fidelity, answer.cut):
            says = (answer.rung, str(answer.fidelity), answer.cut)
            self.broken(book, f"the answer to {_name(request)} says {says}, and what ran was {ran}")

    def _ran(
        self, book: EdgeBook, request: EdgeRequest, answer: Answer, event: Event
    ) -> tuple[str, Fidelity, int | None] | None:
        plan = book.plans[request.request.plan]
        if answer.source == "edge":
            run = None if book.ended is None else book.ended.run
            if not isinstance(event, Finished) or run is None:
                return None
            rung = plan.rung_of(run.range.program)
            whole = SegmentRange(run.range.program, 0, len(plan.programs[run.range.program].segments))
            if rung is None or run.range != whole:
                return None
            fidelity = EXACT if rung.program == 0 else Fidelity("rung", rung.name, rung.agreement)
            return rung.name, fidelity, None
        if book.replied is None:
            return None
        asked = book.replied[1].infer
        coding = plan.cuts[asked.cut].coding(asked.coding)
        route = next((r for r in plan.routes if (r.cut, r.coding) == (asked.cut, asked.coding)), None)
        if coding is None or route is None:
            return None
        fidelity = Fidelity("lossy", coding.name, route.agreement) if coding.lossy else EXACT
        return plan.programs[0].name, fidelity, asked.cut


class TimesAddUp(Check):
    """17. The stages of the time account add up to the elapsed time, and none is negative.

    Of an answer at the client, counted from its scheduled time; at the broker from its arrival; of a reply at the node
    from its receipt. What a client had to put right (it books what does not add up as the agent's) is broken as well."""

    number = 17

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.action(Resolve, self._client_resolves)
        ears.edge.action(Resolve, self._edge_resolves)
        ears.edge.action(Hold, self._edge_pushes)
        ears.node.sent(Reply, self._node_replies)

    def _client_resolves(self, book: ClientBook, action: Resolve, event: Event, now: int) -> None:
        asked = book.closing
        if asked is None:
            return
        outcome: Outcome = action.outcome
        elapsed = max(0, now - asked.request.scheduled_ns)
        if outcome.elapsed_ns != elapsed:
            self.broken(
                book, f"request {action.sequence} says {ms(outcome.elapsed_ns)} have passed, and it were {ms(elapsed)}"
            )
        if isinstance(outcome, Answer):
            wrong = _wrong(outcome.stages, elapsed)
            if wrong or book.owed.counts.misaccounted:
                self.broken(book, f"request {action.sequence}: {wrong or 'the stages of its agent did not add up'}")
        elif isinstance(outcome, Missed) and not outcome.stage:
            self.broken(book, f"request {action.sequence} is missed, and no stage is named")

    def _edge_resolves(self, book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
        if isinstance(action.outcome, Answer) and book.closing is not None:
            self._at_broker(book, book.closing, action.outcome.stages, now)

    def _edge_pushes(self, book: EdgeBook, action: Hold, event: Event, now: int) -> None:
        if book.closing is not None:
            self._at_broker(book, book.closing, action.answer.stages, now)

    def _at_broker(self, book: EdgeBook, request: EdgeRequest, stages: Stages, now: int) -> None:
        wrong = _wrong(stages, now - request.arrived_ns)
        if wrong:
            self.broken(book, f"the answer to {_name(request)}: {wrong}")

    def _node_replies(self, book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
        if book.closing is not None:
            wrong = _wrong(message.stages, now - book.closing.received_ns)
            if wrong:
                self.broken(book, f"the reply to {book.closing.identity}: {wrong}")


def _wrong(stages: Stages, elapsed: int) -> str:
    """What is wrong with these stages; empty where nothing is."""
    if sum(stages.values()) == elapsed and min(stages.values(), default=0) >= 0:
        return ""
    return f"stages {stages} are {ms(sum(stages.values()))} of {ms(elapsed)}"
