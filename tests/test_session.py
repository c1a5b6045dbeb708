"""A node's machine, message by message, on virtual time."""

from __future__ import annotations

import pytest
from plans import INT8, X, Y, make_input, make_plan

from cloud.session import Session
from shared.errors import SettingsError
from shared.events import (
    Abort,
    Action,
    ClockJumped,
    Failed,
    Finished,
    Received,
    RowResult,
    Run,
    Send,
    SendFailed,
    Tick,
    WakeAt,
)
from shared.settings import CloudLimits, CloudSettings, NodeBatching, NodeGroup, NodeScheduling
from shared.wire.messages import (
    MAX_PATHS,
    PROTOCOL,
    Bye,
    Cancel,
    Hello,
    Infer,
    Message,
    Probe,
    ProbeReply,
    Refusal,
    Reply,
    Tensor,
    Welcome,
)

MS = 1_000_000
CONTRACT, PLAN = make_plan(cloud_ms=1.0)
LINK = "edge:1:data"
FRAMES = (make_input()[0].tobytes(),)
T0 = 1000 * MS


def session(**fields: object) -> Session:
    return Session(CloudSettings(**fields), {CONTRACT: PLAN}, "node", 7)  # type: ignore[arg-type]


def hello(peer: str = "edge", incarnation: int = 1, connection: str = "data", protocol: int = PROTOCOL) -> Hello:
    return Hello(protocol, peer, incarnation, connection, (CONTRACT, "other"))  # type: ignore[arg-type]


def infer(sequence: int = 1, **changes: object) -> Infer:
    fields: dict[str, object] = {
        "incarnation": 1,
        "sequence": sequence,
        "attempt": 1,
        "contract": CONTRACT,
        "cut": 0,
        "coding": "raw",
        "rows": 1,
        "priority": 1,
        "budget_ns": 10 * MS,
        "sent_ns": T0,
        "tensors": (Tensor("float32", X.shape),),
    }
    return Infer(**(fields | changes))  # type: ignore[arg-type]


def give(s: Session, message: Message, now: int = T0, link: str = LINK, frames: tuple[bytes, ...] = ()) -> list[Action]:
    actions = s.handle(Received(link, message, frames), now)
    s.validate()
    return [a for a in actions if not isinstance(a, WakeAt)]


def greeted(**fields: object) -> Session:
    s = session(**fields)
    give(s, hello())
    return s


def refusal(actions: list[Action]) -> str:
    (send,) = [a for a in actions if isinstance(a, Send)]
    assert isinstance(send.message, Refusal)
    return send.message.reason


def run_of(actions: list[Action]) -> Run:
    (run,) = [a for a in actions if isinstance(a, Run)]
    return run


