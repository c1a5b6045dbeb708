"""Logistic regression of several classes, and the gate behind which its answers count.

The fit is the usual one (softmax, squared norm of the weights as penalty) by L-BFGS on features that were brought to mean 0
and deviation 1; means and deviations are folded into the weights that come out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

PENALTY = 0.01
MOST_STEPS = 200

Floats = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Logistic:
    """`features @ weights + bias` are the logits. Shapes (features, classes) and (classes)."""

    weights: Floats
    bias: Floats

    def probabilities(self, features: Floats) -> Floats:
        """Probability of each class (rows, classes)."""
        return _softmax(features @ self.weights + self.bias)


def fit_logistic(features: Floats, classes: Classes, count: int) -> Logistic:
    """Fit to rows of features (rows, features) and their classes (rows), out of `count` classes. Deterministic."""
    means, deviations = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviations > 1e-6, deviations, 1.0)
    table = np.concatenate([(features - means) / scale, np.ones((len(features), 1))], axis=1)
    wanted = np.eye(count)[classes]
    shape = (table.shape[1], count)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        found = _softmax(table @ weights)
        penalised = np.concatenate([weights[:-1], np.zeros((1, count))])
        entropy = -float(np.log(np.maximum((found * wanted).sum(axis=1), 1e-300)).mean())
        slope = table.T @ (found - wanted) / len(table) + PENALTY * penalised
        return entropy + 0.5 * PENALTY * float((penalised**2).sum()), slope.reshape(-1)

    best, _, _ = cast(
        "tuple[Floats, float, object]",
        optimize.fmin_l_bfgs_b(  # pyright: ignore[reportUnknownMemberType]
            loss, np.zeros(shape[0] * count), maxiter=MOST_STEPS
        ),
    )
    found = best.reshape(shape)
    weights = found[:-1] / scale[:, np.newaxis]
    return Logistic(weights, np.asarray(found[-1] - means @ weights, np.float64))


def choose_gate(sureness: Floats, right: npt.NDArray[np.bool_]) -> float | None:
    """The least sureness from which on every answer was right; None where even the surest was wrong."""
    order = np.argsort(-sureness, kind="stable")
    wrong = np.flatnonzero(~right[order])
    if len(wrong) == 0:
        return float(sureness.min())
    worst = float(sureness[order[wrong[0]]])
    above = sureness[sureness > worst]
    return float(above.min()) if len(above) else None


def _softmax(logits: Floats) -> Floats:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float64)
