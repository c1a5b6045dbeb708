"""What the measured lateness means for the promise: epsilon, the margin before a deadline, and what is left for work.

Every outcome is decided no later than its deadline D plus epsilon, and epsilon is how late the host wakes the thread that
decides. It cannot be proven from some seconds of measuring: p99.9 says what to reckon with, the worst what has been seen.
The busy thread's figure counts where it is the worse one, since an agent has executors.

An answer that is held for the cloud is let go guard + hold before D, and hold follows the measured p99.9 between two
bounds of the settings (`insurance`), so that a timer that fires late still fires in time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.doctor.facts import Wakes
from shared.doctor.findings import Finding
from shared.settings import Insurance


class Promise(msgspec.Struct, frozen=True):
    """All in milliseconds. `let_go_ms`: how long before its deadline a held answer is let go. `left_ms`: what is left of
    `deadline_ms` for work when guard and lateness are taken off. `possible`, else `because` of these."""

    epsilon_ms: float
    worst_ms: float
    let_go_ms: float
    deadline_ms: float
    left_ms: float
    possible: bool
    because: tuple[str, ...] = ()


def epsilon_ms(wakes: Wakes) -> float:
    """p99.9 of the lateness of wake-ups, the worse of alone and beside a busy thread."""
    return max(wakes.alone.p999_ms, wakes.busy.p999_ms)


def let_go_ms(wakes: Wakes, insurance: Insurance) -> float:
    """How long before its deadline the agent lets a held answer go on this host."""
    return insurance.guard_ms + min(max(epsilon_ms(wakes), insurance.hold_ms), insurance.hold_max_ms)


def promise(wakes: Wakes, insurance: Insurance, deadline_ms: float, findings: Iterable[Finding]) -> Promise:
    """What can be promised at this deadline, with what was found."""
    margin_ms = let_go_ms(wakes, insurance)
    left_ms = deadline_ms - insurance.guard_ms - max(epsilon_ms(wakes), insurance.hold_ms)
    because = [f"{finding.name}: {finding.value}" for finding in findings if finding.stops]
    if left_ms <= 0:
        where = "beside a busy thread" if wakes.alone.p999_ms < wakes.busy.p999_ms else "even alone"
        because.append(
            f"{where}, wake-ups come so late (p99.9 {epsilon_ms(wakes):.1f} ms) that nothing of {deadline_ms:g} ms is left "
            f"for work"
        )
    return Promise(
        epsilon_ms=epsilon_ms(wakes),
        worst_ms=max(wakes.alone.max_ms, wakes.busy.max_ms),
        let_go_ms=margin_ms,
        deadline_ms=deadline_ms,
        left_ms=max(0.0, left_ms),
        possible=not because,
        because=tuple(because),
    )


def sentences(made: Promise, insurance: Insurance) -> list[str]:
    """The end of the page, for a person."""
    said = [
        f"Epsilon on this host is {made.epsilon_ms:.2f} ms (p99.9; the worst was {made.worst_ms:.2f} ms): an outcome may be "
        f"decided that much later than its deadline.",
        f"Answers held for the cloud are let go {made.let_go_ms:.2f} ms before the deadline. Of {made.deadline_ms:g} ms, "
        f"{made.left_ms:.2f} ms are left for work.",
    ]
    if made.epsilon_ms > insurance.hold_max_ms:
        remedy = "Find what makes wake-ups late"
        if made.epsilon_ms < made.deadline_ms / 4:
            remedy += f", or raise it to {made.epsilon_ms:.1f}"
        said.append(
            f"insurance.hold_max_ms = {insurance.hold_max_ms:g} keeps the agent from letting go earlier: more than one held "
            f"answer in a thousand will come late. {remedy}."
        )
    said += [f"THE PROMISE CANNOT BE KEPT HERE: {reason}." for reason in made.because]
    return said
