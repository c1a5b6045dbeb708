"""A classifier's early exit as a rung: half of the model where that is sure, all of it where it is not.

The head is fitted to what the whole model answers to the first half of the fit rows, and its gate is the least sureness from
which on it was right on the second half: sureness on what it was fitted to says nothing. Agreement is measured on held-out
rows, as every rung's.

What it costs: where the head is sure, the time up to it; else the whole model's time and the head's on top. So its median
may be half of the whole's, and its worst case is always worse than the whole's. It never makes a promise cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partitioner.graph.early_exit import Exit, classifier_of, exit_place, finished, tapped, with_exit
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe
from partitioner.ladder.logistic import Logistic, choose_gate, fit_logistic
from partitioner.running import Tensors, load_part
from shared.errors import ModelError
from shared.request import Array

SHARE = 0.5
"""Share of the compute behind which the exit stands."""
FEWEST_ROWS = 16
LEAST_SURE = 0.2
"""Share of rows below which an exit is not worth its memory."""


def exit_rung(recipe: Recipe, whole: Model, rows: Sequence[Tensors]) -> Model:
    """`whole`, which is `build(recipe)`, with an early exit fitted to these rows (inputs of one row each).

    Raises `ModelError`: no classifier, no place for an exit, too few rows, or a head that is sure and right too seldom.
    """
    model = classifier_of(recipe)
    if len(rows) < FEWEST_ROWS:
        raise ModelError(
            f"{model.name}: an early exit needs at least {FEWEST_ROWS} rows to be fitted to, got {len(rows)}"
        )
    place = exit_place(model, SHARE)
    run = load_part(tapped(model, place), 1)
    seen = [run(row) for row in rows]
    features = np.concatenate([pooled(inner) for inner, _ in seen])
    answers = np.concatenate([np.asarray(answer, np.float64) for _, answer in seen])
    classes = answers.argmax(axis=1)
    middle = len(rows) // 2
    head = fit_logistic(features[:middle], classes[:middle], answers.shape[1])
    gate = _gate(model.name, head, features[middle:], classes[middle:])
    likely = bool((answers >= 0.0).all()) and bool((np.abs(answers.sum(axis=1) - 1.0) < 1e-3).all())
    fitted = Exit(head.weights.astype(np.float32), head.bias.astype(np.float32), gate, likely)
    made = finished(recipe, with_exit(model, place.tensors[0], fitted))
    if (made.inputs, made.outputs, made.batchable) != (whole.inputs, whole.outputs, whole.batchable):
        raise ModelError(f"{model.name}: with an early exit it would not look like the whole model")
    return made


def pooled(inner: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Means, then maxima, of the channels of a map (rows, channels, ...): (rows, 2 * channels)."""
    flat = np.asarray(inner, np.float64).reshape(inner.shape[0], inner.shape[1], -1)
    return np.concatenate([flat.mean(axis=2), flat.max(axis=2)], axis=1)


def _gate(
    name: str,
    head: Logistic,
    features: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    classes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> float:
    found = head.probabilities(features)
    sureness = np.asarray(found.max(axis=1), np.float64)
    gate = choose_gate(sureness, np.equal(found.argmax(axis=1), classes))
    share = 0.0 if gate is None else float(np.mean(sureness >= gate))
    if gate is None or share < LEAST_SURE:
        raise ModelError(
            f"{name}: an early exit would be sure and right in {share:.0%} of the rows, at least {LEAST_SURE:.0%} are "
            "expected; more calibration data may help"
        )
    return gate
