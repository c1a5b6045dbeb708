"""Profiles as data: the file, what a planner asks of it, mapping, scaling, the roofline and the difference of two."""

from __future__ import annotations

import dataclasses
import statistics
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from graphs import Net, classifier
from hypothesis import given
from hypothesis import strategies as st

from partitioner.graph.compute import operations
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.graph.kernels import Kernel
from partitioner.graph.observe import observe
from partitioner.profiles.diff import beyond_spreads, compare
from partitioner.profiles.file import check_out, load_profile, save_profile
from partitioner.profiles.lookup import check_same_model, times_for, whole_us
from partitioner.profiles.mapping import Origins, assign, charge, quiet_runs
from partitioner.profiles.record import (
    PROFILE_FORMAT,
    BatchTimes,
    Bucket,
    CodecSpeed,
    DeviceProfile,
    GroupTime,
    Machine,
    Origin,
    Quantiles,
    decode_profile,
    encode_profile,
)
from partitioner.profiles.roofline import Roof, Work, estimate
from partitioner.profiles.scaling import scaled, to_whole
from partitioner.profiles.work import work_of
from shared.errors import UserError
from shared.request import TensorSpec

replace = msgspec.structs.replace


def spread(p50_us: float, excess: float = 0.1) -> Quantiles:
    return Quantiles(p50_us, p50_us * (1 + excess), p50_us * (1 + 2 * excess))


def times(batch: int = 1, **groups: float) -> BatchTimes:
    kinds = {"c": "conv", "m": "matmul"}
    made = tuple(GroupTime(name, kinds.get(name[0], "other"), spread(us)) for name, us in groups.items())
    return BatchTimes(batch, spread(sum(groups.values())), made, 50, True, 0.0, 1.0)


def profile(*buckets: Bucket, **changes: object) -> DeviceProfile:
    made = DeviceProfile(
        format=PROFILE_FORMAT,
        side="edge",
        model="net.onnx",
        preprocess="none",
        postprocess="none",
        origin=Origin("measured", "here"),
        machine=Machine("board", "CPUExecutionProvider", 1, 30.0, {"onnxruntime": "1.32.0"}),
        buckets=buckets or (bucket(),),
        codecs=(CodecSpeed("int8", "int8", 0.001, 0.002, 1000),),
        disturbed_share=0.0,
    )
    return replace(made, **changes)


def bucket(digest: str = "d1", *batches: BatchTimes) -> Bucket:
    return Bucket(digest, (TensorSpec("x", "float32", (1, 3, 8, 8)),), batches or (times(c1=30.0, m1=50.0, o1=20.0),))


def found_groups(net: Net) -> Groups:
    return find_groups(CutFinder(net.normal("1,3,16,16")))


