"""The readers of settings and plans take what is in the file, or refuse it in one line; and what they take can be used."""

from __future__ import annotations

import random
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import make_bundle

from cloud.session import Session
from edge.broker import Broker
from edge.insurance import rung_key
from shared.bundle import load_bundle, write_manifest
from shared.errors import BundleError, SettingsError
from shared.latency import WorkKey
from shared.plan import PLAN_FILE, Plan, SegmentRange
from shared.settings import CloudSettings, EdgeSettings, NodeAddress
from shared.settings_file import load_cloud, load_edge

CONFIGS = Path(__file__).parent.parent / "configs"
EXAMPLES = [
    line.removeprefix("# ")
    for name in ("edge.toml", "cloud.toml")
    for line in (CONFIGS / name).read_text().splitlines()
]

fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def one_line(error: Exception, path: Path) -> None:
    message = str(error)
    assert message.startswith(f"{path}")
    assert len(message.splitlines()) == 1
    assert message.isprintable()


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_are_taken_or_refused(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    for load in (load_edge, load_cloud):
        try:
            loaded = load(path)
        except SettingsError as error:
            one_line(error, path)
        else:
            assert isinstance(loaded, EdgeSettings | CloudSettings)


@settings(fixtures, max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_are_settings_or_refused(tmp_path: Path, text: bytes) -> None:
    settings_are_taken_or_refused(tmp_path / "any.toml", text)


values = st.one_of(
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.booleans(),
    st.lists(st.integers(-2, 2), max_size=3),
    st.sampled_from([10**30, -(10**30), 1e308, float("inf"), float("nan"), "", "tcp://[::1]:7711", "ipc://"]),
)


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return str(value)


@settings(fixtures, max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(EXAMPLES), st.none() | values), max_size=12))
def test_lines_of_the_examples_with_other_values_are_settings_or_refused(
    tmp_path: Path, lines: list[tuple[str, Any]]
) -> None:
    """Tables and keys as the example files have them, in any order, some with a value that is not theirs."""
    text = [
        line if value is None or "=" not in line else f"{line.split('=')[0]}= {toml(value)}" for line, value in lines
    ]
    settings_are_taken_or_refused(tmp_path / "any.toml", "\n".join(text).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("opening", ["[", "a = [", "a = {b = ", "[[", "a.", "x = '''"])
def test_nests_are_settings_or_refused(tmp_path: Path, opening: str) -> None:
    settings_are_taken_or_refused(tmp_path / "any.toml", (opening * 5_000).encode())


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "chain.plan"))


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.integers(-1, 9),
    st.sampled_from([1 << 31, 1 << 40, 10**30, 1e308, 1e-308, -1.0, 0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "raw", "int8", "image", "wide", "logits", "whole-0.onnx", "../x", "\0", "\n", "é" * 200]),
    st.sampled_from([[], {}, [[]], [1], [0], [1, 2, 3], [1 << 40]]),
)


def parts(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a nest of maps and lists."""
    found = [path]
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        found += parts(value, (*path, key))
    return found


def change(tree: Any, data: st.DataObject) -> None:
    """Replace, leave out or repeat one part: of each kind as often, however many there are of it."""
    kinds: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for way in parts(tree)[1:]:
        kinds.setdefault(tuple(step for step in way if isinstance(step, str)), []).append(way)
    kind = data.draw(st.sampled_from(sorted(kinds)))
    way = data.draw(st.sampled_from(kinds[kind]))
    holder = tree
    for step in way[:-1]:
        holder = holder[step]
    how = data.draw(st.sampled_from(["replace", "leave out", "repeat", "swap"]))
    if how == "replace":
        holder[way[-1]] = deepcopy(data.draw(odd))
    elif how == "leave out":
        del holder[way[-1]]
    elif isinstance(holder, list):
        other = data.draw(st.integers(0, len(holder) - 1))
        if how == "repeat":
            holder.insert(other, deepcopy(holder[way[-1]]))
        else:
            holder[other], holder[way[-1]] = holder[way[-1]], holder[other]


def use(contract: str, plan: Plan) -> None:
    """Build the machines of both sides from a plan, and ask them for every time that they could need."""
    plans = {contract: plan}
    broker = Broker(
        EdgeSettings(nodes=(NodeAddress(name="a", endpoint="tcp://10.0.0.1:7711"),)), plans, 1, random.Random(1)
    )
    session = Session(CloudSettings(), plans, "a", 1)
    last = len(plan.cuts) - 1
    for rows in (1, plan.max_batch):
        for rung in plan.ladder:
            key = rung_key(contract, plan, rung)
            latency = broker.scheduler.latency
            assert 0 <= latency.typical(key, rows) <= latency.worst(key, rows)
            assert latency.typical(key, rows) <= latency.pessimistic(key, rows)
        for route in plan.routes:
            coding = plan.cuts[route.cut].coding(route.coding)
            assert coding is not None
            name = coding.name if coding.lossy else ""
            head, tail = SegmentRange(0, 0, route.cut), SegmentRange(0, route.cut, last)
            assert broker.scheduler.latency.typical(WorkKey(contract, head, encode=name), rows) >= 0
            assert session.scheduler.latency.typical(WorkKey(contract, tail, decode=name), rows) >= 0
    broker.validate()
    session.validate()


@settings(fixtures, max_examples=120)
@given(data=st.data())
def test_a_plan_with_parts_replaced_is_refused_or_can_be_used(bundle: Path, data: st.DataObject) -> None:
    """What the reader lets through must not make a machine raise that is built from it."""
    kept = (bundle / PLAN_FILE).read_bytes()
    tree = msgspec.json.decode(kept)
    for _ in range(data.draw(st.integers(1, 3))):
        change(tree, data)
    try:
        (bundle / PLAN_FILE).write_bytes(msgspec.json.encode(tree))
        write_manifest(bundle)
        loaded = load_bundle(bundle)
    except BundleError as error:
        one_line(error, bundle)
    else:
        use(loaded.contract, loaded.plan)
    finally:
        (bundle / PLAN_FILE).write_bytes(kept)
        write_manifest(bundle)
