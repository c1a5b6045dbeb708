"""TCP over a link that follows a trace, packet by packet, on virtual time.

What is modelled, and after what:

* Segments of 1,448 bytes of data in packets of 1,500 (RFC 9293 with the timestamps of RFC 7323). A window that begins at ten
  (RFC 6928), doubles each round trip until the first loss and grows by one each round trip after it, is cut to 0.7 by a
  loss (RFC 9438, which grows like Reno at these sizes), is not grown where it is not used up (RFC 7661), and is halved for
  each timeout that a connection was idle, down to ten, as Linux does it (`tcp_slow_start_after_idle`).
* A lost packet is found by three later ones that were acknowledged, or by the first of them and a quarter of the least
  round trip (RFC 8985, RACK); where nothing later was sent, by a probe of the tail after two round trips (and 200 ms where
  one packet alone is out, 2 ms else, as Linux does it), or by the timeout: at least 200 ms more than the smoothed round trip
  (RFC 6298 with Linux' least), doubled each time.
* A byte is delivered when all before it on its connection have been: one loss holds up what follows.
* All connections of a link share its queue, which drops what does not fit.
* A connection with a segment unacknowledged for 1.5 s is given up and made anew, with the pauses of `shared.transport`.

Left out: lost acknowledgements (a later one says the same), delayed ones, their bytes, and timeouts that turn out to be
false after a gap, which Linux finds out and undoes (RFC 5682).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from hil.regret.timeline import NEVER_NS, Timeline

MS = 1_000_000
SEGMENT_BYTES = 1448
HEADER_BYTES = 52
"""IP, TCP and its timestamps."""

FIRST_WINDOW = 10
LEAST_TIMEOUT_NS = 200 * MS
FIRST_TIMEOUT_NS = 1_000 * MS
TAIL_NS = 2 * MS
KEPT = 0.7
DUPLICATES = 3
UNACKED_NS = 1_500 * MS
CONNECT_NS = 1_000 * MS
PAUSES_NS = (50 * MS, 2_000 * MS)
"""First and longest pause between tries to connect, doubled each time."""

SEND_MARK = 4
"""Messages that may wait beside the socket's buffer."""

Happen = Callable[[int], None]


