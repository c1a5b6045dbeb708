"""Copies of one request on several connections, as a node takes them, message by message, on virtual time."""

from __future__ import annotations

import msgspec
from test_session import FRAMES, LINK, MS, T0, finish, give, hello, infer, refusal, run_of, session

from cloud.kept import MOST, Kept, KeptReply
from cloud.session import Session
from shared.events import Action, Send, SendFailed
from shared.wire.messages import MAX_PATHS, Bye, Cancel, Infer, Load, Refusal, Reply

OTHER = "edge:1:data.1"
THIRD = "edge:1:data.2"


def greeted() -> Session:
    s = session()
    for number, link in enumerate((LINK, OTHER, THIRD)):
        give(s, msgspec.structs.replace(hello(), path=number), link=link)
    return s


def links(actions: list[Action], kind: type) -> list[str]:
    return [a.link for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]


def test_a_copy_on_another_connection_is_not_run_and_both_are_answered() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    assert give(s, infer(), T0 + MS, OTHER, FRAMES) == []
    assert s.peers.credits.out("edge:1") == 1
    answers = finish(s, run, T0 + 3 * MS)
    assert links(answers, Reply) == [LINK, OTHER]
    assert answers[0].frames is answers[1].frames  # type: ignore[union-attr]
    assert s.peers.credits.out("edge:1") == 0


def test_a_copy_that_comes_after_the_answer_is_answered_once_on_each_connection() -> None:
    s = greeted()
    finish(s, run_of(give(s, infer(), frames=FRAMES)), T0 + 3 * MS)
    (again,) = give(s, infer(), T0 + 4 * MS, OTHER, FRAMES)
    assert isinstance(again, Send)
    assert isinstance(again.message, Reply)
    assert (again.link, again.message.sent_ns) == (OTHER, T0 + 4 * MS)
    assert refusal(give(s, infer(), T0 + 5 * MS, OTHER, FRAMES)) == "duplicate"
    assert refusal(give(s, infer(), T0 + 5 * MS, LINK, FRAMES)) == "duplicate"


def test_what_was_answered_is_forgotten_when_its_edge_says_so_or_its_deadline_has_passed() -> None:
    s = greeted()
    finish(s, run_of(give(s, infer(1), frames=FRAMES)), T0 + 3 * MS)
    assert give(s, Cancel(1, 1, 1), T0 + 3 * MS) == []
    assert refusal(give(s, infer(1), T0 + 4 * MS, OTHER, FRAMES)) == "duplicate"
    finish(s, run_of(give(s, infer(2), frames=FRAMES)), T0 + 3 * MS)
    assert refusal(give(s, infer(2), T0 + 50 * MS, OTHER, FRAMES)) == "duplicate"


def test_a_copy_on_the_same_connection_is_refused() -> None:
    s = greeted()
    give(s, infer(), frames=FRAMES)
    assert refusal(give(s, infer(), frames=FRAMES)) == "duplicate"


def test_a_copy_that_asks_for_something_else_is_none() -> None:
    s = greeted()
    run = run_of(give(s, infer(), frames=FRAMES))
    other = infer(cut=1, coding="int8", tensors=())
    assert refusal(give(s, other, T0, OTHER, FRAMES)) in {"input", "duplicate"}
    assert links(finish(s, run, T0 + 3 * MS), Reply) == [LINK]


def test_a_refusal_and_the_answer_to_a_cancel_go_out_on_every_connection_that_was_used() -> None:
    s = greeted()
    run_of(give(s, infer(), frames=FRAMES))
    give(s, infer(), T0, OTHER, FRAMES)
    assert links(give(s, Cancel(1, 1, 1), T0 + MS, OTHER), Refusal) == [LINK, OTHER]
    assert give(s, Cancel(1, 1, 1), T0 + MS, LINK) == []


def test_a_path_on_which_nothing_leaves_is_forgotten_and_the_others_are_answered() -> None:
    s = greeted()
    both = run_of(give(s, infer(1), frames=FRAMES))
    give(s, infer(1), T0, OTHER, FRAMES)
    give(s, infer(2), T0, OTHER, FRAMES)
    s.handle(SendFailed(OTHER, Bye("")), T0 + MS)
    s.validate()
    assert s.peers.credits.out("edge:1") == 1, "nobody can hear what the second one ends with"
    assert links(finish(s, both, T0 + 3 * MS), Reply) == [LINK]
    assert refusal(give(s, infer(3), T0 + 3 * MS, OTHER, FRAMES)) == "hello"
    s.handle(SendFailed(LINK, Bye("")), T0 + 4 * MS)
    s.handle(SendFailed(THIRD, Bye("")), T0 + 4 * MS)
    assert list(s.peers.all()) == []


def test_more_paths_than_there_may_be_are_turned_down() -> None:
    s = session()
    assert give(s, msgspec.structs.replace(hello(), path=MAX_PATHS)) == [Send(LINK, Bye("hello"))]


def test_a_peer_of_one_connection_has_no_answers_kept() -> None:
    s = session()
    give(s, hello())
    finish(s, run_of(give(s, infer(), frames=FRAMES)), T0 + 3 * MS)
    assert len(s._kept.replies) == 0


def test_no_more_answers_are_kept_than_fit() -> None:
    kept = Kept()
    asked = infer()
    assert isinstance(asked, Infer)
    reply = Reply(1, 1, 1, asked.contract, 0, "raw", 1, (), {}, T0, Load(0, 0))
    for number in range(2 * MOST):
        kept.keep(("edge", 1, number, 1), KeptReply(asked, reply, (), 1 << 10, (LINK,), T0 + MS), T0)
    assert len(kept.replies) == MOST
    for number in range(8):
        kept.keep(("edge", 2, number, 1), KeptReply(asked, reply, (), 10 << 20, (LINK,), T0 + MS), T0)
    assert len(kept.replies) == 3
    kept.drop_peer("edge", 2)
    assert len(kept.replies) == 0
