"""The numbers that arena and executors share."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from tiny import make_bundle

from shared.bundle import Bundle, load_bundle
from shared.errors import SettingsError
from shared.plan import Route
from shared.slots import check_memory, rows_bound, segments_of, served_plan, slot_plan


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(make_bundle(tmp_path_factory.mktemp("bundles"), "chain", max_batch=6))


def test_an_edge_has_slots_at_each_cut_but_the_last_and_for_each_rung(chain: Bundle) -> None:
    classes = slot_plan(chain.contract, chain.plan, max_batch=4, executors=1, side="edge")
    assert [(c.program, c.first) for c in classes] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert {(c.contract, c.slots, c.rows) for c in classes} == {(chain.contract, 2, 4)}


def test_an_edge_without_the_whole_model_among_its_rungs_holds_what_lies_before_its_cuts(chain: Bundle) -> None:
    def slots(*routes: Route) -> list[tuple[int, int]]:
        plan = msgspec.structs.replace(chain.plan, ladder=chain.plan.ladder[1:], routes=routes)
        assert segments_of(plan, "cloud", 0) == 3
        assert segments_of(plan, "edge", 0) == max((route.cut for route in routes), default=0)
        return [(c.program, c.first) for c in slot_plan(chain.contract, plan, 4, 1, side="edge")]

    first, second = Route(1, "raw", 1.0, 100, 100), Route(2, "raw", 1.0, 100, 100)
    assert slots(first, second) == [(0, 0), (0, 1), (1, 0)]
    assert slots(first) == [(0, 0), (1, 0)]
    assert slots() == [(0, 0), (1, 0)]


def test_a_node_runs_no_rungs(chain: Bundle) -> None:
    assert {c.program for c in slot_plan(chain.contract, chain.plan, max_batch=4, executors=1, side="cloud")} == {0}


def test_a_standby_has_room_for_its_one_rung_only(chain: Bundle) -> None:
    def slots(bundle: Bundle) -> list[tuple[int, int]]:
        return [(c.program, c.first) for c in slot_plan(bundle.contract, bundle.plan, 4, 1, side="standby")]

    whole = msgspec.structs.replace(chain.plan, ladder=chain.plan.ladder[:1])
    assert slots(chain) == [(1, 0)]
    assert slots(dataclasses.replace(chain, plan=whole)) == [(0, 0)]


def test_what_a_standby_serves_is_its_one_rung_and_no_cloud(chain: Bundle) -> None:
    served = served_plan(chain.plan, "standby")
    assert (served.ladder, served.routes) == (chain.plan.ladder[-1:], ())
    assert served_plan(chain.plan, "edge") is chain.plan
    with pytest.raises(SettingsError, match="has no rung"):
        served_plan(msgspec.structs.replace(chain.plan, ladder=()), "standby")


def test_a_slot_holds_every_tensor_of_its_cut_at_full_batch(chain: Bundle) -> None:
    classes = slot_plan(chain.contract, chain.plan, max_batch=64, executors=3, side="cloud")
    assert [c.rows for c in classes] == [6, 6, 6]
    assert [c.nbytes for c in classes] == [6 * 32 * 32 * 3, 6 * 6 * 16 * 16 * 4, 6 * (8 * 8 * 8 + 6) * 4]
    assert {c.slots for c in classes} == {6}


def test_a_plan_that_cannot_be_batched_has_slots_of_one_row(tmp_path: Path) -> None:
    alone = load_bundle(make_bundle(tmp_path, "chain", batchable=False))
    assert rows_bound(alone.plan, 64) == 1
    assert {c.rows for c in slot_plan(alone.contract, alone.plan, max_batch=64, executors=1)} == {1}


def test_need_and_limit_are_named_where_the_slots_do_not_fit(chain: Bundle) -> None:
    classes = slot_plan(chain.contract, chain.plan, max_batch=6, executors=40)
    need = sum(c.slots * c.nbytes for c in classes)
    assert check_memory(classes, 64) == need
    with pytest.raises(SettingsError, match=rf"need {-(-need // (1 << 20))} MB and the limit is 5 MB"):
        check_memory(classes, 5)
