"""How long a segment range will take: the plan's profile, corrected by what was seen.

For each (contract, range, codec) the profile gives a base curve over batch sizes. What runs is kept as ratios to that
curve, in a short window, so that throttling shows after a few runs at whatever batch size they had. Two readings are
used: `typical` (median) to predict, `pessimistic` (97 %: one in the window is let pass) to promise. Before anything ran,
the window holds the profile's own spread. What has not run for a while ages (`Latency.age`): a rung that was too slow while
the device was hot is not run any more, so that only what does run can tell that the device has cooled. A range without a
profile starts from a stated pessimistic guess: blind trust in an unknown time would break promises, and refusing to run
would never learn it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable

import msgspec

from shared.plan import Plan, Profile, SegmentRange

WINDOW = 64
PESSIMISTIC = 0.97
SURE_LEAD = 0.95
"""The share of launches that are over within what is taken for all of them. What begins too late is lost as a whole, rows
with time left included; but each stall of the machine counted in full would make all batches small."""

COLD_NS = 5_000_000
"""Guess for a segment range that has no profile."""
COLD_CODEC_NS = 500_000
"""Guess for a codec that has no profile."""
US = 1000
AGE_EVERY_NS = 250_000_000
"""How often samples age, and by which share of what is left: to a third in a second."""
AGE_SHARE = 0.25
PATIENCE_NS = 1_000_000_000
"""Samples that nothing has confirmed for so long begin to age. After each try that was slower than that made believe, twice
as long."""
MOST_PATIENCE_NS = 64 * PATIENCE_NS
IDLE = 8
"""So many times as long where nothing else ran either."""
LATEST = 3
"""So many of the last runs of each range tell how slow the device is now."""
HIGHEST = 8
"""One in so many samples of the window stands for the slow ones."""
NEARLY_NS = 2.0
"""Times that differ by no more than rounding are equal."""
PARTS = 1_000_000
"""Ratios are kept in such parts, so that rounding is no news. `round` to six digits gives the same, but took 3 µs of each
run where the caches were cold."""
WORTH = 0.98
"""More rows are worth it where a row then takes less than this part of the time."""


class WorkKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What is timed: a segment range of a contract, entered from `decode` and left through `encode` (coding names; raw
    codings cost a copy, which the range's own time holds, and are written as an empty string)."""

    contract: str
    range: SegmentRange
    decode: str = ""
    encode: str = ""


class _Window:
    """The last values, and the same in order."""

    __slots__ = ("recent", "sorted")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.recent: deque[float] = deque(values, maxlen=WINDOW)
        self.sorted = sorted(self.recent)

    def add(self, value: float) -> bool:
        """Another value; False where that changes nothing but which is the oldest."""
        recent, ordered = self.recent, self.sorted
        if len(recent) == WINDOW:
            oldest = recent[0]
            if oldest == value:
                recent.append(value)
                return False
            del ordered[bisect_left(ordered, oldest)]
        recent.append(value)
        insort(ordered, value)
        return True


