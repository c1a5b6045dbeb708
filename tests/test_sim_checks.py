"""Each check of the simulator finds what it is there for: outcomes, answers, accounts (1, 2, 3, 8, 9, 13, 17)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec
import pytest
from checks_bench import MS, OUTPUTS, Bench, run_of, sent, twice, with_fields, with_message, without

from hil.sim.broken import Broken
from shared.events import Action, Hold, Resolve, Run, Send, WakeAt
from shared.request import EXACT, Answer, Fidelity, Missed, Superseded
from shared.settings import EdgeLimits, EdgeSettings
from shared.wire.messages import Final, Infer, Provisional, Refusal, Reply, Submit

BESIDE = "something else"


@contextmanager
def breaks(number: int, story: str) -> Generator[None, None, None]:
    """What is done inside breaks rule `number`, as `story` (a regular expression) tells."""
    with pytest.raises(Broken, match=story) as found:
        yield
    assert found.value.check == number


def answered(bench: Bench, change: Callable[[list[Action]], list[Action]], due_ms: float = 20.0) -> None:
    """A broker asks the cloud, and the reply comes after 3 ms; what it does then is changed."""
    bench.welcome()
    asked = sent(bench.arrive(due_ms=due_ms), Infer)
    bench.now += 3 * MS
    bench.edge_step(bench.reply(asked), change)


def changed_answer(**fields: object) -> Callable[[list[Action]], list[Action]]:
    def change(actions: list[Action]) -> list[Action]:
        found: list[Action] = []
        for action in actions:
            if isinstance(action, Resolve) and isinstance(action.outcome, Answer):
                found.append(msgspec.structs.replace(action, outcome=action.outcome.replace(**fields)))
            elif isinstance(action, Hold):
                found.append(msgspec.structs.replace(action, answer=action.answer.replace(**fields)))
            else:
                found.append(action)
        return found

    return change


def to_the_client(bench: Bench, change: Callable[[list[Action]], list[Action]], later_ms: float = 5.0) -> None:
    """A client asks, and its agent answers."""
    bench.attach()
    bench.ask()
    bench.now += int(later_ms * MS)
    bench.client_step(bench.final(1), change)


# --- 1: one outcome ------------------------------------------------------------------------------------------------------


def test_1_a_client_that_gives_an_outcome_twice_is_found() -> None:
    with breaks(1, "is not open"):
        to_the_client(Bench(), twice(Resolve))


def test_1_a_client_that_wakes_at_the_deadline_and_gives_no_outcome_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    bench.now += 10 * MS
    with breaks(1, "open 0.000 ms past its deadline after a wake-up"):
        bench.client_step(bench.tick(), without(Resolve))


def test_1_an_outcome_that_comes_late_because_nobody_asked_to_be_woken_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    bench.client_book.wake_before_ns = None
    bench.now += 12 * MS
    with breaks(1, "ends 2.000 ms late, and no wake-up was asked for"):
        bench.client_step(bench.final(1))


def test_1_an_outcome_that_the_application_does_not_get_as_it_was_given_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    with breaks(1, "did not give just now"):
        bench.checks.ended(bench.client, 1, Superseded(), bench.now)


def test_1_a_broker_that_gives_an_outcome_twice_is_found() -> None:
    with breaks(1, "gets an outcome, but it is not open"):
        answered(Bench(), twice(Resolve))


def test_1_a_broker_that_pushes_an_answer_for_what_is_over_is_found() -> None:
    bench = Bench()
    bench.welcome()
    run = run_of(bench.arrive(due_ms=10))
    bench.now += 3 * MS
    with breaks(1, "is pushed an answer, but it is not open"):
        bench.edge_step(
            bench.finish(run),
            lambda actions: [msgspec.structs.replace(a, sequence=7) for a in actions if isinstance(a, Hold)],
        )


def test_1_a_broker_that_leaves_a_request_open_past_its_time_is_found() -> None:
    bench = Bench()
    bench.arrive(due_ms=10)
    bench.now += 10 * MS
    with breaks(1, "open 0.500 ms past its time"):
        bench.edge_step(bench.tick(), without(Resolve))


def test_1_counts_that_do_not_add_up_are_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    bench.sweep()
    bench.outcomes.counts.missed += 1
    bench.client_book.ended["missed"] += 0
    with breaks(1, "do not add up"):
        bench.sweep()


def test_1_a_broker_that_has_forgotten_a_request_is_found() -> None:
    bench = Bench()
    bench.arrive()
    bench.sweep()
    (open_,) = list(bench.broker._open)
    bench.broker._open.remove(open_)
    with breaks(1, "open requests: by the events"):
        bench.sweep()


def test_1_a_request_that_is_open_at_rest_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    with breaks(1, "never got an outcome"):
        bench.rest()


# --- 2 and 3: timers, on time --------------------------------------------------------------------------------------------


def test_2_a_client_without_a_timer_for_its_request_is_found() -> None:
    bench = Bench()
    bench.attach()
    with breaks(2, "due in 10.000 ms, and the wake-up is 40.000 ms later"):
        bench.ask(change=without(WakeAt))


def test_2_a_broker_whose_timer_is_later_than_its_request_is_due_is_found() -> None:
    bench = Bench()
    with breaks(2, "due in 9.500 ms, and the wake-up is 0.500 ms later"):
        bench.arrive(change=with_fields(WakeAt, at_ns=bench.now + 10 * MS))


def test_2_a_node_without_a_timer_for_what_waits_is_found() -> None:
    bench = Bench()
    bench.greet()
    bench.infer(1)
    bench.node_book.wake_ns = None
    with breaks(2, "waits and can be done until 10.000 ms from now; no wake-up is asked for"):
        bench.infer(2, without(WakeAt))


@pytest.mark.parametrize(("later_ms", "on_time"), [(5.0, False), (11.0, True)])
def test_3_an_answer_that_is_called_on_time_and_is_late_or_the_reverse_is_found(later_ms: float, on_time: bool) -> None:
    with breaks(3, f"is called {'on time' if on_time else 'late'}"):
        to_the_client(Bench(), changed_answer(on_time=on_time), later_ms)


# --- 8: limits -----------------------------------------------------------------------------------------------------------


def test_8_more_open_requests_at_a_client_than_allowed_are_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask(1)
    bench.outcomes.owed._max_open = 1
    bench.outcomes.owed.open[7] = bench.outcomes.owed.open[1]
    with breaks(8, "open requests, and 1 is the most"):
        bench.ask(2)


def test_8_more_open_requests_at_a_broker_than_allowed_are_found() -> None:
    bench = Bench()
    bench.arrive(1)
    bench.broker._settings = EdgeSettings(limits=EdgeLimits(max_open=1))
    with breaks(8, "2 open requests, and 1 is the most"):
        bench.edge_step(bench.arrival(2), lambda actions: _also_open(bench, actions))


def _also_open(bench: Bench, actions: list[Action]) -> list[Action]:
    """What a broker would do that does not look at its limit."""
    bench.broker._open._open[7] = next(iter(bench.broker._open))
    return actions


def test_8_a_queue_beyond_its_limit_is_found() -> None:
    bench = Bench()
    bench.greet()
    bench.infer(1)
    bench.infer(2)
    bench.session.scheduler._queue._limit = 0
    with breaks(8, "1 waiting jobs, and 0 is the most"):
        bench.sweep()


# --- 9 and 13: answers ---------------------------------------------------------------------------------------------------


def test_9_an_application_that_gets_the_tensors_of_something_else_is_found() -> None:
    with breaks(9, "has the tensors of something else"):
        to_the_client(Bench(), changed_answer(outputs={"y": OUTPUTS + 1}))


def test_9_an_application_that_gets_an_answer_of_another_version_is_found() -> None:
    with breaks(9, "of a contract that it was not asked of"):
        to_the_client(Bench(), changed_answer(contract=BESIDE))


def test_9_an_answer_of_the_device_that_its_run_did_not_give_is_found() -> None:
    bench = Bench()
    run = run_of(bench.arrive())
    bench.now += 3 * MS
    with breaks(9, "no run of it just gave"):
        bench.edge_step(bench.finish(run), changed_answer(outputs={"y": OUTPUTS.copy()}))


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ({"outputs": {"y": OUTPUTS + 1}}, "other tensors than the reply"),
        ({"node": "another"}, "names node another"),
        ({"contract": BESIDE}, "an answer of another contract"),
        ({"cut": 1}, "names node node, cut 1"),
    ],
)
def test_9_an_answer_of_the_cloud_that_is_not_its_reply_is_found(fields: dict[str, object], story: str) -> None:
    with breaks(9, story):
        answered(Bench(), changed_answer(**fields))


def test_9_an_answer_of_the_cloud_without_an_attempt_is_found() -> None:
    bench = Bench()
    bench.welcome()
    asked = sent(bench.arrive(due_ms=20), Infer)
    bench.edge_book.nodes["node"].paths[0].out.clear()
    with breaks(9, "no attempt was answered just now"):
        bench.edge_step(bench.reply(asked))


def test_9_a_reply_that_answers_something_else_and_is_taken_is_found() -> None:
    bench = Bench()
    bench.welcome()
    asked = sent(bench.arrive(due_ms=20), Infer)
    (attempt,) = bench.edge_book.nodes["node"].paths[0].out.values()
    attempt.infer = msgspec.structs.replace(attempt.infer, cut=1)
    with breaks(9, "takes a reply that answers"):
        bench.edge_step(bench.reply(asked))


def test_9_the_reply_to_another_request_is_found() -> None:
    bench = Bench()
    bench.welcome()
    asked = sent(bench.arrive(due_ms=20), Infer)
    (attempt,) = bench.edge_book.nodes["node"].paths[0].out.values()
    attempt.key = ("another", 1)
    with breaks(9, "the answer to an attempt for"):
        bench.edge_step(bench.reply(asked))


def test_9_a_held_answer_that_is_not_what_was_pushed_is_found() -> None:
    bench = Bench()
    bench.welcome()
    run = run_of(bench.arrive(due_ms=10))
    bench.now += 5 * MS
    bench.edge_step(bench.finish(run))
    bench.now += 5 * MS
    with breaks(9, "a held answer that is not the one that was pushed"):
        bench.edge_step(bench.tick(), changed_answer(rung="another"))


def test_9_an_attempt_that_carries_other_tensors_than_its_request_is_found() -> None:
    bench = Bench()
    bench.welcome()
    with breaks(9, "carries other tensors"):
        bench.arrive(due_ms=20, change=lambda actions: [_with_other_frames(a) for a in actions])


def _with_other_frames(action: Action) -> Action:
    return msgspec.structs.replace(action, frames=(OUTPUTS,)) if isinstance(action, Send) else action


@pytest.mark.parametrize(("field", "value"), [("incarnation", 7), ("contract", BESIDE), ("sequence", 9)])
def test_9_an_attempt_in_the_name_of_another_is_found(field: str, value: object) -> None:
    bench = Bench()
    bench.welcome()
    bench.arrive(1, due_ms=20)
    with breaks(9, "in another's name|not of its request's contract|for a request that is not open"):
        bench.arrive(2, due_ms=20, change=with_message(Infer, **{field: value}))


@pytest.mark.parametrize("fields", [{"budget_ns": 24 * MS}, {"sent_ns": 5 * MS}, {"priority": 0}])
def test_9_an_attempt_that_says_another_budget_or_class_than_its_request_has_is_found(fields: dict[str, int]) -> None:
    bench = Bench()
    bench.welcome()
    with breaks(9, "and it is 19.500 ms, class 1"):
        bench.arrive(due_ms=20, change=with_message(Infer, **fields))


def test_9_a_run_on_the_tensors_of_another_request_is_found() -> None:
    bench = Bench()
    with breaks(9, "other tensors than request"):
        bench.arrive(change=_on_other_inputs)


def test_9_a_row_of_a_node_on_the_frames_of_another_is_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(9, "other frames than request"):
        bench.infer(1, _on_other_inputs)


def _on_other_inputs(actions: list[Action]) -> list[Action]:
    def other(run: Run) -> Run:
        return msgspec.structs.replace(run, rows=tuple(msgspec.structs.replace(r, inputs=(OUTPUTS,)) for r in run.rows))

    return [other(a) if isinstance(a, Run) else a for a in actions]


@pytest.mark.parametrize(
    "change", [with_message(Reply, cut=1), lambda actions: [_with_other_frames(a) for a in actions]]
)
def test_9_a_reply_of_a_node_that_is_not_what_was_asked_is_found(
    change: Callable[[list[Action]], list[Action]],
) -> None:
    bench = Bench()
    bench.greet()
    run = run_of(bench.infer(1))
    bench.now += MS
    with breaks(9, "or goes to another connection|does not carry what its row gave"):
        bench.node_step(bench.finish(run), change)


@pytest.mark.parametrize("fidelity", [Fidelity("lossy", "int8", 0.97), Fidelity("rung", "small", 0.9)])
def test_13_an_exact_answer_of_the_cloud_that_is_called_something_else_is_found(fidelity: Fidelity) -> None:
    with breaks(13, "what ran was"):
        answered(Bench(), changed_answer(fidelity=fidelity))


def test_13_a_cheaper_rung_that_is_called_exact_is_found() -> None:
    bench = Bench()
    run = run_of(bench.arrive(due_ms=10))
    assert run.range.program == 1
    bench.now += 5 * MS
    with breaks(13, "what ran was"):
        bench.edge_step(bench.finish(run), changed_answer(fidelity=EXACT))


# --- 17: accounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [{"client": 4 * MS}, {"client": 6 * MS, "hold": -MS}])
def test_17_stages_that_do_not_add_up_at_a_client_are_found(stages: dict[str, int]) -> None:
    with breaks(17, "are 4.000 ms of 5.000 ms|are 5.000 ms of 5.000 ms"):
        to_the_client(Bench(), changed_answer(stages=stages))


def test_17_an_account_that_the_client_had_to_put_right_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    bench.now += 5 * MS
    with breaks(17, "did not add up"):
        bench.client_step(bench.final(1, stages={"rung": 6 * MS}))


def test_17_an_outcome_that_says_another_time_than_has_passed_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.ask()
    bench.now += 10 * MS
    with breaks(17, "says 0.000 ms have passed, and it were 10.000 ms"):
        bench.client_step(bench.tick(), with_fields(Resolve, outcome=Missed("agent")))


def test_17_stages_that_do_not_add_up_at_a_broker_are_found() -> None:
    with breaks(17, "of 3.000 ms"):
        answered(Bench(), changed_answer(stages={"uplink": 2 * MS}))


def test_17_stages_that_do_not_add_up_at_a_node_are_found() -> None:
    bench = Bench()
    bench.greet()
    run = run_of(bench.infer(1))
    bench.now += 2 * MS
    with breaks(17, "are 1.000 ms of 2.000 ms"):
        bench.node_step(bench.finish(run), with_message(Reply, stages={"tail": MS}))


# --- nothing is found where nothing is wrong -----------------------------------------------------------------------------


def test_a_request_that_goes_all_the_way_breaks_nothing() -> None:
    bench = Bench()
    bench.attach()
    bench.welcome()
    bench.greet()
    submit = sent(bench.ask(due_ms=20), Submit)
    asked = sent(bench.arrive(due_ms=20), Infer)
    run = run_of(bench.infer(1))
    bench.now += 2 * MS
    reply = sent(bench.node_step(bench.finish(run)), Reply)
    bench.now += MS
    actions = bench.edge_step(bench.reply(asked))
    assert [a.sequence for a in actions if isinstance(a, Resolve)] == [submit.message.sequence]
    bench.client_step(bench.final(1))
    bench.sweep()
    assert isinstance(reply.message, Reply)
    assert not any(isinstance(a, Send) and isinstance(a.message, Refusal | Final | Provisional) for a in actions)
