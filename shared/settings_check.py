"""From a plain tree (what a TOML file holds) to a tree of settings, or one clear error. Pure: no file is touched here.

The groups in `shared.settings` declare types and ranges; the rules that span keys are here. A mistake is told by the key's
dotted path, the value and what was expected. Every key that the full set of settings names, but whose part is not built, is
listed in `NOT_YET_KEYS`, and leaves the list when it works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar, cast

import msgspec
from msgspec import inspect

from shared.directory import Directory
from shared.endpoints import endpoint_fault, source_fault
from shared.errors import SettingsError, shown
from shared.settings import CloudSettings, EdgeSettings, NodeAddress

Settings = TypeVar("Settings", bound=msgspec.Struct)

NOT_YET_KEYS = frozenset(
    {
        "batching.timeout_ms",
        "memory.max_memory_usage_mb",
        "memory.enable_memory_mapping",
        "model_loading",
        "scheduling.max_concurrent_batches",
        "monitoring",
    }
)

_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]+)`")
_WHERE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def decode(tree: Mapping[str, object], kind: type[Settings]) -> Settings:
    """`tree` as settings of `kind`, checked in full.

    Raises `SettingsError` for the first key that is unknown (with the nearest known name), not built yet, of a wrong type
    or out of its range, and where two keys do not fit each other.
    """
    _known(tree, inspect.type_info(kind), "")
    try:
        settings = msgspec.convert(tree, kind, strict=True)
    except msgspec.ValidationError as error:
        raise SettingsError(_explained(str(error), tree, kind)) from None
    _check_rules(settings)
    return settings


def check(settings: Settings) -> Settings:
    """Settings that were built in code, held to the same types, ranges and rules as a file's, and in the plain types that a
    file's have: one of numpy's floats is a float, a list a tuple.

    Raises `SettingsError` that names the key's path, the value and what was expected.
    """
    return decode(cast(dict[str, object], _tree(settings)), type(settings))


def _tree(value: object) -> object:
    """What a file would hold in place of these settings; what none could hold, such as a path, is left, so that it is refused
    by the key where it stands."""
    match value:
        case bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str.__str__(value)
        case msgspec.Struct():
            return {field: _tree(getattr(value, field)) for field in value.__struct_fields__}
        case list() | tuple():
            return [_tree(item) for item in cast(Sequence[object], value)]
        case dict():
            return {str(key): _tree(item) for key, item in cast(Mapping[object, object], value).items()}
        case _:
            return value


def _known(tree: object, kind: inspect.Type, path: str) -> None:
    if isinstance(kind, inspect.VarTupleType) and isinstance(tree, list):
        for index, item in enumerate(cast(list[object], tree)):
            _known(item, kind.item_type, f"{path}[{index}]")
    if isinstance(tree, str):
        _require_text(path, tree)
    if not isinstance(kind, inspect.StructType | inspect.DataclassType) or not isinstance(tree, dict):
        return
    fields = {field.encode_name: field.type for field in kind.fields}
    for key, value in cast(dict[str, object], tree).items():
        here = f"{path}.{key}" if path else key
        if here in NOT_YET_KEYS:
            raise SettingsError(f"{here}: not yet: the part that this sets is not built; leave it out")
        if key not in fields:
            near = get_close_matches(key, fields, n=1, cutoff=0.6)
            advice = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(fields)}"
            raise SettingsError(f"{here}: unknown key; {advice}")
        _known(value, fields[key], here)


def _explained(message: str, tree: Mapping[str, object], kind: type[msgspec.Struct]) -> str:
    where = _WHERE.search(message)
    path = where["path"] if where else ""
    reason = message[: where.start()] if where else message
    absent = _MISSING.fullmatch(reason)
    if absent:
        return f"{f'{path}.' if path else ''}{absent['key']}: missing"
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    choices = _choices(inspect.type_info(kind), steps)
    reason = reason.split(", got ")[0].removeprefix("Expected ").replace("`object`", "a table").replace("`", "")
    if "; expected " in reason:
        return f"{path}: {reason}"  # a rule of the table itself, which names its key
    expected = f"one of {', '.join(choices)}" if choices else reason
    return f"{path}: is {shown(_value(tree, steps))}; expected {expected}"


def _value(tree: object, steps: Sequence[str | int]) -> object:
    for step in steps:
        tree = cast(Mapping[str | int, object], tree)[step]
    return tree


def _choices(kind: inspect.Type, steps: Sequence[str | int]) -> tuple[str, ...]:
    for step in steps:
        if isinstance(kind, inspect.StructType | inspect.DataclassType):
            kind = next(field.type for field in kind.fields if field.encode_name == step)
        elif isinstance(kind, inspect.VarTupleType):
            kind = kind.item_type
        elif isinstance(kind, inspect.TupleType):
            kind = kind.item_types[int(step)]
    return tuple(repr(value) for value in kind.values) if isinstance(kind, inspect.LiteralType) else ()


def _check_rules(settings: msgspec.Struct) -> None:
    if isinstance(settings, EdgeSettings):
        _require_endpoint("agent.endpoint", settings.agent.endpoint, binds=True)
        _require_distinct("agent.models", settings.agent.models)
        check_nodes(settings.nodes)
        if settings.batching.batch_strategy != "adaptive":
            strategy = settings.batching.batch_strategy
            raise SettingsError(
                f"batching.batch_strategy: is {strategy!r}; expected 'adaptive': the others are for nodes"
            )
        if settings.agent.standby and settings.nodes:
            raise SettingsError(f"nodes: has {len(settings.nodes)}; expected none beside agent.standby = true")
        low, high = settings.link.return_pause_ms
        if low > high:
            raise SettingsError(f"link.return_pause_ms: is [{low}, {high}]; expected the lower end first")
        low, high = settings.outliers.pause_ms
        if low > high:
            raise SettingsError(f"outliers.pause_ms: is [{low}, {high}]; expected the shorter pause first")
        if 0 < settings.outliers.slower < 1:
            raise SettingsError(f"outliers.slower: is {settings.outliers.slower}; expected 0 or at least 1")
        least, most = settings.insurance.hold_ms, settings.insurance.hold_max_ms
        if most < least:
            raise SettingsError(f"insurance.hold_max_ms: is {most}; expected at least hold_ms, {least}")
    elif isinstance(settings, CloudSettings):
        _require_endpoint("node.endpoint", settings.node.endpoint, binds=True)
        _require_distinct("node.models", settings.node.models)
        batching = settings.batching
        if batching.min_batch_size > batching.max_batch_size:
            raise SettingsError(
                f"batching.min_batch_size: is {batching.min_batch_size}; expected at most max_batch_size, "
                f"{batching.max_batch_size}"
            )
        if batching.batch_strategy == "step" and batching.max_batch_latency_ms <= 0.0:
            raise SettingsError(
                f"batching.max_batch_latency_ms: is {batching.max_batch_latency_ms}; expected more than 0 with 'step'"
            )
    elif isinstance(settings, Directory):
        check_nodes(settings.nodes)
    if isinstance(settings, EdgeSettings | CloudSettings):
        _require_distinct("process.cores", settings.process.cores)
        _require_distinct("process.executor_cores", settings.process.executor_cores)
        if 0 < settings.process.slice_us < 100:
            raise SettingsError(f"process.slice_us: is {settings.process.slice_us}; expected 0 or at least 100")


def check_nodes(nodes: Sequence[NodeAddress]) -> None:
    """Raise `SettingsError` where an address of a node is none, or two nodes are one."""
    for index, node in enumerate(nodes):
        _require_endpoint(f"nodes[{index}].endpoint", node.endpoint, binds=False)
        _require_source(f"nodes[{index}].source", node.source, node.endpoint)
        for at, way in enumerate(node.paths):
            if way.endpoint:
                _require_endpoint(f"nodes[{index}].paths[{at}].endpoint", way.endpoint, binds=False)
            _require_source(f"nodes[{index}].paths[{at}].source", way.source, way.endpoint or node.endpoint)
        ways = [f"{way.endpoint or node.endpoint} from {way.source or 'anywhere'}" for way in node.paths]
        _require_distinct(f"nodes[{index}].paths", [f"{node.endpoint} from {node.source or 'anywhere'}", *ways])
    _require_distinct("nodes.name", [node.name for node in nodes])
    _require_distinct("nodes.endpoint", [node.endpoint for node in nodes])


def _require_text(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{path}: is {shown(text)}; expected text in Unicode") from None
    if "\0" in text:
        # TOML can write one; no file, socket or library takes it.
        raise SettingsError(f"{path}: is {shown(text)}; expected text without a NUL")


def _require_endpoint(path: str, endpoint: str, *, binds: bool) -> None:
    expected = endpoint_fault(endpoint, binds=binds)
    if expected is not None:
        raise SettingsError(f"{path}: is {endpoint!r}; expected {expected}")


def _require_source(path: str, source: str, endpoint: str) -> None:
    expected = source_fault(source, endpoint)
    if expected is not None:
        raise SettingsError(f"{path}: is {source!r}; expected {expected}")


def _require_distinct(path: str, values: Iterable[str] | Iterable[int]) -> None:
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            raise SettingsError(f"{path}: {value!r} is there twice; expected each once")
        seen.add(value)
