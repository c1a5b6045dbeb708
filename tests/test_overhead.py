from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.overhead import measure, worked_us
from partitioner.costs.cost import NOTHING, Candidate, Spread, predict
from partitioner.costs.overhead import OVERHEAD_FORMAT, Crossing, Overhead, fit_overhead
from partitioner.costs.overhead_file import check_place, read_overhead, write_overhead
from partitioner.options import LinkGuess
from shared.errors import UserError

PROBES = tuple(
    Crossing(kind, 2 * nbytes, 0 if kind == "device" else 2 * nbytes + 512, kind != "input")
    for nbytes in (4096, 300_000)
    for kind in ("device", "input", "split")
)
COST = st.floats(50.0, 5000.0)
BYTE = st.floats(1e-4, 5e-3)


def host(device: float, cloud: float, head: float, local: float, network: float, spread: float = 1.0) -> Overhead:
    return Overhead(OVERHEAD_FORMAT, device, cloud, head, local, network, spread, 30.0, "a processor", 48)


@given(COST, COST, COST, BYTE, BYTE)
def test_the_fit_finds_the_costs_that_probes_were_made_of(
    device: float, cloud: float, head: float, local: float, network: float
) -> None:
    true = host(device, cloud, head, local, network)
    found = fit_overhead({probe: [true.of(probe).p50_us] * 8 for probe in PROBES}, 30.0, "a processor")
    # one that was no probe: a small coding of a large input, with a small answer
    other = Crossing("split", 120_000, 15_000, worked=True)
    assert found.of(other).p50_us == pytest.approx(true.of(other).p50_us, rel=1e-3)
    assert found.requests == 48


@given(st.lists(st.floats(1.0, 1e5), min_size=6, max_size=6))
def test_no_cost_is_negative_whatever_was_measured(times_us: list[float]) -> None:
    found = fit_overhead({probe: [time_us] for probe, time_us in zip(PROBES, times_us, strict=True)}, 30.0, "")
    costs = (found.device_us, found.cloud_us, found.head_us, found.local_byte_us, found.network_byte_us)
    assert min(costs) >= 0.0


def test_the_spread_is_that_of_all_probes_together() -> None:
    true = host(1000.0, 2000.0, 300.0, 0.001, 0.001)
    runs = {probe: [true.of(probe).p50_us * (2.0 if i > 95 else 1.0) for i in range(100)] for probe in PROBES}
    assert fit_overhead(runs, 30.0, "").of(PROBES[0]).p99_us == pytest.approx(2.0 * true.of(PROBES[0]).p50_us, rel=0.01)


@pytest.mark.parametrize("left_out", range(3))
def test_probes_that_cannot_tell_costs_apart_are_refused(left_out: int) -> None:
    kinds = ("device", "input", "split")
    probes = [probe for probe in PROBES if probe.kind != kinds[left_out]]
    if kinds[left_out] == "input":  # the device's work is then in every way through the cloud
        probes = [probe for probe in probes if probe.kind != "device" or probe.local_bytes < 10_000]
    with pytest.raises(UserError, match="do not tell"):
        fit_overhead({probe: [1000.0] for probe in probes}, 30.0, "")


def test_a_prediction_has_the_overhead_as_a_part_of_its_own() -> None:
    way = Candidate(
        "input",
        "input",
        "raw",
        "",
        NOTHING,
        NOTHING,
        NOTHING,
        Spread(2000, 2000),
        25_000,
        0,
        1.0,
        True,
        Spread(1500, 1700),
    )
    found = predict(way, LinkGuess(200.0, 2.0))
    assert found.overhead_us == 1500
    assert found.total.p50_us == pytest.approx(1000 + 2000 + 2000 + 1500)
    parts = (found.edge_us, found.uplink_us, found.cloud_us, found.downlink_us, found.overhead_us)
    assert sum(parts) == pytest.approx(found.total.p50_us)
    assert found.total.p99_us == pytest.approx(found.total.p50_us + 200)


def test_a_file_of_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = host(1000.0, 2000.0, 300.0, 0.001, 0.002, 1.5)
    write_overhead(known, tmp_path / "host.overhead")
    assert read_overhead(tmp_path / "host.overhead") == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        (b"no", "expected a file of `headtail overhead`"),
        (b'{"format": 1}', "expected a file of `headtail overhead`"),
        (b'{"format": 2}', "has format 2"),
        (msgspec.json.encode(host(1.0, 1.0, 1.0, 0.0, 0.0)).replace(b'"cloud_us":1.0', b'"cloud_us":-1.0'), "cloud_us"),
    ],
)
def test_what_is_no_file_of_it_is_refused_by_name(tmp_path: Path, text: bytes | None, said: str) -> None:
    path = tmp_path / "host.overhead"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError, match=said) as caught:
        read_overhead(path)
    assert str(path) in str(caught.value)


def test_a_place_where_no_file_can_be_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    check_place(tmp_path / "host.overhead")
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "nowhere" / "host.overhead", "there is no folder")):
        with pytest.raises(UserError, match=said):
            check_place(path)


def test_runs_and_codings_are_work_and_all_else_is_not() -> None:
    stages = {"client": 7, "head": 1000, "codec": 2000, "uplink": 9, "cloud_queue": 5, "tail": 3000, "hold": 1}
    assert worked_us(stages) == 6.0


def test_a_real_agent_and_node_are_asked_in_every_way_that_is_fitted() -> None:
    told: list[str] = []
    found = measure(1, 200.0, told.append)
    assert found.requests == len(PROBES) * 8
    assert found.device_us + found.local_byte_us > 0.0
    assert found.cloud_us + found.network_byte_us > 0.0
    assert told
