"""Fits the codings of kind `pca` to samples of a cut's tensors.

The step follows from the loss that is allowed, a ratio of signal to noise: a step d in components that stand square on each
other adds a noise of d^2 / 12 to each of them. Components whose own variance is less than that are left out: to send them
would add as much noise as to leave them out (reverse water-filling; Cover and Thomas, *Elements of Information
Theory*, 2006, section 10.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.codecs.calibration import LEAST_SCALE, by_channel, some_of
from shared.codecs.elements import dtype_of
from shared.errors import UserError
from shared.plan import Coding
from shared.request import Array, TensorSpec

LEVELS_DB = (25, 20, 15)
"""Ratios of signal to noise, in decibels, in which a cut is offered: those of steps of 6 to 4 bits, at fewer bytes
(`shared.codecs.pca` has a table)."""
MOST_CHANNELS = 512
"""Channels of a tensor for which a basis is offered: one of 512 takes a megabyte of the plan."""
LEAST_CHANNELS = 2
LEAST_AXES = 3
"""A tensor without positions has one vector a row, from which no basis can be fitted."""
MOST_POSITIONS = 1 << 16
"""Positions, of all samples together, that a basis is fitted to."""

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What a tensor's channels are turned by: the `mean` (C), the `components` in its rows (C, C), by falling `variances`
    (C)."""

    mean: Wide
    components: Wide
    variances: Wide

    @property
    def channels(self) -> int:
        """How many there are."""
        return self.mean.size


def offered(kind: str, tensors: tuple[TensorSpec, ...], samples: Sequence[Sequence[Array]]) -> tuple[Coding, ...]:
    """The codings of a cut, one a level, finest first, called `pca25` and so on; none where one of its tensors is not of
    floats, of fewer than three axes or of too many channels. `samples` holds what each tensor was in some rows, one row
    each. Raises `UserError` where there is no sample."""
    if not tensors or not all(_suits(spec) for spec in tensors):
        return ()
    spectra = [find_spectrum(rows) for rows in samples]
    codings: list[Coding] = []
    for level_db in LEVELS_DB:
        fitted = [fit_basis(spectrum, level_db) for spectrum in spectra]
        steps, bases = tuple((step,) for step, _ in fitted), tuple(basis for _, basis in fitted)
        codings.append(Coding(f"pca{level_db}", kind, scales=steps, basis=bases))
    return tuple(codings)


def find_spectrum(samples: Sequence[Array]) -> Spectrum:
    """The principal components of one tensor from samples of it, each of shape (rows, channels, ...). What is not finite
    counts as 0. Raises `UserError` where there is no sample, or their channels differ."""
    if not samples:
        raise UserError("a pca basis needs at least one sample")
    most = max(1, MOST_POSITIONS // len(samples))
    parts = [some_of(by_channel(sample), most) for sample in samples]
    for part in parts:
        if part.shape[0] != parts[0].shape[0]:
            raise UserError(f"samples of one tensor have {parts[0].shape[0]} and {part.shape[0]} channels")
    values: Wide = np.concatenate(parts, axis=1)
    count = max(1, values.shape[1])
    mean: Wide = values.sum(axis=1) / count
    values = values - mean[:, None]
    covariance: Wide = values @ values.T / count
    variances, vectors = np.linalg.eigh(covariance)
    order = np.argsort(-variances, kind="stable")
    return Spectrum(mean, vectors.T[order], np.maximum(variances[order], 0.0))


def fit_basis(spectrum: Spectrum, level_db: float) -> tuple[float, bytes]:
    """The step and the basis (the mean, then the components that are sent, little-endian float32) for a noise that lies
    `level_db` decibels below the signal's variance, were all components sent. One component is sent at least."""
    noise = float(spectrum.variances.sum()) / spectrum.channels * 10.0 ** (-level_db / 10.0)
    step = max(float(np.sqrt(12.0 * noise)), LEAST_SCALE) if noise > 0.0 else 1.0
    sent = max(1, int(np.count_nonzero(spectrum.variances > noise)))
    vectors: Wide = np.concatenate([spectrum.mean[None], spectrum.components[:sent]])
    return step, vectors.astype("<f4").tobytes()


def _suits(spec: TensorSpec) -> bool:
    floating = dtype_of(spec.dtype).kind in {"f", "V"}
    return floating and len(spec.shape) >= LEAST_AXES and LEAST_CHANNELS <= spec.shape[1] <= MOST_CHANNELS
