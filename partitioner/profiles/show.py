"""Profiles and their differences as tables for a person. What was not measured is called so in the first line."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from partitioner.profiles.diff import Difference, Ratio, shapes_of
from partitioner.profiles.record import BatchTimes, DeviceProfile

MOST_GROUPS = 12
NOT_MEASURED = {"scaled": "NOT MEASURED, SCALED", "estimated": "NOT MEASURED, ESTIMATED", "measured": "measured"}


def show_profile(profile: DeviceProfile, console: Console) -> None:
    """Print what a profile holds: its origin, the machine, the wholes, the groups that take longest, and the codings."""
    machine = profile.machine
    console.print(f"{profile.model}, {profile.side}: {origin_line(profile)}", style="bold")
    console.print(
        f"{machine.device}, {machine.provider}, threads: {machine.threads}, at {machine.cadence_hz:g} Hz"
        + "".join(f", {name} {version}" for name, version in machine.versions.items())
    )
    for clock in machine.clocks:
        now = "" if clock.now_mhz is None else f", {clock.now_mhz} MHz when measured"
        console.print(f"{clock.cores} cores: up to {clock.highest_mhz} MHz, {clock.governor}{now}")
    for power in machine.power:
        console.print(f"{power.source}: {power.watts:.2f} W on average, pauses included")
    for bucket in profile.buckets:
        table = _table(
            shapes_of(bucket), ("rows", "p50 ms", "p90 ms", "p99 ms", "runs", "steady", "kernels", "guessed")
        )
        for times in bucket.batches:
            table.add_row(*_whole(times, measured=profile.measured))
        console.print(table)
        first = bucket.batches[0]
        console.print(_groups(first))
    if profile.codecs:
        table = _table("Codings, ns a byte of the raw tensor", ("coding", "encode", "decode", "on KB"))
        for codec in profile.codecs:
            table.add_row(
                codec.name,
                f"{codec.encode_us_per_byte * 1e3:.2f}",
                f"{codec.decode_us_per_byte * 1e3:.2f}",
                f"{codec.nbytes / 1000:.1f}",
            )
        console.print(table)
    if profile.disturbed_share >= 0.1:
        console.print(f"note: other processes took the processor in {profile.disturbed_share:.0%} of the runs")
    for note in profile.notes:
        console.print(f"note: {note}")


def origin_line(profile: DeviceProfile) -> str:
    """Where a profile's times come from, in a line that is to stand wherever they are shown."""
    return f"{NOT_MEASURED[profile.origin.kind]} ({profile.origin.how})"


def show_difference(difference: Difference, a: DeviceProfile, b: DeviceProfile, console: Console) -> None:
    """Print what differs: conditions first."""
    console.print(f"A: {a.model}, {a.side}: {origin_line(a)}", style="bold")
    console.print(f"B: {b.model}, {b.side}: {origin_line(b)}", style="bold")
    if difference.conditions:
        table = _table("Conditions that differ", ("", "A", "B"), texts={"", "A", "B"})
        for condition in difference.conditions:
            table.add_row(condition.what, condition.a, condition.b)
        console.print(table)
    else:
        console.print("the same conditions")
    for wholes in difference.wholes:
        table = _table(f"{wholes.shapes}, {wholes.batch} rows", ("", "A ms", "B ms", "B / A", "beyond the spread"))
        for ratio in (wholes.whole, *wholes.groups[:MOST_GROUPS]):
            table.add_row(*_ratio(ratio, 1000.0), "yes" if ratio.beyond else "no")
        console.print(table)
        if len(wholes.groups) > MOST_GROUPS:
            console.print(f"and {len(wholes.groups) - MOST_GROUPS} groups that differ less")
    if difference.codecs:
        table = _table("Codings, ns a byte", ("", "A", "B", "B / A"))
        for ratio in difference.codecs:
            table.add_row(*_ratio(ratio, 1.0))
        console.print(table)
    for only in difference.only:
        console.print(f"note: {only}")


def _whole(times: BatchTimes, *, measured: bool) -> tuple[str, ...]:
    figures = [f"{time_us / 1000:.3f}" for time_us in (times.whole.p50_us, times.whole.p90_us, times.whole.p99_us)]
    if not measured:
        return (str(times.batch), *figures, "-", "-", "-", "-")
    steady = "yes" if times.stable else "no"
    return (
        str(times.batch),
        *figures,
        str(times.runs),
        steady,
        f"{times.kernels_share:.0%}",
        f"{times.guessed_share:.1%}",
    )


def _groups(times: BatchTimes) -> Table:
    title = f"The groups that take longest, of {len(times.groups)}, {times.batch} rows"
    table = _table(title, ("group", "kind", "p50 ms", "share"), texts={"group", "kind"})
    whole_us = times.whole.p50_us or 1.0
    for group in sorted(times.groups, key=lambda g: -g.time.p50_us)[:MOST_GROUPS]:
        time_us = group.time.p50_us
        table.add_row(group.name, group.kind, f"{time_us / 1000:.3f}", f"{time_us / whole_us:.1%}")
    return table


def _ratio(ratio: Ratio, unit: float) -> tuple[str, ...]:
    told = "-" if ratio.ratio is None else f"{ratio.ratio:.2f}"
    return (ratio.what, f"{ratio.a_us / unit:.3f}", f"{ratio.b_us / unit:.3f}", told)


def _table(title: str, header: tuple[str, ...], texts: set[str] | None = None) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, padding=(0, 1), pad_edge=False)
    for name in header:
        left = name in texts if texts is not None else name in {"", "coding"}
        table.add_column(name, justify="left" if left else "right", overflow="fold", header_style="bold")
    return table
