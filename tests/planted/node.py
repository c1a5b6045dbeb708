"""Faults of a node: its session, the credit that it lends, what it remembers of its peers."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import msgspec

from cloud.credit import Credits
from cloud.kept import Kept
from cloud.peers import Peers
from cloud.seen import Seen
from cloud.session import Session
from planted.plant import Bug, bug
from shared.events import Send
from shared.wire.messages import Refusal


@bug("cancel dropped", "A node does nothing about a cancel", Session, "_cancel", "weak")
def cancel_dropped(right: Any, self: Any, link: str, message: Any, now: int, out: list[Any]) -> None:
    pass


@bug("cancel not answered", "A cancelled request is over, and its edge is not told", Session, "_cancel")
def cancel_not_answered(right: Any, self: Any, link: str, message: Any, now: int, out: list[Any]) -> None:
    right(self, link, message, now, out)
    out[:] = [a for a in out if not (isinstance(a, Send) and isinstance(a.message, Refusal))]


@bug("duplicate run twice", "A node forgets what was there before", Seen, "first_time", "weak")
def duplicate_run_twice(right: Any, self: Any, sequence: int, attempt: int) -> bool:
    return True


@bug("refusal not answered", "A request that is not let in is dropped without a word", Session, "_refuse")
def refusal_not_answered(right: Any, self: Any, *args: Any) -> None:
    pass


@bug("credit lost", "Every eighth request keeps its credit for ever", Credits, "give_back")
def credit_lost(right: Any, self: Any, peer: str) -> None:
    self._ended = getattr(self, "_ended", 0) + 1
    if self._ended % 8:
        right(self, peer)


@bug("credit lent twice", "A node lends to each edge all that it has", Credits, "granted")
def credit_lent_twice(right: Any, self: Any, peer: str) -> int:
    return self._capacity if right(self, peer) else 0


@bug(
    "rows of a batch swapped",
    "The rows of a node's batch are told apart one place too late",
    Session,
    "_finished",
    "weak",
)
def rows_swapped(right: Any, self: Any, event: Any, now: int, out: list[Any]) -> None:
    results = event.results
    if len(results) > 1:
        turned = [*results[1:], results[0]]
        results = tuple(msgspec.structs.replace(r, outputs=t.outputs) for r, t in zip(results, turned, strict=True))
    right(self, msgspec.structs.replace(event, results=results), now, out)


@bug("run for a peer that is gone", "What waits for a peer that is gone is run all the same", Session, "_stop", "weak")
def run_for_the_gone(right: Any, self: Any, job: int, out: list[Any]) -> None:
    pass


@bug(
    "node's clock jump ignored", "A node goes on after a suspension as if nothing had been", Session, "_jumped", "clock"
)
def jump_ignored(right: Any, self: Any, now: int, out: list[Any]) -> None:
    pass


@bug("answer on another connection", "A node answers on the connection that greeted first", Session, "_reply")
def answer_elsewhere(right: Any, self: Any, admitted: Any, *args: Any) -> None:
    link = next(iter(self.peers._by_link), admitted.links[0])
    right(self, msgspec.structs.replace(admitted, links=(link,)), *args)


@bug(
    "time in a node counted twice", "A reply says of the codec's time that it was the tail's as well", Session, "_reply"
)
def time_counted_twice(right: Any, self: Any, admitted: Any, outputs: Any, event: Any, *args: Any) -> None:
    right(self, admitted, outputs, msgspec.structs.replace(event, codec_ns=event.codec_ns + 1000), *args)
    out: list[Any] = args[-1]
    sent = out[-1]
    stages = {**sent.message.stages, "tail": event.ended_ns - event.began_ns}
    out[-1] = msgspec.structs.replace(sent, message=msgspec.structs.replace(sent.message, stages=stages))


@bug("more peers than may be", "A node greets whoever comes", Peers, "_make_room", "crowd")
def more_peers(right: Any, self: Any, now: int) -> None:
    pass


@bug("copy not answered", "What came on two connections is answered on the first alone", Session, "_reply", "paths")
def copy_not_answered(right: Any, self: Any, admitted: Any, *args: Any) -> None:
    right(self, msgspec.structs.replace(admitted, links=admitted.links[:1]), *args)


@bug("answer kept for another", "A kept answer is given to whatever has its sequence", Kept, "find", "paths")
def kept_for_another(right: Any, self: Any, identity: Any, link: str, asked: Any, now: int) -> Any:
    for kept in self.replies.values():
        if kept.asked.sequence != asked.sequence and link not in kept.links:
            return kept
    return right(self, identity, link, asked, now)


NODE: tuple[Bug, ...] = tuple(value for value in globals().values() if isinstance(value, Bug))
