"""Plays a phase: sends its frames when they are due, lets its faults happen, and keeps the ledger.

The sender sleeps until each frame is due and counts from then, whatever it was late by. Faults happen in the slack between
two frames. The collector is off while a phase runs: this process is the application here, and may say so for itself.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait

import msgspec

from edge.client import Client
from edge.tickets import OutcomeFuture
from hil.ledger import Ledger
from hil.phases import Fault, Phase
from hil.plant import Plant, Tap, planted
from shared.request import Array, Outcome

LEAD_NS = 50_000_000
"""Between the call and the first frame."""

PROGRESS_FRAMES = 10
PROGRESS_NS = 8_000_000
"""Progress is told this long before a frame is due, when most often no request is open."""

LAST_S = 5.0
"""How long after the last deadline futures may still come to an end before they count as lost."""


class Played(msgspec.Struct, frozen=True):
    """What a phase left behind: its ledger, when it began, and the faults that happened, with their times."""

    ledger: Ledger
    began_ns: int
    faults: tuple[tuple[int, str], ...]


class Switch:
    """Where a client's deliveries go: to the ledger of the phase that is being played, through a planted fault if any."""

    def __init__(self) -> None:
        self._tap: Tap | None = None

    def __call__(self, sequence: int, outcome: Outcome, now: int) -> None:
        """Take a delivery. Between phases nobody is asked for anything, so nothing is expected."""
        if self._tap is not None:
            self._tap(sequence, outcome, now)

    def lead_to(self, tap: Tap | None) -> None:
        """From now on, deliveries go there."""
        self._tap = tap


class Player:
    """Plays phases over the clients of the two agents. `frames` are cut 0's tensor, one for each image."""

    def __init__(
        self,
        clients: Mapping[str, tuple[Client, Switch]],
        frames: Sequence[Array],
        rate_hz: float,
        apply: Callable[[Fault], None],
    ) -> None:
        self._clients = clients
        self._frames = frames
        self._period_ns = round(1e9 / rate_hz)
        self._apply = apply

    def play(
        self,
        phase: Phase,
        model: str,
        deadline_ms: float,
        plant: Plant | None = None,
        progress: Callable[[Ledger, int], None] | None = None,
    ) -> Played:
        """Play `phase` with the plan `model`; returns when every frame has its outcome or can have none any more.

        `progress` is called before some frames with the ledger so far and when the phase began.
        """
        client, switch = self._clients[phase.agent]
        ledger = Ledger()
        faults: list[tuple[int, str]] = []
        futures: list[OutcomeFuture] = []
        waiting = sorted(phase.faults, key=lambda fault: fault.frame)
        period_ms = self._period_ns / 1e6
        switch.lead_to(planted(ledger.delivered, plant))
        gc.collect()
        gc.disable()
        try:
            with client.stream(period_ms=period_ms, deadline_ms=deadline_ms, latest_wins=False, model=model) as stream:
                began_ns = time.monotonic_ns() + LEAD_NS
                for number in range(phase.frames):
                    while waiting and waiting[0].frame <= number:
                        fault = waiting.pop(0)
                        faults.append((time.monotonic_ns(), str(fault)))
                        self._apply(fault)
                    due_ns = began_ns + number * self._period_ns
                    if progress is not None and number % PROGRESS_FRAMES == PROGRESS_FRAMES - 1:
                        time.sleep(max(0.0, (due_ns - PROGRESS_NS - time.monotonic_ns()) / 1e9))
                        progress(ledger, began_ns)
                    time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                    image = number % len(self._frames)
                    future = stream.submit(self._frames[image], scheduled_ns=due_ns)
                    ledger.asked(future.sequence, image, due_ns)
                    futures.append(future)
                wait(futures, timeout=deadline_ms / 1e3 + LAST_S)
        finally:
            gc.enable()
            switch.lead_to(None)
        for future in futures:
            if not future.done():
                ledger.unresolved(future.sequence)
        return Played(ledger, began_ns, tuple(faults))