class Agenda:
    """What is to happen, by time; `now` is the time of what happens."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._heap: list[tuple[int, int, Happen]] = []
        self._count = 0

    def put(self, at: int, happen: Happen) -> None:
        """`happen(at)` at `at`, after what was put for the same time before."""
        self._count += 1
        heappush(self._heap, (at, self._count, happen))

    def play(self, until: int) -> None:
        """Let everything happen that is due by `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            at, _, happen = heappop(heap)
            self.now = at
            happen(at)
        self.now = until


class Access:
    """One direction of a link with its queue, shared by all connections. Times are those of the timeline."""

    def __init__(self, timeline: Timeline, queue_bytes: int, rng: random.Random) -> None:
        self.timeline = timeline
        self._queue_bytes = queue_bytes
        self._rng = rng
        self._free = 0
        self._last = 0
        self._queued: deque[tuple[int, int]] = deque()
        self._waiting = 0
        self.nbytes = 0
        """Bytes that were sent, headers and lost ones included."""

    def offer(self, nbytes: int, now: int) -> int | None:
        """A packet is sent at `now`: when it arrives, or None where it is lost or the queue is full."""
        queued = self._queued
        while queued and queued[0][0] <= now:
            self._waiting -= queued.popleft()[1]
        if self._waiting + nbytes > self._queue_bytes:
            return None
        leave = self.timeline.leave(max(now, self._free), nbytes)
        self._free = leave
        queued.append((leave, nbytes))
        self._waiting += nbytes
        self.nbytes += nbytes
        loss = self.timeline.loss(leave)
        if loss and self._rng.random() < loss:
            return None
        self._last = arrival = max(self._last, self.timeline.travel(leave))
        return arrival


class Lost:
    """A packet that was lost and not found out yet. `later` are the times at which later ones are acknowledged."""

    __slots__ = ("first_ns", "index", "later", "nbytes", "number")

    def __init__(self, number: int, nbytes: int, index: int, first_ns: int) -> None:
        self.number = number
        self.nbytes = nbytes
        self.index = index
        self.first_ns = first_ns
        self.later: list[int] = []


class Sender:
    """One direction of one connection. `broken` is called once where a packet stays unacknowledged for too long."""

    def __init__(self, agenda: Agenda, forward: Access, back: Timeline, broken: Happen) -> None:
        self._agenda = agenda
        self._forward = forward
        self._back = back
        self._broken = broken
        self._alive = True
        self.window = float(FIRST_WINDOW)
        self._threshold = float("inf")
        self._smoothed = 0.0
        self._varied = 0.0
        self._least = 0.0
        self._unsent: deque[tuple[int, int]] = deque()
        self._ends: deque[tuple[int, Happen]] = deque()
        self._numbers = 0
        self._acks: deque[tuple[int, int, int]] = deque()
        self._last_ack = 0
        self._last_sent = 0
        self._index = 0
        self._lost: list[Lost] = []
        self._recovery = 0
        self._probed = False
        self._backoff = 0
        self._most_out = 0
        self._plan = 0
        self._pumping = False
        self._next_in = 0
        self._arrived: dict[int, int] = {}
        self._in_order = 0
        self.unacked = 0
        """Bytes of data that were written and are not acknowledged."""

    def write(self, nbytes: int, deliver: Happen, now: int) -> None:
        """A message: `deliver` happens when the last of it is there."""
        self._consume(now)
        if not self._acks and not self._lost and not self._unsent and self._last_sent:
            idle = now - self._last_sent - self._timeout()
            while idle > 0 and self.window > FIRST_WINDOW:
                self.window = max(self.window / 2, FIRST_WINDOW)
                idle -= self._timeout()
        self.unacked += nbytes
        left = nbytes
        while left > 0:
            part = min(left, SEGMENT_BYTES)
            self._unsent.append((self._numbers, part))
            self._numbers += 1
            left -= part
        self._ends.append((self._numbers, deliver))
        self._pump(now)

    def end(self) -> None:
        """The connection is gone: nothing more is delivered."""
        self._alive = False

    def _timeout(self) -> int:
        if not self._smoothed:
            return FIRST_TIMEOUT_NS
        return int(self._smoothed + max(LEAST_TIMEOUT_NS, 4 * self._varied))

    def _pump(self, now: int) -> None:
        out = len(self._acks) + len(self._lost)
        unsent = self._unsent
        while unsent and out < int(self.window):
            number, nbytes = unsent.popleft()
            self._transmit(number, nbytes, now, now, again=False)
            out += 1
        self._most_out = max(self._most_out, out)
        if self._lost:
            self._recover(now)
        if unsent and self._acks and not self._pumping:
            self._pumping = True
            self._agenda.put(self._acks[0][0], self._acked)

    def _acked(self, now: int) -> None:
        self._pumping = False
        if self._alive:
            self._consume(now)
            self._pump(now)

    def _transmit(self, number: int, nbytes: int, now: int, first_ns: int, *, again: bool) -> None:
        self._index += 1
        self._last_sent = now
        arrival = self._forward.offer(nbytes + HEADER_BYTES, now)
        if arrival is None:
            self._lost.append(Lost(number, nbytes, self._index, first_ns))
            return
        ack = self._last_ack = max(self._last_ack, self._back.travel(arrival))
        self._acks.append((ack, 0 if again else now, nbytes))
        if ack - first_ns > UNACKED_NS:
            self._agenda.put(first_ns + UNACKED_NS, self._give_up)
        for lost in self._lost:
            if len(lost.later) < DUPLICATES:
                lost.later.append(ack)
        self._received(number, arrival)

    def _received(self, number: int, arrival: int) -> None:
        if number < self._next_in or number in self._arrived:
            return
        self._arrived[number] = arrival
        while self._next_in in self._arrived:
            self._in_order = max(self._in_order, self._arrived.pop(self._next_in))
            self._next_in += 1
        while self._ends and self._ends[0][0] <= self._next_in:
            deliver = self._ends.popleft()[1]
            if self._in_order < NEVER_NS:
                self._agenda.put(self._in_order, self._delivery(deliver))

    def _delivery(self, deliver: Happen) -> Happen:
        def happen(at: int) -> None:
            if self._alive:
                deliver(at)

        return happen

    def _consume(self, now: int) -> None:
        """Take the acknowledgements that have come by `now`."""
        acks = self._acks
        while acks and acks[0][0] <= now:
            out = len(acks) + len(self._lost)
            at, sent, nbytes = acks.popleft()
            self.unacked -= nbytes
            self._probed = False
            self._backoff = 0
            if sent:
                self._sample(float(at - sent))
            if self.window < self._threshold:
                if self.window < 2 * max(self._most_out, out):
                    self.window += 1
            elif out >= int(self.window):
                self.window += 1 / self.window
            if not acks:
                self._most_out = 0

    def _sample(self, rtt: float) -> None:
        self._least = min(self._least or rtt, rtt)
        if not self._smoothed:
            self._smoothed, self._varied = rtt, rtt / 2
            return
        self._varied += (abs(rtt - self._smoothed) - self._varied) / 4
        self._smoothed += (rtt - self._smoothed) / 8

    # --- losses -------------------------------------------------------------------------------------------------------

    def _found_ns(self, lost: Lost) -> int:
        """When it is found out, by what is known now; `NEVER_NS` where only a timer will tell."""
        if not lost.later:
            return NEVER_NS
        found = lost.later[0] + int(self._least / 4)
        return min(found, lost.later[DUPLICATES - 1]) if len(lost.later) == DUPLICATES else found

    def _timer_ns(self) -> int:
        base = max(self._last_sent, self._last_ack)
        timeout = base + (self._timeout() << self._backoff)
        if self._probed or not self._smoothed:
            return timeout
        tail = LEAST_TIMEOUT_NS if len(self._lost) == 1 else TAIL_NS
        return min(timeout, base + int(2 * self._smoothed) + tail)

    def _recover(self, now: int) -> None:
        """Set the time at which the next loss is found out."""
        self._plan += 1
        plan = self._plan
        at = min(self._found_ns(lost) for lost in self._lost)
        if at >= NEVER_NS:
            at = self._timer_ns()

        def happen(then: int) -> None:
            if self._alive and plan == self._plan:
                self._repair(then)

        self._agenda.put(max(at, now), happen)

    def _repair(self, now: int) -> None:
        self._consume(now)
        if not self._lost:
            return
        if now - min(lost.first_ns for lost in self._lost) > UNACKED_NS:
            self._give_up(now)
            return
        found = [lost for lost in self._lost if self._found_ns(lost) <= now]
        if found:
            if max(lost.index for lost in found) > self._recovery:
                self._recovery = self._index
                self.window = self._threshold = max(2.0, self.window * KEPT)
        elif not self._probed and self._smoothed and now < self._last_ack + self._timeout():
            self._probed = True
            found = [max(self._lost, key=lambda lost: lost.number)]
        else:
            self._backoff += 1
            self._probed = True
            self._threshold = max(2.0, self.window * KEPT)
            self.window = 1.0
            self._recovery = self._index
            found = [min(self._lost, key=lambda lost: lost.number)]
        for lost in found:
            self._lost.remove(lost)
        for lost in found:
            self._transmit(lost.number, lost.nbytes, now, lost.first_ns, again=True)
        self._pump(now)

    def _give_up(self, now: int) -> None:
        if self._alive:
            self._broken(now)


class Connection:
    """A dealer's connection to a router over a link: made, lost and made again. `up` and `down` tell the dealer."""

    def __init__(
        self, agenda: Agenda, upward: Access, downward: Access, buffer_bytes: int, up: Happen, down: Happen
    ) -> None:
        """It begins to connect at once. `buffer_bytes` is the sockets' send buffer."""
        self._agenda = agenda
        self._upward = upward
        self._downward = downward
        self._buffer = buffer_bytes
        self._up = up
        self._down = down
        self._senders: tuple[Sender, Sender] | None = None
        self._pause = PAUSES_NS[0]
        self._connect(agenda.now)

    def send(self, nbytes: int, deliver: Happen, *, upward: bool) -> bool:
        """Send a message; False where there is no connection, or too much waits for it."""
        if self._senders is None:
            return False
        sender = self._senders[0 if upward else 1]
        if sender.unacked > self._buffer + SEND_MARK * nbytes:
            return False
        sender.write(nbytes, deliver, self._agenda.now)
        return True

    def renew(self) -> None:
        """Make it anew; the dealer hears only that it is there."""
        if self._senders is not None:
            for sender in self._senders:
                sender.end()
            self._senders = None
            self._connect(self._agenda.now)

    def _connect(self, now: int) -> None:
        """Shake hands: once for TCP, once for the greeting of ZeroMQ."""
        at = now
        for _ in range(2):
            at = self._downward.timeline.travel(self._upward.timeline.travel(at))
            if at - now > CONNECT_NS:
                self._agenda.put(now + CONNECT_NS + self._pause, self._connect)
                self._pause = min(2 * self._pause, PAUSES_NS[1])
                return
        self._agenda.put(at, self._made)

    def _made(self, now: int) -> None:
        self._pause = PAUSES_NS[0]
        up, down = self._upward, self._downward
        self._senders = (
            Sender(self._agenda, up, down.timeline, self._broken),
            Sender(self._agenda, down, up.timeline, self._broken),
        )
        self._up(now)

    def _broken(self, now: int) -> None:
        if self._senders is None:
            return
        for sender in self._senders:
            sender.end()
        self._senders = None
        self._down(now)
        self._agenda.put(now + self._pause, self._connect)
