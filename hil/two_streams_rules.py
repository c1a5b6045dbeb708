"""What is played with two streams on one executor, and what it is held against.

The strict stream alone is the control, as an agent without a cloud is in the demo: what it misses beside the lesser stream is
held against what the same machine made it miss alone, just before and just after. One point is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hil.results import PhaseResult
from hil.verdict import Rule, judge


class Source(msgspec.Struct, frozen=True):
    """A stream: its rate, its frames' deadline, its class (0 is the most important), and what a frame takes on the device."""

    name: str
    rate_hz: float
    deadline_ms: float
    priority: int
    job_ms: float

    @property
    def load(self) -> float:
        """The share of one executor that it takes."""
        return self.rate_hz * self.job_ms / 1e3


STRICT = Source("strict", 30.0, 10.0, 0, 2.4)
LESSER = Source("lesser", 60.0, 50.0, 2, 12.0)
"""Together 80 % of an executor, and a frame of the lesser one is longer than a strict one can wait."""


class Act(msgspec.Struct, frozen=True):
    """One stretch: the strict stream alone or beside the lesser one, on a device that becomes half as fast after a quarter of
    it, or not."""

    name: str
    beside: bool
    slowed: bool

    @property
    def title(self) -> str:
        """In words."""
        return f"{'beside the lesser stream' if self.beside else 'alone'}{', the device half as fast' if self.slowed else ''}"


ACTS = (
    Act("alone-1", beside=False, slowed=False),
    Act("beside-1", beside=True, slowed=False),
    Act("alone-2", beside=False, slowed=False),
    Act("beside-2", beside=True, slowed=False),
    Act("alone-3", beside=False, slowed=False),
    Act("alone-slowed-1", beside=False, slowed=True),
    Act("beside-slowed", beside=True, slowed=True),
    Act("alone-slowed-2", beside=False, slowed=True),
)


class Promised(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream was promised from `at_ms` of its act on: a rung, or nothing for a reason."""

    at_ms: float
    stream: str
    rung: str
    reason: str

    def __str__(self) -> str:
        said = f"promised {self.rung!r}" if self.rung else f"promised nothing ({self.reason or 'no word yet'})"
        return f"{self.at_ms / 1e3:.2f} s: {self.stream} {said}"


class Played(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An act as it went: both streams' results, and what they were promised, in the order of time."""

    act: Act
    strict: PhaseResult
    lesser: PhaseResult | None
    promises: tuple[Promised, ...]


class TwoStreams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All acts, and the rules that they were held against."""

    acts: tuple[Played, ...]
    holds: bool
    words: str
    rules: tuple[Rule, ...]


def verdict_of(acts: Sequence[Played]) -> TwoStreams:
    """Hold the acts against each other."""
    steady = judge([played.strict for played in acts if not played.act.slowed])
    slowed = judge([played.strict for played in acts if played.act.slowed])
    lesser = judge([played.lesser for played in acts if played.lesser is not None])
    own = tuple(rule for played in acts for rule in _promise_rules(played))
    rules = (*steady.rules, *slowed.rules, *(_named(rule, "the lesser stream") for rule in lesser.rules), *own)
    broken = sum(rule.judged and not rule.holds for rule in rules)
    unjudged = sum(not rule.judged for rule in rules)
    noisy = steady.too_noisy or slowed.too_noisy
    words = f"{broken} of {len(rules)} rules BROKEN" if broken else "every judged rule holds"
    if unjudged:
        words += f"; {unjudged} not judged: the machine stalled"
    if noisy:
        words = f"this machine is too noisy to judge; {words}"
    return TwoStreams(tuple(acts), not broken and not noisy, words, rules)


def _promise_rules(played: Played) -> Iterator[Rule]:
    first = next((promised for promised in played.promises if promised.stream == STRICT.name), None)
    yield _unless_stalled(
        played,
        "the strict stream is promised an answer before its first frame",
        str(first or "nothing was said of it"),
        first is not None and bool(first.rung),
    )
    if played.lesser is None:
        return
    upside_down = _upside_down(played.promises)
    yield _unless_stalled(
        played,
        "the lesser stream is never promised an answer while the strict one is not",
        str(upside_down or "so throughout"),
        upside_down is None,
    )
    if played.act.slowed:
        strict, lesser = played.strict.on_time_share, played.lesser.on_time_share
        yield _unless_stalled(
            played,
            "what the slower device cannot do any more, the lesser stream goes without",
            f"strict {strict:.1%} on time, lesser {lesser:.1%}",
            lesser < strict,
        )


def _upside_down(promises: Sequence[Promised]) -> Promised | None:
    """When the lesser stream had a promise and the strict one had lost its own."""
    now: dict[str, str] = {}
    for promised in promises:
        now[promised.stream] = promised.rung
        if now.get(LESSER.name) and STRICT.name in now and not now[STRICT.name]:
            return promised
    return None


def _unless_stalled(played: Played, expected: str, found: str, holds: bool) -> Rule:
    return Rule(played.act.name, expected, found, holds, judged=holds or not played.strict.machine_stalled)


def _named(rule: Rule, name: str) -> Rule:
    return msgspec.structs.replace(rule, phase=name)
