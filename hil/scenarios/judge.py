"""Whether a run kept its budgets: a list of rules, each with the figure that it was judged by. Pure.

What may never happen (an answer lost, hung, doubled or wrong, a late one called on time) has no excuse. Shares are of the
frames during which the machine did not stall; where those are too few, or the control itself was late too often, nothing can
be said of shares, and the run is to be played again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hil.scenarios.figures import Point, RunFigures
from hil.scenarios.scenario import Scenario
from hil.scenarios.timeline import Struck, words
from hil.verdict import Rule

LEAST_FRAMES = 300
"""Fewer frames of each arm show nothing about shares."""

AT_FAULT_MS = 1000.0
NODE_FAULTS = ("kill", "stop", "restart", "suspend")
TINY = 1e-9


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of a run. `noisy` says why shares could not be judged; empty where they could."""

    rules: tuple[Rule, ...]
    noisy: str

    @property
    def broken(self) -> tuple[Rule, ...]:
        """The rules that were judged and do not hold."""
        return tuple(rule for rule in self.rules if rule.judged and not rule.holds)

    @property
    def holds(self) -> bool:
        """Whether every rule was judged and holds."""
        return not self.broken and not self.noisy

    @property
    def word(self) -> str:
        """How it ended, in a word or two."""
        if self.broken:
            return "BROKEN"
        return "too noisy to judge" if self.noisy else "holds"


def judge(scenario: Scenario, run: RunFigures, struck: Sequence[Struck]) -> Judgement:
    """Hold a run against what holds for every run and the scenario's own budgets."""
    noisy = _noise(scenario, run)
    rules = [*_always(run), _enough(run)]
    rules += [msgspec.structs.replace(rule, judged=rule.holds or not noisy) for rule in _shares(scenario, run, struck)]
    return Judgement(tuple(rules), noisy)


def _noise(scenario: Scenario, run: RunFigures) -> str:
    noise = scenario.noise
    marked = max(arm.marked / arm.frames if arm.frames else 1.0 for arm in (run.test, run.control))
    if marked > noise.most_marked:
        return f"the machine stalled during {marked:.1%} of the frames, more than {noise.most_marked:.0%}"
    if run.control.share < noise.least_control:
        return (
            f"the control, which has no network, was on time in {run.control.share:.1%} of its frames only, "
            f"less than {noise.least_control:.1%}"
        )
    return ""


def _always(run: RunFigures) -> Iterator[Rule]:
    arms = (run.test, run.control)
    lost, doubled, wrong = (sum(getattr(arm, key) for arm in arms) for key in ("lost", "duplicated", "wrong"))
    frames = sum(arm.frames for arm in arms)
    because = [why for arm in arms for why in arm.wrong_because]
    yield Rule(
        "",
        "no request lost, hung, doubled or wrong",
        f"{lost} lost, {run.hung} hung, {doubled} doubled, {wrong} wrong of {frames}"
        + (f" ({'; '.join(because)})" if because else ""),
        lost == run.hung == doubled == wrong == 0,
    )
    yield Rule(
        "",
        "every request has one outcome, also by the clients' own sums",
        "; ".join(run.sums) or "so in both arms",
        all(arm.adds_up for arm in arms) and not run.sums,
    )
    told = sum(arm.told_late for arm in arms)
    yield Rule("", "nothing late is called on time", f"{told} called so", told == 0)


def _enough(run: RunFigures) -> Rule:
    least = min(run.test.frames, run.control.frames)
    return Rule("", f"at least {LEAST_FRAMES} frames of each arm", f"{least}", least >= LEAST_FRAMES)


