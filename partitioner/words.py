"""How numbers are said to a person: in three significant digits, with their units."""

from __future__ import annotations

from partitioner.costs.cost import Candidate


def milliseconds(time_us: float) -> str:
    """Microseconds as `12.3 ms`."""
    return f"{ms(time_us)} ms"


def ms(time_us: float) -> str:
    """Microseconds as a number of milliseconds: two decimals, fewer for what is long."""
    value = time_us / 1000.0
    return f"{value:.2f}" if value < 99.995 else f"{value:,.0f}"


def size(nbytes: float) -> str:
    """Bytes as `12.3 KB` or `1.23 MB`, in powers of ten, as links count."""
    if nbytes < 999_950:
        return f"{nbytes / 1000:.1f} KB"
    return f"{nbytes / 1e6:.2f} MB"


def share(value: float) -> str:
    """An agreement in three decimals, never rounded up to 1."""
    return "1.000" if value == 1.0 else f"{min(value, 0.9994999):.3f}"


def action(candidate: Candidate) -> str:
    """What is done on this way, as the end of a sentence that begins with a subject and `should`."""
    return {
        "device": f"run {candidate.rung!r} on the device",
        "input": f"send the input as {candidate.coding} and run everything in the cloud",
        "split": f"cut at {candidate.cut!r}, send it as {candidate.coding} and finish in the cloud",
    }[candidate.kind]


def joined(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
