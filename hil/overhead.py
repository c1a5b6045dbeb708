"""Measures what a request costs beside its work: a real client, agent and node on the bare loopback, with probes.

A probe takes and gives a tensor of a stated size and computes for about half a millisecond, so that an executor's thread
runs it as it runs a real model. It is a head and a tail of half the work each, and can be asked for whole on the device, by
sending the input, or by sending what the head gives. What an answer says of its runs and codings is taken from the time it
took; the rest is what `partitioner.costs.overhead` fits.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hil.one_way import only_route, only_rung, write_variant
from hil.overhead_probe import write_probe
from hil.way_rig import Asked, WayRig, play
from partitioner.costs.cost import HEADER_BYTES, Kind
from partitioner.costs.machine import device_name
from partitioner.costs.overhead import Crossing, Overhead, fit_overhead
from shared.bundle import load_bundle
from shared.request import Stage, Stages

SIZES = (4_096, 300_000)
"""Bytes of a probe's input, and of its output."""

WORK: tuple[Stage, ...] = ("head", "tail", "rung", "codec")
"""Stages that are not overhead."""

SWITCH_S = 0.0005


def measure(rounds: int, cadence_hz: float, progress: Callable[[str], None]) -> Overhead:
    """The overhead of this machine, both sides on it, by so many rounds of a block of each probe.

    Raises `HeadtailError` where agent or node do not come up or answer otherwise than asked.
    """
    folder = Path(tempfile.mkdtemp(prefix="headtail-overhead-"))
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        asked = {crossing: one for size in SIZES for crossing, one in _probes(folder, size).items()}
        progress("starting an agent and a node for the probes")
        with WayRig(folder, [folder / f"{one.model}.plan" for one in asked.values()], None) as rig:
            rig.wait_answered(list(asked.values()))
            progress("measuring what a request costs beside its work")
            taken = play(rig, list(asked.values()), rounds, cadence_hz)
    finally:
        sys.setswitchinterval(before)
        shutil.rmtree(folder, ignore_errors=True)
    left = {
        crossing: [answer.time_us - worked_us(answer.stages) for answer in taken[one.model]]
        for crossing, one in asked.items()
    }
    return fit_overhead(left, cadence_hz, device_name())


def worked_us(stages: Stages) -> float:
    """Microseconds of an answer's stages that were runs and codings."""
    return sum(stages.get(stage, 0) for stage in WORK) / 1000.0


def _probes(folder: Path, nbytes: int) -> dict[Crossing, Asked]:
    """The three ways to ask a probe of this size, written into `folder`."""
    bundle = load_bundle(write_probe(folder / "whole", f"probe-{nbytes}", nbytes))
    row = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in bundle.plan.inputs}
    plan = bundle.plan
    ways: tuple[tuple[Kind, str, bool], ...] = (("device", "", True), ("input", "x", False), ("split", "middle", True))
    found: dict[Crossing, Asked] = {}
    for kind, cut, worked in ways:
        name = f"probe-{nbytes}-{kind}"
        only = only_rung(plan, name, "whole") if kind == "device" else only_route(plan, name, cut, "raw")
        write_variant(bundle, only, folder)
        network = 0 if kind == "device" else 2 * (nbytes + HEADER_BYTES)
        found[Crossing(kind, 2 * nbytes, network, worked)] = Asked(
            name, "edge" if kind == "device" else "cloud", (row,)
        )
    return found
