"""What a metric is: a name, a sentence, what outputs it fits, and a function of two lists of answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.errors import UserError
from shared.request import Array, TensorSpec

_FUNCTION = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")

Answer = Mapping[str, Array]
"""The outputs of one row by name, in the model's order, each in the shape of one row."""
Answers = Sequence[Answer]
"""One mapping from output names to arrays for each row."""


class Judge(Protocol):
    """The extension point: any function of this form is a metric, named `module:function` where a metric is asked for.

    It gets the whole model's answers to some rows and those of the other way to the same rows, in the same order, never
    none, and returns their agreement: 0 to 1, and 1 for answers that are the same. The arrays are read-only: to write into
    one is its failure, and it takes a copy where it must. A `UserError` that it raises is shown as it is; it is called once
    with the whole model's answers on both sides before anything is judged by it, so that outputs it does not fit are found
    out first.
    """

    def __call__(self, reference: Answers, other: Answers, /) -> float:
        """The agreement of `other` with `reference`, 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class LabelForm:
    """How a metric takes the user's labels in place of the whole model's answers.

    `arrays` are the names under which one row's labels stand, `words` says for a person what is in them. `fault` says what is
    wrong with one row's labels for a model of these outputs (None: nothing). `score` is how well answers meet labels, 0 to 1.
    """

    arrays: tuple[str, ...]
    words: str
    fault: Callable[[Answer, Sequence[TensorSpec]], str | None]
    score: Judge


def _one(_: Answer) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `description` is one sentence for a person: what it counts. `check` refuses outputs that do not suit with a
    `UserError` that names the output. `evidence` says how much one answer of the whole model lets it judge. `labels` is None
    where it cannot be judged by the user's labels."""

    name: str
    description: str
    check: Callable[[Sequence[TensorSpec]], None]
    judge: Judge
    evidence: Callable[[Answer], float] = _one
    labels: LabelForm | None = None


def fits_all(_: Sequence[TensorSpec]) -> None:
    """The check of a metric that any outputs suit."""


def misfit(metric: str, spec: TensorSpec, expected: str) -> UserError:
    """The error of a metric that an output does not suit."""
    return UserError(
        f"metric {metric!r} does not fit output {spec.name!r}, which is {spec.dtype}{list(spec.shape)}: expected {expected}"
    )


def first(answer: Answer) -> Array:
    """The first output of a row."""
    return next(iter(answer.values()))


def read_only(rows: Answers) -> list[dict[str, Array]]:
    """The same rows in mappings of their own, of arrays that cannot be written into: what a function of the user's gets, so
    that what is measured, and later written as golden vectors, stays what the model answered."""
    return [{name: _read_only(array) for name, array in row.items()} for row in rows]


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def paired(reference: Answers, other: Answers) -> list[tuple[Answer, Answer]]:
    """Answers to the same rows. Raises `UserError` where an output is missing on one side or has another shape."""
    pairs = list(zip(reference, other, strict=True))
    for left, right in pairs:
        for name, array in left.items():
            if name not in right:
                raise UserError(f"answers cannot be compared: output {name!r} is missing on one side")
            if array.shape != right[name].shape:
                raise UserError(
                    f"answers cannot be compared: output {name!r} is {list(array.shape)} on one side and "
                    f"{list(right[name].shape)} on the other"
                )
    return pairs


def names_function(text: str) -> bool:
    """Whether a text has the form `module:function`."""
    return _FUNCTION.match(text) is not None
