"""The door to onnxruntime: sessions with the settings that the partitioner wants, its exceptions translated.

A runtime that lacks the provider it was asked for falls back to the processor without an error. So every session is
asked what it really runs on.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import onnxruntime

from partitioner.graph.external import save_with_weights
from partitioner.graph.model import Model
from shared.errors import ModelError
from shared.request import Array

CPU = "CPUExecutionProvider"

LARGE_BYTES = 1_500_000_000
"""Weights above this are handed to the runtime as a file: a message of 2 GB cannot be serialised."""

Optimisation = Literal["none", "basic", "extended", "all"]

_ort = cast(Any, onnxruntime)  # it has no types; what is used of it is typed below

RUNTIME_ERRORS: tuple[type[Exception], ...] = tuple(
    cast(type[Exception], getattr(_ort.capi.onnxruntime_pybind11_state, name))
    for name in (
        "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded",
        "NoModel", "NoSuchFile", "NotFound", "NotImplemented", "RuntimeException",
    )
)  # fmt: skip
"""Everything the runtime raises."""


class Session(Protocol):
    """What is used of `onnxruntime.InferenceSession`."""

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Array]) -> list[Array]:
        """Run once; outputs in the order asked for (None: all of the graph)."""
        ...

    def get_providers(self) -> list[str]:
        """What it really runs on, first choice first."""
        ...


class _Options(Protocol):
    graph_optimization_level: object
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    optimized_model_filepath: str
    enable_profiling: bool
    profile_file_prefix: str

    def add_session_config_entry(self, key: str, value: str) -> None: ...


def providers() -> list[str]:
    """The installed providers that run models here (the one that forwards to a web service does not count)."""
    names = cast("list[str]", _ort.get_available_providers())
    return [name for name in names if name != "AzureExecutionProvider"]


def open_session(
    model: Model | Path,
    *,
    threads: int = 1,
    provider: str = CPU,
    optimisation: Optimisation = "all",
    save_to: Path | None = None,
    fold_constants: bool = True,
    profile_to: Path | None = None,
) -> Session:
    """A session without spinning threads.

    `save_to` writes the graph as optimised; without `fold_constants` operators that depend on weights alone are left.
    `profile_to` begins the name of the file to which the runtime writes how long each of its kernels took.

    Raises:
        ModelError: the runtime refuses the model, or does not run it on the provider asked for.
    """
    name = model.name
    if provider not in providers():
        raise ModelError(f"{name}: {provider} is not installed; there is {', '.join(providers())}")
    kept = [] if fold_constants else ["ConstantFolding"]
    options = _options(threads, optimisation, save_to)
    if profile_to is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_to)
    try:
        if isinstance(model, Path):
            session = _create(str(model), options, provider, kept)
        elif model.weight_bytes > LARGE_BYTES:
            with tempfile.TemporaryDirectory() as folder:
                session = _create(str(save_with_weights(model.proto, Path(folder))), options, provider, kept)
        else:
            session = _create(model.proto.SerializeToString(), options, provider, kept)
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{name}: {reason(error)}") from error
    if session.get_providers()[0] != provider:
        raise ModelError(f"{name}: asked for {provider}, but the runtime would use {session.get_providers()[0]}")
    return session


def _options(threads: int, optimisation: Optimisation, save_to: Path | None) -> _Options:
    levels = _ort.GraphOptimizationLevel
    options = cast(_Options, _ort.SessionOptions())
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[optimisation]
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if save_to is not None:
        options.optimized_model_filepath = str(save_to)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{save_to.name}.weights"
        )
    return options


def _create(source: str | bytes, options: _Options, provider: str, without: list[str]) -> Session:
    return cast(Session, _ort.InferenceSession(source, options, providers=[provider], disabled_optimizers=without))


def reason(error: Exception) -> str:
    """What a person needs of a runtime's message: the operator nobody has, or its last sentence in one line."""
    text = str(error)
    if found := re.search(r"([\w.]+:)?(\w+)\((-?\d+)\) is not a registered function/op", text):
        operator = f"{found.group(1) or ''}{found.group(2)}".removeprefix("ai.onnx:")
        return f"operator {operator} is unknown to every installed provider ({', '.join(providers())})"
    if found := re.search(r"No Op registered for (\w+) with domain_version", text):
        return f"operator {found.group(1)} is unknown to every installed provider ({', '.join(providers())})"
    if found := re.search(r"Could not find an implementation for (\w+)\((\d+)\)", text):
        return (
            f"no installed provider ({', '.join(providers())}) implements operator {found.group(1)} "
            f"(version {found.group(2)}) for the types used here"
        )
    if found := re.search(r"Op \((If|Loop|Scan)\) \[TypeInferenceError\].*Op \((\w+)\) \[\w+\] (.+)", text, re.DOTALL):
        why = " ".join(found.group(3).split())
        return f"a body of operator {found.group(1)} cannot take these shapes (operator {found.group(2)} in it: {why[:200]})"
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"/\S+\.(?:cc|h):\d+ .*?(?=[A-Z][a-z]+ )", "", text)
    return f"the runtime refuses it: {' '.join(text.split())[:400]}"
