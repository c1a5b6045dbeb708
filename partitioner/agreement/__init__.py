"""How much two ways of running a model agree: one number from 0 to 1 that is measured, never assumed.

Agreement is between answers, not tensors: an int8 boundary can move a logit by a tenth and change no decision, or move
it by a thousandth and flip one. So the metric belongs to the task, and is named in the plan. Mean squared error was
rejected: it has no scale that a user could set a least value on.

A metric gets the answers of the whole model (`reference`) and those of the other way, row by row, as mappings from the
outputs' names to arrays of one row. Where the user has labels and the metric takes them (`Metric.labels`), agreement is the
share of the whole model's score against the labels that the other way keeps, at most 1: so the whole model is 1 as ever.

Whoever has a task that is not among these gives a function of the form `Judge`, as `module:function`
(`partitioner.extensions.open_metric`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence

from partitioner.agreement.classes import classification
from partitioner.agreement.closeness import exact, relative
from partitioner.agreement.detection import IOUS, detection
from partitioner.agreement.embeddings import embeddings
from partitioner.agreement.metric import Answer, Answers, Judge, LabelForm, Metric, fits_all, names_function, read_only
from partitioner.agreement.segmentation import Areas
from partitioner.agreement.text import Reader
from shared.errors import UserError
from shared.request import TensorSpec

__all__ = [
    "METRICS",
    "Answer",
    "Answers",
    "Judge",
    "LabelForm",
    "Metric",
    "agreement",
    "check_labels",
    "check_metric",
    "custom_metric",
    "default_metric",
    "describe",
    "evidence",
    "named_metric",
    "names_function",
    "read_only",
    "try_metric",
]

METRICS = (
    "detection",
    "detection50",
    "embeddings",
    "exact",
    "relative",
    "segmentation",
    "text",
    "text-edits",
    "top1",
    "top5",
)
"""The metrics that have a name."""


def named_metric(text: str) -> Metric:
    """The metric of this name, with its options where it has any (`text:blank=last`, `segmentation:threshold=0`).

    Raises `UserError` for an unknown name or option.
    """
    kind, _, rest = text.partition(":")
    if kind not in METRICS:
        near = difflib.get_close_matches(kind, METRICS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"metric {text!r} is unknown: expected one of {', '.join(METRICS)}, or module:function of your own{hint}"
        )
    key, equals, value = rest.partition("=")
    if rest and (not equals or _OPTIONS.get(kind) != key):
        takes = f"the option {_OPTIONS[kind]}=..." if kind in _OPTIONS else "no option"
        raise UserError(f"metric {text!r}: {kind!r} takes {takes}, not {rest!r}")
    return _MAKERS[kind](text, value)


def custom_metric(name: str, judge: Judge) -> Metric:
    """A function of the user's as a metric. It gets arrays that it cannot write into; what it raises and what it returns
    is checked on every call."""

    def guarded(reference: Answers, other: Answers) -> float:
        try:
            value = float(judge(read_only(reference), read_only(other)))
        except UserError:
            raise
        except Exception as error:  # whatever the user's function does
            raise UserError(f"metric {name!r} failed: {type(error).__name__}: {error}") from error
        if not 0.0 <= value <= 1.0:
            raise UserError(f"metric {name!r} returned {value:g}: expected 0 to 1")
        return value

    return Metric(name, _OWN.format(name), fits_all, guarded)


def agreement(metric: str | Metric, reference: Answers, other: Answers, labels: Answers = ()) -> float:
    """Agreement of `other` with `reference` by a metric, 0 to 1. With `labels`, one mapping for each row, it is the share of
    the reference's score against them that `other` keeps, at most 1.

    Raises `UserError` for an unknown metric, for answers that the metric cannot judge, and where there is nothing to
    judge by (no rows, no detection in either, labels that the whole model never meets).
    """
    judge = _metric(metric)
    if not reference or len(reference) != len(other):
        raise UserError(
            f"metric {judge.name!r}: expected as many answers on both sides, got {len(reference)} and {len(other)}"
        )
    if not labels:
        return judge.judge(reference, other)
    form = _label_form(judge)
    if len(labels) != len(reference):
        raise UserError(f"labels: expected one for each of {len(reference)} rows, got {len(labels)}")
    whole = form.score(labels, reference)
    if whole <= 0.0:
        raise UserError(f"labels: by metric {judge.name!r} the whole model meets none of them; are they of this model?")
    return min(1.0, form.score(labels, other) / whole)


def try_metric(metric: str | Metric, reference: Answers, labels: Answers = ()) -> None:
    """Judge the whole model's answers by themselves: `UserError` where the metric cannot, or does not find them the same."""
    value = agreement(metric, reference, reference, labels)
    if not math.isclose(value, 1.0, abs_tol=1e-9):
        name = _metric(metric).name
        raise UserError(f"metric {name!r} gives {value:g} for answers that are the same: expected 1")


