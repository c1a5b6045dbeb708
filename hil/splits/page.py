"""`docs/when-to-split.md`, as a pure function of what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from hil.splits.answers import CLOSE, LEAST_WORK, MAIN, ROADS, RULES
from hil.splits.findings import Finding, Findings, Machine, Road
from hil.splits.markdown import anchor, bullets, paragraph, table
from hil.splits.page_model import HEADS, model_section
from hil.splits.subjects import subject_of
from hil.splits.words import EVERYWHERE, Outcome, early_wins, not_to_use, overall
from partitioner.words import joined

QUIET = 0.1
"""The most that runs may be disturbed, and their halves differ, before the page calls itself provisional."""
COMMAND = "headtail when-to-split --measure"
MAP = "when-to-split.svg"
NOTICE = "<!-- Written by `headtail when-to-split` from when-to-split.json. Do not edit it: measure again. -->"
ADVICE: dict[Road, str] = {
    "device": "stay on the device",
    "raw": "send the input as it is",
    "coded": "send the input coded",
    "split": "cut",
}


def write_page(findings: Findings) -> str:
    """The whole page. There must be at least one model."""
    models = [(subject_of(finding.name), finding) for finding in findings.models]
    outcomes = [Outcome.of(subject.title, finding) for subject, finding in models]
    sections = [
        model_section(subject, finding, outcome) for (subject, finding), outcome in zip(models, outcomes, strict=True)
    ]
    top = _top(outcomes, findings.models)
    return "\n".join([*top, *_where_not(outcomes), *_method(findings.models), *sections])


def _top(outcomes: Sequence[Outcome], models: Sequence[Finding]) -> list[str]:
    heads = ["model", *(HEADS[road] for road in ROADS), "private: on device", "private: split", "so"]
    rows = [
        [
            f"[{outcome.title}](#{anchor(outcome.title)})",
            *(str(outcome.main_wins[road]) for road in ROADS),
            *(str(outcome.private_wins[road]) for road in ("device", "split")),
            _advice(outcome),
        ]
        for outcome in outcomes
    ]
    return [
        "# When to split\n",
        NOTICE + "\n",
        *_warning(models),
        paragraph(
            "A split runs the first part of a network on the device and the rest in the cloud. It competes with",
            "running all of it on the device, and with sending the input, as it is or in a coding. This page says",
            f"which of the four was the quickest for {len(outcomes)} trained models, under {EVERYWHERE} conditions",
            "each: a device 4 and 8 times slower than the cloud, links of 20, 50, 200 and 1000 Mbit/s, and round trips",
            "of 2, 5 and 20 ms.",
        ),
        paragraph(overall(outcomes)),
        paragraph(
            f"How often each way won, of {EVERYWHERE}, at an agreement of at least {MAIN.floor:.2f} with the whole",
            "model; and with an input that must not leave the device, where only the device and a split are left:",
        ),
        table(heads, rows),
        f"![Who wins under each condition, by model]({MAP})\n",
    ]


def _warning(models: Sequence[Finding]) -> list[str]:
    """What weakens everything below; nothing where the machine was quiet."""
    unsteady = max(finding.unsteady for finding in models)
    disturbed = max(finding.disturbed for finding in models)
    few = [subject_of(m.name).title for m in models if m.rows_judged < subject_of(m.name).judged]
    if max(unsteady, disturbed) <= QUIET and not few:
        return []
    shown = f"{joined(few)} {'was' if len(few) == 1 else 'were'} judged by fewer rows and cuts than the command takes."
    return [
        paragraph(
            f"> **Provisional.** The machine was busy while this was measured: {disturbed:.0%} of the runs were disturbed",
            f"and halves of them differed by up to {unsteady:.0%}. What is close may turn when it is measured again.",
            *([shown] if few else []),
        )
    ]


def _advice(outcome: Outcome) -> str:
    counted = outcome.main_wins
    if counted["split"]:
        early = early_wins(outcome.main) == counted["split"]
        return "send the input as the first cut codes it" if early else "cut where its table says so"
    best = max(ROADS, key=lambda road: counted[road])
    if counted[best] == EVERYWHERE:
        return ADVICE[best]
    return "device or input by the link, no cut" if counted["device"] else "send the input, coded where that is quicker"


def _where_not(outcomes: Sequence[Outcome]) -> list[str]:
    told = not_to_use(outcomes)
    return [
        "## Where headtail should not be used\n",
        bullets(told) if told else paragraph("There was no model among these for which a split brought nothing."),
        paragraph(
            "Speed is not all that a split is for: where the input must not leave the device, it may be the only way",
            "that uses the cloud at all. And whichever way a plan takes, headtail gives an answer by the deadline",
            "where the link fails, which is not what is compared here.",
        ),
    ]


def _method(models: Sequence[Finding]) -> list[str]:
    machines = joined([_machine(machine) for machine in dict.fromkeys(finding.machine for finding in models)])
    dates = sorted({finding.date for finding in models})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    minutes = sum(finding.seconds for finding in models) / 60
    return [
        "## How it was measured\n",
        paragraph(
            f"Measured on {machines}, one thread, on {when}, in {minutes:.0f} minutes by `{COMMAND}`. `headtail",
            "when-to-split` alone writes this page again from [when-to-split.json](when-to-split.json), without measuring.",
        ),
        bullets([*_parts_words(models), *_rules_words()]),
        paragraph(
            "Links are written as rate over round trip: `×4 50/5` is a device 4 times slower, 50 Mbit/s and 5 ms.",
            "Times in the tables are milliseconds, and the quickest is **bold**.",
        ),
    ]


def _parts_words(models: Sequence[Finding]) -> list[str]:
    least = min(finding.runs for finding in models)
    unsteady = max(finding.unsteady for finding in models)
    disturbed = max(finding.disturbed for finding in models)
    return [
        "**Every way in the tables is measured**, by the code with which `headtail plan` weighs: the model is cut, both "
        "parts are loaded and timed at 30 requests a second, the codings are fitted to one part of the data, and their "
        "bytes and their agreement are measured on the other.",
        f"**All that is compared was timed in turns**, at least {least} runs each, and middles are compared. In the worst "
        f"model the middles of two halves of the runs differed by up to {unsteady:.0%} in nine jobs of ten, and other "
        f"processes disturbed {disturbed:.0%} of the runs. A winner that is ahead by less than {CLOSE - 1:.0%} is marked ≈.",
        "**The time of a condition is a prediction** from these parts: device, bytes over rate, half the round trip each "
        "way, cloud. The machine that measured is the cloud; the device is the same one 4 or 8 times slower, codings "
        "included. The connection is warm and loses nothing, and what the processes of headtail take themselves is on "
        "none of the ways. `headtail bench --only predictions` measures how far predictions are from what then happens.",
    ]


def _rules_words() -> list[str]:
    floors = joined([f"{rule.floor:.2f}" for rule in RULES if not rule.private])
    return [
        f"**Agreement** of at least {floors} with the whole model's answers is asked for; each model has a measure of its "
        "own. Ways below that are left out, and of the rest the quickest wins. On 96 rows of yes or no, 0.99 lets none "
        "differ.",
        "**Answers are sent back** as an application takes them (boxes, letters, a vector), and making them so is part of "
        "the model on either side: a reader's table of scores would be a megabyte.",
        f"**A private input** is not sent in any coding, and at least {LEAST_WORK:.0%} of the model's operations lie "
        "before a cut: words looked up in a table are no secret. What crosses an early cut is none either; a decoder can "
        "often rebuild the input.",
        "**Not compared** are smaller or quantised models on the device, codecs of video and of sound, and several "
        "requests at once.",
    ]


def _machine(machine: Machine) -> str:
    name = machine.processor or "a processor without a name"
    versions = f"CPython {machine.python}, onnxruntime {machine.onnxruntime}"
    return f"{machine.cores} cores of {name}, without a GPU ({versions})"
