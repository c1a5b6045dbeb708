"""The course of the demo: finds the deadline, plays the phases, and repeats one in which the machine stood still."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from edge.client import Client
from hil.demo_settings import DemoSettings
from hil.ledger import Ledger, References
from hil.phases import Phase, repeats_to_keep, why_not_repeated
from hil.plant import Plant
from hil.player import Player, Switch
from hil.results import PhaseResult, summarise
from hil.rig import Rig
from hil.tap import tapped_client
from hil.verdict import BELOW_CONTROL, own_rules
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures
from shared.request import Answer, Array

LOOK_FRAMES = 20
HOPELESS = 0.9
WARM_S = 10.0
WARM_ANSWERS = 15
TRIAL_WARM_S = 3.0
"""How long the cloud may take before a trial until it answers as many in a row; else it does not hold the deadline."""

ATTACH_S = 30.0
BETWEEN_S = 0.4
"""What a phase takes beside its frames."""


class Deadline(msgspec.Struct, frozen=True):
    """The deadline in use, what a local answer took there (p50), a sentence that says why it is this one, and the rung that
    gave most of the local answers; empty where there was none."""

    ms: float
    local_ms: float
    why: str
    rung: str = ""


class Plans(msgspec.Struct, frozen=True):
    """Names of the plan that was chosen and of the one with the forced split."""

    main: str
    forced: str


State = Literal["running", "done"]
Watch = Callable[[Phase, State, PhaseResult], None]
"""Told how a phase is going, and how it went."""


class Course:
    """Everything that is played on one rig. `frames` are the images, `known` their references.

    `player`, there once it is entered, plays single phases.
    """

    def __init__(
        self, rig: Rig, settings: DemoSettings, plans: Plans, frames: Sequence[Array], known: References, watch: Watch
    ) -> None:
        self._rig = rig
        self._settings = settings
        self._plans = plans
        self._frames = frames
        self._known = known
        self._watch = watch
        self._switches = {name: Switch() for name in ("edge", "control")}
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Course:
        for name, switch in self._switches.items():
            self._clients[name] = tapped_client(self._rig.endpoint(name), f"demo-{name}", switch)
        self.player = Player(
            {name: (client, self._switches[name]) for name, client in self._clients.items()},
            self._frames,
            self._settings.stream.rate_hz,
            self._rig.apply,
        )
        return self

    def __exit__(self, *ending: object) -> None:
        for client in self._clients.values():
            client.close()

    def attach(self) -> None:
        """Block until the clients have found their agents. Raises `HeadtailError` where one cannot be reached."""
        for name, client in self._clients.items():
            if not client.wait_attached(ATTACH_S):
                raise HeadtailError(f"the agent {name!r} cannot be reached at {self._rig.endpoint(name)}")

    def warm(self, deadline_ms: float, limit_s: float = WARM_S) -> bool:
        """Ask until both plans are answered, by the cloud where there is one; False where that takes over `limit_s`."""
        warmed = True
        for agent, source in (("control", "edge"), ("edge", "cloud")):
            for plan in (self._plans.main, self._plans.forced):
                warmed &= self._warm(self._clients[agent], plan, source, deadline_ms, limit_s)
        return warmed

    def find_deadline(self) -> Deadline:
        """The first choice that the control holds, and the cloud over the good link as well; the last where there is none.

        At one that the cloud does not hold, phases would be judged that no way through it can be in time for.
        """
        wanted = self._settings.deadline
        choices = ", ".join(f"{choice:g}" for choice in wanted.choices_ms)
        shares: list[str] = []
        local_ms, rung = 0.0, ""
        for choice in wanted.choices_ms:
            trial = self._control_trial(choice)
            local_ms, rung = trial.p50_ms, _most(trial.by_rung)
            p99 = f", p99 {trial.p99_ms:.1f}" if trial.p99_ms else ""
            shares.append(f"{trial.on_time_share:.1%} at {choice:g} ms{p99}")
            spread = trial.p99_ms - trial.p50_ms
            spare = trial.p99_ms + wanted.headroom * spread <= choice
            if trial.on_time_share < wanted.hold_share or not spare:
                continue
            cloud = self._cloud_trial(choice * (1.0 - wanted.cloud_spare))
            shares[-1] += f", with the cloud {cloud:.1%}"
            if cloud >= wanted.hold_share:
                held = f"is the smallest of {choices} ms that an agent without a cloud held"
                room = f"for {wanted.hold_share:.0%} of its frames with {wanted.headroom:g} times their spread to spare"
                also = f"and the cloud over the good link with {wanted.cloud_spare:.0%} of it to spare"
                why = f"{choice:g} ms {held} {room}, {also} ({'; '.join(shares)})."
                return Deadline(choice, local_ms, why, rung)
        last = wanted.choices_ms[-1]
        why = f"None of {choices} ms was held without a cloud and with one ({'; '.join(shares)}); {last:g} ms is used."
        return Deadline(last, local_ms, why, rung)

    def play_all(
        self, phases: Sequence[Phase], deadline_ms: float, split_ms: float, plant: Plant | None, ends_s: float
    ) -> list[PhaseResult]:
        """Play the phases in order. Repeats may last until `ends_s` of `time.monotonic()`. A fault is planted in the first
        phase only."""
        results: list[PhaseResult] = []
        for number, phase in enumerate(phases):
            self._rig.check()
            due_ms = split_ms if phase.forced else deadline_ms
            result = self._play(phase, due_ms, plant if number == 0 else None)
            seconds = [p.frames / self._settings.stream.rate_hz + BETWEEN_S for p in phases[number:]]
            if result.machine_stalled:
                spare = int((ends_s - time.monotonic() - sum(seconds[1:])) / seconds[0])
                kept = repeats_to_keep(self._held(result, results), phase.kind == "control", len(phases) - number - 1)
                because = why_not_repeated(spare, kept)
                result = (
                    msgspec.structs.replace(result, not_repeated_because=because)
                    if because
                    else self._repeat(phase, due_ms, result)
                )
            self._watch(phase, "done", result)
            results.append(result)
        return results

    def _play(self, phase: Phase, deadline_ms: float, plant: Plant | None) -> PhaseResult:
        self._rig.prepare(phase)
        model = self._plans.forced if phase.forced else self._plans.main
        self._rig.monitor.take()

        def progress(ledger: Ledger, began_ns: int) -> None:
            so_far = summarise(phase, ledger.close(None), deadline_ms, began_ns, (), LatenessFigures(), False)
            self._watch(phase, "running", so_far)

        played = self.player.play(phase, model, deadline_ms, plant, progress)
        machine = self._rig.monitor.take()
        stalled = self._settings.noise.stalled(machine)
        entries = played.ledger.close(self._known)
        return summarise(phase, entries, deadline_ms, played.began_ns, played.faults, machine, stalled)

    def _repeat(self, phase: Phase, deadline_ms: float, first: PhaseResult) -> PhaseResult:
        self._rig.restore(phase)
        self._recover(phase, deadline_ms)
        again = self._play(phase, deadline_ms, None)
        return msgspec.structs.replace(again, repeated=True, first_try=msgspec.structs.replace(first, timeline=()))

    def _held(self, result: PhaseResult, before: Sequence[PhaseResult]) -> bool:
        """Whether the phase held what can be judged before the demo is over."""
        if result.kind == "control":
            return result.on_time_share >= self._settings.deadline.hold_share
        control = next((r.on_time_share for r in reversed(before) if r.kind == "control"), 0.0)
        return all(rule.holds for rule in own_rules(result)) and result.on_time_share >= control - BELOW_CONTROL

    def _control_trial(self, deadline_ms: float) -> PhaseResult:
        """A short trial without a cloud; a very short one where that is hopeless already."""
        look = self._trial(LOOK_FRAMES, deadline_ms)
        if look.on_time_share < HOPELESS and not look.machine_stalled:
            return look
        trial = self._trial(self._settings.deadline.trial_frames, deadline_ms)
        if trial.machine_stalled and trial.on_time_share < self._settings.deadline.hold_share:
            trial = self._trial(self._settings.deadline.trial_frames, deadline_ms)
        return trial

    def _cloud_trial(self, deadline_ms: float) -> float:
        """The share of a short trial that the cloud answers in time over the good link; 0 where it cannot be got to answer at
        all."""
        if not self._warm(self._clients["edge"], self._plans.main, "cloud", deadline_ms, TRIAL_WARM_S):
            return 0.0
        frames = self._settings.deadline.trial_frames
        trial = self._trial(frames, deadline_ms, "edge")
        if trial.machine_stalled and trial.cloud_on_time < self._settings.deadline.hold_share:
            trial = self._trial(frames, deadline_ms, "edge")
        return trial.cloud_on_time

    def _trial(self, frames: int, deadline_ms: float, agent: Literal["edge", "control"] = "control") -> PhaseResult:
        phase = Phase("trial", "control", f"trial at {deadline_ms:g} ms", frames, agent=agent)
        return self._play(phase, deadline_ms, None)

    def _recover(self, phase: Phase, deadline_ms: float) -> None:
        """Wait until the agent uses again what a phase that is to be repeated had taken from it."""
        self._rig.wait_ready()
        if phase.kind not in ("control", "both-killed", "hot", "nodes-back"):
            self._warm(self._clients["edge"], self._plans.main, "cloud", deadline_ms, WARM_S)

    def _warm(self, client: Client, plan: str, source: str, deadline_ms: float, limit_s: float) -> bool:
        """Ask until enough answers in a row came from `source`; False where they do not come in time."""
        period_ns = round(1e9 / self._settings.stream.rate_hz)
        end_ns = time.monotonic_ns() + round(limit_s * 1e9)
        due_ns, in_a_row, number = time.monotonic_ns(), 0, 0
        with client.stream(period_ms=period_ns / 1e6, deadline_ms=deadline_ms, latest_wins=False, model=plan) as stream:
            while in_a_row < WARM_ANSWERS and due_ns < end_ns:
                time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                outcome = stream.submit(self._frames[number % len(self._frames)], scheduled_ns=due_ns).result()
                in_a_row = in_a_row + 1 if isinstance(outcome, Answer) and outcome.source == source else 0
                due_ns, number = stream.next_due_ns(due_ns), number + 1
        return in_a_row >= WARM_ANSWERS


def _most(counts: Mapping[str, int]) -> str:
    """The name with the largest count; empty where there is none."""
    return max(counts, key=counts.__getitem__, default="")
