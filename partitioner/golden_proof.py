"""The proof of a bundle on disk by the answers of the whole model that travel in it, in this process.

Everything is the bundle's own: head, coding and tail of every cut and every coding, and every rung, run on the golden inputs.
`headtail verify` (`hil/verify.py`) proves more: there the tails run in a node, over the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from partitioner.bundle_profile import LoadedBundle, load_segments
from partitioner.graph.run import difference
from partitioner.running import Tensors, decode_all, encode_all, run_chain
from partitioner.verify_local import TOLERANCE
from shared.bundle import load_bundle


@dataclass(frozen=True, slots=True)
class GoldenCheck:
    """One way on `rows` golden inputs. `difference` is the largest from the whole model's answers, relative to
    max(1, |value|). `exact` is False for a lossy coding and a cheaper rung, which are run and held to nothing."""

    way: str
    coding: str
    rows: int
    exact: bool
    difference: float

    @property
    def holds(self) -> bool:
        """Whether it is what it ought to be."""
        return not self.exact or self.difference <= TOLERANCE


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a bundle. `contract` is the digest of what was checked."""

    path: Path
    contract: str
    checks: tuple[GoldenCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether every exact way gave the whole model's answers."""
        return all(check.holds for check in self.checks)


def prove(path: Path, told: Callable[[str], None]) -> Verification:
    """Check every way of the bundle in this folder; `told` hears of each before it is run.

    Raises `BundleError` for a damaged bundle, `ModelError` where a segment cannot be loaded or run.
    """
    bundle = load_bundle(path)
    plan = bundle.plan
    profile = plan.profile("edge")
    loaded = load_segments(path, plan, profile.threads if profile else 1)
    golden = bundle.golden()
    inputs, wanted = [one.inputs for one in golden], [one.outputs for one in golden]
    checks: list[GoldenCheck] = []
    for index, cut in enumerate(plan.cuts[:-1]):
        for coding in cut.codings:
            told(f"{cut.name} as {coding.name}")
            got = [_through(loaded, index, row, coding.name) for row in inputs]
            checks.append(GoldenCheck(cut.name, coding.name, len(got), not coding.lossy, _largest(wanted, got)))
    for rung in plan.ladder:
        told(f"rung {rung.name}")
        got = [run_chain(loaded.programs[rung.program], row) for row in inputs]
        checks.append(GoldenCheck(f"rung {rung.name}", "", len(got), rung.program == 0, _largest(wanted, got)))
    return Verification(path, bundle.contract, tuple(checks))


def _through(loaded: LoadedBundle, index: int, row: Tensors, name: str) -> Tensors:
    cut = loaded.plan.cuts[index]
    coding = next(coding for coding in cut.codings if coding.name == name)
    frames = encode_all(loaded.crossing(row, index), coding)
    return run_chain(loaded.programs[0][index:], decode_all(frames, coding, cut.tensors))


def _largest(wanted: Sequence[Tensors], got: Sequence[Tensors]) -> float:
    return max(
        difference(a, b) for row, other in zip(wanted, got, strict=True) for a, b in zip(row, other, strict=True)
    )