# The file


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_profile(profile(), tmp_path / "x.profile")
    assert load_profile(tmp_path / "x.profile") == profile()
    assert [file.name for file in tmp_path.iterdir()] == ["x.profile"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not a profile, or a damaged one"),
        (b"[" * 100_000, "not a profile, or a damaged one"),
        (b"\xff\xfe{}", "not a profile, or a damaged one"),
        (b'{"format": 99}', "format 99, this version reads format 1"),
        (encode_profile(profile())[:-40], "damaged"),
        (encode_profile(profile(side="moon")), "a damaged profile"),
        (encode_profile(profile(disturbed_share=2.0)), "a damaged profile"),
        (encode_profile(profile(buckets=())), "it holds no times"),
        (encode_profile(profile(bucket(), bucket())), "two buckets are of one model"),
        (encode_profile(profile(bucket("d", times(a=1.0), times(a=1.0)))), "a bucket has no batch size, or one twice"),
        (
            encode_profile(profile(bucket("d", replace(times(a=100.0), whole=spread(200.0))))),
            "the groups do not add up to the whole",
        ),
        (
            encode_profile(profile(bucket("d", replace(times(a=9.0), whole=Quantiles(9.0, 8.0, 10.0))))),
            "quantiles fall",
        ),
    ],
)
def test_a_damaged_profile_is_one_clear_error(text: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        decode_profile(text, "x.profile")
    assert str(error.value).startswith("x.profile: ")


@given(st.integers(0, len(encode_profile(profile())) - 1), st.binary(max_size=6))
def test_no_change_of_its_bytes_makes_reading_fail_in_another_way(place: int, put: bytes) -> None:
    text = encode_profile(profile())
    with suppress(UserError):
        decode_profile(text[:place] + put + text[place + len(put) :], "x")


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_profile(tmp_path / "none.profile")
    with pytest.raises(UserError, match="cannot be read as a profile"):
        load_profile(tmp_path)
    with pytest.raises(UserError, match=r"ends in \.profile"):
        check_out(tmp_path / "x.json")
    with pytest.raises(UserError, match="there is no folder"):
        check_out(tmp_path / "none" / "x.profile")


# What a planner asks


def test_a_profile_of_another_model_is_refused() -> None:
    assert check_same_model(profile(bucket("d1"), bucket("d2")), "d2").digest == "d2"
    with pytest.raises(
        UserError, match=r"of another model: it was made of net.onnx at x=1,3,8,8 .* this model is digest d9"
    ):
        check_same_model(profile(), "d9")


def test_the_whole_is_that_of_the_batch_and_the_shapes_that_are_meant() -> None:
    both = profile(bucket("d1", times(a=10.0), times(2, a=15.0)), bucket("d2", times(a=30.0)))
    assert (whole_us(both, 2, "d1"), whole_us(both, 1, "d2")) == (15.0, 30.0)
    assert whole_us(profile()) == 100.0
    with pytest.raises(UserError, match="2 sets of shapes"):
        whole_us(both)
    with pytest.raises(UserError, match="no times at batch 4, only at 1, 2"):
        whole_us(both, 4, "d1")


def test_groups_are_found_by_their_names_and_another_division_is_refused() -> None:
    groups = found_groups(classifier())
    named = {groups.name_of(index): 10.0 + index for index in range(len(groups.nodes))}
    known = profile(bucket(groups.finder.model.digest, times(**dict(reversed(named.items())))))
    assert times_for(known, groups) == {index: 10.0 + index for index in range(len(groups.nodes))}
    assert len(named) > 2
    named["elsewhere"] = named.pop(groups.name_of(0))
    with pytest.raises(UserError, match=r"other groups .* onnxruntime 1\.32\.0"):
        times_for(profile(bucket(groups.finder.model.digest, times(**named))), groups)


# From kernels to groups

ORIGINS = Origins(nodes={"conv": 0, "relu": 0, "add": 1, "head": 2}, values={"a": 0, "b": 0, "c": 1, "y": 2})


def kernel(name: str, inputs: str = "", outputs: str = "", *times_us: float) -> Kernel:
    return Kernel(name, "Op", tuple(inputs.split()), tuple(outputs.split()), times_us)


def groups_of(*kernels: Kernel) -> list[int | None]:
    return assign(kernels, ORIGINS)


def test_a_kernel_belongs_to_the_operator_of_its_name_or_of_the_value_it_is_named_after() -> None:
    assert groups_of(kernel("add", "?", "z"), kernel("b_nchwc", "?", "z1"), kernel("y_nchwc_token_7", "?", "z2")) == [
        1,
        0,
        2,
    ]


def test_a_kernel_belongs_to_the_operator_that_made_its_value() -> None:
    assert groups_of(kernel("fused/0", "x", "c"), kernel("wide", "x", "InsertedPrecisionFreeCast_y")) == [1, 2]


def test_a_changed_layout_belongs_to_what_made_the_value() -> None:
    first = kernel("add", "x", "r1")
    assert groups_of(first, kernel("ReorderOutput", "r1", "r2"), kernel("ReorderInput", "r2", "r3")) == [1, 1, 1]
    assert groups_of(kernel("ReorderInput", "c", "r3")) == [1]


def test_what_is_done_to_an_input_belongs_to_what_uses_it() -> None:
    assert groups_of(kernel("ReorderInput", "x", "r1"), kernel("Cast", "r1", "r2"), kernel("head", "r2", "y")) == [
        2,
        2,
        2,
    ]


def test_a_kernel_between_groups_is_not_assigned_but_told() -> None:
    kernels = [
        kernel("conv", "x", "r1", 4.0, 6.0, 5.0),
        kernel("head", "x", "r2", 3.0, 3.0, 90.0),
        kernel("joined", "r1 r2", "", 2.0, 2.0, 2.0),
    ]
    assigned = groups_of(*kernels)
    assert assigned == [0, 2, None]
    charged = charge(kernels, assigned, 3, [0, 1, 2])
    assert charged.groups_us == ((4.0, 6.0, 5.0), (0.0, 0.0, 0.0), (3.0, 3.0, 90.0))
    assert (charged.kernels_us, charged.guessed_share) == (10.0, 0.2)
    assert charge(kernels, assigned, 3, [1]).groups_us == ((6.0,), (0.0,), (3.0,))


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20), st.floats(0.01, 1e6))
def test_scaled_groups_add_up_to_the_whole(middles: list[float], whole: float) -> None:
    made = to_whole([spread(us) for us in middles], whole)
    assert sum(q.p50_us for q in made) == pytest.approx(whole, rel=1e-6)
    assert all(q.p50_us <= q.p90_us <= q.p99_us for q in made)


# Another machine


def test_scaling_by_kind_changes_those_groups_and_the_whole_with_them() -> None:
    [made] = scaled(profile(), "x.profile", 2.0, {"conv": 4.0}).buckets[0].batches
    assert [group.time.p50_us for group in made.groups] == [120.0, 100.0, 40.0]
    assert made.whole.p50_us == 260.0
    assert made.whole.p90_us == pytest.approx(260.0 * 1.1)


def test_what_is_scaled_or_estimated_says_so_and_scaling_it_again_does_not_forget() -> None:
    once = scaled(profile(), "x.profile", 4.0)
    assert (once.origin, once.measured) == (Origin("scaled", "x.profile x 4"), False)
    assert once.codecs[0].decode_us_per_byte == pytest.approx(0.008)
    twice = scaled(replace(once, origin=Origin("estimated", "roofline")), "y.profile", 2.0, {"matmul": 3.0})
    assert twice.origin == Origin("estimated", "y.profile x 2, matmul x 3 (estimated: roofline)")
    assert decode_profile(encode_profile(twice), "y") == twice
    for factor in (0.0, -1.0, 1001.0, float("nan")):
        with pytest.raises(UserError, match="more than 0"):
            scaled(profile(), "x", factor)