class _Curve:
    """Base time by batch size, piecewise linear, and the window of ratios to it.

    `seen_ns` is when it last ran, `tried_ns` when it was last begun and maybe aborted, `patience_ns` how long after that its
    samples hold, `aged` whether some have aged since, and `goal` what they have aged to in full, 0 where they have not. Where
    there is no profile, `known` is false: there is nothing to age to."""

    __slots__ = (
        "aged",
        "batches",
        "best",
        "goal",
        "high",
        "known",
        "longest",
        "median",
        "patience_ns",
        "paying",
        "seen_ns",
        "spread",
        "table",
        "times",
        "tried_ns",
        "window",
    )

    def __init__(self, points: list[tuple[int, float]], spread: float, now: int, *, known: bool) -> None:
        self.batches = [b for b, _ in points]
        self.times = [t for _, t in points]
        self.spread = max(1.0, spread)
        self.table: list[float] = []
        self.longest: list[float] = []
        self.best: list[int] = []
        self.paying = 1
        self.window = _Window([1.0] * 14 + [self.spread] * 2)
        self._read()
        self.known = known
        self.seen_ns = 0
        self.tried_ns = now
        self.patience_ns = PATIENCE_NS
        self.aged = False
        self.goal = 0.0

    def base(self, rows: int) -> float:
        batches, times = self.batches, self.times
        if rows == batches[0]:
            return times[0]
        if len(batches) == 1 or rows < batches[0]:
            return times[0] * max(1.0, rows / batches[0])
        i = min(max(1, bisect_left(batches, rows)), len(batches) - 1)
        slope = (times[i] - times[i - 1]) / (batches[i] - batches[i - 1])
        return max(times[0], times[i - 1] + slope * (rows - batches[i - 1]))

    def tabulate(self, most: int) -> None:
        """Base times of 1 to `most` rows; the longest of up to so many; of up to so many the most rows worth their time."""
        for rows in range(len(self.table) + 1, most + 1):
            time = self.base(rows)
            best = self.best[-1] if self.best else 1
            self.table.append(time)
            if self.paying == rows - 1 and max(time, self.longest[-1]) - self.longest[-1] <= self.table[0] + NEARLY_NS:
                self.paying = rows
            self.longest.append(max(time, self.longest[-1]) if self.longest else time)
            self.best.append(rows if time / rows < WORTH * self.table[best - 1] / best else best)

    def _read(self) -> None:
        ordered = self.window.sorted
        count = len(ordered)
        self.median = ordered[count // 2]
        self.high = ordered[int(PESSIMISTIC * count)]

    def observe(self, rows: int, elapsed_ns: int, now: int) -> bool:
        """Another launch; whether the typical time is another now."""
        if rows > len(self.table):
            self.tabulate(rows)
        ratio = int(elapsed_ns / self.table[rows - 1] * PARTS + 0.5) / PARTS
        if self.aged:
            worse = ratio > self.window.sorted[-1]
            self.patience_ns = min(2 * self.patience_ns, MOST_PATIENCE_NS) if worse else PATIENCE_NS
        self.seen_ns = self.tried_ns = now
        self.aged = False
        self.goal = 0.0
        if not self.window.add(ratio):
            return False
        before = self.median
        self._read()
        return self.median != before

    def age(self, slowness: float, share: float) -> None:
        """Samples go this share of the way to `slowness` and the profile's own spread around it; their order stays."""
        if abs(slowness - self.goal) <= 0.02 * self.goal:
            return
        ordered = self.window.sorted
        border = ordered[-1 - len(ordered) // HIGHEST]
        goals = (slowness, slowness * self.spread)
        self.window = _Window([r + share * (goals[r > border] - r) for r in self.window.recent])
        self._read()
        self.aged = True
        ordered = self.window.sorted
        left = max(abs(ordered[0] - goals[0]), abs(ordered[-1] - goals[1]))
        self.goal = slowness if left <= 0.02 * goals[1] else 0.0

    def latest(self) -> float:
        """The middle of the last few ratios."""
        return sorted(self.window.recent[place] for place in range(-LATEST, 0))[LATEST // 2]


class Latency:
    """Online execution-time model of one process. All times in nanoseconds."""

    def __init__(self) -> None:
        self._curves: dict[WorkKey, _Curve] = {}
        self._ranges: dict[tuple[str, SegmentRange], dict[int, tuple[float, float]]] = {}
        self._codecs: dict[tuple[str, int, str], tuple[float, float]] = {}
        self._now = 0
        self._aged_ns = 0
        self.version = 0
        """Another number whenever `typical` may be another."""
        self._leads = _Window()
        self.lead_ns = 0
        """What launches take beyond what they typically run, from the decision until their end is heard of, but for the
        slowest few; 0 where nothing was told of it."""
        self._ran: tuple[WorkKey, int, int, int] | None = None
        """What `ran` was told last, until something is learnt of it."""

    @classmethod
    def of(cls, plans: Iterable[tuple[str, Plan]], side: str, slowdown: float = 1.0) -> Latency:
        """Model seeded from each plan's own profile of `side` (`edge` or `cloud`), scaled where this process is slowed
        by another factor than the profile states."""
        profiles = [(contract, p) for contract, plan in plans for p in plan.profiles if p.side == side]
        return cls.of_profiles(profiles, slowdown if side == "edge" else 0.0)

    @classmethod
    def of_profiles(cls, profiles: Iterable[tuple[str, Profile]], slowdown: float = 0.0) -> Latency:
        """Model seeded from these profiles (with the contract of each), scaled where this process is slowed by another factor
        than the profile states; 0 leaves them as they are."""
        model = cls()
        for contract, profile in profiles:
            model._take(contract, profile, slowdown / profile.slowdown if slowdown else 1.0)
        return model

    def _take(self, contract: str, profile: Profile, scale: float) -> None:
        for r in profile.ranges:
            key = (contract, SegmentRange(r.program, r.first, r.last))
            self._ranges.setdefault(key, {})[r.batch] = (r.p50_us * US * scale, r.p99_us * US * scale)
        for c in profile.codecs:
            self._codecs[contract, c.cut, c.coding] = (c.encode_us * US * scale, c.decode_us * US * scale)

    def _segments(self, contract: str, part: SegmentRange) -> tuple[list[tuple[int, float]], float, bool]:
        """Base points and spread (p99 / p50) of a range, from its own profile or the sum of its segments', and whether there
        is one."""
        if part.empty:
            return [(1, 0.0)], 1.0, True
        known = self._ranges.get((contract, part))
        if known is None:
            singles = [
                self._ranges.get((contract, SegmentRange(part.program, i, i + 1))) for i in range(part.first, part.last)
            ]
            if any(s is None for s in singles):
                return [(1, float(COLD_NS))], 2.0, False
            found = [s for s in singles if s is not None]
            shared = set(found[0]).intersection(*found[1:])
            known = {b: (sum(s[b][0] for s in found), sum(s[b][1] for s in found)) for b in shared}
            if not known:
                return [(1, float(COLD_NS))], 2.0, False
        points = [(b, known[b][0]) for b in sorted(known)]
        first = known[points[0][0]]
        return points, first[1] / max(first[0], 1.0), True

    def _curve(self, key: WorkKey) -> _Curve:
        curve = self._curves.get(key)
        if curve is None:
            points, spread, known = self._segments(key.contract, key.range)
            codec = 0.0
            for coding, cut, place in ((key.encode, key.range.last, 0), (key.decode, key.range.first, 1)):
                if coding:
                    times = self._codecs.get((key.contract, cut, coding))
                    codec += float(COLD_CODEC_NS) if times is None else times[place]
                    known = known and times is not None
            curve = _Curve([(b, max(1.0, t + codec * b)) for b, t in points], spread, self._now, known=known)
            self._curves[key] = curve
        return curve

    def typical(self, key: WorkKey, rows: int = 1) -> int:
        """Median time of a launch with `rows` rows."""
        try:
            curve = self._curves[key]
            return int(curve.table[rows - 1] * curve.median)
        except LookupError:
            curve = self._curve(key)
            curve.tabulate(rows)
            return int(curve.table[rows - 1] * curve.median)

    def pessimistic(self, key: WorkKey, rows: int = 1) -> int:
        """Time that a launch with `rows` rows stays under with 97 %."""
        try:
            curve = self._curves[key]
            return int(curve.table[rows - 1] * curve.high)
        except LookupError:
            curve = self._curve(key)
            curve.tabulate(rows)
            return int(curve.table[rows - 1] * curve.high)

    def worst(self, key: WorkKey, rows: int = 1) -> int:
        """The longest time that a launch with `rows` rows took of late (or the profile's p99, before any ran)."""
        curve = self._curves.get(key) or self._curve(key)
        return int(curve.base(rows) * curve.window.sorted[-1])

    def batch_within(self, key: WorkKey, budget_ns: int, most: int) -> tuple[int, int]:
        """The most rows, from 1 to `most`, whose launch is typically done within a budget, and how long that typically takes.
        One row where not even that is done by then."""
        curve = self._curves.get(key) or self._curve(key)
        if most > len(curve.table):
            curve.tabulate(most)
        median = curve.median
        if int(curve.longest[most - 1] * median) <= budget_ns:
            return most, int(curve.table[most - 1] * median)
        rows = bisect_right(curve.longest, (budget_ns + 1) / median, 0, most) or 1
        while rows > 1 and int(curve.longest[rows - 1] * median) > budget_ns:
            rows -= 1
        return rows, int(curve.table[rows - 1] * median)

    def paying(self, key: WorkKey) -> int:
        """Up to how many rows each one more adds less time to a launch than a launch of its own takes."""
        curve = self._curves.get(key) or self._curve(key)
        return curve.paying

    def best_rows(self, key: WorkKey, budget_ns: int, most: int) -> int:
        """Of the launches of up to `most` rows that are typically done within a budget the one that takes the least time for
        a row, of nearly equal ones the smallest; 1 where not one is."""
        rows, _ = self.batch_within(key, budget_ns, most)
        return self._curves[key].best[rows - 1]

    def ran(self, key: WorkKey, rows: int, elapsed_ns: int, lead_ns: int) -> None:
        """A launch ended by itself, of which it was heard `lead_ns` later than it typically takes. It is learnt from before
        time passes, or by `learn`."""
        self.learn()
        self._ran = (key, rows, elapsed_ns, lead_ns)

    def learn(self) -> None:
        """Learn from the launch that ended last, if that was not done yet."""
        ran, self._ran = self._ran, None
        if ran is not None:
            key, rows, elapsed_ns, lead_ns = ran
            self.observe(key, rows, elapsed_ns)
            self.observe_lead(lead_ns)

    def observe(self, key: WorkKey, rows: int, elapsed_ns: int) -> None:
        """Learn from a launch that ended by itself."""
        curve = self._curves.get(key) or self._curve(key)
        self.version += curve.observe(rows, elapsed_ns, self._now)

    def observe_lead(self, lead_ns: int) -> None:
        """Learn from a launch of which it was heard so much later than it typically takes, or that had not begun by then."""
        if not self._leads.add(lead_ns):
            return
        ordered = self._leads.sorted
        found = int(ordered[int(SURE_LEAD * (len(ordered) - 1))])
        self.version += found != self.lead_ns
        self.lead_ns = found

    def observe_aborted(self, key: WorkKey, rows: int, elapsed_ns: int) -> None:
        """Learn from a launch that was not over after `elapsed_ns`: a censored sample, kept where it says that the launch is
        slower than thought, and as a tenth more than was seen, since it was not over. Without it a device that overruns
        every deadline would never be found out."""
        if elapsed_ns > self.typical(key, rows):
            self.observe(key, rows, elapsed_ns * 11 // 10)
        else:
            self._curve(key).tried_ns = self._now

    def age(self, now: int) -> None:
        """Let time pass. What has not run for a while is taken to be as much slower than its profile as what did run of late,
        by and by, and where nothing ran for longer still, as its profile. What was seen of it is wrong by then in either
        way: it is neither promised on the strength of a cool device nor given up because of a hot one."""
        if self._ran is not None:
            self.learn()
        passed, self._now = now - self._aged_ns, now
        if passed < AGE_EVERY_NS:
            return
        self._aged_ns = now
        known = [curve for curve in self._curves.values() if curve.known]
        fresh = sorted(curve.latest() for curve in known if curve.seen_ns and now - curve.seen_ns <= PATIENCE_NS)
        slowness = fresh[len(fresh) // 2] if fresh else 1.0
        for curve in known:
            over = now - curve.tried_ns - curve.patience_ns * (1 if fresh else IDLE)
            if over > 0:
                self.version += 1
                curve.age(slowness, 1.0 - (1.0 - AGE_SHARE) ** (min(over, passed) / AGE_EVERY_NS))
