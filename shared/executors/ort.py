"""Segments as onnxruntime sessions: loading, proving that they run where they should, warming, running.

onnxruntime is imported here when the first plan is loaded, never before. Three of its habits are undone: a provider that
is missing, or whose libraries do not load, is replaced by the CPU without an error (so what the session really runs on is
checked); a provider that fails later is replaced as well (so fallback is off); and threads spin between runs (off, it takes
the core from others).

Each segment has a session of its own, shared by all executors of the process (`InferenceSession.run` may be called from
several threads). What sessions need while they run comes from one arena for all of them, which is as large as the largest
needs, and not the sum: twelve sessions of a small convolutional network at 8 rows took 9 MB in all, with an arena each
84 MB, and a run 0.97 to 1.01 of the time. Weights stay outside, so that a session that goes gives them back.

Rejected: one session for each range (weights and arenas several times over). I/O binding, on the processor: `run` hands on
the runtime's own memory without a copy, and outputs live until they are sent, longer than a run. Bound to memory that never
changes a run was 2 to 5 µs faster; small outputs that were copied out of it kept about half of that, of 150 KB and more none,
and outputs that were leased and bound for each run made it 1.1 to 2.4 times as long. One pool of threads for all sessions: it
cannot be told from Python not to spin, and took 55 ms of 300 while nothing ran; with one thread a run, the default, there is
no pool at all.

Before anything is served, each segment has run at one row and at the most rows that will be asked for, so that the
runtime's arena has its final size, and the golden vectors came out right. A run of each was stopped as well: the runtime
throws then, and the first throw of a process reads 0.9 MB of code and unwinding tables. It took 0.43 ms in place of 0.09
even where the page cache held them, and was seen as a step in the memory of nodes that had served for minutes before.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import numpy as np

from shared.bundle import Bundle, Golden
from shared.codecs import dtype_of
from shared.errors import BundleError, ModelError, SettingsError, UserError
from shared.executors.forked import spare_in_forks
from shared.executors.programs import Interrupt, Step, entry_tensors, exit_tensors, steps
from shared.plan import Plan, SegmentRange
from shared.request import Array, TensorSpec
from shared.settings import Execution
from shared.slots import Side, programs_of, segments_of

TOLERANCE = 1e-3
"""Relative and absolute difference allowed between golden vectors and this device's own floating-point results."""

_NOISE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?(?:/\S+:\d+ .*?\) (?=[A-Z]))?", re.DOTALL
)
"""What comes before the reason in a message of onnxruntime: its class, the file, and the C++ function that threw."""

_SECOND_CHOICE = {"TensorrtExecutionProvider": "CUDAExecutionProvider"}
"""What takes the nodes that a provider cannot; CPU comes last by itself."""


class _Value(Protocol):
    name: str


class _RunOptions(Protocol):
    terminate: bool
    log_severity_level: int


class _Session(Protocol):
    def run(
        self, output_names: list[str], input_feed: Mapping[str, Array], run_options: _RunOptions
    ) -> list[Array]: ...
    def get_providers(self) -> list[str]: ...
    def get_inputs(self) -> list[_Value]: ...
    def get_outputs(self) -> list[_Value]: ...
    def disable_fallback(self) -> None: ...
    def end_profiling(self) -> str: ...


class _SessionOptions(Protocol):
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    enable_profiling: bool
    profile_file_prefix: str

    def add_session_config_entry(self, name: str, value: str) -> None: ...


class _Runtime:
    """The few things of onnxruntime that are used here, with types."""

    def __init__(self) -> None:
        try:
            self._module = importlib.import_module("onnxruntime")
        except ImportError:
            raise UserError(
                "running a plan needs the package onnxruntime, or onnxruntime-gpu (extras edge, cloud, edge-gpu, cloud-gpu)"
            ) from None
        state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        classes = [value for value in vars(state).values() if isinstance(value, type) and issubclass(value, Exception)]
        self.errors: tuple[type[Exception], ...] = (*classes, RuntimeError, ValueError, TypeError)
        self.version: str = self._module.__version__
        _share_arena(self._module, self.errors)

    def providers(self) -> list[str]:
        return cast("list[str]", self._module.get_available_providers())

    def run_options(self) -> _RunOptions:
        options = cast("_RunOptions", self._module.RunOptions())
        options.log_severity_level = 4  # being stopped is not an error worth a line on the console
        return options

    def session(self, path: str, provider: str, threads: int, watched: Path | None = None) -> _Session:
        options = cast("_SessionOptions", self._module.SessionOptions())
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        if watched is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(watched)
        chosen = [provider, _SECOND_CHOICE[provider]] if provider in _SECOND_CHOICE else [provider]
        session = cast("_Session", self._module.InferenceSession(path, options, providers=chosen, enable_fallback=0))
        session.disable_fallback()
        spare_in_forks(session)
        return session


