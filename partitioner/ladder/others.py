"""Rungs that are asked for by name: `int8`, `exit`, `model:PATH` for a smaller model of the user's, and `module:function` for
one that a function of the user's makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from partitioner.extensions import names_function
from partitioner.graph.model import Model
from partitioner.graph.quantise import build_quantised, refuse_dynamic
from partitioner.graph.recipe import Recipe
from partitioner.ladder.exits import exit_rung
from partitioner.ladder.own import OwnRung, own_model, own_rung
from partitioner.ladder.rung import Rungs, make_each
from partitioner.ladder.supplied import supplied_model
from partitioner.running import Tensors, named
from shared.errors import UserError
from shared.plan_rules import MAX_NAME

INT8 = "int8"
DYNAMIC = "int8-dynamic"
EXIT = "exit"
MODEL = "model:"

Wanted = str | Path | OwnRung
"""`int8`, `int8-dynamic`, `exit`, the path of a smaller model, or a function that makes one."""


def parse_rung(text: str) -> Wanted:
    """What `--rung` takes. `int8-dynamic` is understood, to be refused with its reason once the model is known.

    Raises `UserError` for anything else.
    """
    if text in {INT8, DYNAMIC, EXIT}:
        return text
    if text.startswith(MODEL) and text != MODEL:
        path = Path(text.removeprefix(MODEL))
        if not path.is_file():
            raise UserError(f"rung {text!r}: there is no such file; an ONNX model was expected")
        return path
    if names_function(text):
        return own_rung(text)
    raise UserError(f"rung {text!r}: expected {INT8}, {EXIT}, {MODEL}PATH or module:function of your own")


def plan_rungs(texts: Sequence[str]) -> list[Wanted]:
    """What `headtail plan --rung` takes, once for each. Raises `UserError`, also for what a plan cannot hold yet."""
    wanted = [parse_rung(text) for text in texts]
    if EXIT in wanted:
        raise UserError(
            f"rung {EXIT!r}: not yet: in the worst case it takes longer than the whole model, and an edge that has seen only "
            "its quick answers would promise more than it can keep"
        )
    return wanted


def other_rungs(
    wanted: Sequence[Wanted], recipe: Recipe, whole: Model, fit: Sequence[Tensors], *, must: bool, threads: int
) -> Rungs:
    """The rungs that are wanted, loaded, and notes on those that cannot be made. `fit` are the rows that int8 and the exit
    are fitted to, which must be real data: ranges of noise say nothing.

    Where they `must` be made (the user named them), the first that cannot is a `ModelError`; a smaller model always must.
    Raises `UserError` for dynamic int8, for a function that fails, and where there is nothing to be fitted to.
    """
    if DYNAMIC in wanted:
        refuse_dynamic(whole)
    makers: dict[str, Callable[[], Model]] = {
        INT8: lambda: build_quantised(recipe, whole, [named(whole.inputs, row) for row in fit]),
        EXIT: lambda: exit_rung(recipe, whole, fit),
    }
    asked = {name: makers[name] for name in makers if name in wanted}
    own = {rung.name: rung for rung in wanted if isinstance(rung, OwnRung)}
    if (asked or own) and not fit:
        raise UserError(f"rung {next(iter([*asked, *own]))} needs --calibration, to be fitted to and judged by")
    paths = {_name(path): path for path in wanted if isinstance(path, Path)}
    if len(paths) < sum(isinstance(path, Path) for path in wanted):
        raise UserError("two rungs are models of one file name: rename one of them")
    if len(own) < sum(isinstance(rung, OwnRung) for rung in wanted):
        raise UserError("two rungs are functions of one name: rename one of them")
    fitted, notes = make_each(asked, lambda make: make(), must=must, threads=threads)
    supplied, _ = make_each(paths, lambda path: supplied_model(recipe, path, whole), must=True, threads=threads)
    made, _ = make_each(own, lambda rung: own_model(recipe, rung, whole, fit), must=True, threads=threads)
    return fitted + supplied + made, notes


def _name(path: Path) -> str:
    """A rung's name for a file: it becomes part of file names."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in path.stem)
    return f"model-{plain}"[:MAX_NAME]
