"""Whether the demo kept its promise: a list of rules, each with the figure it was judged by.

The shares are constants and not settings, so that nobody passes by asking for less. What depends on the machine is judged
against the neighbouring control phases, in which the same machine answered without any cloud.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hil.results import PhaseResult

GOOD_CLOUD = 0.95
ONE_KILLED_CLOUD = 0.90
BACK_CLOUD = 0.90
BELOW_CONTROL = 0.01
SPLIT_CLOUD = 0.50


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: what is expected, the figure found, and whether it holds. `phase` is empty for a rule on all of them."""

    phase: str
    expected: str
    found: str
    holds: bool


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules. `holds` where each of them does."""

    holds: bool
    rules: tuple[Rule, ...]


def judge(results: Sequence[PhaseResult]) -> Verdict:
    """The verdict over all phases, in the order in which they were played."""
    rules = [_nothing_lost(results), _adds_up(results)]
    for place, result in enumerate(results):
        rules += own_rules(result)
        if result.kind != "control":
            rules += _against_controls(results, place)
    return Verdict(all(rule.holds for rule in rules), tuple(rules))


def own_rules(result: PhaseResult) -> list[Rule]:
    """The rules that a phase is judged by on its own, without its neighbours."""
    cloud, share = result.cloud_on_time, result.on_time_share
    if result.kind == "good":
        return [_share_rule(result, "on time by the cloud", cloud, GOOD_CLOUD)]
    if result.kind == "one-killed":
        return [_share_rule(result, "on time by the cloud", cloud, ONE_KILLED_CLOUD)]
    if result.kind == "nodes-back":
        return [
            _share_rule(result, "of the last half on time by the cloud", result.cloud_on_time_last_half, BACK_CLOUD)
        ]
    if result.kind == "split":
        return [_share_rule(result, "on time by the cloud from the forced cut", cloud, SPLIT_CLOUD)]
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
    return Rule(result.name, f"at least {least:.0%} {what}", f"{share:.1%}", share >= least)


def _nothing_lost(results: Sequence[PhaseResult]) -> Rule:
    lost = sum(result.lost for result in results)
    duplicated = sum(result.duplicated for result in results)
    wrong = sum(result.wrong for result in results)
    return Rule(
        "",
        "nothing lost, duplicated or wrong",
        f"{lost} lost, {duplicated} duplicated, {wrong} wrong of {sum(result.frames for result in results)} frames",
        lost == duplicated == wrong == 0,
    )


def _adds_up(results: Sequence[PhaseResult]) -> Rule:
    wrong = [result.name for result in results if not result.adds_up]
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
    neighbours = [r.on_time_share for r in (before, after) if r is not None]
    if not neighbours:
        return []
    least = min(neighbours) - BELOW_CONTROL
    share = results[place].on_time_share
    return [
        Rule(
            results[place].name,
            f"at least {least:.1%} on time: the worse neighbouring control less one point",
            f"{share:.1%}",
            share >= least - 1e-9,
        )
    ]