def check_metric(metric: str | Metric, outputs: Sequence[TensorSpec]) -> None:
    """Refuse an unknown metric, or one that these outputs do not suit, with `UserError`."""
    _metric(metric).check(outputs)


def check_labels(metric: str | Metric, labels: Answers, outputs: Sequence[TensorSpec], where: str) -> None:
    """Refuse labels that the metric cannot take, or that do not fit the outputs, with `UserError`: `where` says whose they
    are, and the row is named."""
    form = _label_form(_metric(metric))
    for number, label in enumerate(labels):
        for name in form.arrays:
            if name not in label:
                raise UserError(f"{where}: no array {name!r}, only {', '.join(sorted(label)) or 'nothing'}")
        fault = form.fault(label, outputs)
        if fault is not None:
            raise UserError(f"{where}: {form.arrays[0]!r} of row {number} is {fault} ({form.words})")


def default_metric(outputs: Sequence[str]) -> str:
    """`detection` for a model that gives boxes and scores, `top1` for one that gives scores and classes, otherwise
    `relative`."""
    if {"boxes", "scores"} <= set(outputs):
        return "detection"
    return "top1" if {"scores", "classes"} == set(outputs) else "relative"


def evidence(metric: str | Metric, answer: Answer) -> float:
    """How much this answer of the whole model lets the metric judge: detections, symbols read, else 1."""
    return _metric(metric).evidence(answer)


def describe(metric: str | Metric) -> str:
    """One sentence for a person: what the metric counts. A function of the user's is known by its name alone."""
    if isinstance(metric, str) and metric.partition(":")[0] not in METRICS and names_function(metric):
        return _OWN.format(metric)
    return _metric(metric).description


def _metric(metric: str | Metric) -> Metric:
    return metric if isinstance(metric, Metric) else named_metric(metric)


def _label_form(metric: Metric) -> LabelForm:
    if metric.labels is None:
        can = ", ".join(name for name in METRICS if named_metric(name).labels)
        raise UserError(f"metric {metric.name!r} cannot be judged by labels: expected one of {can}")
    return metric.labels


def _blank(text: str, value: str) -> int:
    if value in {"", "last"}:
        return -1 if value else 0
    if not value.isdecimal():
        raise UserError(f"metric {text!r}: blank must be last or the number of a symbol, not {value!r}")
    return int(value)


def _threshold(text: str, value: str) -> float:
    try:
        number = float(value or 0.5)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"metric {text!r}: threshold must be a number, not {value!r}")
    return number


_OWN = "as the user's own function {} counts"

_OPTIONS: Mapping[str, str] = {"text": "blank", "text-edits": "blank", "segmentation": "threshold"}

_MAKERS: Mapping[str, Callable[[str, str], Metric]] = {
    "detection": lambda name, _value: detection(name, IOUS),
    "detection50": lambda name, _value: detection(name, IOUS[:1]),
    "embeddings": lambda _name, _value: embeddings(),
    "exact": lambda _name, _value: exact(),
    "relative": lambda _name, _value: relative(),
    "segmentation": lambda name, value: Areas(name, _threshold(name, value)).metric(),
    "text": lambda name, value: Reader(name, _blank(name, value), whole=True).metric(),
    "text-edits": lambda name, value: Reader(name, _blank(name, value), whole=False).metric(),
    "top1": lambda name, _value: classification(name, 1),
    "top5": lambda name, _value: classification(name, 5),
}