def finish(s: Session, run: Run, now: int, took: int = 2 * MS) -> list[Action]:
    results = tuple(RowResult(r.job, (make_input()[0][:, :4],)) for r in run.rows)
    actions = s.handle(Finished(run.run, results, now - took, now, took // 10), now)
    s.validate()
    return [a for a in actions if not isinstance(a, WakeAt)]


def test_a_greeting_is_answered_with_the_contracts_that_are_served() -> None:
    (send,) = give(session(), hello())
    assert send == Send(LINK, Welcome(PROTOCOL, "node", 7, (CONTRACT,), 64, MAX_PATHS))


def test_a_contract_that_is_asked_for_many_times_is_granted_once() -> None:
    s = session()
    asked = Hello(PROTOCOL, "edge", 1, "data", (CONTRACT, "other") * 30)
    assert give(s, asked) == [Send(LINK, Welcome(PROTOCOL, "node", 7, (CONTRACT,), 64, MAX_PATHS))]


def test_more_models_than_a_greeting_can_name_are_refused_at_start() -> None:
    plans = {f"{index:064}": PLAN for index in range(70)}
    with pytest.raises(SettingsError, match="70 models do not fit into one greeting"):
        Session(CloudSettings(), plans, "node", 7)


def test_another_protocol_is_refused_with_its_reason() -> None:
    assert give(session(), hello(protocol=99)) == [Send(LINK, Bye("version"))]


def test_a_request_is_launched_and_answered_with_all_that_names_it() -> None:
    s = greeted()
    run = run_of(give(s, infer(5, attempt=2), frames=FRAMES))
    assert (run.range.program, run.range.first, run.range.last) == (0, 0, 2)
    (send,) = finish(s, run, T0 + 3 * MS)
    assert isinstance(send, Send)
    reply = send.message
    assert isinstance(reply, Reply)
    assert (reply.incarnation, reply.sequence, reply.attempt, reply.contract) == (1, 5, 2, CONTRACT)
    assert reply.tensors == (Tensor("float32", Y.shape),)
    assert sum(reply.stages.values()) == 3 * MS


def test_a_request_without_a_greeting_is_refused() -> None:
    assert refusal(give(session(), infer(), frames=FRAMES)) == "hello"


def test_a_probe_connection_carries_no_requests() -> None:
    s = session()
    give(s, hello(connection="probe"), link="edge:1:probe")
    assert refusal(give(s, infer(), link="edge:1:probe", frames=FRAMES)) == "hello"


def test_everything_that_does_not_fit_the_plan_is_refused_by_name() -> None:
    s = greeted()
    for number, (changes, frames) in enumerate(
        [
            ({"contract": "0" * 64}, FRAMES),
            ({"cut": 2}, FRAMES),
            ({"cut": -1}, FRAMES),
            ({"coding": "jpeg"}, FRAMES),
            ({"rows": 0}, FRAMES),
            ({"rows": 9, "tensors": (Tensor("float32", X.at(9)),)}, FRAMES),
            ({"priority": 3}, FRAMES),
            ({"tensors": (Tensor("float64", X.shape),)}, FRAMES),
            ({"tensors": (Tensor("float32", (1, 65)),)}, FRAMES),
            ({}, (FRAMES[0][:-1],)),
            ({}, ()),
        ]
    ):
        actions = give(s, infer(number, **changes), frames=frames)
        assert refusal(actions) in {"contract", "input", "size"}, changes
    assert s.scheduler.running == 0


def test_the_same_attempt_runs_only_once() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    assert refusal(give(s, infer(), frames=FRAMES)) == "duplicate"
    finish(s, run, T0 + 2 * MS)
    assert refusal(give(s, infer(), T0 + 3 * MS, frames=FRAMES)) == "duplicate"


def test_a_request_whose_time_has_run_out_is_refused_before_it_is_queued() -> None:
    s = greeted()
    assert refusal(give(s, infer(budget_ns=1 * MS), frames=FRAMES)) == "expired"


def test_the_node_believes_the_clock_that_is_kind_to_the_request() -> None:
    s = session()
    give(s, hello(), 100 * MS)
    give(s, hello(connection="probe"), 100 * MS, link="edge:1:probe")
    skew = T0 - 100 * MS
    give(s, Probe(1, T0 + 1 * MS, 0, 0), 102 * MS, link="edge:1:probe")
    late = infer(1, sent_ns=T0 + 2 * MS, budget_ns=5 * MS)
    assert refusal(give(s, late, 110 * MS, frames=FRAMES)) == "expired"
    in_time = infer(2, sent_ns=T0 + 2 * MS, budget_ns=5 * MS)
    assert run_of(give(s, in_time, T0 + 6 * MS - skew, frames=FRAMES))


def test_a_waiting_request_expires_by_a_timer_not_by_the_end_of_the_one_before_it() -> None:
    s = greeted(batching=NodeBatching(max_batch_size=1))
    run_of(give(s, infer(1, budget_ns=50 * MS), frames=FRAMES))
    actions = s.handle(Received(LINK, infer(2, budget_ns=5 * MS), FRAMES), T0)
    (wake,) = [a for a in actions if isinstance(a, WakeAt)]
    assert wake.at_ns == T0 + 3 * MS + 1
    assert refusal([a for a in s.handle(Tick(), wake.at_ns) if isinstance(a, Send)]) == "expired"


def test_credit_is_counted_and_comes_back() -> None:
    s = greeted(node=NodeGroup(credits=1), batching=NodeBatching(max_batch_size=1))
    run = run_of(give(s, infer(1), frames=FRAMES))
    assert refusal(give(s, infer(2), frames=FRAMES)) == "credit"
    finish(s, run, T0 + 2 * MS)
    assert run_of(give(s, infer(3), T0 + 2 * MS, frames=FRAMES))


def test_a_full_queue_refuses_at_once() -> None:
    s = greeted(scheduling=NodeScheduling(max_queued=1), batching=NodeBatching(max_batch_size=1))
    give(s, infer(1), frames=FRAMES)
    give(s, infer(2), frames=FRAMES)
    assert refusal(give(s, infer(3), frames=FRAMES)) == "overload"


def test_a_cancelled_request_is_aborted_and_answered_once() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    actions = give(s, Cancel(1, 1, 1), T0 + 1 * MS)
    assert refusal(actions) == "cancelled"
    assert [a for a in actions if isinstance(a, Abort)] == [Abort(run.run, run.executor)]
    assert s.handle(Failed(run.run, "aborted"), T0 + 1 * MS) == []
    assert give(s, Cancel(1, 1, 1), T0 + 2 * MS) == []


def test_a_request_that_is_cancelled_too_late_to_stop_is_still_answered_only_once() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    give(s, Cancel(1, 1, 1), T0 + 1 * MS)
    assert finish(s, run, T0 + 2 * MS) == []
    assert s.counters["unwanted-rows"] == 1


def test_one_bad_row_does_not_spoil_its_batch() -> None:
    s = greeted()
    first = run_of(give(s, infer(1), frames=FRAMES))
    give(s, infer(2), frames=FRAMES)
    give(s, infer(3), frames=FRAMES)
    actions = finish(s, first, T0 + 2 * MS)
    run = run_of(actions)
    assert len(run.rows) == 2
    results = (RowResult(run.rows[0].job, (), "decode: broken"), RowResult(run.rows[1].job, (make_input()[0][:, :4],)))
    sent = [
        a.message
        for a in s.handle(Finished(run.run, results, T0 + 2 * MS, T0 + 4 * MS), T0 + 4 * MS)
        if isinstance(a, Send)
    ]
    assert [type(m) for m in sent] == [Refusal, Reply]
    assert isinstance(sent[0], Refusal)
    assert (sent[0].reason, sent[0].sequence) == ("failed", 2)


def test_a_run_that_missed_its_window_ends_as_expired() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    assert refusal(s.handle(Failed(run.run, "window"), T0 + 9 * MS)) == "expired"


def test_nothing_is_run_for_a_peer_that_is_gone() -> None:
    s = greeted(batching=NodeBatching(max_batch_size=1))
    run = run_of(give(s, infer(1), frames=FRAMES))
    give(s, infer(2), frames=FRAMES)
    actions = give(s, Bye("closing"))
    assert [a for a in actions if isinstance(a, Abort)] == [Abort(run.run, run.executor)]
    assert s.scheduler.queued == 0
    assert s.handle(Failed(run.run, "aborted"), T0) == []


def test_an_answer_that_cannot_be_sent_means_the_peer_is_gone() -> None:
    s = greeted()
    run = run_of(give(s, infer(1), frames=FRAMES))
    (send,) = finish(s, run, T0 + 2 * MS)
    assert isinstance(send, Send)
    s.handle(SendFailed(LINK, send.message), T0 + 2 * MS)
    assert refusal(give(s, infer(2), T0 + 2 * MS, frames=FRAMES)) == "hello"


def test_a_new_incarnation_replaces_the_old_one_and_an_old_greeting_does_not_come_back() -> None:
    s = greeted()
    give(s, infer(1, budget_ns=50 * MS), frames=FRAMES)
    actions = give(s, hello(incarnation=2), link="edge:2:data")
    assert [a for a in actions if isinstance(a, Abort)]
    assert give(s, hello(incarnation=1)) == [Send(LINK, Bye("replaced"))]
    assert refusal(give(s, infer(2), frames=FRAMES)) == "hello"


def test_an_edge_whose_clock_was_set_back_is_let_in_when_its_former_self_is_silent() -> None:
    s = greeted()
    give(s, infer(1, budget_ns=50 * MS), frames=FRAMES)
    first = give(s, hello(incarnation=0), T0 + 9_000 * MS, link="edge:0:data")[0]
    assert first == Send("edge:0:data", Bye("replaced"))
    actions = give(s, hello(incarnation=0), T0 + 11_000 * MS, link="edge:0:data")
    assert [type(a.message) for a in actions if isinstance(a, Send)] == [Welcome]


def test_more_peers_than_the_limit_are_refused_until_one_is_silent() -> None:
    s = session(limits=CloudLimits(max_peers=1))
    give(s, hello("one"), link="one:1:data")
    assert give(s, hello("two"), link="two:1:data") == [Send("two:1:data", Bye("hello"))]
    (send,) = give(s, hello("two"), T0 + 11_000 * MS, link="two:1:data")
    assert isinstance(send, Send)
    assert isinstance(send.message, Welcome)


def test_an_edge_that_was_killed_keeps_the_others_share_for_seconds_and_its_own_not_for_ever() -> None:
    s = session()
    give(s, hello("killed"), link="killed:1:data")
    give(s, hello("living"), link="living:1:data")
    give(s, hello("living", connection="probe"), link="living:1:probe")
    for after_ms, credits_ in ((100, 0), (1_200, 32), (11_000, 64)):
        (send,) = give(s, Probe(1, T0, 0, 0), T0 + after_ms * MS, link="living:1:probe")
        assert isinstance(send, Send)
        assert isinstance(send.message, ProbeReply)
        assert send.message.load.credits == credits_, after_ms


def test_a_connection_that_greets_under_many_names_is_one_peer() -> None:
    s = session(limits=CloudLimits(max_peers=2))
    for number in range(5):
        give(s, hello(f"name{number}"), link=LINK)
    assert [peer.name for peer in s.peers.all()] == ["name4"]
    assert [type(a.message) for a in give(s, hello("two"), link="two:1:data") if isinstance(a, Send)] == [Welcome]


def test_a_probe_is_echoed_with_the_nodes_times_and_load() -> None:
    s = session()
    give(s, hello(connection="probe"), link="edge:1:probe")
    (send,) = give(s, Probe(4, 123, 0, 0), link="edge:1:probe")
    assert isinstance(send, Send)
    assert isinstance(send.message, ProbeReply)
    assert (send.message.number, send.message.probe_sent_ns, send.message.received_ns) == (4, 123, T0)
    assert send.message.load.credits == 64


def test_a_probe_of_a_stranger_is_told_to_greet() -> None:
    assert give(session(), Probe(1, 123, 0, 0), link="edge:1:probe") == [Send("edge:1:probe", Bye("hello"))]


def test_requests_from_different_cuts_share_what_they_have_in_common_whatever_they_came_as() -> None:
    s = greeted()
    first = run_of(give(s, infer(1, budget_ns=50 * MS), frames=FRAMES))
    mid = (Tensor("float32", (1, 16)),)
    give(s, infer(2, cut=1, coding="raw", tensors=mid, budget_ns=50 * MS), frames=(bytes(64),))
    give(s, infer(3, cut=1, coding=INT8.name, tensors=mid, budget_ns=50 * MS), frames=(bytes(16),))
    give(s, infer(4, budget_ns=50 * MS), frames=FRAMES)
    order = []
    run = first
    for step in range(1, 4):
        actions = finish(s, run, T0 + 2 * MS * step)
        runs = [a for a in actions if isinstance(a, Run)]
        if not runs:
            break
        run = runs[0]
        order.append((run.range.first, run.range.last, len(run.rows)))
    assert order == [(0, 1, 1), (1, 2, 3)]


def test_without_pieces_requests_from_different_cuts_share_no_launch_and_codings_of_one_cut_do() -> None:
    s = greeted(scheduling=NodeScheduling(enable_preemption=False))
    first = run_of(give(s, infer(1, budget_ns=50 * MS), frames=FRAMES))
    mid = (Tensor("float32", (1, 16)),)
    give(s, infer(2, cut=1, coding="raw", tensors=mid, budget_ns=50 * MS), frames=(bytes(64),))
    give(s, infer(3, cut=1, coding=INT8.name, tensors=mid, budget_ns=50 * MS), frames=(bytes(16),))
    give(s, infer(4, budget_ns=50 * MS), frames=FRAMES)
    second = run_of(finish(s, first, T0 + 2 * MS))
    third = run_of(finish(s, second, T0 + 4 * MS))
    assert [(r.range.first, len(r.rows)) for r in (second, third)] == [(0, 1), (1, 2)], (
        "what takes longer starts sooner"
    )


# --- nothing runs twice ------------------------------------------------------------------------------------------------


def launches(actions: list[Action]) -> int:
    return sum(isinstance(a, Run) for a in actions)


def finish_first(s: Session) -> None:
    assert launches(give(s, infer(1, budget_ns=200 * MS), frames=FRAMES)) == 1
    s.handle(Finished(1, (RowResult(1, (b"",)),), T0, T0 + MS), T0 + MS)


def test_a_message_that_comes_again_is_not_run_again_however_many_came_meanwhile() -> None:
    s = session(scheduling=NodeScheduling(max_queued=1))
    give(s, hello())
    finish_first(s)
    for sequence in range(2, 2000):
        give(s, infer(sequence, budget_ns=0), T0 + 5 * MS, frames=FRAMES)
    assert refusal(give(s, infer(1, budget_ns=200 * MS), T0 + 5 * MS, frames=FRAMES)) == "duplicate"


def test_a_message_that_comes_again_after_this_host_was_suspended_is_not_run_again() -> None:
    s = greeted()
    finish_first(s)
    s.handle(ClockJumped(10**9), T0 + 2 * MS)
    give(s, hello(), T0 + 3 * MS)
    assert refusal(give(s, infer(1, budget_ns=200 * MS), T0 + 400 * MS, frames=FRAMES)) == "duplicate"


def test_a_message_that_comes_again_after_its_edge_greeted_anew_is_not_run_again() -> None:
    s = greeted()
    finish_first(s)
    give(s, Bye("closing"))
    give(s, hello())
    assert refusal(give(s, infer(1, budget_ns=200 * MS), T0 + 5 * MS, frames=FRAMES)) == "duplicate"


def test_a_message_of_the_incarnation_before_is_not_run_again_although_all_peers_left_at_once() -> None:
    s = session(limits=CloudLimits(max_peers=2))
    give(s, hello())
    finish_first(s)
    give(s, hello(incarnation=2))
    give(s, hello(peer="another"), link="another:1:data")
    s.handle(ClockJumped(10**9), T0 + 2 * MS)
    give(s, hello(), T0 + 3 * MS)
    assert refusal(give(s, infer(1, budget_ns=200 * MS), T0 + 4 * MS, frames=FRAMES)) == "duplicate"


# --- suspend -----------------------------------------------------------------------------------------------------------


def test_a_node_that_was_suspended_asks_its_edges_to_greet_anew_and_drops_what_they_had_asked() -> None:
    s = greeted()
    give(s, hello(connection="probe"), link="edge:1:probe")
    give(s, infer(1, budget_ns=200 * MS), frames=FRAMES)
    actions = s.handle(ClockJumped(10**9), T0 + MS)
    told = [a.link for a in actions if isinstance(a, Send) and a.message == Bye("hello")]
    assert told == ["edge:1:probe", LINK]
    assert [a.run for a in actions if isinstance(a, Abort)] == [1]


def test_an_edge_that_was_suspended_and_greets_anew_is_not_taken_for_late() -> None:
    s = greeted()
    give(s, Probe(1, T0, 0, 0), T0 + MS, link=LINK)
    behind = T0 + 1000 * MS
    give(s, hello(), behind)
    assert launches(give(s, infer(1, sent_ns=T0 + 2 * MS, budget_ns=10 * MS), behind, frames=FRAMES)) == 1


# --- overdue -----------------------------------------------------------------------------------------------------------


def test_who_waits_for_an_overdue_executor_is_told_when_half_of_the_time_has_passed() -> None:
    s = greeted()
    give(s, infer(1, budget_ns=40 * MS), frames=FRAMES)
    assert give(s, Probe(1, T0, 0, 0), T0 + 19 * MS)[:-1] == []
    actions = s.handle(Tick(), T0 + 20 * MS)
    assert refusal(actions) == "failed"
    assert [a.run for a in actions if isinstance(a, Abort)] == [1]
    s.validate()


def test_a_run_that_takes_long_beside_a_distant_deadline_is_waited_for() -> None:
    s = greeted()
    give(s, infer(1, budget_ns=2000 * MS), frames=FRAMES)
    s.handle(Tick(), T0 + 500 * MS)
    actions = s.handle(Finished(1, (RowResult(1, (b"",)),), T0, T0 + 600 * MS), T0 + 600 * MS)
    assert [type(a.message) for a in actions if isinstance(a, Send)] == [Reply]


def test_what_a_probe_tells_of_an_earlier_process_of_this_node_says_nothing_of_clocks() -> None:
    s = greeted()
    give(s, hello(connection="probe"), link="edge:1:probe")
    give(s, Probe(2, T0, T0 - 5 * MS, T0 - 4 * MS), T0 + MS, link="edge:1:probe")
    peer = s.peers.of_link(LINK)
    assert peer is not None
    assert peer.offset.bounds(T0 + MS)[1] is None


def test_what_waits_is_looked_at_once_for_all_answers_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under overload it would be looked at by each of them, and the node do little else."""
    s = greeted()
    first = run_of(give(s, infer(1, budget_ns=90 * MS), frames=FRAMES))
    for sequence in range(2, 30):
        give(s, infer(sequence, budget_ns=90 * MS), frames=FRAMES)
    batch = run_of(finish(s, first, T0 + 2 * MS))
    assert len(batch.rows) == 8
    right, asked = s.scheduler.predicted_wait, []
    monkeypatch.setattr(s.scheduler, "predicted_wait", lambda now: (asked.append(now), right(now))[1])
    replies = [a.message for a in finish(s, batch, T0 + 4 * MS) if isinstance(a, Send)]
    assert asked == [T0 + 4 * MS]
    assert len(replies) == 8
    (told,) = {m.load.wait_ns for m in replies if isinstance(m, Reply)}
    assert told == 20 * 2 * MS, "what waits, one by one"
