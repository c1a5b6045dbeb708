"""What is played to see what background work costs a tight class, and what it is held against. Pure.

The tight class alone is the control, played in turn with the others and from the same draw of arrivals, so that the machine's
noise falls on all alike. Requests during which the machine itself stood still are set aside in every act.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from hil.load.figures import Figures
from hil.load.histogram import together
from hil.load.source import Source
from hil.timed_device import Device

TIGHT_DEVICE = Device("tight", 0.8, 0.2, 4)
LESSER_DEVICE = Device("lesser", 3.0, 1.0, 8)
"""Its launches take 4 to 25 ms, as long as several of the tight class, and longer than that can wait."""

TIGHT = Source(name="tight", deadline_ms=10.0, priority=0, rate_per_s=300.0, process="poisson")
"""30 % of the executor, in launches of one row."""

LESSER_PER_S = LESSER_DEVICE.most_per_s(LESSER_DEVICE.max_batch)
"""What the executor could serve of the background if it were alone, in its largest launches."""

TIMES = (0.0, 1.0, 2.0, 5.0)
"""How many times that is offered, act by act; 0 is the control."""

MOST_LOST = 0.001
"""Of the tight class's share on time, 0.1 percentage points."""


def lesser(times: float) -> Source:
    """The background that offers so many times what the executor could serve of it."""
    return Source(name="lesser", deadline_ms=50.0, priority=2, rate_per_s=times * LESSER_PER_S, process="poisson")


class Stretch(msgspec.Struct, frozen=True):
    """A few seconds of an act. `tight`: all its requests, `kept` those during which the machine did not stand still. `why`:
    the load generator was the bottleneck, in words. `node_busy`: seconds of the processor a second that the node took."""

    times: float
    tight: Figures
    kept: Figures
    lesser: Figures | None
    why: str
    node_busy: float


class ActSum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All stretches of one act that count. `requests` and `on_time` of the tight class are those during which the machine did
    not stand still, `aside` the others, `share_of_all` the share on time of both. `lesser_*` are of the background.
    `left_out`: stretches in which the load generator was the bottleneck."""

    times: float
    requests: int
    on_time: int
    aside: int
    share_of_all: float
    late_by: dict[str, int]
    without: dict[str, int]
    p99_ms: float | None
    lesser_offered_per_s: float
    lesser_on_time_per_s: float
    node_busy: float
    left_out: int

    @property
    def share(self) -> float:
        """The tight class's share on time."""
        return self.on_time / self.requests if self.requests else 0.0


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an act lost against the control, as a share, and the standard error of that, None where there was nothing to hold
    against it. `verdict` is `holds`, `BROKEN`, or why it cannot be told."""

    times: float
    lost: float
    error: float | None
    verdict: str

    @property
    def told(self) -> str:
        """What was lost, in points."""
        return "" if self.error is None else f"{100 * self.lost:+.3f} (standard error {100 * self.error:.3f}): "


class Background(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All acts, the control first, and what each of the others lost."""

    acts: tuple[ActSum, ...]
    losses: tuple[Loss, ...]

    @property
    def holds(self) -> bool:
        """Whether no act lost more than it may, as far as that could be told of each."""
        return all(loss.verdict == "holds" for loss in self.losses)


def sum_up(stretches: Sequence[Stretch]) -> Background:
    """Sum the stretches up, act by act, and hold each act against the control."""
    acts = tuple(_act(times, [each for each in stretches if each.times == times]) for times in TIMES)
    return Background(acts, tuple(_loss(acts[0], act) for act in acts[1:]))


def _act(times: float, stretches: Sequence[Stretch]) -> ActSum:
    good = [each for each in stretches if not each.why]
    late: dict[str, int] = {}
    without: dict[str, int] = {}
    for each in good:
        kept = each.kept
        for into, words in ((late, kept.late_by), (without, kept.missed_by), (without, kept.rejected_by)):
            for word, count in words.items():
                into[word] = into.get(word, 0) + count
    every = sum(each.tight.requests for each in good)
    seconds = sum(each.tight.seconds for each in good) or 1.0
    beside = [each.lesser for each in good if each.lesser is not None]
    return ActSum(
        times=times,
        requests=sum(each.kept.requests for each in good),
        on_time=sum(each.kept.on_time for each in good),
        aside=every - sum(each.kept.requests for each in good),
        share_of_all=sum(each.tight.on_time for each in good) / every if every else 0.0,
        late_by=late,
        without=without,
        p99_ms=together(tuple(each.kept.latency for each in good)).quantile_ms(0.99),
        lesser_offered_per_s=sum(figures.requests for figures in beside) / seconds,
        lesser_on_time_per_s=sum(figures.on_time for figures in beside) / seconds,
        node_busy=sum(each.node_busy for each in good) / len(good) if good else 0.0,
        left_out=len(stretches) - len(good),
    )


def _loss(control: ActSum, act: ActSum) -> Loss:
    if not control.requests or not act.requests:
        return Loss(
            act.times, 0.0, None, "nothing to judge: the load generator was the bottleneck, or the machine stalled"
        )
    lost = control.share - act.share
    missed = control.requests - control.on_time + act.requests - act.on_time
    pooled = (missed + 1) / (control.requests + act.requests + 2)
    error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / control.requests + 1.0 / act.requests))
    if lost - 2.0 * error > MOST_LOST:
        verdict = "BROKEN"
    elif lost <= MOST_LOST and 2.0 * error <= MOST_LOST:
        verdict = "holds"
    else:
        verdict = "too few requests to tell: measure for more seconds"
    return Loss(act.times, lost, error, verdict)