def test_a_group_takes_the_longer_of_computing_and_moving_over_the_efficiency() -> None:
    roof = Roof(flops=1e12, bytes_per_s=1e10, efficiency=0.5)
    assert roof.time_us(Work("a", "conv", 1e9, 1000, 1000)) == pytest.approx(2000.0)
    heavy = Work("b", "matmul", 1e6, 1_000_000, 9_000_000)
    assert roof.time_us(heavy) == pytest.approx(2000.0)
    assert roof.time_us(heavy, batch=4) == pytest.approx(2600.0)  # the weights move once
    made = estimate([heavy, dataclasses.replace(heavy, name="c")], roof, 1)
    assert made.whole == Quantiles(4000.0, 4000.0, 4000.0)
    for wrong in ({"flops": 0.0}, {"bytes_per_s": float("inf")}, {"efficiency": 1.5}):
        with pytest.raises(UserError, match="expected"):
            Roof(**{"flops": 1.0, "bytes_per_s": 1.0, "efficiency": 1.0, **wrong})


def test_the_work_of_all_groups_is_that_of_the_model() -> None:
    groups = found_groups(classifier())
    model, work = groups.finder.model, work_of(groups)
    assert sum(w.operations for w in work) == pytest.approx(sum(operations(model.proto, observe(model))))
    assert sum(w.weight_bytes for w in work) == model.weight_bytes
    assert [w.name for w in work] == [groups.name_of(index) for index in range(len(groups.nodes))]
    assert work[0].kind == "conv"
    assert work[-1].kind == "matmul"
    assert work[0].activation_bytes == (3 * 16 * 16 + 8 * 8 * 8) * 4  # the input, and what the stem makes


# The difference of two


def test_conditions_that_differ_are_told_and_others_not() -> None:
    other = profile(machine=replace(profile().machine, threads=4, versions={"onnxruntime": "1.20.0"}))
    told = compare(profile(), other).conditions
    assert [(c.what, c.a, c.b) for c in told] == [("threads", "1", "4"), ("onnxruntime", "1.32.0", "1.20.0")]
    assert compare(profile(), profile()).conditions == ()


def test_times_are_ratios_with_a_verdict_and_the_largest_difference_comes_first() -> None:
    slower = profile(bucket("d1", times(c1=31.0, m1=150.0, o1=10.0)))
    [wholes] = compare(profile(), slower).wholes
    assert (wholes.whole.ratio, wholes.whole.beyond) == (1.91, True)
    assert [(g.what, g.beyond) for g in wholes.groups] == [("m1", True), ("o1", True), ("c1", False)]
    assert wholes.groups[0].ratio == 3.0


def test_batches_are_sorted_by_what_differs_most_and_what_only_one_has_is_told() -> None:
    a = profile(bucket("d1", times(a=10.0), times(2, a=20.0), times(4, a=40.0)), bucket("d2"))
    b = profile(bucket("d1", times(a=11.0), times(2, a=40.0)), codecs=())
    told = compare(a, b)
    assert [wholes.batch for wholes in told.wholes] == [2, 1]
    assert [text.partition(" at ")[0] for text in told.only] == [
        "only A has batch 4",
        "only A has x 1x3x8x8",
        "only A has the codings int8",
    ]


def test_profiles_of_different_models_are_not_compared() -> None:
    with pytest.raises(UserError, match="different models"):
        compare(profile(), profile(bucket("d2")))


@given(st.floats(1.0, 1e6), st.floats(0.0, 0.5), st.floats(1.0, 1e6), st.floats(0.0, 0.5))
def test_the_verdict_does_not_depend_on_the_order(a: float, excess_a: float, b: float, excess_b: float) -> None:
    first, second = spread(a, excess_a), spread(b, excess_b)
    assert beyond_spreads(first, second) == beyond_spreads(second, first)
    assert not beyond_spreads(first, first)


def test_disturbed_runs_do_not_count_as_long_as_there_are_enough_others() -> None:
    kernels = [kernel("conv", "", "", *map(float, range(20, 0, -1)))]
    assert quiet_runs(kernels, range(2, 20), {3, 4, 19}) == [2, *range(5, 19)]
    assert quiet_runs(kernels, range(20), set(range(13))) == list(range(12, 20))
    assert quiet_runs(kernels, [5, 4], {4, 5}) == [4, 5]


def test_medians_are_added_up_so_that_one_disturbed_run_does_not_count() -> None:
    kernels = [kernel("conv", "", "", *[5.0] * 9, 9000.0), kernel("add", "", "", 9000.0, *[3.0] * 9)]
    charged = charge(kernels, groups_of(*kernels), 2, range(10))
    assert charged.kernels_us == 8.0
    assert [statistics.median(group) for group in charged.groups_us] == [5.0, 3.0]
