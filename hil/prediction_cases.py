"""The models and the ways for which predictions are held against what is measured (`hil.predictions`).

Five trained models of the zoo that differ in what they weigh: small and large inputs, answers of a few bytes and of many,
runs of 2 to 30 ms. Of each, the device alone, the input in two codings where it has them, and a forced split in two.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from hil.frames import make_frames
from hil.model_zoo import zoo_model
from hil.model_zoo_inputs import Feed, make_inputs
from partitioner.graph.recipe import Recipe, build
from partitioner.options import LinkGuess, PlanOptions
from shared.request import Array, TensorSpec

ROWS = 6
"""Rows of data, half to fit codings to and half to judge them by. What is measured here are times."""

DEADLINE_NS = 1_000_000_000
"""So late that nothing is ever given up: a time that was cut off says nothing of a prediction."""


class Case(msgspec.Struct, frozen=True):
    """A model of the zoo as it is planned, the cut that is forced beside the input, and the ways to measure: the labels of
    `partitioner.costs.cost.Candidate`. `cadence_hz` leaves room between two requests."""

    name: str
    cut: str
    ways: tuple[str, ...]
    cadence_hz: float = 30.0
    shapes: tuple[str, ...] = ()
    preprocess: str = "none"
    postprocess: str = "none"


CASES = (
    Case(
        "centerface",
        "377",
        ("device: whole", "input as raw", "input as jpeg90", "377 as int8"),
        shapes=("1,3,192,192",),
        preprocess="image",
        postprocess="peaks",
    ),
    Case(
        "plate-detector",
        "324",
        ("device: whole", "input as raw", "input as jpeg90", "324 as int8"),
        shapes=("1,3,320,320",),
        preprocess="image",
    ),
    Case(
        "text-detector",
        "p2o.Add.39",
        ("device: whole", "input as jpeg90", "p2o.Add.39 as int4"),
        cadence_hz=15.0,
        shapes=("1,3,320,320",),
        preprocess="image",
    ),
    Case(
        "minilm",
        "layer_norm_11",
        ("device: whole", "input as raw", "layer_norm_11 as raw", "layer_norm_11 as int8"),
        shapes=("input_ids=1,64", "attention_mask=1,64", "token_type_ids=1,64"),
    ),
    Case(
        "smart-turn",
        "add_361",
        ("device: whole", "input as fp16", "add_361 as int8"),
        cadence_hz=15.0,
    ),
)


def options_of(case: Case, folder: Path, cache: Path, link: LinkGuess, seed: int) -> PlanOptions:
    """What is asked of `headtail plan`, with the data that it needs written into `folder`.

    Raises `ModelError` where the model cannot be had."""
    zoo = zoo_model(case.name)
    recipe = Recipe(zoo.path(cache), case.shapes, case.preprocess, case.postprocess)
    specs = build(recipe).inputs
    rows = [make_row(zoo.feed, specs, seed + number) for number in range(ROWS)]
    file = folder / f"{case.name}.npz"
    np.savez(file, **{spec.name: np.concatenate([row[spec.name] for row in rows]) for spec in specs})  # type: ignore[arg-type]
    return PlanOptions(
        model=recipe.path,
        out=folder / f"{case.name}.plan",
        shapes=recipe.shapes,
        preprocess=recipe.preprocess,
        postprocess=recipe.postprocess,
        calibration=file,
        deadline_ns=DEADLINE_NS,
        link=link,
        cadence_hz=case.cadence_hz,
        min_agreement=0.0,
        lower_rungs=False,
        force_cuts=("input", case.cut),
        seed=seed,
    )


def make_row(feed: Feed, specs: tuple[TensorSpec, ...], seed: int) -> dict[str, Array]:
    """One row for the inputs of a model, by name: a photograph where it takes an image of whole numbers."""
    first = specs[0]
    if len(specs) == 1 and first.dtype == "uint8":
        _, height, width, _ = first.shape
        return {first.name: make_frames(2, height, width, seed)[1].pixels}
    return make_inputs(feed, specs, seed)
