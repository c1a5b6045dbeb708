"""How long a process waits to stand for a slower device."""

from __future__ import annotations

import msgspec
import pytest
from tiny import make_bundle

from shared.bundle import load_bundle
from shared.executors.slowness import Slowness
from shared.plan import Plan, SegmentRange

TWO = SegmentRange(0, 0, 2)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("bundles")
    return load_bundle(make_bundle(folder, "chain", slowdown=4.0, microseconds=100.0)).plan


def only(plan: Plan, *wanted: tuple[int, int, int]) -> Plan:
    profile = plan.profiles[0]
    kept = tuple(r for r in profile.ranges if r.program == 0 and (r.first, r.last, r.batch) in wanted)
    return msgspec.structs.replace(plan, profiles=(msgspec.structs.replace(profile, ranges=kept, codecs=()),))


def test_a_factor_of_one_never_waits(plan: Plan) -> None:
    slowness = Slowness(1.0, {"c": plan}, "edge")
    assert slowness.run_ns("c", TWO, 1, 10**9) == 0
    assert slowness.encode_ns("c", 0, "raw", 1, 10**9) == 0


def test_the_profiled_time_of_this_machine_counts_and_not_the_runs_own(plan: Plan) -> None:
    assert Slowness(4.0, {"c": plan}, "edge").run_ns("c", TWO, 1, 10**9) == 3 * 200_000
    assert Slowness(2.0, {"c": plan}, "edge").run_ns("c", TWO, 2, 0) == round(200_000 * 1.6)


def test_the_other_sides_profile_counts_there(plan: Plan) -> None:
    assert Slowness(2.0, {"c": plan}, "cloud").run_ns("c", TWO, 1, 0) == 200_000


def test_a_range_that_was_not_profiled_is_the_sum_of_its_segments(plan: Plan) -> None:
    parts = only(plan, (0, 1, 1), (1, 2, 1))
    assert Slowness(2.0, {"c": parts}, "edge").run_ns("c", TWO, 1, 7) == 200_000


def test_what_is_not_known_at_all_is_what_the_run_took(plan: Plan) -> None:
    parts = only(plan, (0, 1, 1))
    assert Slowness(3.0, {"c": parts}, "edge").run_ns("c", TWO, 1, 70_000) == 140_000
    assert Slowness(3.0, {"c": parts}, "edge").encode_ns("c", 0, "raw", 1, 70_000) == 140_000
    assert Slowness(3.0, {}, "edge").run_ns("c", TWO, 1, 70_000) == 140_000


def test_codecs_count_by_row(plan: Plan) -> None:
    slowness = Slowness(3.0, {"c": plan}, "edge")
    assert slowness.encode_ns("c", 1, "int8", 2, 10**9) == 2 * 2 * 20_000
    assert slowness.decode_ns("c", 1, "int8", 2, 10**9) == 2 * 2 * 15_000


def test_rows_that_came_as_arrays_wait_for_no_decoding(plan: Plan) -> None:
    assert Slowness(500.0, {"c": plan}, "edge").decode_ns("c", 0, "", 1, 10**9) == 0


def test_an_empty_range_runs_nothing(plan: Plan) -> None:
    assert Slowness(3.0, {"c": plan}, "edge").run_ns("c", SegmentRange(0, 1, 1), 1, 10**9) == 0
