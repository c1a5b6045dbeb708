"""Whether the demo kept its promise: a list of rules, each with the figure it was judged by.

The shares are constants and not settings, so that nobody passes by asking for less. What depends on the machine is judged
against the neighbouring control phases, in which the same machine answered without any cloud.

A share of answers in time says nothing of headtail where the machine itself stood still, in a repeat as well: such a rule
that does not hold is not judged, rather than broken. Losing, doubling or mixing up answers has no such excuse, nor has a
first try that was set aside. A machine on which most phases cannot be judged shows nothing, and that is no success.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hil.results import WHOLE, PhaseResult

GOOD_CLOUD = 0.95
ONE_KILLED_CLOUD = 0.90
BACK_CLOUD = 0.90
HOT_CHEAPER = 0.90
HOT_ON_TIME = 0.95
BELOW_CONTROL = 0.01
SPLIT_WHOLE = 0.50
MOST_NOT_JUDGED = 0.5
"""The largest share of the phases with rules that may go without judgement."""

BY_THE_CLOUD = "by the cloud, or by the whole model on the device where that has the time"
"""What the cloud is expected to answer. At a deadline in which the device runs the whole model itself, both give the same
answer, and the agent rightly leaves the cloud alone while that is not sooner."""

HOLDS, BROKEN, NOT_JUDGED = "holds", "BROKEN", "not judged"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: what is expected, the figure found, and whether it holds. `phase` is empty for a rule on all of them.
    `judged` is False where it does not hold in a phase in which the machine stalled."""

    phase: str
    expected: str
    found: str
    holds: bool
    judged: bool = True

    @property
    def word(self) -> str:
        """How it ended, the same word on the screen and on the page."""
        if not self.judged:
            return NOT_JUDGED
        return HOLDS if self.holds else BROKEN

    @property
    def told(self) -> str:
        """The figure found, and why it was not judged where it was not."""
        return self.found if self.judged else f"{self.found}; {NOT_JUDGED}: the machine stalled"


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules. `holds` where none that was judged is broken and the machine was not `too_noisy` to judge most phases.
    `not_judged` counts rules, and `words` says all that in a sentence."""

    holds: bool
    not_judged: int
    too_noisy: bool
    words: str
    rules: tuple[Rule, ...]


def judge(results: Sequence[PhaseResult]) -> Verdict:
    """The verdict over all phases, in the order in which they were played."""
    rules = [_nothing_lost(results), _adds_up(results)]
    for place, result in enumerate(results):
        rules += own_rules(result)
        if result.kind not in ("control", "hot"):
            rules += _against_controls(results, place)
    broken = sum(rule.judged and not rule.holds for rule in rules)
    not_judged = sum(not rule.judged for rule in rules)
    ruled = {rule.phase for rule in rules if rule.phase}
    unclear = {rule.phase for rule in rules if not rule.judged}
    too_noisy = len(unclear) > MOST_NOT_JUDGED * len(ruled)
    words = _words(broken, not_judged)
    if too_noisy:
        words = f"this machine is too noisy to judge: it stalled in {len(unclear)} of {len(ruled)} phases; {words}"
    return Verdict(not broken and not too_noisy, not_judged, too_noisy, words, tuple(rules))


def _words(broken: int, not_judged: int) -> str:
    if broken:
        words = "a rule is BROKEN" if broken == 1 else f"{broken} rules are BROKEN"
    else:
        words = "every judged rule holds" if not_judged else "every rule holds"
    if not_judged:
        words += f"; {not_judged} {'rule was' if not_judged == 1 else 'rules were'} not judged: the machine stalled"
    return words


def own_rules(result: PhaseResult) -> list[Rule]:
    """The rules that a phase is judged by on its own, without its neighbours."""
    whole, share = result.whole_on_time, result.on_time_share
    if result.kind == "good":
        return [_share_rule(result, f"on time {BY_THE_CLOUD}", whole, GOOD_CLOUD)]
    if result.kind == "one-killed":
        return [_share_rule(result, f"on time {BY_THE_CLOUD}", whole, ONE_KILLED_CLOUD)]
    if result.kind == "nodes-back":
        return [
            _share_rule(result, f"of the last half on time {BY_THE_CLOUD}", result.whole_on_time_last_half, BACK_CLOUD)
        ]
    if result.kind == "hot":
        what = "while the device was hot on time by a cheaper rung than the usual one"
        return [
            _share_rule(result, "on time", share, HOT_ON_TIME),
            _share_rule(result, what, result.cheaper_on_time, HOT_CHEAPER),
        ]
    if result.kind == "split":
        whole = result.by_rung.get(WHOLE, 0) / max(1, result.frames)
        what = "by the whole model, from the forced cut or, where the device has the time, on the device"
        return [_share_rule(result, what, whole, SPLIT_WHOLE)]
    if result.kind == "both-killed":
        edge, answers = result.by_source.get("edge", 0), sum(result.by_source.values())
        return [
            Rule(
                result.name,
                "all answers by the edge",
                f"{edge} of {answers} answers, {share:.1%} of the frames on time",
                edge == answers > 0,
            )
        ]
    return []


def _share_rule(result: PhaseResult, what: str, share: float, least: float) -> Rule:
    return _unless_stalled(result, f"at least {least:.0%} {what}", f"{share:.1%}", share >= least)


def _unless_stalled(result: PhaseResult, expected: str, found: str, holds: bool) -> Rule:
    """A rule on a share of answers in time."""
    return Rule(result.name, expected, found, holds, judged=holds or not result.machine_stalled)


def _tries(results: Sequence[PhaseResult]) -> Iterator[PhaseResult]:
    """All that was played, first tries that were set aside as well."""
    for result in results:
        if result.first_try is not None:
            yield result.first_try
        yield result


def _nothing_lost(results: Sequence[PhaseResult]) -> Rule:
    played = list(_tries(results))
    lost = sum(result.lost for result in played)
    duplicated = sum(result.duplicated for result in played)
    wrong = sum(result.wrong for result in played)
    return Rule(
        "",
        "nothing lost, duplicated or wrong",
        f"{lost} lost, {duplicated} duplicated, {wrong} wrong of {sum(result.frames for result in played)} frames",
        lost == duplicated == wrong == 0,
    )


def _adds_up(results: Sequence[PhaseResult]) -> Rule:
    wrong = list(dict.fromkeys(result.name for result in _tries(results) if not result.adds_up))
    return Rule(
        "",
        "every frame has one outcome: frames = on time + late + missed + rejected + superseded",
        f"not so in {', '.join(wrong)}" if wrong else f"so in all {len(results)} phases",
        bool(results) and not wrong,
    )


def _against_controls(results: Sequence[PhaseResult], place: int) -> list[Rule]:
    """The on-time share against that of the worse of the nearest controls on either side."""
    before = next((r for r in reversed(results[:place]) if r.kind == "control"), None)
    after = next((r for r in results[place + 1 :] if r.kind == "control"), None)
    neighbours = [r for r in (before, after) if r is not None]
    if not neighbours:
        return []
    worse = min(neighbours, key=lambda control: control.on_time_share)
    least = worse.on_time_share - BELOW_CONTROL
    share = results[place].on_time_share
    stalled = ", in which the machine stalled," if worse.machine_stalled else ""
    expected = f"at least {least:.1%} on time: the worse neighbouring control{stalled} less one point"
    return [_unless_stalled(results[place], expected, f"{share:.1%}", share >= least - 1e-9)]
