"""Dead letters: which requests become one, in which bounds they are kept, who may see them, and what comes of them now."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from plans import make_input, make_plan
from test_session import FRAMES, LINK, T0, finish, greeted, hello, infer, run_of
from tiny import inputs_for, make_bundle
from typer import Typer
from typer.testing import CliRunner

from cloud.letters import NodeLetters
from cloud.node import Node
from cloud.session import Session
from edge.agent import Agent
from edge.letters import EdgeLetters
from hil.deadletters import main
from hil.journals import journal
from hil.letters_ask import ask, letters_of, of_journal
from hil.pair import MS, Pair
from shared.bundle import load_bundle
from shared.errors import InputError, UserError
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    ClockJumped,
    Event,
    Failed,
    Hold,
    Received,
    Resolve,
    Send,
    SendFailed,
    Tick,
    Withdrawn,
)
from shared.fakes import FakeMachine
from shared.letter_box import LetterBox
from shared.letters import LETTER_BYTES, Letter, LetterList, Letters
from shared.request import EXACT, Answer, Missed, Outcome, Rejected, Request, Superseded
from shared.settings import AgentGroup, CloudSettings, DeadLetters, EdgeSettings, Memory, NodeGroup
from shared.wire.codec import tensor_of
from shared.wire.messages import PROTOCOL, AskLetters, Attach, Bye, Cancel, Submit, Tensor, ToldLetters

CONTRACT, PLAN = make_plan()
PATIENCE_S = 30.0


def letter(reason: str = "missed", detail: str = "") -> Letter:
    return Letter("app", 0, 1, 0, "test", CONTRACT, 1, 1, 0, "raw", 0, 10 * MS, 10 * MS, reason, detail, {})


# The ring


def test_the_oldest_make_room_for_more_than_are_kept() -> None:
    letters = Letters(3, 1 << 20)
    for reason in "abcde":
        letters.add(letter(reason))
    assert [(x.number, x.reason) for x in letters.all()] == [(3, "c"), (4, "d"), (5, "e")]
    assert letters.forgotten == 2
    assert letters.nbytes == 3 * LETTER_BYTES


def test_the_oldest_make_room_for_more_bytes_than_are_kept() -> None:
    letters = Letters(100, 3 * LETTER_BYTES + 500)
    for reason in "abcd":
        letters.add(letter(reason), make_input())  # 256 bytes each
    assert [x.reason for x in letters.all()] == ["c", "d"]
    assert letters.nbytes == 2 * (LETTER_BYTES + 256)


def test_inputs_that_alone_are_too_large_are_left_out() -> None:
    letters = Letters(100, LETTER_BYTES + 200)
    letters.add(letter(), make_input())
    assert letters.find(1) == (letters.all()[0], ())
    assert not letters.all()[0].tensors


def test_details_are_cut_to_length() -> None:
    letters = Letters(1, 1 << 20)
    letters.add(letter(detail="x" * 10_000))
    assert len(letters.all()[0].detail) == 200


# What becomes one, on the edge


def edge(letters: Letters, outcome: Outcome | None, *, inputs: bool = False) -> EdgeLetters:
    """A broker that resolves each request at the next tick."""

    def script(event: Event, now: int) -> list[Action]:
        return [Resolve("app", 1, outcome)] if isinstance(event, Tick) and outcome is not None else []

    return EdgeLetters(FakeMachine(script), {CONTRACT: PLAN}, letters, inputs=inputs)


REQUEST = Request("app", 1, CONTRACT, make_input(), 1, 1 * MS, 11 * MS, 2)
ANSWER = Answer({}, "edge", None, "whole", None, EXACT, CONTRACT, stages={"rung": 3 * MS})


@pytest.mark.parametrize(
    ("outcome", "at_ms", "reason", "stages"),
    [
        (Missed("uplink", "n1 stalled"), 10.5, "missed", {"client": 1 * MS, "uplink": 8.5 * MS}),
        (Rejected("overload", "no time"), 2, "overload", {"client": 1 * MS, "agent": 0}),
        (ANSWER, 12, "late", {"client": 1 * MS, "rung": 3 * MS}),
    ],
)
def test_a_request_without_an_answer_in_time_is_a_letter(
    outcome: Outcome, at_ms: float, reason: str, stages: dict[str, int]
) -> None:
    letters = Letters(8, 1 << 20)
    machine = edge(letters, outcome)
    machine.handle(Arrived(REQUEST), 2 * MS)
    machine.handle(Tick(), int(at_ms * MS))
    (found,) = letters.all()
    assert (found.who, found.sequence, found.model, found.priority, found.reason) == ("app", 1, "test", 2, reason)
    assert (found.came_ns, found.due_ns, found.ended_ns) == (1 * MS, 11 * MS, at_ms * MS)
    assert found.stages == stages
    machine.handle(Tick(), 20 * MS)
    assert len(letters) == 1, "one request is one letter"


@pytest.mark.parametrize("outcome", [ANSWER, Superseded()])
def test_a_request_that_was_answered_in_time_or_superseded_is_none(outcome: Outcome) -> None:
    letters = Letters(8, 1 << 20)
    machine = edge(letters, outcome)
    machine.handle(Arrived(REQUEST), 2 * MS)
    machine.handle(Tick(), 5 * MS)
    assert not letters.all()


@pytest.mark.parametrize("event", [Withdrawn("app", 1), ClientGone("app")])
def test_a_request_that_nobody_wants_any_more_is_none(event: Event) -> None:
    letters = Letters(8, 1 << 20)
    machine = edge(letters, Missed("rung"))
    machine.handle(Arrived(REQUEST), 2 * MS)
    machine.handle(event, 3 * MS)
    machine.handle(Tick(), 12 * MS)
    assert not letters.all()


@pytest.mark.parametrize("held", [False, True])
def test_a_request_that_its_client_gives_up_at_its_deadline_is_one_unless_it_was_pushed_an_answer(held: bool) -> None:
    letters = Letters(8, 1 << 20)
    push: list[Action] = [Hold("app", 1, ANSWER)] if held else []
    machine = EdgeLetters(FakeMachine(lambda event, now: push if isinstance(event, Tick) else []), {}, letters)
    machine.handle(Arrived(REQUEST), 2 * MS)
    machine.handle(Tick(), 5 * MS)
    machine.handle(Withdrawn("app", 1), 11 * MS)
    assert [x.reason for x in letters.all()] == ([] if held else ["missed"])


def test_what_a_request_held_is_kept_only_where_that_is_asked_for() -> None:
    for inputs in (False, True):
        letters = Letters(8, 1 << 20)
        machine = edge(letters, Missed("rung"), inputs=inputs)
        machine.handle(Arrived(REQUEST), 2 * MS)
        machine.handle(Tick(), 11 * MS)
        found = letters.find(1)
        assert found is not None
        assert [bytes(frame) for frame in found[1]] == ([REQUEST.inputs[0].tobytes()] if inputs else [])


# What becomes one, on a node


def node(letters: Letters, *, inputs: bool = False) -> tuple[NodeLetters, Session]:
    session = greeted()
    return NodeLetters(session, session, {CONTRACT: PLAN}, letters, inputs=inputs), session


def come(machine: NodeLetters, sequence: int, **changes: object) -> list[Action]:
    return machine.handle(Received(LINK, infer(sequence, **changes), FRAMES), T0)


def test_a_refused_attempt_is_a_letter() -> None:
    letters = Letters(8, 1 << 20)
    machine, _ = node(letters)
    come(machine, 5, contract="unknown")
    (found,) = letters.all()
    assert (found.who, found.sequence, found.attempt, found.reason) == ("edge", 5, 1, "contract")
    assert found.due_ns - found.came_ns == 10 * MS


def test_a_run_that_fails_makes_letters_of_its_attempts_and_one_that_ends_in_time_none() -> None:
    letters = Letters(8, 1 << 20)
    machine, session = node(letters, inputs=True)
    first = run_of(come(machine, 1))
    machine.handle(Failed(first.run, "error", "no memory"), T0 + MS)
    second = run_of(come(machine, 2))
    machine.see(Tick(), finish(session, second, T0 + 3 * MS), T0 + 3 * MS)
    (found,) = letters.all()
    assert (found.sequence, found.reason, found.detail) == (1, "failed", "no memory")
    assert letters.find(1) == (found, FRAMES)
    assert found.stages == {"tail": MS}


def test_an_answer_after_the_deadline_is_a_letter() -> None:
    letters = Letters(8, 1 << 20)
    machine, session = node(letters)
    run = run_of(come(machine, 1))
    machine.see(Tick(), finish(session, run, T0 + 11 * MS), T0 + 11 * MS)
    assert [x.reason for x in letters.all()] == ["late"]


def test_a_cancelled_attempt_is_none() -> None:
    letters = Letters(8, 1 << 20)
    machine, _ = node(letters)
    come(machine, 1)
    machine.handle(Received(LINK, Cancel(1, 1, 1)), T0 + MS)
    assert not letters.all()


@pytest.mark.parametrize("event", [Received(LINK, Bye("closing")), SendFailed(LINK, Bye("")), ClockJumped(MS)])
def test_what_an_edge_had_asked_that_is_gone_is_a_letter(event: Event) -> None:
    letters = Letters(8, 1 << 20)
    machine, _ = node(letters)
    come(machine, 1)
    machine.handle(event, T0 + MS)
    assert [x.reason for x in letters.all()] == ["gone"]


def test_an_attempt_that_was_here_before_is_a_letter_and_the_first_goes_on() -> None:
    letters = Letters(8, 1 << 20)
    machine, session = node(letters)
    run = run_of(come(machine, 1))
    come(machine, 1)
    machine.see(Tick(), finish(session, run, T0 + 11 * MS), T0 + 11 * MS)
    assert [x.reason for x in letters.all()] == ["duplicate", "late"]


def test_an_edge_that_starts_anew_leaves_letters_of_what_it_had_asked() -> None:
    letters = Letters(8, 1 << 20)
    machine, _ = node(letters)
    come(machine, 1)
    machine.handle(Received(LINK, hello(incarnation=2)), T0 + MS)
    assert [x.reason for x in letters.all()] == ["gone"]


# Who is told


def asked(letters: Letters, message: AskLetters, forbidden: str = "") -> Send:
    sent: list[Send] = []

    def send(one: Send) -> bool:
        sent.append(one)
        return True

    box = LetterBox(letters, "node", "n1", 7, send=send, forbidden=forbidden)
    assert not box.takes(Tick(), 0)
    assert box.takes(Received("who", message), 99)
    (told,) = sent
    assert told.link == "who"
    return told


def test_the_list_goes_without_inputs_and_one_letter_with_them() -> None:
    letters = Letters(8, 1 << 20)
    letters.add(letter(), make_input())
    letters.add(letter("expired"))
    listed = asked(letters, AskLetters(PROTOCOL, 1))
    (frame,) = listed.frames
    assert msgspec.json.decode(bytes(frame), type=LetterList) == LetterList("n1", "node", 7, 99, 0, letters.all())
    assert [bytes(f) for f in asked(letters, AskLetters(PROTOCOL, 1, 1)).frames[1:]] == [make_input()[0].tobytes()]
    gone = asked(letters, AskLetters(PROTOCOL, 1, 77)).message
    assert gone == ToldLetters(1, "letter 77 is not here any more")


def test_who_may_not_see_them_is_told_so_and_nothing_else() -> None:
    letters = Letters(8, 1 << 20)
    letters.add(letter(), make_input())
    told = asked(letters, AskLetters(PROTOCOL, 3, 1), "no")
    assert told == Send("who", ToldLetters(3, "no"))


def test_a_journal_tells_the_letters_of_its_machine() -> None:
    pair = Pair({CONTRACT: PLAN}, EdgeSettings(), journal=1000)
    pair.ask(make_input(), 10.0)
    pair.ask(make_input(), 1.0)
    pair.run(50)
    assert pair.edge.recorder is not None
    told = of_journal(journal(pair.edge.recorder))
    assert (told.kind, [x.reason for x in told.letters]) == ("agent", ["overload"])


# Real processes


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@contextmanager
def serving(service: Agent | Node) -> Generator[str]:
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service.endpoint
    finally:
        service.stop()
        thread.join(PATIENCE_S)


def call(*arguments: object) -> tuple[int, str]:
    app = Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_an_agent_lists_its_letters_and_they_are_asked_again(bundle: Path, tmp_path: Path) -> None:
    group = AgentGroup(endpoint=f"ipc://{tmp_path}/agent", models=(str(bundle),))
    agent = Agent(EdgeSettings(agent=group, dead_letters=DeadLetters(inputs=True)))
    (array,) = inputs_for(load_bundle(bundle).plan)
    agent.handle(Received("app", Attach(PROTOCOL, "app", 1)), T0)
    agent.handle(Received("app", Submit(1, "chain", 1, T0, T0, 1, 0, False, (tensor_of(array),)), (array.data,)), T0)
    with serving(agent) as endpoint:
        status, said = call(endpoint, "--json")
        (found,) = msgspec.json.decode(said)["letters"]
        assert (status, found["model"], found["reason"]) == (0, "chain", "expired")
        status, said = call(endpoint, "--replay", "--deadline-ms", "30000")
        assert status == 0, said
        assert "answer" in said
        assert "exact by the device" in said
        said = call(endpoint, "--reason", "nothing")[1]
        assert "0 letters (none)" in said
        assert "no letter has the reason 'nothing'; there are: expired 1" in said


def test_a_node_shows_its_letters_only_where_that_is_said(bundle: Path) -> None:
    plan = load_bundle(bundle).plan
    for shown in (False, True):
        group = NodeGroup(endpoint="tcp://127.0.0.1:*", models=(str(bundle),), show_dead_letters=shown)
        kept = DeadLetters(inputs=True)
        service = Node(CloudSettings(node=group, memory=Memory(preallocated_memory_mb=64), dead_letters=kept))
        (contract,) = service.models.values()
        frames = tuple(array.tobytes() for array in inputs_for(plan))
        tensors = tuple(Tensor(spec.dtype, spec.shape) for spec in plan.inputs)
        service.handle(Received(LINK, msgspec.structs.replace(hello(), contracts=(contract,))), T0)
        service.handle(Received(LINK, infer(1, contract=contract, budget_ns=1, tensors=tensors), frames), T0)
        service.handle(Received(LINK, Bye("closing")), T0)
        with serving(service) as endpoint:
            if not shown:
                with pytest.raises(UserError, match=r"node\.show_dead_letters is false"):
                    ask(endpoint)
                continue
            assert [x.reason for x in letters_of(endpoint).letters] == ["expired"]
            status, said = call(endpoint, "--replay", "--deadline-ms", "30000")
            assert status == 0, said
            assert "answer" in said


def test_a_request_that_came_together_with_a_question_about_letters_is_launched_with_it(bundle: Path) -> None:
    plan = load_bundle(bundle).plan
    group = NodeGroup(endpoint="tcp://127.0.0.1:*", models=(str(bundle),))
    with closing(Node(CloudSettings(node=group, memory=Memory(preallocated_memory_mb=64)))) as service:
        (contract,) = service.models.values()
        frames = tuple(array.tobytes() for array in inputs_for(plan))
        tensors = tuple(Tensor(spec.dtype, spec.shape) for spec in plan.inputs)
        request = infer(1, contract=contract, tensors=tensors)
        question = AskLetters(PROTOCOL, 1)
        service.handle(Received(LINK, msgspec.structs.replace(hello(), contracts=(contract,))), T0)
        assert service.handle(Received(LINK, request, frames, more=True), T0) == []
        assert service.handle(Received(LINK, question, more=True), T0) == []
        run_of(service.handle(Received(LINK, question), T0))


def test_a_journal_cannot_be_asked_again(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a journal holds no inputs"):
        call(tmp_path, "--replay")
    with pytest.raises(InputError, match="--deadline-ms: nothing is asked again without --replay"):
        call(tmp_path, "--deadline-ms", "5")
    with pytest.raises(InputError, match="holds no journal"):
        call(tmp_path)
