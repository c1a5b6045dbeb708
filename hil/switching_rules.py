"""What a run of `hil.switching` is judged by: what changed from request to request, how long the broker took for it, what
came of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from hil.ledger import Entry
from shared.events import Action, Send
from shared.lateness import LatenessFigures
from shared.wire.messages import Infer

MOST_SWITCH_MS = 1.0
MOST_MEMORY = 1.2
LEAST_SWITCHES = 20
"""With fewer changes of the cut nothing is proven."""


class Step(msgspec.Struct, frozen=True):
    """One step of the broker: what it did, and how long it took, in nanoseconds."""

    actions: tuple[Action, ...]
    took_ns: int


class Switches(msgspec.Struct, frozen=True):
    """How often the cut changed from one attempt to the next, the most that the broker took for a step in which it did, in
    milliseconds, the same for all other steps, and how many attempts went by each route."""

    count: int
    most_ms: float
    others_most_ms: float
    ways: dict[str, int]


class Account(msgspec.Struct, frozen=True):
    """What came of the requests: how many of each kind; what is lost, doubled or wrong, in words."""

    kinds: dict[str, int]
    sources: dict[str, int]
    faults: tuple[str, ...]


class Switching(msgspec.Struct, frozen=True):
    """A whole run: the account, the switches, and the peak of resident memory of agent and node, in kilobytes, with the cut
    changing and with one route fixed. `machine` is how late a 1 ms timer came while the cut changed."""

    rate_hz: float
    requests: int
    account: Account
    switches: Switches
    changing_kb: dict[str, int]
    fixed_kb: dict[str, int]
    machine: LatenessFigures = LatenessFigures()

    @property
    def memory(self) -> dict[str, float]:
        """How much more memory each process took where the cut changed, as a factor."""
        return {name: kb / self.fixed_kb[name] for name, kb in self.changing_kb.items()}

    @property
    def faults(self) -> tuple[str, ...]:
        """What is over a bound, in words."""
        found = list(self.account.faults)
        if self.switches.count < LEAST_SWITCHES:
            found.append(f"the cut changed {self.switches.count} times; fewer than {LEAST_SWITCHES} prove nothing")
        if self.switches.most_ms > MOST_SWITCH_MS:
            found.append(
                f"a switch took {self.switches.most_ms:.2f} ms in the broker; the bound is {MOST_SWITCH_MS:g} ms"
            )
        found += [
            f"{name} took {factor:.2f} times the memory; the bound is {MOST_MEMORY:g}"
            for name, factor in self.memory.items()
            if factor > MOST_MEMORY
        ]
        return tuple(found)


def switches(steps: Iterable[Step]) -> Switches:
    """The changes of the cut among a broker's steps."""
    ways: Counter[str] = Counter()
    count = most = others = 0
    before: int | None = None
    for step in steps:
        sent = [a.message for a in step.actions if isinstance(a, Send) and isinstance(a.message, Infer)]
        changed = False
        for message in sent:
            ways[f"{message.cut}/{message.coding}"] += 1
            changed = changed or before not in (None, message.cut)
            before = message.cut
        count += changed
        if changed:
            most = max(most, step.took_ns)
        else:
            others = max(others, step.took_ns)
    return Switches(count, most / 1e6, others / 1e6, dict(ways))


def account(entries: Sequence[Entry]) -> Account:
    """What came of the requests."""
    faults = [f"request {i}: {e.why_wrong}" for i, e in enumerate(entries) if e.why_wrong]
    lost = sum(e.kind == "lost" for e in entries)
    doubled = sum(e.duplicates for e in entries)
    if lost:
        faults.append(f"{lost} requests are lost")
    if doubled:
        faults.append(f"{doubled} outcomes were delivered twice")
    kinds = Counter(e.kind for e in entries)
    sources = Counter(e.source for e in entries if e.source)
    return Account(dict(kinds), dict(sources), tuple(faults))
