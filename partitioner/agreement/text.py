"""Readers of text: the strings that two ways read, compared whole or letter by letter.

The first output holds one row of scores for each step, symbols on its last axis, as networks trained with connectionist
temporal classification give (Graves et al., 2006). It is decoded greedily: the best symbol of each step, repeats joined,
blanks dropped. The blank is symbol 0 unless the metric's name says otherwise (`text:blank=last`, `text:blank=36`): toolkits
differ, and no graph says which it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from partitioner.agreement.metric import Answer, Answers, LabelForm, Metric, first, misfit, paired
from shared.errors import UserError
from shared.request import TensorSpec

LABEL = "text"
PADDING = -1

Symbols = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """Decodes answers and compares what was read. `blank` counts from the end where it is negative. `whole`: a string counts
    only where all of it is the same; else by how little must be edited."""

    name: str
    blank: int
    whole: bool

    def metric(self) -> Metric:
        """This reader as a metric."""
        how = (
            "share of strings that are the same"
            if self.whole
            else "1 minus the edit distance of the strings over the longer one's length, averaged over rows"
        )
        where = "the last symbol" if self.blank == -1 else f"symbol {self.blank}"
        return Metric(
            self.name,
            f"{how}; read greedily from the first output's last axis, repeats joined, {where} blank",
            self.check,
            self.judge,
            lambda answer: float(len(self.read(answer))),
            LabelForm(
                (LABEL,),
                f"the right symbols of a row by their number, without blanks, filled up with {PADDING}",
                self.label_fault,
                self.score,
            ),
        )

    def check(self, outputs: Sequence[TensorSpec]) -> None:
        """Refuse a first output that is no table of steps and symbols, has no such blank, or is a detector's boxes, with
        `UserError`."""
        spec = outputs[0]
        if _gives_boxes(outputs):
            raise misfit(self.name, spec, "a reader's scores of symbols; of boxes it cannot judge (--metric detection)")
        if len(spec.shape) < 2 or spec.shape[-1] < 2 or math.prod(spec.shape[:-1]) < 2:
            raise misfit(self.name, spec, "at least 2 steps, with at least 2 symbols in its last axis")
        if not -spec.shape[-1] <= self.blank < spec.shape[-1]:
            raise misfit(self.name, spec, f"a symbol {self.blank}, the blank, in its last axis")

    def read(self, answer: Answer) -> Symbols:
        """The symbols of one row's first output."""
        scores = np.asarray(first(answer), np.float64)
        table = scores.reshape(-1, scores.shape[-1])
        blank = self.blank % table.shape[1]
        best: list[int] = table.argmax(axis=1).tolist()
        return tuple(symbol for symbol, _ in groupby(best) if symbol != blank)

    def judge(self, reference: Answers, other: Answers) -> float:
        """Agreement of two ways' answers. Raises `UserError` where neither reads anything."""
        pairs = paired(reference, other)
        return self._mean([(self.read(left), self.read(right)) for left, right in pairs])

    def score(self, labels: Answers, answers: Answers) -> float:
        """How well answers meet labels, 0 to 1."""
        pairs = zip(labels, answers, strict=True)
        return self._mean([(_labelled(label), self.read(answer)) for label, answer in pairs])

    def label_fault(self, label: Answer, outputs: Sequence[TensorSpec]) -> str | None:
        """What is wrong with one row's label."""
        array, symbols = label[LABEL], outputs[0].shape[-1]
        if array.dtype.kind != "i":
            return f"{array.dtype}{list(array.shape)}, expected signed whole numbers"
        for symbol in _labelled(label):
            if not 0 <= symbol < symbols or symbol == self.blank % symbols:
                return f"symbol {symbol}, expected 0 to {symbols - 1} without the blank"
        return None

    def _mean(self, pairs: Sequence[tuple[Symbols, Symbols]]) -> float:
        if not any(left or right for left, right in pairs):
            raise UserError(
                f"metric {self.name!r}: neither way read anything; give calibration data with text in them, or name the "
                "blank (text:blank=last)"
            )
        return float(np.mean([self._same(left, right) for left, right in pairs]))

    def _same(self, left: Symbols, right: Symbols) -> float:
        if self.whole or left == right:
            return float(left == right)
        return 1.0 - edit_distance(left, right) / max(len(left), len(right))


def edit_distance(left: Symbols, right: Symbols) -> int:
    """Fewest symbols to insert, drop or change that make one string the other (Levenshtein), by Wagner and Fischer, one row
    of their table at a time: n steps on vectors of m."""
    places = np.arange(len(right) + 1, dtype=np.int64)
    letters = np.asarray(right, np.int64)
    row: npt.NDArray[np.int64] = places
    for number, symbol in enumerate(left, start=1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (letters != symbol))
        below = np.concatenate([np.array([number], np.int64), changed])
        row = np.minimum.accumulate(below - places) + places
    return int(row[-1])


def _gives_boxes(outputs: Sequence[TensorSpec]) -> bool:
    """Whether the outputs are a detector's: named so, or rows of four numbers beside another output with as many rows."""
    if "boxes" in {spec.name for spec in outputs}:
        return True
    spec = outputs[0]
    rows = spec.shape[:-1]
    return spec.shape[-1:] == (4,) and any(other.shape[: len(rows)] == rows for other in outputs[1:])


def _labelled(label: Answer) -> Symbols:
    numbers: list[int] = np.asarray(label[LABEL], np.int64).reshape(-1).tolist()
    return tuple(number for number in numbers if number != PADDING)
