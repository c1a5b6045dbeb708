"""Groups of operators, and the cuts of several tensors that the search finds over them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from graphs import Net, centre_detector, chained, classifier

from partitioner.costs.estimate import operator_times
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.places import Speed, find_places, problem_of
from partitioner.search.conditions import Conditions, Limits
from partitioner.search.plans import cost_of, crossing, share_of
from partitioner.search.problem import Choice, Problem


def two_branches() -> Net:
    """A large input, two branches that make it small, and heavy work on both of them together: no single tensor lies
    between."""
    net = Net(seed=5)
    net.input("x", ["batch", 3, 32, 32])
    net.add("Relu", [net.conv("x", "left.conv", (3, 4), 5, strides=[4, 4])], "left")
    net.add("Relu", [net.conv("x", "right.conv", (3, 4), 5, strides=[4, 4])], "right")
    net.add("Concat", ["left", "right"], "both", axis=1)
    net.add("Relu", [net.conv("both", "wide.conv", (8, 256))], "wide")
    net.conv("wide", "y", (256, 8))
    net.output("y", ["batch", 8, 8, 8])
    return net


def with_a_size_from_data() -> Net:
    """A branch whose size depends on data, so that its operators cannot be parted."""
    net = Net(seed=6)
    net.input("x", ["batch", 8])
    net.add("Relu", ["x"], "kept")
    net.add("NonZero", ["kept"], "places")
    net.add("Cast", ["places"], "numbers", to=1)
    net.add("ReduceSum", ["numbers"], "total", keepdims=0)
    net.add("Add", ["kept", "total"], "y")
    net.output("y", ["batch", 8])
    return net


NETS: dict[str, Callable[[], Net]] = {
    "classifier": classifier,
    "two branches": two_branches,
    "odd": with_a_size_from_data,
}


def groups_of(net: Net) -> Groups:
    shape = ",".join(str(d.dim_value or 1) for d in net.inputs[0].type.tensor_type.shape.dim)
    return find_groups(CutFinder(net.normal(shape)))


def closed_sets(groups: Groups, count: int) -> list[frozenset[int]]:
    """Some downward-closed sets of groups, neither none nor all."""
    needs: list[set[int]] = [set() for _ in groups.nodes]
    for value in groups.values:
        if value.producer is not None:
            for consumer in value.consumers:
                needs[consumer].add(value.producer)
    found: set[frozenset[int]] = set()
    draw = random.Random(1)
    for _ in range(count):
        waiting = draw.sample(range(len(needs)), min(2, len(needs)))
        closed: set[int] = set()
        while waiting:
            group = waiting.pop()
            if group not in closed:
                closed.add(group)
                waiting += needs[group]
        if len(closed) < len(needs):
            found.add(frozenset(closed))
    return sorted(found, key=sorted)


@pytest.mark.parametrize("name", NETS)
def test_groups_hold_every_operator_once_and_come_after_what_they_need(name: str) -> None:
    groups = groups_of(NETS[name]())
    nodes = [node for group in groups.nodes for node in group]
    assert sorted(nodes) == sorted(groups.finder.order)
    for value in groups.values:
        assert all(value.producer is None or value.producer < consumer for consumer in value.consumers)


def test_what_no_cut_may_divide_is_one_group() -> None:
    groups = groups_of(with_a_size_from_data())
    graph = groups.finder.model.proto.graph
    kinds = [{graph.node[node].op_type for node in group} for group in groups.nodes]
    assert any({"NonZero", "Cast"} <= kind for kind in kinds)


@pytest.mark.parametrize("name", ["classifier", "two branches"])
def test_every_closed_set_of_groups_is_a_cut_that_carries_what_crosses_and_gives_what_the_whole_gives(
    name: str,
) -> None:
    groups = groups_of(NETS[name]())
    problem = problem_of(groups, dict.fromkeys(groups.finder.order, 1.0), {}, [])
    for closed in closed_sets(groups, 12):
        cut = groups.cut_of(closed)
        assert {t.name for t in cut.tensors} == {problem.values[index].name for index in crossing(problem, closed)}
        assert chained(groups.finder.model, [cut]) < 1e-4


def test_a_detector_with_old_weights_as_inputs_is_cut_at_several_tensors() -> None:
    groups = find_groups(CutFinder(centre_detector().normal("1,3,64,64")))
    for closed in closed_sets(groups, 8):
        assert chained(groups.finder.model, [groups.cut_of(closed)]) < 1e-4


def problem_at(groups: Groups, speeds: list[Speed]) -> Problem:
    times = operator_times(groups.finder, {}, 1000.0)
    raw = groups.finder.spec_of("x").nbytes()
    return problem_of(groups, times, {"x": [Choice("raw", raw)]}, speeds)


def test_operator_times_add_up_to_the_whole_and_follow_the_heads_that_were_timed() -> None:
    finder = CutFinder(classifier().normal("1,3,16,16"))
    cuts = finder.single()
    stem = next(cut for cut in cuts if cut.name == "stem")
    times = operator_times(finder, {"stem": 700.0}, 1000.0)
    assert sum(times.values()) == pytest.approx(1000.0)
    assert sum(times[node] for node in stem.nodes) == pytest.approx(700.0)
    assert min(times.values()) >= 0.0


def test_a_cut_between_two_branches_is_found_where_it_wins() -> None:
    groups = groups_of(two_branches())
    problem = problem_at(groups, [])
    slow = find_places(groups, problem, [10.0], 2.0, 0)
    (cut,) = slow.cuts
    assert {tensor.name for tensor in cut.tensors} == {"left", "right"}
    assert chained(groups.finder.model, [cut]) < 1e-4
    closed = next(s for s in closed_sets(groups, 200) if groups.cut_of(s).nodes == cut.nodes)
    conditions = Conditions(2.0, 8.0 / 10.0)
    costs = [cost_of(problem, conditions, other) for other in closed_sets(groups, 200)]
    assert cost_of(problem, conditions, closed) == pytest.approx(min(costs))


def test_codings_of_float_tensors_count_with_their_expected_bytes() -> None:
    groups = groups_of(two_branches())
    problem = problem_at(groups, [Speed("int8", 1.0, 0.001, 0.002)])
    left = next(value for value in problem.values if value.name == "left")
    elements = int(np.prod(groups.finder.spec_of("left").shape))
    assert [(c.coding, c.nbytes) for c in left.choices] == [("raw", 4 * elements), ("int8", elements)]
    assert left.choices[1].encode_us == pytest.approx(0.001 * elements)
    image = next(value for value in problem.values if value.name == "x")
    assert [c.coding for c in image.choices] == ["raw"]


def test_a_share_of_the_compute_is_what_the_limit_counts_however_the_time_lies() -> None:
    groups = groups_of(two_branches())
    last = groups.nodes[-1]
    times = {node: (1000.0 if node in last else 1.0) for node in groups.finder.order}
    problem = problem_of(groups, times, {"x": [Choice("raw", groups.finder.spec_of("x").nbytes())]}, [])
    [cut] = find_places(groups, problem, [1.0], 100.0, 0, limits=Limits(least_share=0.01)).cuts
    before = sum(times[node] for node in cut.nodes) / sum(times.values())
    assert before < 0.01 <= cut.share
    inside = [problem.groups[number] for number, nodes in enumerate(groups.nodes) if nodes <= cut.nodes]
    assert share_of(inside, problem) == pytest.approx(cut.share)
