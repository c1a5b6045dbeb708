"""What a user plugs in by name: a function as `module:function`, which must be importable as from `python`.

Three things take one: `--metric` (a function of the form `partitioner.agreement.Judge`), `--rung` (one of the form
`partitioner.ladder.RungMaker`) and `--calibration` (a function without arguments that yields rows,
`partitioner.calibrating.rows`). A codec is none of these, since both sides must have it: see `shared.codecs.installed`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from partitioner.agreement import METRICS, Judge, Metric, custom_metric, named_metric, names_function
from shared.errors import UserError

__all__ = ["load_function", "names_function", "open_metric"]


def open_metric(text: str) -> Metric:
    """The metric of this name, or the user's function `module:function` as one. Raises `UserError`."""
    if text.partition(":")[0] in METRICS or not names_function(text):
        return named_metric(text)
    return custom_metric(text, cast(Judge, load_function(text, "metric")))


def load_function(text: str, what: str) -> Callable[..., object]:
    """The function that `module:function` names. `what` says for messages what it is wanted for.

    Raises `UserError`: not of that form, no such module, a module that fails, no such function in it.
    """
    if not names_function(text):
        raise UserError(f"{what} {text!r}: expected module:function")
    module_name, _, name = text.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{what} {text!r}: there is no module {error.name!r}; expected one that is installed or on PYTHONPATH"
        ) from error
    except Exception as error:  # whatever the user's module does
        raise UserError(f"{what} {text!r}: the module fails with {type(error).__name__}: {error}") from error
    function: object = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{what} {text!r}: module {module_name!r} has no function {name!r}")
    return function
