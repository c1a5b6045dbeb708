"""What the study's figures come to, in sentences: who wins where, and where not to cut."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hil.splits.answers import LEAST_WORK, MAIN, PLACES, PRIVATE, ROADS, RULES, Answer, Change, Place, answers_to, wins
from hil.splits.findings import Finding, Road
from partitioner.words import joined

ROAD_WORDS: dict[Road, str] = {
    "device": "the device",
    "raw": "the raw input",
    "coded": "the coded input",
    "split": "a split",
}
EVERYWHERE = len(PLACES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers of one model, by the main rule and with a private input, and how often a split wins at the other floors."""

    title: str
    main: tuple[Answer, ...]
    private: tuple[Answer, ...]
    splits_at: Mapping[float, int]

    @classmethod
    def of(cls, title: str, finding: Finding) -> Outcome:
        """From what was measured."""
        others = [rule for rule in RULES if not rule.private and rule != MAIN]
        splits_at = {rule.floor: wins(answers_to(finding, rule))["split"] for rule in others}
        return cls(title, answers_to(finding, MAIN), answers_to(finding, PRIVATE), splits_at)

    @property
    def main_wins(self) -> dict[Road, int]:
        """How often each road wins by the main rule."""
        return wins(self.main)

    @property
    def private_wins(self) -> dict[Road, int]:
        """How often each road wins with a private input."""
        return wins(self.private)


def verdict(outcome: Outcome) -> str:
    """What to do with one model, in one paragraph."""
    return " ".join([_open_verdict(outcome), *_floor_verdict(outcome), _private_verdict(outcome)])


def not_to_use(outcomes: Sequence[Outcome]) -> list[str]:
    """Where headtail, or its cutting, should not be used; each a sentence or two."""
    never = [o.title for o in outcomes if not o.main_wins["split"]]
    local = [o.title for o in outcomes if o.main_wins["device"] == EVERYWHERE]
    away = [o.title for o in outcomes if o.main_wins["raw"] + o.main_wins["coded"] == EVERYWHERE]
    found: list[str] = []
    if local:
        found.append(
            f"**{joined(local)}**: the device alone was the quickest everywhere. Nothing of headtail is needed."
        )
    if away:
        found.append(
            f"**{joined(away)}**: sending the input was the quickest everywhere. A plain offload server does that; "
            "headtail adds no speed, only the answer of the device by the deadline where the cloud fails."
        )
    strict = [o.title for o in outcomes if not o.main_wins["split"] and any(o.splits_at.values())]
    mixed = [title for title in never if title not in (*local, *away)]
    if mixed:
        found.append(
            f"**{joined(mixed)}**: now the device and now the sent input was the quickest, a split nowhere. Do not "
            "cut; a server that takes the input, and a rule by the link's rate for when to ask it, is all there is to gain."
        )
    early = [o.title for o in outcomes if o.main_wins["split"] and early_wins(o.main) == o.main_wins["split"]]
    if early:
        found.append(
            f"**{joined(early)}**: a split won only right behind the input, where it is in effect a coding of it. A server "
            "that takes the input in that coding does as well."
        )
    if strict:
        found.append(
            f"For **{joined(strict)}** this holds at {MAIN.floor:.2f}, and not at every other agreement: see below."
        )
    places = [p for n, p in enumerate(PLACES) if outcomes and all(o.main[n].winner == "device" for o in outcomes)]
    if places:
        found.append(f"**Whatever the model** of these, run it on the device at {places_in_words(places)}.")
    return found


