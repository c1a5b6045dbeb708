"""What differs between two load reports: first what was measured under other conditions, then the figures as ratios. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hil.load.report import Load, LoadReport


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure of both, and the second over the first; None where that says nothing."""

    run: str
    what: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """The second over the first."""
        if self.first is None or self.second is None or self.first <= 0.0:
            return None
        return self.second / self.first


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`conditions`: in words, what was not the same. `ratios`: of runs that both have. `only_first`, `only_second`: runs that
    one of them has. `doubts`: runs in which a load generator was the bottleneck or a machine stalled."""

    conditions: tuple[str, ...]
    ratios: tuple[Ratio, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    doubts: tuple[str, ...]


def compare(first: LoadReport, second: LoadReport) -> Comparison:
    """Hold the second against the first. Runs belong together that were asked for in the same words; of several such the last
    counts."""
    mine, theirs = _by_name(first), _by_name(second)
    ratios = [ratio for name in mine if name in theirs for ratio in _ratios(name, mine[name], theirs[name])]
    if first.found is not None and second.found is not None and first.found.share == second.found.share:
        what = f"highest rate with {first.found.share:.4g} on time, 1/s"
        ratios.insert(0, Ratio("search", what, first.found.rate_per_s, second.found.rate_per_s))
    return Comparison(
        conditions=tuple(_conditions(first, second)),
        ratios=tuple(ratios),
        only_first=tuple(name for name in mine if name not in theirs),
        only_second=tuple(name for name in theirs if name not in mine),
        doubts=tuple(
            f"{which}, {name}: {run.why or 'the machine stalled'}"
            for which, runs in (("first", mine), ("second", theirs))
            for name, run in runs.items()
            if run.why or run.stalled
        ),
    )


def _by_name(report: LoadReport) -> dict[str, Load]:
    return {name_of(run): run for run in report.runs}


def name_of(run: Load) -> str:
    """What was asked of a run, in words."""
    return f"{run.source}, {run.source.deadline_ms:g} ms, class {run.source.priority}"


def _ratios(name: str, first: Load, second: Load) -> Iterator[Ratio]:
    a, b = first.figures, second.figures
    yield Ratio(name, "on time", a.on_time_share, b.on_time_share)
    yield Ratio(name, "on time, 1/s", a.on_time_per_s, b.on_time_per_s)
    theirs = {quantile.share: quantile.ms for quantile in b.quantiles}
    for quantile in a.quantiles:
        yield Ratio(name, f"{quantile_name(quantile.share)} ms", quantile.ms, theirs.get(quantile.share))


def quantile_name(share: float) -> str:
    """`p99.9` and the like."""
    return f"p{100.0 * share:.6g}"


def _conditions(first: LoadReport, second: LoadReport) -> Iterator[str]:
    a, b = first.environment, second.environment
    for what in ("host", "processor", "cores", "system", "python"):
        mine, theirs = getattr(a, what), getattr(b, what)
        if mine != theirs:
            yield f"{what}: {mine} and {theirs}"
    for name in sorted({*a.versions, *b.versions}):
        mine, theirs = a.versions.get(name, "none"), b.versions.get(name, "none")
        if mine != theirs:
            yield f"{name}: {mine} and {theirs}"
    if abs(a.load - b.load) > 0.5:
        yield f"load before: {a.load:g} and {b.load:g}"
    for what in ("target", "model", "contract", "coding", "seed", "warm_up_s"):
        mine, theirs = getattr(first, what), getattr(second, what)
        if mine != theirs:
            yield f"{what.replace('_', ' ')}: {mine} and {theirs}"
    seconds = {round(run.figures.seconds, 3) for report in (first, second) for run in report.runs}
    if len(seconds) > 1:
        yield f"seconds of a run: {', '.join(f'{each:g}' for each in sorted(seconds))}"