@cache
def _share_arena(module: Any, errors: tuple[type[Exception], ...]) -> None:
    """Make the arena that all sessions of this process share, which cannot be taken back. Where the application that carries
    the agent has made one already, that one is shared. Raises `UserError` where there can be none."""
    place = module.OrtMemoryInfo("Cpu", module.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, module.OrtMemType.DEFAULT)
    try:
        module.create_and_register_allocator(place, None)
    except errors as error:
        if "already" not in str(error):
            raise UserError(f"onnxruntime {module.__version__} makes no arena to share: {reason_of(error)}") from None


class OrtInterrupt:
    """Stops a run through its own `RunOptions`."""

    __slots__ = ("options",)

    def __init__(self, options: _RunOptions) -> None:
        self.options = options

    def stop(self) -> None:
        """Ask the run to end before its next node."""
        self.options.terminate = True


class _Planned(msgspec.Struct, frozen=True):
    """How a range is run: its steps with their sessions, and the names of the exit's tensors. `whole`: it is one step, which
    takes all of the entry and makes the exit as it is."""

    steps: tuple[tuple[Step, _Session], ...]
    exits: list[str]
    whole: bool


class OrtPrograms:
    """The sessions of one plan in this process. Build it with `load_programs`."""

    def __init__(self, bundle: Bundle, runtime: _Runtime, sessions: Mapping[tuple[int, int], _Session]) -> None:
        self._bundle = bundle
        self._runtime = runtime
        self._sessions = sessions
        self._planned: dict[SegmentRange, _Planned] = {}

    @property
    def plan(self) -> Plan:
        """The plan that was loaded."""
        return self._bundle.plan

    def interrupt(self) -> OrtInterrupt:
        """A handle for one run."""
        return OrtInterrupt(self._runtime.run_options())

    def run(self, part: SegmentRange, feeds: Mapping[str, Array], interrupt: Interrupt) -> tuple[Array, ...]:
        """Run the segments of `part`. Raises `ModelError` where the runtime fails or was stopped."""
        planned = self._planned.get(part) or self._plan(part)
        options = interrupt.options if isinstance(interrupt, OrtInterrupt) else self._runtime.run_options()
        known = feeds
        for step, session in planned.steps:
            try:
                if planned.whole:
                    return tuple(session.run(planned.exits, feeds, options))
                made = session.run(list(step.makes), {name: known[name] for name in step.feeds}, options)
            except self._runtime.errors as error:
                segment = self.plan.programs[part.program].segments[step.segment]
                raise ModelError(f"{self.plan.name}, segment {segment.name}: {reason_of(error)}") from None
            known = {**known, **dict(zip(step.makes, made, strict=True))}
        return tuple([known[name] for name in planned.exits])

    def end_watching(self) -> dict[tuple[int, int], Path]:
        """Where the runtime wrote how long each kernel took, by program and segment; only where they were loaded `watched`,
        and once."""
        return {place: Path(session.end_profiling()) for place, session in self._sessions.items()}

    def _plan(self, part: SegmentRange) -> _Planned:
        todo: list[tuple[Step, _Session]] = []
        for step in steps(self.plan, part):
            session = self._sessions.get((part.program, step.segment))
            if session is None:
                raise ModelError(f"{self.plan.name}: program {part.program} is not loaded on this side")
            todo.append((step, session))
        entry = {spec.name for spec in entry_tensors(self.plan, part)}
        exits = [spec.name for spec in exit_tensors(self.plan, part)]
        whole = len(todo) == 1 and set(todo[0][0].makes) == set(exits) and set(todo[0][0].feeds) == entry
        planned = self._planned[part] = _Planned(tuple(todo), exits, whole)
        return planned


def reason_of(error: Exception) -> str:
    """The reason inside an exception of onnxruntime, in one line."""
    return _NOISE.sub("", str(error), count=1).strip().partition("\n")[0][:400]


def load_programs(
    bundle: Bundle, execution: Execution, side: Side, max_rows: int, *, watched: Path | None = None
) -> OrtPrograms:
    """Load the segments that this side runs, warm them at one and at `max_rows` rows, and check the golden vectors where
    the whole model is among them. With `watched`, a folder, the runtime times its kernels in each run (`end_watching`).

    Raises `SettingsError` for a provider that is not there, `BundleError` naming bundle and file for a segment that this
    runtime cannot load or run, and for golden vectors that come out otherwise.
    """
    runtime = _Runtime()
    provider = execution.provider
    available = runtime.providers()
    if provider not in available:
        raise SettingsError(
            f"execution.provider: {provider!r} is not in this onnxruntime {runtime.version}, which has "
            f"{', '.join(available)} (onnxruntime-gpu has CUDA and TensorRT)"
        )
    sessions = {
        (program, index): _open(bundle, runtime, execution, program, index, watched)
        for program in programs_of(bundle.plan, side)
        for index in range(segments_of(bundle.plan, side, program))
    }
    programs = OrtPrograms(bundle, runtime, sessions)
    vectors = bundle.golden()
    _warm(bundle, programs, side, max_rows, vectors[0])
    if 0 in programs_of(bundle.plan, side) and segments_of(bundle.plan, side, 0) == len(bundle.plan.cuts) - 1:
        _check_golden(bundle, programs, vectors)
    return programs


