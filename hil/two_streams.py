"""Two streams on one executor: a strict one of the high class, and a lesser one whose jobs would block it.

An agent of its own process runs them, on a device that is a timed wait, so that how long the jobs take is known and 80 % of
the executor is theirs. Where the machine stood still in an act it is played again, twice at most; where it still did, its
shares are not judged.
"""

from __future__ import annotations

import gc
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path

import msgspec

from edge.client import Client
from edge.client_stream import Stream
from edge.tickets import OutcomeFuture
from hil.house import House
from hil.ledger import Ledger, References
from hil.monitor import Monitor, Noise
from hil.phases import Phase
from hil.player import Switch
from hil.references import references
from hil.results import PhaseResult, summarise
from hil.services import Service, run_folder, wait_ready
from hil.small_plans import Times, make_images, write_small
from hil.tap import tapped_client
from hil.throttle import PROGRAM, Throttle
from hil.two_streams_rules import ACTS, LESSER, STRICT, Act, Played, Promised, Source, TwoStreams, verdict_of
from shared.bundle import load_bundle
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures
from shared.request import Array
from shared.settings import AgentGroup, EdgeSettings, Execution

TIMES_SLOWER = 2.0
"""What a device that is slowed by half takes."""

SLOWDOWN = 500.0
"""Nearly all of a job is the wait that stands for a slow device; half as fast is the most that the setting allows."""

SWITCH_S = 0.0005
IMAGES = 16
SEED = 11
READY_S = 60.0
LEAD_NS = 100_000_000
LAST_S = 5.0
SETTLE_FRAMES = 45
MOST_SETTLING = 6
SETTLED = 0.9
"""Both streams' share on time from which on a device counts as fast again."""

MOST_REPEATS = 2
SLOWED_AFTER = 0.25
"""The share of a slowed act that is played at full speed."""


class _Track:
    """One stream's client, its images' right answers, and what it has been promised in an act."""

    def __init__(self, source: Source, client: Client, switch: Switch, known: References) -> None:
        self.source = source
        self.client = client
        self.switch = switch
        self.known = known
        self.ledger = Ledger()
        self.futures: list[OutcomeFuture] = []
        self.promises: list[Promised] = []

    def open(self) -> Stream:
        """Announce the stream, and wait for what the agent says to it."""
        source = self.source
        self.ledger, self.futures, self.promises = Ledger(), [], []
        self.switch.lead_to(self.ledger.delivered)
        stream = self.client.stream(
            period_ms=1e3 / source.rate_hz,
            deadline_ms=source.deadline_ms,
            latest_wins=False,
            model=source.name,
            priority=source.priority,
        )
        stream.wait_promise(READY_S)
        return stream

    def play(self, stream: Stream, images: Sequence[Array], frames: int, began_ns: int) -> None:
        """Ask for each frame when it is due; on a thread of its own."""
        self._note(stream, 0.0)
        for number in range(frames):
            due_ns = began_ns + round(number * 1e9 / self.source.rate_hz)
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            image = number % len(images)
            future = stream.submit(images[image], scheduled_ns=due_ns)
            self.ledger.asked(future.sequence, image, due_ns)
            self.futures.append(future)
            self._note(stream, (due_ns - began_ns) / 1e6)
        wait(self.futures, timeout=self.source.deadline_ms / 1e3 + LAST_S)
        for future in self.futures:
            if not future.done():
                self.ledger.unresolved(future.sequence)

    def _note(self, stream: Stream, at_ms: float) -> None:
        said = (stream.promise or "", stream.reason)
        if not self.promises or said != (self.promises[-1].rung, self.promises[-1].reason):
            self.promises.append(Promised(at_ms, self.source.name, *said))


