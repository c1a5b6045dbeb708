"""How long the head of every candidate cut takes, without loading every head at the stream's pace.

Some cuts, spread evenly over the compute, are loaded as heads and timed back to back; the others lie between them by
their share of the compute. The sum is then scaled to the whole as it runs at the stream's pace. Mapping the runtime's
kernel profile back to nodes was tried first elsewhere and is not used here: fused kernels lose their nodes' names, and
timing a prefix includes the border's own cost. Whoever may win is loaded and timed as it will run afterwards, so an
estimate decides only who is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from partitioner.costs.cost import Spread
from partitioner.costs.timing import time_warm
from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.model import Model
from partitioner.graph.split import split
from partitioner.running import Tensors, load_part

WARM_RUNS = 5
Numbers = npt.NDArray[np.float64]


def anchors(cuts: Sequence[CandidateCut], count: int) -> list[CandidateCut]:
    """At most `count` of the inner cuts, those nearest to equal steps of compute."""
    if len(cuts) <= count:
        return list(cuts)
    low, high = cuts[0].share, max(cut.share for cut in cuts)
    wanted = [low + (high - low) * step / max(1, count - 1) for step in range(count)]
    indices = sorted({_nearest(cuts, share) for share in wanted})
    return [cuts[index] for index in indices]


def _nearest(cuts: Sequence[CandidateCut], share: float) -> int:
    return min(range(len(cuts)), key=lambda index: abs(cuts[index].share - share))


def warm_heads(
    model: Model, cuts: Sequence[CandidateCut], row: Tensors, threads: int, count: int
) -> tuple[dict[str, float], float]:
    """Warm time in microseconds of some heads by the cut's name, and of the whole model."""
    clock_ns = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    heads: dict[str, float] = {}
    for cut in anchors(cuts, count):
        head = load_part(split(model, [cut]).parts[0], threads)
        heads[cut.name] = time_warm(partial(head, row), WARM_RUNS, clock_ns)
    whole = load_part(model, threads)
    return heads, time_warm(partial(whole, row), WARM_RUNS, clock_ns)


def operator_times(finder: CutFinder, warm_us: Mapping[str, float], whole_warm_us: float) -> dict[int, float]:
    """Warm time in microseconds of each operator that does not depend on weights alone, by its index in the graph: what the
    heads that were timed leave to it along the shares of compute. The sum is the whole's."""
    known = sorted((cut.share, warm_us[cut.name]) for cut in finder.single() if cut.name in warm_us)
    shares, rising = _line(known, whole_warm_us)
    ends = np.minimum(np.cumsum([finder.share_of(index) for index in finder.order]), 1.0)
    ends[-1:] = 1.0
    passed = np.interp(ends, shares, rising)
    return dict(zip(finder.order, np.diff(passed, prepend=0.0).tolist(), strict=True))


def spread_heads(
    cuts: Sequence[CandidateCut], warm_us: Mapping[str, float], whole_warm_us: float, whole: Spread
) -> dict[str, Spread]:
    """Head times of all inner cuts at the stream's pace.

    `warm_us` are warm times of some of them, `whole` is the whole model at the stream's pace. Times never fall along the
    cuts' shares and never exceed the whole's.
    """
    shares, rising = _line(sorted((cut.share, warm_us[cut.name]) for cut in cuts if cut.name in warm_us), whole_warm_us)
    result: dict[str, Spread] = {}
    for cut in cuts:
        part = float(np.interp(cut.share, shares, rising)) / whole_warm_us
        result[cut.name] = Spread(whole.p50_us * part, whole.p99_us * part)
    return result


def _line(known: list[tuple[float, float]], whole_us: float) -> tuple[list[float], Numbers]:
    """Shares of compute, and the time of all that lies before each: never falling, never above the whole's."""
    shares = [0.0, *(share for share, _ in known), 1.0]
    times = [0.0, *(time_us for _, time_us in known), whole_us]
    return shares, np.minimum(np.maximum.accumulate(times), whole_us)


def remainder(whole: Spread, head: Spread) -> Spread:
    """The tail's time where only the head's is known."""
    return Spread(max(0.0, whole.p50_us - head.p50_us), max(0.0, whole.p99_us - head.p99_us))