def overall(outcomes: Sequence[Outcome]) -> str:
    """Who wins how often over all models, and by how much a split is ahead where it wins."""
    total = EVERYWHERE * len(outcomes)
    counted = {road: sum(o.main_wins[road] for o in outcomes) for road in ROADS}
    told = joined([f"{ROAD_WORDS[road]} in {counted[road]}" for road in ROADS])
    leads = sorted(a.lead for o in outcomes for a in o.main if a.winner == "split")
    close = sum(a.close for o in outcomes for a in o.main if a.winner == "split")
    sentence = f"Of {total} conditions at an agreement of at least {MAIN.floor:g}, the quickest was {told}."
    early = sum(early_wins(o.main) for o in outcomes)
    if early:
        sentence += (
            f" In {early} of those with a split, the cut has less than {LEAST_WORK:.0%} of the model's operations before it: "
            "in effect a coding of the input."
        )
    if leads:
        sentence += (
            f" Where a split won, it was {_times(leads[len(leads) // 2])} as fast as the next best at the middle, "
            f"{_times(leads[-1])} at most, and in {close} of the {len(leads)} by less than the figures can tell."
        )
    floors = list(outcomes[0].splits_at) if outcomes else []
    at = [f"in {sum(o.splits_at[floor] for o in outcomes)} at {floor:.2f}" for floor in floors]
    sentence += f" At other agreements, a split won {joined(at)}." if at else ""
    private = sum(o.private_wins["split"] for o in outcomes)
    gains = sorted(a.lead for o in outcomes for a in o.private if a.winner == "split")
    sentence += f" With an input that must stay on the device, a split won in {private} of {total}"
    if gains:
        middle, most = _times(gains[len(gains) // 2]), _times(gains[-1])
        sentence += f", {middle} as fast as the device alone at the middle and {most} at most"
    return f"{sentence}."


def place_in_words(place: Place) -> str:
    """A link as a row of a table names it."""
    return f"{place.rate_mbit:g} Mbit/s, {place.rtt_ms:g} ms"


def places_in_words(places: Sequence[Place]) -> str:
    """Places as `×4 20/2, 20/5; ×8 50/20`: rate in Mbit/s over round trip in ms, by the device's ratio."""
    groups = itertools.groupby(places, key=lambda place: place.ratio)
    return "; ".join(
        f"×{ratio:g} {', '.join(f'{place.rate_mbit:g}/{place.rtt_ms:g}' for place in group)}" for ratio, group in groups
    )


def changes_in_words(changes: Sequence[Change]) -> str:
    """What differs from the main rule."""
    if not changes:
        return "nothing"
    return "; ".join(
        f"{ROAD_WORDS[change.after]} in place of {ROAD_WORDS[change.before]} at {places_in_words(change.places)}"
        for change in changes
    )


def _open_verdict(outcome: Outcome) -> str:
    counted = outcome.main_wins
    order: list[Road] = sorted((road for road in ROADS if counted[road]), key=lambda road: -counted[road])
    if counted[order[0]] == EVERYWHERE:
        told = f"{ROAD_WORDS[order[0]]} wins everywhere"
    else:
        told = joined([f"{ROAD_WORDS[road]} wins in {counted[road]} of {EVERYWHERE}" for road in order])
    sentence = told[0].upper() + told[1:]
    if not counted["split"]:
        return f"{sentence}; a split never does."
    where = [answer for answer in outcome.main if answer.winner == "split"]
    most = _times(max(answer.lead for answer in where))
    places = "" if len(where) == EVERYWHERE else f" at {places_in_words([answer.place for answer in where])}"
    return f"{sentence}. The split is the quickest{places}, and at most {most} as fast as the next best.{_early_words(where)}"


def _early_words(where: Sequence[Answer]) -> str:
    """What is to be said of cuts that are little more than the input."""
    early = early_wins(where)
    if not early:
        return ""
    which = "All of these cuts have" if early == len(where) else f"In {early} of these the cut has"
    return f" {which} less than {LEAST_WORK:.0%} of the model's operations before it: in effect a coding of the input."


def early_wins(answers: Sequence[Answer]) -> int:
    """How often a split wins of which what crosses is the input or little else."""
    return sum(answer.winner == "split" and answer.entries["split"].way.exposes for answer in answers)


def _floor_verdict(outcome: Outcome) -> list[str]:
    """What another least agreement changes for splits; nothing where they win as often."""
    found = [
        f"in {count} of {EVERYWHERE} at {floor:.2f}"
        for floor, count in outcome.splits_at.items()
        if count != outcome.main_wins["split"]
    ]
    return [f"At other agreements a split wins {joined(found)}."] if found else []


def _private_verdict(outcome: Outcome) -> str:
    where = [answer for answer in outcome.private if answer.winner == "split"]
    if not any("split" in answer.entries for answer in outcome.private):
        return "With a private input none of the cuts that were measured is allowed, and the device is left."
    if not where:
        return "With a private input the device wins everywhere."
    most = max(answer.lead for answer in where)
    told = f"With a private input a split beats the device in {len(where)} of {EVERYWHERE}"
    return f"{told} and is at most {_times(most)} as fast."


def _times(factor: float) -> str:
    return f"{factor:.2f} times"