class StreamsRig(House):
    """The agent, the monitor, and a client for each stream. Use it as a context manager. Raises `HeadtailError`."""

    def __init__(self, folder: Path, noise: Noise) -> None:
        self._folder = folder
        self._noise = noise
        self._sockets = run_folder()
        self._tracks: dict[str, _Track] = {}
        self._images = make_images(IMAGES, SEED)

    def play_all(self, frames: int, told: Callable[[str], None]) -> TwoStreams:
        """Play every act with so many strict frames, and judge."""
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            played: list[Played] = []
            for act in ACTS:
                told(f"{act.name}: {act.title}")
                self._settle()
                one = self._play(act, frames)
                for _ in range(MOST_REPEATS):
                    if not one.strict.machine_stalled:
                        break
                    told(f"{act.name}: once more, the machine stalled")
                    self._settle()
                    one = self._play(act, frames)
                played.append(one)
        finally:
            sys.setswitchinterval(interval_s)
        return verdict_of(played)

    def _settle(self) -> None:
        """Play both streams until the agent has found out that the device is as fast as it ought to be."""
        for _ in range(MOST_SETTLING):
            played = self._play(Act("settle", beside=True, slowed=False), SETTLE_FRAMES)
            lesser = played.lesser
            if lesser is not None and min(played.strict.on_time_share, lesser.on_time_share) >= SETTLED:
                return

    def _play(self, act: Act, frames: int) -> Played:
        self._agent.check()
        sources = (STRICT, LESSER) if act.beside else (STRICT,)
        tracks = [self._tracks[source.name] for source in sources]
        streams = [track.open() for track in tracks]
        gc.collect()
        gc.disable()
        try:
            self._monitor.take()
            began_ns = time.monotonic_ns() + LEAD_NS
            seconds = frames / STRICT.rate_hz
            threads = [
                threading.Thread(
                    target=track.play,
                    args=(stream, self._images, round(seconds * track.source.rate_hz), began_ns),
                )
                for track, stream in zip(tracks, streams, strict=True)
            ]
            for thread in threads:
                thread.start()
            if act.slowed:
                time.sleep(max(0.0, began_ns / 1e9 + SLOWED_AFTER * seconds - time.monotonic()))
                self._throttle.set(self._agent.pid, TIMES_SLOWER)
            for thread in threads:
                thread.join()
            machine = self._monitor.take()
        finally:
            gc.enable()
            self._throttle.set(self._agent.pid, 1.0)
            for track, stream in zip(tracks, streams, strict=True):
                stream.close()
                track.switch.lead_to(None)
        results = [self._result(act, track, began_ns, machine) for track in tracks]
        promises = sorted((p for track in tracks for p in track.promises), key=lambda p: p.at_ms)
        return Played(act, results[0], results[1] if act.beside else None, tuple(promises))

    def _result(self, act: Act, track: _Track, began_ns: int, machine: LatenessFigures) -> PhaseResult:
        entries = track.ledger.close(track.known)
        phase = Phase(act.name, "beside" if act.beside else "control", act.title, len(entries))
        stalled = self._noise.stalled(machine)
        result = summarise(phase, entries, track.source.deadline_ms, began_ns, (), machine, stalled)
        return msgspec.structs.replace(result, timeline=())

    # --- what there is ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        bundles = [
            load_bundle(
                write_small(
                    self._folder,
                    source.name,
                    rungs=("small",),
                    routes=(),
                    times=Times(small_us=source.job_ms * 1e3, whole_us=4 * source.job_ms * 1e3, slowdown=SLOWDOWN),
                    seed=number,
                )
            )
            for number, source in enumerate((STRICT, LESSER))
        ]
        endpoint = f"ipc://{self._sockets}/agent"
        settings = EdgeSettings(
            agent=AgentGroup(name="agent", endpoint=endpoint, models=tuple(str(bundle.path) for bundle in bundles)),
            execution=Execution(slowdown=SLOWDOWN),
        )
        self._agent = Service("agent", "edge", settings, self._folder, PROGRAM)
        self._throttle = Throttle(self._agent.config)
        self._agent.start()
        self._monitor = Monitor(self._noise.late_ms)
        for source, bundle in zip((STRICT, LESSER), bundles, strict=True):
            switch = Switch()
            client = tapped_client(endpoint, source.name, switch)
            self._tracks[source.name] = _Track(source, client, switch, references(bundle, self._images))
        wait_ready((self._agent,), READY_S)
        for track in self._tracks.values():
            if not track.client.wait_attached(READY_S):
                raise HeadtailError(f"the agent cannot be reached after {READY_S:g} s")

    def _end(self) -> None:
        for track in self._tracks.values():
            track.client.close()
        for name, end in (("_agent", "end"), ("_monitor", "close")):
            helper = getattr(self, name, None)
            if helper is not None:
                getattr(helper, end)()
        shutil.rmtree(self._sockets, ignore_errors=True)