def _open(
    bundle: Bundle, runtime: _Runtime, execution: Execution, program: int, index: int, watched: Path | None
) -> _Session:
    segment = bundle.plan.programs[program].segments[index]
    where = f"{bundle.path}: {segment.file}"
    try:
        times = None if watched is None else watched / f"{program}-{index}"
        session = runtime.session(str(bundle.files[segment.file]), execution.provider, execution.threads, times)
    except runtime.errors as error:
        raise BundleError(
            f"{where}: onnxruntime {runtime.version} cannot load it (opset {bundle.plan.opset}, IR version "
            f"{bundle.plan.ir_version}): {reason_of(error)}"
        ) from None
    runs_on = session.get_providers()[0]
    if runs_on != execution.provider:
        raise SettingsError(
            f"execution.provider: {execution.provider!r} was asked for, but {where} would run on {runs_on!r}; are the "
            f"provider's own libraries installed?"
        )
    takes, gives = ({value.name for value in ends} for ends in (session.get_inputs(), session.get_outputs()))
    if takes != set(segment.inputs) or not gives >= set(segment.outputs):
        raise BundleError(
            f"{where}: takes {sorted(takes)} and gives {sorted(gives)}, the plan says "
            f"{sorted(segment.inputs)} and {sorted(segment.outputs)}"
        )
    return session


def _warm(bundle: Bundle, programs: OrtPrograms, side: Side, max_rows: int, vector: Golden) -> None:
    """Run everything once at each end of the batch sizes, on a golden input, check what comes out, and stop it once."""
    plan = bundle.plan
    for program in programs_of(plan, side):
        last = segments_of(plan, side, program)
        parts = [SegmentRange(0, i, i + 1) for i in range(last)] if program == 0 else [SegmentRange(program, 0, last)]
        for rows in sorted({1, max_rows}):
            tensors: tuple[Array, ...] = tuple(
                np.concatenate([array] * rows) if rows > 1 else array for array in vector.inputs
            )
            for part in parts:
                names = (spec.name for spec in plan.cuts[part.first].tensors)
                feeds = dict(zip(names, tensors, strict=True))
                try:
                    tensors = programs.run(part, feeds, programs.interrupt())
                except ModelError as reason:
                    raise BundleError(f"{bundle.path}: does not run at {rows} rows: {reason}") from None
                stopped = programs.interrupt()
                stopped.stop()
                with suppress(ModelError):
                    programs.run(part, feeds, stopped)
                for spec, array in zip(exit_tensors(plan, part), tensors, strict=True):
                    _check_made(bundle, part, spec, rows, array)


def _check_made(bundle: Bundle, part: SegmentRange, spec: TensorSpec, rows: int, array: Array) -> None:
    name = bundle.plan.programs[part.program].name
    if not isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BundleError(f"{bundle.path}: program {name!r}: {spec.name!r} is not a tensor")
    if array.shape != spec.at(rows) or array.dtype != dtype_of(spec.dtype):
        raise BundleError(
            f"{bundle.path}: program {name!r}: {spec.name!r} comes out as {array.dtype}{array.shape} at {rows} rows, "
            f"the plan says {spec.dtype}{spec.at(rows)}"
        )


def _check_golden(bundle: Bundle, programs: OrtPrograms, vectors: tuple[Golden, ...]) -> None:
    """The whole model must answer the golden inputs as when the plan was made."""
    plan = bundle.plan
    whole = SegmentRange(0, 0, len(plan.cuts) - 1)
    for number, vector in enumerate(vectors):
        feeds = {spec.name: array for spec, array in zip(plan.inputs, vector.inputs, strict=True)}
        made = programs.run(whole, feeds, programs.interrupt())
        for spec, expected, array in zip(plan.outputs, vector.outputs, made, strict=True):
            if not _same(expected, array):
                raise BundleError(
                    f"{bundle.path}: golden vectors differ: program {plan.programs[0].name!r}, vector {number}, output "
                    f"{spec.name!r}, by up to {_difference(expected, array):.3g}"
                )


def _same(expected: Array, made: Array) -> bool:
    if expected.dtype.kind in {"f", "V"}:
        wide = np.float64
        return np.allclose(made.astype(wide), expected.astype(wide), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return np.array_equal(expected, made)


def _difference(expected: Array, made: Array) -> float:
    return float(np.nanmax(np.abs(expected.astype(np.float64) - made.astype(np.float64)), initial=0.0))
