"""The books of a chaos run: every request and every delivery, held against each other when all is over.

Each plan has a ledger of its own, so that an answer of another plan's contract is wrong even where it is a right answer of
that plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from hil.ledger import Entry, Ledger, References
from shared.request import Outcome

SHOWN = 10


class Tally(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of all requests of a run.

    `outcomes` by kind (`on_time`, `late`, `missed`, `rejected`, `superseded`) adds up to `requests` where nothing is
    `lost`; `duplicated` counts deliveries after the first, `unasked` those of requests that nobody made. `answers` by
    `SOURCE FIDELITY`, `details` misses by stage and refusals by reason. `broken` says in words what is wrong, if anything.
    """

    requests: int
    outcomes: dict[str, int]
    answers: dict[str, int]
    details: dict[str, int]
    lost: int
    duplicated: int
    unasked: int
    wrong: int
    broken: tuple[str, ...]


class Account:
    """Takes what was asked and what was delivered. `asked` and `delivered` may be called from different threads."""

    def __init__(self) -> None:
        self._asked: list[tuple[int, str, int, int]] = []
        self._delivered: list[tuple[int, Outcome, int]] = []

    def asked(self, sequence: int, contract: str, image: int, due_ns: int) -> None:
        """Request `sequence` of the plan with this contract was made, of image number `image`, due at `due_ns`."""
        self._asked.append((sequence, contract, image, due_ns))

    def delivered(self, sequence: int, outcome: Outcome, now: int) -> None:
        """An outcome reached the application."""
        self._delivered.append((sequence, outcome, now))

    def close(self, known: Mapping[str, References], hanging: set[int]) -> Tally:
        """The tally. `known` are the references by contract, `hanging` the requests whose futures never ended."""
        ledgers = {contract: Ledger() for contract in known}
        contract_of: dict[int, str] = {}
        for sequence, contract, image, due_ns in self._asked:
            contract_of[sequence] = contract
            ledgers[contract].asked(sequence, image, due_ns)
        unasked = 0
        for sequence, outcome, now in self._delivered:
            if sequence in contract_of:
                ledgers[contract_of[sequence]].delivered(sequence, outcome, now)
            else:
                unasked += 1
        for sequence in hanging:
            ledgers[contract_of[sequence]].unresolved(sequence)
        entries = [entry for contract, ledger in ledgers.items() for entry in ledger.close(known[contract])]
        return _tally(entries, unasked)


def _tally(entries: list[Entry], unasked: int) -> Tally:
    kinds = Counter(entry.kind for entry in entries)
    lost = kinds.pop("lost", 0)
    duplicated = sum(entry.duplicates for entry in entries)
    wrong = [entry for entry in entries if entry.why_wrong]
    broken = [
        f"{count} {what}"
        for count, what in (
            (lost, "lost: no outcome ever came"),
            (duplicated, "delivered again"),
            (unasked, "outcomes of requests that nobody made"),
        )
        if count
    ]
    broken += [f"a wrong answer ({entry.source} {entry.fidelity}): {entry.why_wrong}" for entry in wrong[:SHOWN]]
    answers = Counter(f"{entry.source} {entry.fidelity}" for entry in entries if entry.source)
    return Tally(
        requests=len(entries),
        outcomes=dict(sorted(kinds.items())),
        answers=dict(sorted(answers.items())),
        details=dict(sorted(Counter(entry.detail for entry in entries if entry.detail).items())),
        lost=lost,
        duplicated=duplicated,
        unasked=unasked,
        wrong=len(wrong),
        broken=tuple(broken),
    )
