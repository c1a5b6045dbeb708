"""A node's machine against a model of what is owed: every request that was let in ends exactly once, as reply, as refusal
or with its peer; nothing runs twice or for nobody; credit comes back; no request is called late that is not."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from plans import MID, Y
from session_model import AHEAD, CONTRACT, LAST, MS, ODD, WAYS, SessionModel, make_message, number_frame

from shared.events import Failed, Finished, RowResult
from shared.settings import CloudLimits, CloudSettings, NodeBatching, NodeExecution, NodeGroup, NodeScheduling
from shared.wire.messages import PROTOCOL, Bye, Hello, Infer, Probe, ProbeReply, Refusal

peers = st.sampled_from(sorted(AHEAD))
connections = st.sampled_from(["data", "probe"])
some = st.integers(0, 5)


class SessionMachine(RuleBasedStateMachine):
    """Peers greet, ask, ask again, cancel, probe and vanish; runs end in any way and order; time passes."""

    @initialize(
        credits_=st.integers(1, 8),
        queued=st.integers(1, 6),
        batch=st.integers(1, 4),
        executors=st.integers(1, 2),
        limit=st.sampled_from([3, 3, 1]),
        strategy=st.sampled_from(["adaptive", "adaptive", "fixed", "size_or_delay", "step"]),
        present=st.sets(peers, min_size=1),
    )
    def start(
        self, credits_: int, queued: int, batch: int, executors: int, limit: int, strategy: str, present: set[str]
    ) -> None:
        self.credits = credits_
        self.max_rows = batch
        self.model = SessionModel(
            CloudSettings(
                node=NodeGroup(credits=credits_),
                scheduling=NodeScheduling(max_queued=queued),
                batching=NodeBatching(max_batch_size=batch, batch_strategy=strategy),  # type: ignore[arg-type]
                execution=NodeExecution(executors=executors),
                limits=CloudLimits(max_peers=limit),
            )
        )
        self.incarnations = dict.fromkeys(AHEAD, 1)
        self.said: list[tuple[str, Infer]] = []
        self.sequence = 0
        for peer in sorted(present):
            self.greet(peer, "data")

    # --- what peers say -----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.known) < 4)
    @rule(peer=peers, connection=connections)
    def greets(self, peer: str, connection: str) -> None:
        self.greet(peer, connection)

    def greet(self, peer: str, connection: str) -> None:
        incarnation = self.incarnations[peer]
        hello = Hello(PROTOCOL, peer, incarnation, connection, (CONTRACT,))  # type: ignore[arg-type]
        self.model.greet(f"{peer}:{incarnation}:{connection}", hello)

    @precondition(lambda self: any(link.endswith(":data") for link in self.model.known))
    @rule(
        which=some,
        count=st.integers(1, 4),
        attempt=st.integers(1, 2),
        way=st.sampled_from(WAYS),
        rows=st.integers(1, 2),
        budget=st.sampled_from([200 * MS, 12 * MS, 4 * MS]),
        transit=st.sampled_from([0, MS // 2, 3 * MS]),
        priority=st.integers(0, 2),
    )
    def asks(
        self,
        which: int,
        count: int,
        attempt: int,
        way: tuple[int, str],
        rows: int,
        budget: int,
        transit: int,
        priority: int,
    ) -> None:
        links = [link for link in self.model.known if link.endswith(":data")]
        link = links[which % len(links)]
        who = self.model.known[link]
        rows = min(rows, self.max_rows)
        for _ in range(count):
            self.sequence += 1
            message = make_message(who, self.sequence, attempt, way, rows, budget, priority, self.model.now)
            self.said.append((link, message))
            self.model.pass_time(transit)
            self.model.infer(link, message)

    @precondition(lambda self: self.said)
    @rule(which=st.integers(0, 50))
    def the_network_brings_a_request_twice(self, which: int) -> None:
        self.model.infer(*self.said[-1 - which % len(self.said)])

    @precondition(lambda self: self.said)
    @rule(change=st.sampled_from(["contract", "cut", "coding", "rows", "priority", "tensors", "short"]))
    def asks_for_what_does_not_fit(self, change: str) -> None:
        link, message = self.said[-1]
        frame = number_frame(0, message)
        odd = {"contract": "0" * 64, "cut": 9, "coding": "jpeg", "rows": 0, "priority": 3, "tensors": ()}
        message = msgspec.structs.replace(message, sequence=ODD, **{k: v for k, v in odd.items() if k == change})
        answers = self.model.give(link, message, (frame[:-1] if change == "short" else frame,))
        assert [type(a) for a in answers] == [Refusal]

    @precondition(lambda self: self.said)
    @rule(which=st.integers(0, 50))
    def cancels(self, which: int) -> None:
        self.model.cancel(*self.said[-1 - which % len(self.said)])

    @precondition(lambda self: self.model.known)
    @rule(which=some, ago=st.sampled_from([0, MS, 50 * MS]))
    def probes(self, which: int, ago: int) -> None:
        """As every probe but the first, it tells when the answer to one before came in."""
        link = sorted(self.model.known)[which % len(self.model.known)]
        now, ahead = self.model.now, AHEAD[self.model.known[link][0]]
        answers = self.model.give(link, Probe(1, now + ahead, now - 2 * ago, now - ago + ahead))
        assert [type(a) for a in answers if not isinstance(a, Refusal)] == [ProbeReply]
        self.model.heard[self.model.known[link]] = now

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(["restart", "stranger", "leave", "jump"]),
        peer=peers,
        which=some,
        odd=st.booleans(),
        connection=connections,
    )
    def trouble(self, kind: str, peer: str, which: int, odd: bool, connection: str) -> None:
        known = sorted(self.model.known)
        match kind:
            case "restart":  # a new process of this peer, of which the node does not know yet
                self.incarnations[peer] += 1
            case "stranger":
                self.hear_a_stranger(peer, odd, connection)
            case "leave" if known:
                self.model.leave(known[which % len(known)], odd)
            case "jump" if self.said:
                self.model.suspend()
            case _:
                pass

    def hear_a_stranger(self, peer: str, later: bool, connection: str) -> None:
        """Whoever has not greeted on this connection, or was another process then."""
        who = (peer, self.incarnations[peer] + later)
        link = f"{peer}:{self.incarnations[peer]}:{connection}"
        if self.model.known.get(link) != who or connection != "data":
            self.sequence += 1
            message = make_message(who, self.sequence, 1, (0, "raw"), 1, 200 * MS, 0, self.model.now)
            open_before = sum(asked.open for asked in self.model.asked.values())
            self.model.infer(link, message)
            assert sum(asked.open for asked in self.model.asked.values()) <= open_before
        if link not in self.model.known:
            answers = self.model.give(link, Probe(1, self.model.now, 0, 0))
            assert [type(a) for a in answers if not isinstance(a, Refusal)] == [Bye]

    # --- what the executors do ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.runs)
    @rule(which=some, took=st.integers(1, 4))
    def a_run_ends_well(self, which: int, took: int) -> None:
        self.end(which, took, set(), set())

    @precondition(lambda self: self.model.runs)
    @rule(which=some, took=st.integers(1, 4), row=st.integers(0, 3), given=st.booleans())
    def a_run_ends_with_a_bad_row(self, which: int, took: int, row: int, given: bool) -> None:
        self.end(which, took, {row} if given else set(), set() if given else {row})

    def end(self, which: int, took: int, bad: set[int], silent: set[int]) -> None:
        """A run ends with an error for the rows in `bad` and without any word of those in `silent`."""
        number = sorted(self.model.runs)[which % len(self.model.runs)]
        run = self.model.runs[number]
        results: list[RowResult] = []
        good: set[bytes] = set()
        for index, row in enumerate(run.rows):
            frame = self.model.asked_by(row).frame
            if index in bad:
                results.append(RowResult(row.job, (), "decode: broken"))
            elif index not in silent:
                spec = Y if run.range.last == LAST else MID
                outputs = np.full(spec.at(row.rows), self.model.number_of(frame), np.float32)
                results.append(RowResult(row.job, (outputs,)))
                good.add(frame)
        began = self.model.now
        self.model.now += took * MS
        self.model.end(number, Finished(number, tuple(results), began, self.model.now, MS // 10), good)

    @precondition(lambda self: self.model.runs)
    @rule(which=some, reason=st.sampled_from(["window", "error"]))
    def a_run_comes_to_nothing(self, which: int, reason: str) -> None:
        run = sorted(self.model.runs)[which % len(self.model.runs)]
        self.model.end(run, Failed(run, reason))  # type: ignore[arg-type]

    @precondition(lambda self: self.model.aborted)
    @rule()
    def an_abort_is_carried_out(self) -> None:
        run = min(self.model.aborted)
        self.model.end(run, Failed(run, "aborted"))

    @rule(ns=st.sampled_from([MS // 10, MS, 5 * MS, 300 * MS, 11_000 * MS]))
    def time_passes(self, ns: int) -> None:
        self.model.pass_time(ns)

    @invariant()
    def the_books_agree(self) -> None:
        if hasattr(self, "model"):
            self.model.validate()
            assert sum(asked.open for asked in self.model.asked.values()) <= self.credits

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.end_everything()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=150, stateful_step_count=50)