def _shares(scenario: Scenario, run: RunFigures, struck: Sequence[Struck]) -> Iterator[Rule]:
    budgets, test, control = scenario.budgets, run.test, run.control
    least = control.share - budgets.below_control
    yield Rule(
        "",
        f"at least {least:.1%} on time: the control's {control.share:.1%} less {100 * budgets.below_control:g} points",
        f"{test.share:.1%}",
        test.share >= least - TINY,
    )
    if budgets.cloud_share is not None:
        yield _least("answered on time by the cloud", test.cloud_share, budgets.cloud_share)
    if budgets.cloud_below_oracle is not None:
        least = run.oracle - budgets.cloud_below_oracle
        what = f"by the cloud: the oracle's {run.oracle:.1%} less {100 * budgets.cloud_below_oracle:g} points"
        yield _least(what, test.cloud_share, least)
    points = test.timeline
    for told, budget, found in (
        ("on time again", budgets.back_s, _backs(scenario, struck, points, cloud=False)),
        ("on time by the cloud again", budgets.cloud_back_s, _backs(scenario, struck, points, cloud=True)),
        ("on time by another node", budgets.over_s, _overs(scenario, struck, points)),
    ):
        if budget is not None:
            yield _worst(told, budget, found)
    if budgets.late_at_faults is not None:
        yield _late(scenario, run, struck)


def _least(what: str, share: float, least: float) -> Rule:
    return Rule("", f"at least {least:.1%} {what}", f"{share:.1%}", share >= least - TINY)


def _worst(told: str, budget_s: float, found: Sequence[tuple[str, float]]) -> Rule:
    expected = f"at most {budget_s:g} s until a frame is {told}, after each fault"
    if not found:
        return Rule("", expected, "no fault of that kind", False)
    what, worst_ms = max(found, key=lambda one: one[1])
    return Rule("", expected, f"at most {worst_ms / 1e3:.3f} s ({what})", worst_ms <= budget_s * 1e3)


def _backs(
    scenario: Scenario, struck: Sequence[Struck], points: Sequence[Point], *, cloud: bool
) -> list[tuple[str, float]]:
    """For each fault, how long after its end the first frame was due that was on time (by the cloud)."""
    found: list[tuple[str, float]] = []
    for one in struck:
        end_ms = one.begin_ms if one.end_ms is None else one.end_ms
        later = [point for point in points if point.due_ms >= end_ms]
        if later:
            good = [point.outcome == "on_time" and (not cloud or point.source in scenario.nodes) for point in later]
            found.append((words(scenario.faults[one.fault]), _away_ms(later, good, end_ms)))
    return found


def _overs(scenario: Scenario, struck: Sequence[Struck], points: Sequence[Point]) -> list[tuple[str, float]]:
    """For each fault of a node, how long after its beginning the first frame was due that another node answered on time."""
    found: list[tuple[str, float]] = []
    for one in struck:
        fault = scenario.faults[one.fault]
        if fault.kind not in NODE_FAULTS or not set(one.victims) & set(scenario.nodes):
            continue
        others = set(scenario.nodes) - set(one.victims)
        later = [point for point in points if point.due_ms >= one.begin_ms]
        good = [point.outcome == "on_time" and point.source in others for point in later]
        found.append((f"{', '.join(one.victims)}: {words(fault)}", _away_ms(later, good, one.begin_ms)))
    return found


def _away_ms(points: Sequence[Point], good: Sequence[bool], since_ms: float) -> float:
    """How long after `since_ms` the first good frame was due. Where the machine stalled meanwhile, only frames during which
    it did not count as away: then it is the time of the last of those."""
    if True not in good:
        return float("inf")
    first = good.index(True)
    before = points[:first]
    if not any(point.marked for point in before):
        return points[first].due_ms - since_ms
    return max((point.due_ms - since_ms for point in before if not point.marked), default=0.0)


def _late(scenario: Scenario, run: RunFigures, struck: Sequence[Struck]) -> Rule:
    begins = [one.begin_ms for one in struck if scenario.faults[one.fault].kind in NODE_FAULTS]

    def missing(points: Sequence[Point]) -> int:
        return sum(
            point.outcome != "on_time"
            for point in points
            if not point.marked and any(begin <= point.due_ms < begin + AT_FAULT_MS for begin in begins)
        )

    test, control = missing(run.test.timeline), missing(run.control.timeline)
    most = (scenario.budgets.late_at_faults or 0) + control
    return Rule(
        "",
        f"at most {most} frames late within {AT_FAULT_MS / 1e3:g} s of a fault, {control} of them the control's own",
        f"{test}",
        test <= most,
    )
