"""A rung that a function of the user's makes, named `module:function`: a pruned, distilled or retrained model.

The function gets the model's own file and rows of the user's data and writes another ONNX file. From there on the rung is as
one that was supplied as a file (`partitioner.ladder.supplied`): it must look like the whole model to a caller, it gets the
same pre- and post-processing, and it is judged on rows that the function has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast

from partitioner.agreement import read_only
from partitioner.extensions import load_function
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe
from partitioner.ladder.supplied import supplied_model
from partitioner.running import Tensors, named
from shared.errors import UserError
from shared.plan_rules import MAX_NAME
from shared.request import Array

Rows = Sequence[Mapping[str, Array]]
"""Inputs of one row each, by name, as the whole model takes them: with `--preprocess image` the uint8 pictures."""


class RungMaker(Protocol):
    """The extension point: any function of this form is a rung, named `module:function` where a rung is asked for.

    It gets the path of the model that the plan is made of, the rows that it may fit to (never those by which it is judged),
    and an empty folder. It writes an ONNX model there, with the inputs and outputs of the model's own file, and returns its
    path. The rows' arrays are read-only: to write into one is its failure. A `UserError` that it raises is shown as it is.
    """

    def __call__(self, model: Path, rows: Rows, folder: Path, /) -> Path:
        """Write a cheaper model into `folder` and return its path."""
        ...


@dataclass(frozen=True, slots=True)
class OwnRung:
    """A function that makes a rung. `text` is how it was asked for."""

    text: str
    make: RungMaker

    @property
    def name(self) -> str:
        """The rung's name in the plan."""
        return f"own-{self.text.rpartition(':')[2]}"[:MAX_NAME]


def own_rung(text: str) -> OwnRung:
    """The rung of `module:function`. Raises `UserError` where there is no such function."""
    return OwnRung(text, cast(RungMaker, load_function(text, "rung")))


def own_model(recipe: Recipe, rung: OwnRung, whole: Model, fit: Sequence[Tensors]) -> Model:
    """What the function makes of the model of `recipe`, in the whole's form.

    Raises `UserError`: it fails, or returns no file. Raises `ModelError`: its model cannot stand in for the whole one.
    """
    rows = read_only([named(whole.inputs, row) for row in fit])
    with TemporaryDirectory(prefix="headtail-rung-") as folder:
        try:
            path = cast(object, rung.make(recipe.path, rows, Path(folder)))
        except UserError:
            raise
        except Exception as error:  # whatever the user's function does
            raise UserError(f"rung {rung.text!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(path, Path) or not path.is_file():
            raise UserError(f"rung {rung.text!r} returned {path!r}: expected the path of an ONNX file that it wrote")
        return supplied_model(recipe, path, whole)
