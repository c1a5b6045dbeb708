"""A node's machine: edges are greeted, requests are checked, queued, launched and answered, and nothing is run for nobody.

    Infer --> checked (greeted, contract, cut, coding, shapes, sizes, once only, in time, credit)
          --> a copy of what is here already: answered with it, on each connection that it came on
          --> queued --> launched in a batch --> Reply
    at every step it may end as a Refusal with one reason; each request that was let in ends exactly once:
    as Reply, as Refusal, or silently because its peer is gone.

A request is dropped as expired only past the optimistic reading of the clocks: deadline at the edge, moved to this clock
by the lower end of the offset interval, so that a bad clock estimate never refuses what could have been on time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from cloud.admitted import Admitted
from cloud.door import Door
from cloud.kept import Identity, Kept, KeptReply, same_request, size_of
from cloud.peers import Peer, Peers
from cloud.pressure import Pressure
from shared.decision import NOTHING, Decision
from shared.directory import Directory, check_length, to_message
from shared.errors import InvariantBroken, PeerError, SettingsError
from shared.events import (
    Abort,
    Action,
    ClockJumped,
    DirectorySeen,
    Draining,
    Event,
    Failed,
    Finished,
    Leave,
    Received,
    Row,
    RowResult,
    Send,
    SendFailed,
    Tick,
    WakeAt,
)
from shared.plan import Plan
from shared.queue import Job
from shared.request import Array, Buffer, Stages
from shared.running import Launch
from shared.scheduler_setup import scheduler_of
from shared.settings import CloudSettings
from shared.wire.codec import MAX_NUMBER
from shared.wire.messages import (
    MAX_HEADER,
    MAX_PATHS,
    PROTOCOL,
    Bye,
    Cancel,
    Drain,
    Hello,
    Infer,
    Load,
    NodeList,
    Probe,
    ProbeReply,
    Refusal,
    Reply,
    Welcome,
)

Actions = list[Action]
Outputs = tuple[Array | Buffer, ...]


class Session:
    """Peers and requests of one node process. `handle(event, now)` is the only door."""

    def __init__(self, settings: CloudSettings, plans: Mapping[str, Plan], node: str, incarnation: int) -> None:
        """`plans` by contract digest. `node` names this node, `incarnation` this start of it.

        Raises `SettingsError` where so many plans are served that the answer to a greeting would not fit into a header.
        """
        longest = Welcome(PROTOCOL, node, incarnation, tuple(plans), MAX_NUMBER, MAX_PATHS)
        if len(msgspec.msgpack.encode(longest)) > MAX_HEADER:
            raise SettingsError(f"node.models: {len(plans)} models do not fit into one greeting; serve fewer of them")
        self._settings = settings
        self._plans = dict(plans)
        self._node = node
        self._incarnation = incarnation
        self.scheduler = scheduler_of(
            plans,
            "cloud",
            settings.execution,
            settings.batching,
            settings.scheduling,
            in_pieces=settings.scheduling.enable_preemption,
        )
        self.pressure = Pressure(self.scheduler.targets, settings.pressure.return_ms)
        self.peers = Peers(settings.limits.max_peers, settings.node.credits, settings.scheduling.max_queued)
        self._door = Door(self._plans, self.scheduler, settings.scheduling.priority_levels)
        self._admitted: dict[int, Admitted] = {}
        self._by_identity: dict[Identity, int] = {}
        self._kept = Kept()
        self._stuck: dict[int, int] = {}
        """When those are told whose executor is overdue."""
        self._last_job = 0
        self._wake_at = 0
        self._jumped_ns = 0
        self._directory: NodeList | None = None
        self._leave_by = 0
        """When a node that is draining leaves at the latest; 0 where it is not."""
        self._left = False
        self.counters: Counter[str] = Counter()

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event and say what is to be done. Raises `InvariantBroken` where a rule of our own is broken."""
        out: list[Action] = []
        self.scheduler.pass_time(now)
        match event:
            case Received():
                message = event.message
                if isinstance(message, Infer):
                    self._infer(event.link, message, event.frames, now, out)
                else:
                    self._received(event, now, out)
                if event.more:
                    return out
            case Finished():
                self._finished(event, now, out)
            case Failed():
                self._failed(event, now, out)
            case SendFailed():
                self.counters["send-failed"] += 1
                self._unreachable(event.link, out)
            case ClockJumped():
                self._jumped(now, out)
            case DirectorySeen():
                self._tell_of(event.directory, out)
            case Draining():
                self._drain(now, out)
            case Tick():
                pass
            case _:
                raise InvariantBroken(f"a node does not know the event {type(event).__name__}")
        decision = self.scheduler.schedule(now)
        if decision is not NOTHING or self._stuck:
            self._decided(decision, now, out)
        if self._leave_by and not self._left:
            self._leave(now, out)
        self._wake(now, out)
        return out

    def busy(self) -> bool:
        """Whether there is work for the device, running or waiting."""
        return self.scheduler.running > 0 or self.scheduler.queued > 0

    def idle(self) -> None:
        """The loop is about to sleep: learn from the launch that ended last. That would be done before the next event anyhow,
        and nothing else comes of it, so that a replay needs no call of this."""
        self.scheduler.latency.learn()

    # --- messages -----------------------------------------------------------------------------------------------------

    def _received(self, event: Received, now: int, out: list[Action]) -> None:
        match event.message:
            case Cancel():
                self._cancel(event.link, event.message, now, out)
            case Probe():
                self._probe(event.link, event.message, now, out)
            case Hello():
                self._hello(event.link, event.message, now, out)
            case Bye():
                self._gone(self.peers.of_link(event.link), out)
            case _:
                self.counters["unexpected-message"] += 1

    def _hello(self, link: str, message: Hello, now: int, out: list[Action]) -> None:
        if not self._jumped_ns:
            # What is told of clocks from before was of an earlier process, and this host may have been suspended since.
            self._jumped_ns = now - 1
        try:
            peer, replaced = self.peers.greet(link, message, now)
        except PeerError as error:
            self.counters[f"refused-{error.reason}"] += 1
            out.append(Send(link, Bye(error.reason)))
            return
        for gone in replaced:
            self._forget(gone, out)
        # Each once, however often it was asked for: all of them fit into a header, as was checked at start.
        contracts = tuple(c for c in self._plans if c in message.contracts)
        credits_ = self.peers.credits.granted(peer.account)
        out.append(Send(link, Welcome(message.protocol, self._node, self._incarnation, contracts, credits_, MAX_PATHS)))
        if self._directory is not None and message.connection == "data":
            out.append(Send(link, self._directory))
        if self._leave_by:
            out.append(Send(link, Drain(self._incarnation)))

    def _probe(self, link: str, message: Probe, now: int, out: list[Action]) -> None:
        peer = self.peers.of_link(link)
        if peer is None:
            out.append(Send(link, Bye("hello")))
            return
        peer.seen_ns = now
        self.peers.forget_silent(now)
        peer.offset.peer_sent(message.sent_ns, now)
        if message.last_sent_ns > self._jumped_ns:
            peer.offset.peer_received(message.last_sent_ns, message.last_received_ns, now)
        self.peers.credits.rest(peer.account)
        load, pressure = self._load(peer, now), self.pressure.told(now)
        out.append(Send(link, ProbeReply(message.number, message.sent_ns, now, now, load, pressure)))

    def _infer(self, link: str, message: Infer, frames: tuple[Buffer, ...], now: int, out: list[Action]) -> None:
        peer = self.peers.of_link(link)
        try:
            if peer is None or link not in peer.data or message.incarnation != peer.incarnation:
                raise PeerError("hello", "a request needs a greeted data connection of its incarnation")
            peer.seen_ns = now
            identity = (peer.name, message.incarnation, message.sequence, message.attempt)
            here = identity in self._by_identity
            if (here or self._kept.replies) and self._is_copy(peer, identity, link, message, now, out):
                return
            entry = self._door.check(message, frames)
            deadline = peer.deadline(message, now)
            if self._leave_by:
                raise PeerError("draining", "this node is about to leave")
            if here or not peer.attempts.first_time(message.sequence, message.attempt):
                raise PeerError("duplicate", "this attempt was here before")
            key = entry.key
            if now + self.scheduler.latency.typical(key, message.rows) > deadline:
                raise PeerError("expired", "it cannot be done in what is left")
            if not self.peers.credits.take(peer.account):
                raise PeerError("credit", "more requests are out than credits were granted")
            self._last_job += 1
            row = Row(self._last_job, message.rows, frames, entry.coding)
            job = Job(row.job, key.contract, key.range, row, deadline, message.priority, False, key)
            if not self.scheduler.submit(job, now):
                self.peers.credits.give_back(peer.account)
                self.pressure.lost(message.rows, now)
                raise PeerError("overload", "the queue is full")
        except PeerError as error:
            self._refuse((link,), message, error.reason, error.detail, now, out)
            return
        self._admitted[row.job] = Admitted(identity, peer, (link,), message, row.job, now, deadline)
        self._by_identity[identity] = row.job

    def _is_copy(self, peer: Peer, identity: Identity, link: str, message: Infer, now: int, out: list[Action]) -> bool:
        """Whether this request came before on another connection. It is then answered on this one as well, with what it is
        answered with there, and not run again."""
        job = self._by_identity.get(identity)
        if job is None:
            kept = self._kept.find(identity, link, message, now)
            if kept is not None:
                self.counters["answered-again"] += 1
                load, pressure = self._load(peer, now), self.pressure.told(now)
                reply = msgspec.structs.replace(kept.reply, sent_ns=now, load=load, pressure=pressure)
                out.append(Send(link, reply, kept.outputs))
            return kept is not None
        admitted = self._admitted[job]
        if link in admitted.links or not same_request(admitted.message, message):
            return False
        self.counters["copies"] += 1
        self._admitted[job] = msgspec.structs.replace(admitted, links=(*admitted.links, link))
        return True

    def _cancel(self, link: str, message: Cancel, now: int, out: list[Action]) -> None:
        peer = self.peers.of_link(link)
        if peer is None:
            return
        identity = (peer.name, message.incarnation, message.sequence, message.attempt)
        self._kept.drop(identity)
        job = self._by_identity.get(identity)
        if job is None:
            return
        self._refuse_job(job, "cancelled", "", now, out)
        self._stop(job, out)

    # --- work ---------------------------------------------------------------------------------------------------------

    def _decided(self, decision: Decision, now: int, out: list[Action]) -> None:
        while decision.overdue or decision.revoked:
            for launch in decision.overdue:
                self._overdue(launch, now, out)
            decision = self.scheduler.schedule(now)
        if self._stuck:
            self._tell_the_stuck(now, out)
        for job in decision.expired:
            self.pressure.lost(job.rows, now)
            self._refuse_job(job.id, "expired", "it can no longer be done in time", now, out)
        out += decision.runs

    def _overdue(self, launch: Launch, now: int, out: list[Action]) -> None:
        """An executor may have got stuck. Those who wait for it are told when half of their time has passed since it began,
        since a run that has taken so long is taken to need as long again, and they may still find another way."""
        self.counters["overdue"] += 1
        for job in launch.jobs:
            if job.id in self._admitted:
                self._stuck[job.id] = max(now, (launch.began_ns + job.deadline_ns) // 2)

    def _tell_the_stuck(self, now: int, out: list[Action]) -> None:
        for job in [job for job, at in self._stuck.items() if now >= at]:
            self._refuse_job(job, "failed", "its executor is overdue", now, out)
            self._stop(job, out)

    def _finished(self, event: Finished, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.ended(event.run, event.began_ns, event.ended_ns, now)
        results = {r.job: r for r in event.results}
        self.counters["launches"] += 1
        wait_ns = self.scheduler.predicted_wait(now)  # that of all its rows: it looks at all that waits
        for job in launch.jobs:
            result = results.get(job.id) or RowResult(job.id, (), "the executor gave no result")
            if job.id not in self._admitted:
                self.counters["unwanted-rows"] += job.rows
            elif result.error:
                self._refuse_job(job.id, "failed", result.error, now, out)
            elif launch.partial:
                self._go_on(job, launch, result.outputs, event)
            else:
                self._reply(self._settle(job.id), result.outputs, event, wait_ns, now, out)

    def _go_on(self, job: Job, launch: Launch, outputs: Outputs, event: Finished) -> None:
        """A first part of a request's work is done."""
        self.counters["pieces"] += 1
        self._stuck.pop(job.id, None)
        admitted = self._admitted[job.id]
        codec = admitted.codec_ns + event.codec_ns
        tail = admitted.tail_ns + event.ended_ns - event.began_ns - event.codec_ns
        self._admitted[job.id] = msgspec.structs.replace(admitted, tail_ns=tail, codec_ns=codec)
        self.scheduler.go_on(job, launch, outputs)

    def _failed(self, event: Failed, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.failed(event.run, now, late=event.reason == "window")
        reason = "expired" if event.reason == "window" else "failed"
        for job in launch.jobs:
            if job.id in self._admitted:
                self._refuse_job(job.id, reason, event.detail or event.reason, now, out)

    def _reply(self, admitted: Admitted, outputs: Outputs, event: Finished, wait: int, now: int, out: Actions) -> None:
        asked, peer = admitted.message, admitted.peer
        codec = admitted.codec_ns + event.codec_ns
        tail = admitted.tail_ns + event.ended_ns - event.began_ns - event.codec_ns
        stages: Stages = {"cloud_queue": now - admitted.received_ns - codec - tail, "codec": codec, "tail": tail}
        self.peers.credits.timely(peer.account)
        reply = Reply(
            incarnation=asked.incarnation,
            sequence=asked.sequence,
            attempt=asked.attempt,
            contract=asked.contract,
            cut=asked.cut,
            coding=asked.coding,
            rows=asked.rows,
            tensors=self._door.outputs[asked.contract][asked.rows],
            stages=stages,
            sent_ns=now,
            load=self._load(peer, now, wait),
            pressure=self.pressure.told(now),
        )
        self.counters["rows"] += asked.rows
        if now > admitted.deadline_ns:
            self.counters["late-rows"] += asked.rows
        for link in admitted.links:
            out.append(Send(link, reply, outputs))
        if len(peer.data) > 1:
            kept = KeptReply(asked, reply, outputs, size_of(outputs), admitted.links, admitted.deadline_ns)
            self._kept.keep(admitted.identity, kept, now)

    def _settle(self, job: int) -> Admitted:
        """A request is over: its credit is free, and it is no longer known as open."""
        admitted = self._admitted.pop(job)
        del self._by_identity[admitted.identity]
        self._stuck.pop(job, None)
        self.peers.credits.give_back(admitted.peer.account)
        return admitted

    def _stop(self, job: int, out: list[Action]) -> None:
        run = self.scheduler.cancel(job)
        if run is not None:
            out.append(Abort(run.run, run.executor))

    def _refuse_job(self, job: int, reason: str, detail: str, now: int, out: list[Action]) -> None:
        admitted = self._settle(job)
        self._refuse(admitted.links, admitted.message, reason, detail, now, out)

    def _refuse(
        self, links: tuple[str, ...], message: Infer, reason: str, detail: str, now: int, out: list[Action]
    ) -> None:
        self.counters[f"refused-{reason}"] += 1
        for link in links:
            load = self._load(self.peers.refused(link, reason, now), now)
            asked = (message.incarnation, message.sequence, message.attempt)
            out.append(Send(link, Refusal(*asked, reason, detail[:200], now, load, self.pressure.told(now))))

    def _load(self, peer: Peer | None, now: int, wait_ns: int | None = None) -> Load:
        granted = 0 if peer is None or self._leave_by else self.peers.credits.granted(peer.account)
        return Load(self.scheduler.predicted_wait(now) if wait_ns is None else wait_ns, granted)

    # --- peers and time -----------------------------------------------------------------------------------------------

    def _gone(self, peer: Peer | None, out: list[Action]) -> None:
        if peer is not None:
            self._forget(peer, out)
            self.peers.remove(peer)

    def _unreachable(self, link: str, out: list[Action]) -> None:
        """A message did not leave on this connection: its path is gone, and with its last path the peer."""
        peer = self.peers.of_link(link)
        if peer is None:
            return
        gone = self.peers.cut_off(peer, link)
        if not peer.data:
            self._gone(peer, out)
            return
        for admitted in [a for a in self._admitted.values() if not gone.isdisjoint(a.links)]:
            left = tuple(link for link in admitted.links if link not in gone)
            self._admitted[admitted.job] = msgspec.structs.replace(admitted, links=left)
            if not left:
                self._settle(admitted.job)
                self._stop(admitted.job, out)
                self.counters["peer-gone"] += 1

    def _forget(self, peer: Peer, out: list[Action]) -> None:
        """Nothing of this peer's incarnation is wanted any more."""
        self._kept.drop_peer(peer.name, peer.incarnation)
        for job in [a.job for a in self._admitted.values() if a.peer is peer]:
            self._settle(job)
            self._stop(job, out)
            self.counters["peer-gone"] += 1

    def _tell_of(self, directory: Directory, out: list[Action]) -> None:
        """A directory was found: every edge is told of it, where it is newer than the one before."""
        if self._directory is not None and directory.epoch <= self._directory.epoch:
            return
        try:
            check_length(directory)
        except SettingsError:
            self.counters["directory-too-long"] += 1
            return
        told = to_message(directory)
        self._directory = told
        out += [Send(link, told) for peer in self.peers.all() for link in peer.data]

    def _drain(self, now: int, out: list[Action]) -> None:
        """This node is to leave: its edges are told at once, so that they ask others."""
        if not self._leave_by:
            self._leave_by = now + max(1, int(self._settings.node.drain_ms * 1_000_000))
            out += [Send(link, Drain(self._incarnation)) for peer in self.peers.all() for link in peer.data]

    def _leave(self, now: int, out: list[Action]) -> None:
        """Go, once what was here is answered, or time is up."""
        if self._admitted and now < self._leave_by:
            return
        self._left = True
        for peer in list(self.peers.all()):
            # Behind the last answers: on a probe connection it would overtake them.
            out += [Send(link, Bye("closing")) for link in peer.data]
            self._gone(peer, out)
        out.append(Leave())

    def _jumped(self, now: int, out: list[Action]) -> None:
        """This host was suspended: its clock has fallen behind all others, of which the edges must learn, and what it was
        asked is over. An edge that is told to greet anew finds both out."""
        self._jumped_ns = now
        for peer in list(self.peers.all()):
            out += [Send(link, Bye("hello")) for _, link in sorted(peer.links.items(), reverse=True)]
            self._gone(peer, out)

    def _wake(self, now: int, out: list[Action]) -> None:
        at = self.scheduler.next_wakeup(now)
        if self._stuck:
            at = min(self._stuck.values()) if at is None else min(at, *self._stuck.values())
        if self._leave_by and not self._left:
            at = self._leave_by if at is None else min(at, self._leave_by)
        if at is None:
            return
        at = max(at, now)
        if at != self._wake_at:
            self._wake_at = at
            out.append(WakeAt(at))

    def owner(self, job: int) -> Identity | None:
        """The request that a job works for; None where nobody wants it any more. For those who look on."""
        admitted = self._admitted.get(job)
        return None if admitted is None else admitted.identity

    def is_open(self, identity: Identity) -> bool:
        """Whether this request was let in and is not over. For those who look on."""
        return identity in self._by_identity

    def validate(self) -> None:
        """Raises `InvariantBroken` where the machine's own books disagree. For tests and simulations."""
        self.scheduler.validate()
        self.peers.credits.validate()
        if {j: a.identity for j, a in self._admitted.items()} != {j: i for i, j in self._by_identity.items()}:
            raise InvariantBroken("admitted requests and identities disagree")
