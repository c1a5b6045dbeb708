"""The demo's report as data, and as JSON: what was played, how it went, by what it was judged, and on which machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hil.results import PhaseResult
from hil.verdict import Verdict
from partitioner.costs.machine import device_name, library_version
from shared.bundle import Bundle
from shared.plan import Plan

FORMAT = 1
LIBRARIES = ("numpy", "onnxruntime", "pyzmq", "msgspec", "simplejpeg", "onnx")


class PlanSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan in a few words: `chosen` and why, its cuts, its ways through the cloud and its rungs, each as a line."""

    name: str
    contract: str
    chosen: str
    metric: str
    cuts: tuple[str, ...]
    routes: tuple[str, ...]
    rungs: tuple[str, ...]
    seconds: float


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where it ran. `weight` is what the scheduler granted to the rig's processes."""

    headtail: str
    python: str
    system: str
    processor: str
    cores: int
    libraries: dict[str, str]
    weight: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the report. `deadline_why` and `notes` are sentences for a person. `planted` names a fault planted on purpose.
    `images` are the files with the model's output drawn on them, beside the report."""

    format: int
    deadline_ms: float
    split_deadline_ms: float
    deadline_why: str
    slowdown: float
    phases: tuple[PhaseResult, ...]
    verdict: Verdict
    plans: tuple[PlanSummary, ...]
    notes: tuple[str, ...]
    planted: str
    images: tuple[str, ...]
    seconds: float
    environment: Environment


def summary_of(bundle: Bundle, seconds: float) -> PlanSummary:
    """A bundle's plan in a few words; `seconds` is how long it took to make."""
    plan = bundle.plan
    return PlanSummary(
        name=plan.name,
        contract=bundle.contract,
        chosen=plan.chosen,
        metric=plan.metric,
        cuts=tuple(_cut_line(plan, index) for index in range(len(plan.cuts))),
        routes=tuple(
            f"send {plan.cuts[route.cut].name} as {route.coding}: {route.bytes_up / 1000:.1f} kB up, "
            f"{route.bytes_down / 1000:.1f} kB down, agreement {route.agreement:.3f}"
            for route in plan.routes
        ),
        rungs=tuple(_rung_line(plan, index) for index in range(len(plan.ladder))),
        seconds=round(seconds, 2),
    )


def environment(weight: Sequence[str]) -> Environment:
    """What this process runs on."""
    return Environment(
        headtail=library_version("headtail"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=device_name(),
        cores=len(os.sched_getaffinity(0)),
        libraries={name: library_version(name) for name in LIBRARIES},
        weight=tuple(weight),
    )


def write_json(report: Report, path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    unfinished.replace(path)


def _cut_line(plan: Plan, index: int) -> str:
    cut = plan.cuts[index]
    tensors = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in cut.tensors)
    return f"{index}, {cut.name}: {tensors}"


def _rung_line(plan: Plan, index: int) -> str:
    rung = plan.ladder[index]
    profile = plan.profile("edge")
    time = profile.time(rung.program, 0, len(plan.programs[rung.program].segments)) if profile else None
    took = f"{time.p50_us / 1000:.1f} ms on the device (p99 {time.p99_us / 1000:.1f}), " if time else ""
    return f"{rung.name}: {took}agreement {rung.agreement:.3f}"
