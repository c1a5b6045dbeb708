"""An account of every request of a phase that does not trust the futures.

The rig writes down what it asked and, through a tap of its own, every delivery as it happens. Only when the phase is over
are they held against each other: what was never delivered is lost, what was delivered again is duplicated, and an answer
is wrong unless it equals, within `TOLERANCE`, what a single process computed beforehand by exactly the way that the answer's
fidelity claims, for that very frame. Comparing with "the model's answer" whatever the fidelity says was rejected: it would
either forgive a swapped answer or blame an honest approximation.

The tap costs a tuple and no comparison, so that the account does not disturb what it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from shared.request import Answer, Array, Outcome, Rejected, Superseded

TOLERANCE = 1e-4
"""Largest absolute difference between an answer and its reference, in any element."""


class Claim(msgspec.Struct, frozen=True):
    """What an answer says about how it was made: enough to repeat it. `cut` counts only for a lossy answer."""

    contract: str
    kind: str
    name: str = ""
    cut: int = 0


References = Mapping[Claim, Sequence[Mapping[str, Array]]]
"""For each claim, the outputs of every frame by name."""


class Entry(msgspec.Struct, frozen=True):
    """One request as it ended. `kind` is `on_time`, `late`, `missed`, `rejected`, `superseded` or `lost`.

    `due_ns` is its scheduled time, `latency_ns` how long after that its first delivery came (0 where lost).
    `source`, `rung` and `fidelity` are empty where it is no answer; `detail` names a miss's stage or a refusal's reason.
    `why_wrong` is empty where nothing is wrong. `node` is the node that answered, empty where none did, `elapsed_ns` how
    long the client says that its answer took (0 where it is no answer).
    """

    due_ns: int
    kind: str
    latency_ns: int = 0
    source: str = ""
    rung: str = ""
    fidelity: str = ""
    detail: str = ""
    duplicates: int = 0
    why_wrong: str = ""
    node: str = ""
    elapsed_ns: int = 0


class Ledger:
    """The account of one phase. `asked` and `delivered` may be called from different threads; `close` after both."""

    def __init__(self) -> None:
        self._asked: list[tuple[int, int, int]] = []
        self._delivered: list[tuple[int, Outcome, int]] = []
        self._unresolved: set[int] = set()

    def asked(self, ticket: int, frame: int, due_ns: int) -> None:
        """A request for frame number `frame` was made, due at `due_ns`. `ticket` names it, once."""
        self._asked.append((ticket, frame, due_ns))

    def delivered(self, ticket: int, outcome: Outcome, now: int) -> None:
        """An outcome reached the application at `now`."""
        self._delivered.append((ticket, outcome, now))

    def unresolved(self, ticket: int) -> None:
        """The future of this request never came to an end: it is lost, whatever the tap has seen."""
        self._unresolved.add(ticket)

    def close(self, references: References | None) -> list[Entry]:
        """One entry for each request, in the order in which they were asked; without `references` nothing is called wrong.

        A delivery that nobody asked for makes an entry as well, of kind `superseded` with one duplicate, so that it shows.
        """
        first: dict[int, tuple[Outcome, int]] = {}
        again: dict[int, int] = {}
        for ticket, outcome, now in self._delivered:
            if ticket in first:
                again[ticket] = again.get(ticket, 0) + 1
            else:
                first[ticket] = (outcome, now)
        for ticket in self._unresolved:
            first.pop(ticket, None)
        entries = [
            self._entry(first.pop(ticket, None), again.get(ticket, 0), frame, due_ns, references)
            for ticket, frame, due_ns in self._asked
        ]
        entries += [Entry(now, "superseded", duplicates=1, detail="never asked for") for _, now in first.values()]
        return entries

    @staticmethod
    def _entry(
        found: tuple[Outcome, int] | None, duplicates: int, frame: int, due_ns: int, references: References | None
    ) -> Entry:
        if found is None:
            return Entry(due_ns, "lost")
        outcome, now = found
        if isinstance(outcome, Answer):
            return Entry(
                due_ns,
                "on_time" if outcome.on_time else "late",
                latency_ns=now - due_ns,
                source=outcome.source,
                rung=outcome.rung,
                fidelity=str(outcome.fidelity),
                duplicates=duplicates,
                why_wrong="" if references is None else why_wrong(outcome, frame, references),
                node=outcome.node or "",
                elapsed_ns=outcome.elapsed_ns,
            )
        if isinstance(outcome, Rejected):
            kind, detail = "rejected", outcome.reason
        elif isinstance(outcome, Superseded):
            kind, detail = "superseded", ""
        else:
            kind, detail = "missed", outcome.stage
        return Entry(due_ns, kind, latency_ns=now - due_ns, detail=detail, duplicates=duplicates)


def claim_of(answer: Answer) -> Claim:
    """What this answer claims."""
    fidelity = answer.fidelity
    cut = answer.cut if fidelity.kind == "lossy" and answer.cut is not None else 0
    return Claim(answer.contract, fidelity.kind, fidelity.name, cut)


def why_wrong(answer: Answer, frame: int, references: References) -> str:
    """Why an answer is not what it claims to be, or an empty string where it is."""
    claim = claim_of(answer)
    expected = references.get(claim)
    if expected is None:
        return f"it claims {answer.fidelity} of cut {claim.cut}, which the plan does not have"
    if set(answer.outputs) != set(expected[frame]):
        return f"its outputs are {', '.join(sorted(answer.outputs))}"
    for name, wanted in expected[frame].items():
        found = answer.outputs[name]
        if found.shape != wanted.shape:
            return f"{name} is {list(found.shape)} instead of {list(wanted.shape)}"
        worst = difference(found, wanted)
        if not worst <= TOLERANCE:
            return f"{name} is off by {worst:.3g}"
    return ""


def difference(found: Array, wanted: Array) -> float:
    """Largest absolute difference of two arrays of one shape. NaN equals NaN, and an infinity itself."""
    a, b = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.where(same, 0.0, np.abs(a - b))
    return float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0))


def distinct(references: References) -> list[int]:
    """The frames, by number, that are all told apart by every claim: any two differ by more than the tolerance.

    A swap between two frames that are not would not be seen. Of those that are alike the first is kept.
    """
    kept: list[int] = []
    count = min((len(frames) for frames in references.values()), default=0)
    for frame in range(count):
        if all(_told_apart(frames[frame], frames[other]) for frames in references.values() for other in kept):
            kept.append(frame)
    return kept


def _told_apart(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return any(difference(other[name], value) > TOLERANCE for name, value in one.items())
