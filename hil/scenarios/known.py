"""What a scenario asks, and what every right answer is: a small model, images, references computed beforehand."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hil.ledger import References
from hil.references import only, references, telling_frames
from hil.scenarios.scenario import Scenario
from hil.small_plans import Times, make_images, write_small
from shared.bundle import Bundle, load_bundle
from shared.request import Array

MODEL = "small"
IMAGES, IMAGES_SEED = 24, 20240

SLOWDOWN = 10.0
"""How much slower than this machine the vehicle's device is said to be."""

CLOUD_US = 100.0
"""What a node's profile claims; its executor is slowed down to the scenario's `cloud_ms`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is asked and what the right answers are: the bundle, the images, the references of each way."""

    bundle: Bundle
    images: list[Array]
    references: References


def make_known(scenario: Scenario, folder: Path) -> Known:
    """Write the scenario's model into `folder` and compute every answer that it may give."""
    model = scenario.model
    times = Times(
        whole_us=3000.0 * model.rung_ms, small_us=1000.0 * model.rung_ms, cloud_us=CLOUD_US, slowdown=SLOWDOWN
    )
    shutil.rmtree(folder / f"{MODEL}.plan", ignore_errors=True)
    path = write_small(
        folder, MODEL, rungs=("small",), routes=model.routes, times=times, seed=scenario.seed, side=model.side
    )
    bundle = load_bundle(path)
    images = make_images(IMAGES, IMAGES_SEED, model.side)
    known: References = references(bundle, images)
    kept = telling_frames(known)
    return Known(bundle, [images[number] for number in kept], only(known, kept))
