"""How well a small decoder rebuilds an input from what a cut sends: the check that is made where an input is private.

The decoders (`partitioner.inversions.decoders`) see the tensors as the cloud gets them, after their coding. They are
fitted to some rows and judged by others, and the better one counts. They are linear and have seen few rows. An attacker
with more data and a deep network does better, by far for late cuts (Dosovitskiy and Brox, *Inverting Visual
Representations with Convolutional Networks*, CVPR 2016), and one who has the model can search for an input that gives
what was sent. So a high figure proves that the input can be rebuilt, and a low one proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from partitioner.inversions.decoders import KEPT_BACK, Sight, Wide, fit_by_place, fit_by_row, rebuilt_shape, shrink
from shared.errors import UserError
from shared.request import Array

LEAST_ROWS = 2 * KEPT_BACK
BEST_DB = 99.0
"""What is told of an input that is rebuilt exactly."""
PLAIN = 0.8
"""Share of the variance from which a picture of it is plain to a person."""
OUTLINES = 0.4
"""Share from which its outlines are."""


CAUTION = (
    "The input stays on the device, and what crosses a cut is no secret: early activations can be inverted. A small decoder "
    "was fitted to what the cloud gets. A high figure proves that the input can be rebuilt; a low one proves nothing, since "
    "an attacker with more data and a better decoder does better."
)


class Inversion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the better decoder made of one cut in one coding. `shape` is what it rebuilt of the input: height, width and
    channels, or a number of values. `explained` is the share of the variance about the mean of the fitted rows that it
    explains in other rows: 1 is the input itself, 0 no better than that mean. `psnr_db` is its peak signal over
    noise, `mean_psnr_db` that of the mean."""

    cut: str
    coding: str
    decoder: str
    shape: tuple[int, ...]
    explained: float
    psnr_db: float
    mean_psnr_db: float
    rows_fitted: int
    rows_judged: int


def check_inversion(
    cut: str,
    coding: str,
    inputs: tuple[Sequence[Array], Sequence[Array]],
    seen: tuple[Sequence[Sight], Sequence[Sight]],
) -> Inversion:
    """Fit decoders to the first rows of each pair and judge them by the second, which must be others.

    `inputs` are the private input of one row each, `seen` what decoders see of what crossed for it, as it was decoded.
    Raises `UserError` with fewer than `LEAST_ROWS` rows to fit to or none to judge by.
    """
    if len(inputs[0]) < LEAST_ROWS or not inputs[1]:
        raise UserError(
            f"an inversion check needs {LEAST_ROWS} rows to fit to and one to judge by: there are {len(inputs[0])} and "
            f"{len(inputs[1])}; expected more --calibration"
        )
    shape = rebuilt_shape(inputs[0][0])
    fit, judged = (np.stack([shrink(row, shape) for row in rows]) for rows in inputs)
    base = _square(judged - fit.mean(axis=0))
    errors = {"by row": _square(judged - fit_by_row(fit, seen[0])(seen[1]))}
    maps = [[sight.map for sight in sights if sight.map is not None] for sights in seen]
    if len(shape) == 3 and maps[0]:
        decode = fit_by_place(fit, np.stack(maps[0]), (shape[0], shape[1], shape[2]))
        errors["by place"] = _square(judged - decode(np.stack(maps[1])))
    decoder = min(errors, key=lambda name: errors[name])
    span = _span(inputs[0])
    return Inversion(
        cut=cut,
        coding=coding,
        decoder=decoder,
        shape=shape,
        explained=1.0 - errors[decoder] / base if base > 0.0 else 0.0,
        psnr_db=_psnr(errors[decoder], span),
        mean_psnr_db=_psnr(base, span),
        rows_fitted=len(fit),
        rows_judged=len(judged),
    )


def words(found: Inversion) -> str:
    """What a check found, in a sentence or two for a person."""
    share = max(0.0, found.explained)
    what = f"{found.shape[0]} x {found.shape[1]} points" if len(found.shape) == 3 else f"{found.shape[0]} values"
    if share >= PLAIN:
        verdict = "The input is as good as sent"
    elif share >= OUTLINES:
        verdict = "Much of the input can be seen"
    else:
        verdict = "This decoder rebuilds little, which proves nothing: a better one does better"
    return (
        f"{found.cut} as {found.coding}: a small linear decoder, fitted to {found.rows_fitted} rows, rebuilds "
        f"{math.floor(100 * share)} % of what differs between inputs, at {what}, in {found.rows_judged} rows that it has not "
        f"seen ({found.psnr_db:.1f} dB of signal over noise; always guessing the mean input has {found.mean_psnr_db:.1f} "
        f"dB). {verdict}."
    )


def _span(inputs: Sequence[Array]) -> float:
    """The range of an input's values: 255 for bytes, else what was seen."""
    if inputs[0].dtype == np.uint8:
        return 255.0
    return max(float(np.max(row)) for row in inputs) - min(float(np.min(row)) for row in inputs)


def _square(error: Wide) -> float:
    return float(np.mean(np.square(error)))


def _psnr(square: float, span: float) -> float:
    if square <= 0.0 or span <= 0.0:
        return BEST_DB
    return min(BEST_DB, 10.0 * math.log10(span * span / square))
