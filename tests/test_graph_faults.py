"""The faults that others had when cutting ONNX graphs: each has a test that fails when the right behaviour is taken out.

Most of those tests stand where they belong, beside others of the same part; they are named here. Each is run again with the
function that does it right replaced by one that does it as it was done wrong elsewhere, and must then fail. Tests that
belong nowhere else are in `test_graph_faults_more.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
import test_graph_batch
import test_graph_cuts
import test_graph_faults_more as more
import test_graph_load
import test_graph_normalise
import test_graph_split
import test_ort
from onnx import shape_inference
from tiny import make_bundle

from partitioner.graph import (
    batch,
    convert,
    cuts,
    external,
    fusion,
    load,
    model,
    normalise,
    observe,
    passes,
    reweigh,
    runtime,
    split,
    survey,
    ulps,
    walk,
)
from partitioner.graph.model import Model, dtype_name
from shared.errors import HeadtailError
from shared.executors import ort
from shared.request import Array, TensorSpec

MODULES = (batch, convert, cuts, fusion, load, model, normalise, observe, passes, reweigh, runtime, split, survey, walk)
FAILS = (AssertionError, HeadtailError, pytest.fail.Exception)

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """A fault by its number in the list of faults, what is wrong in it, the tests of the right behaviour, and the plant that
    takes that out."""

    number: int
    what: str
    tests: tuple[Callable[..., object], ...]
    plant: Callable[[Patch], None]


def everywhere(patch: Patch, name: str, wrong: object) -> None:
    """Replace a function in every module that took it in."""
    for module in MODULES:
        if hasattr(module, name):
            patch.setattr(module, name, wrong)


def lose_captures(patch: Patch) -> None:
    everywhere(patch, "node_inputs", lambda node: [name for name in node.input if name])


def carry_only_the_last(patch: Patch) -> None:
    right = cuts.CutFinder._crossing
    patch.setattr(cuts.CutFinder, "_crossing", lambda self, nodes: right(self, nodes)[-1:])


def leave_chains_of_shapes(patch: Patch) -> None:
    patch.setattr(batch, "freeze_shapes", lambda model: model)
    patch.setattr(batch, "make_sizes_local", lambda model: model)


def take_any_size_for_small(patch: Patch) -> None:
    patch.setattr(runtime, "LARGE_BYTES", 1 << 62)
    patch.setattr(Model, "weight_bytes", property(lambda self: 0))


def append_to_the_old_file(patch: Patch) -> None:
    def enter(self: external.WeightFile) -> external.WeightFile:
        self._draft = self._path
        self._file = self._path.open("ab")
        self._end = self._file.tell()
        return self

    patch.setattr(external.WeightFile, "__enter__", enter)


def infer_types_by_rules(patch: Patch) -> None:
    def settled(model: Model) -> Model:
        inferred = shape_inference.infer_shapes(model.proto)
        outputs = tuple(TensorSpec(v.name, dtype_name(v.type.tensor_type.elem_type), ()) for v in inferred.graph.output)
        return Model(model.proto, model.name, model.inputs, outputs, model.batchable)

    def untyped(self: object, named: Model) -> Model:
        for value in named.proto.graph.output:
            value.ClearField("type")
        return settled(named)

    patch.setattr(normalise, "settled", lambda model: untyped(None, model))
    patch.setattr(normalise, "check_same", lambda *_: 0.0)


def cut_between_any_operators(patch: Patch) -> None:
    everything = lambda model: {name for node in model.proto.graph.node for name in node.output}  # noqa: E731
    patch.setattr(fusion, "surviving_values", everything)
    patch.setattr(fusion, "_mapped_on", lambda *_: False)


def cut_on_the_float_side(patch: Patch) -> None:
    patch.setattr(fusion, "_widened", lambda *_: False)


def send_floats_that_both_sides_need(patch: Patch) -> None:
    patch.setattr(cuts, "remade_from", lambda *_: {})


def keep_weights_as_inputs(patch: Patch) -> None:
    patch.setattr(passes, "drop_initializer_inputs", lambda _: None)
    everywhere(patch, "real_inputs", lambda proto: list(proto.graph.input))


def believe_literal_sizes(patch: Patch) -> None:
    def believed(value: onnx.ValueInfoProto) -> TensorSpec:
        tensor = value.type.tensor_type
        return TensorSpec(value.name, dtype_name(tensor.elem_type), tuple(d.dim_value for d in tensor.shape.dim))

    patch.setattr(passes, "forget_shapes", lambda _: None)
    everywhere(patch, "spec_of", believed)


def trust_the_order_of_the_file(patch: Patch) -> None:
    patch.setattr(passes, "sort_nodes", lambda *_: None)


def leave_the_batch_in_reshapes(patch: Patch) -> None:
    patch.setattr(batch, "loosen_reshapes", lambda _: None)


def take_every_graph_for_batchable(patch: Patch) -> None:
    patch.setattr(batch, "is_batchable", lambda _: True)


def load_at_the_first_request(patch: Patch) -> None:
    patch.setattr(test_ort, "load_programs", lambda *_: None)


def save_what_one_processor_runs(patch: Patch) -> None:
    def folded(given: Model) -> Model:
        path = Path(folder) / "all.onnx"
        runtime.open_session(given, optimisation="all", save_to=path)
        return Model(onnx.load(str(path)), given.name, given.inputs, given.outputs, given.batchable)

    folder = str(patch_folder(patch))
    patch.setattr(normalise, "fold", folded)


def bake_in_the_casts_of_a_processor(patch: Patch) -> None:
    patch.setattr(normalise, "fold", lambda given: convert._folded(given, constants=True))


def count_every_type_in_32_bits(patch: Patch) -> None:
    right = ulps._steps
    patch.setattr(ulps, "_steps", lambda wanted: right(wanted.astype("float32")))


def keep_the_names_of_weights(patch: Patch) -> None:
    right = split.Splitter.__init__

    def init(self: split.Splitter, given: Model) -> None:
        right(self, given)
        self._fresh = {name: name for name in self._held}

    patch.setattr(split.Splitter, "__init__", init)


def ask_for_each_value_what_crosses(patch: Patch) -> None:
    right = cuts.CutFinder.single

    def single(self: cuts.CutFinder) -> list[cuts.CandidateCut]:
        for name in self._made_by:
            self._closure([name])
        return right(self)

    patch.setattr(cuts.CutFinder, "single", single)


def fall_back_to_the_processor(patch: Patch) -> None:
    patch.setattr(runtime, "open_session", lambda given, **_: None)
    patch.setattr(
        ort,
        "_open",
        lambda bundle, runtime, execution, program, index, watched: runtime.session(
            str(bundle.files[bundle.plan.programs[program].segments[index].file]), "CPUExecutionProvider", 1
        ),
    )


def keep_constant_weights(patch: Patch) -> None:
    patch.setattr(reweigh, "with_random_weights", lambda given, seed: given)


def say_nothing_of_constant_weights(patch: Patch) -> None:
    patch.setattr(survey, "_held", lambda model: iter(()))


def patch_folder(patch: Patch) -> Path:
    """A folder that lasts as long as the test; pytest gives it to the plants through this name."""
    folder = getattr(patch, "folder", None)
    assert isinstance(folder, Path)
    return folder


FAULTS = (
    Fault(
        1, "captures of bodies are lost", (test_graph_cuts.test_what_a_body_captures_crosses_the_cut,), lose_captures
    ),
    Fault(
        2,
        "one tensor of a residual crosses",
        (
            test_graph_cuts.test_a_cut_across_a_residual_carries_every_tensor_that_crosses,
            test_graph_cuts.test_a_skip_connection_travels_along_through_later_parts,
            test_graph_cuts.test_outputs_finished_before_the_cut_travel_along,
        ),
        carry_only_the_last,
    ),
    Fault(
        3,
        "a chain of shapes crosses",
        (more.test_a_chain_of_shapes_never_crosses_a_cut,),
        leave_chains_of_shapes,
    ),
    Fault(
        4,
        "a large model is serialised",
        (test_graph_load.test_a_model_too_large_for_one_message_goes_to_the_runtime_as_a_file,),
        take_any_size_for_small,
    ),
    Fault(
        5,
        "external data is appended",
        (test_graph_split.test_writing_again_gives_the_same_files_and_appends_nothing,),
        append_to_the_old_file,
    ),
    Fault(
        6,
        "no types behind a custom operator",
        (test_graph_normalise.test_types_behind_an_operator_that_inference_does_not_know_come_from_a_run,),
        infer_types_by_rules,
    ),
    Fault(
        7,
        "a cut inside a fused group",
        (
            test_graph_cuts.test_no_cut_falls_between_a_convolution_and_its_activation,
            test_graph_cuts.test_no_cut_falls_inside_a_normalisation_written_out_in_operators,
        ),
        cut_between_any_operators,
    ),
    Fault(
        8,
        "a cut on the float side of a quantised pair",
        (test_graph_cuts.test_a_quantised_model_is_cut_at_its_quantised_tensors_bit_exactly,),
        cut_on_the_float_side,
    ),
    Fault(
        8,
        "a float that both sides need crosses instead of the quantised tensor",
        (more.test_a_widened_tensor_that_both_sides_need_is_made_by_both,),
        send_floats_that_both_sides_need,
    ),
    Fault(
        9,
        "weights are inputs",
        (
            test_graph_normalise.test_initializers_listed_as_inputs_no_longer_block_folding,
            test_graph_normalise.test_old_fixed_model_with_weights_as_inputs_becomes_one_input_at_the_stated_shape,
        ),
        keep_weights_as_inputs,
    ),
    Fault(
        10,
        "literal sizes below one are believed",
        (more.test_literal_sizes_below_one_inside_the_graph_are_forgotten,),
        believe_literal_sizes,
    ),
    Fault(
        11,
        "an unsorted file",
        (more.test_an_unsorted_file_is_put_in_order_before_anything_walks_it,),
        trust_the_order_of_the_file,
    ),
    Fault(
        12,
        "a batch size inside",
        (
            test_graph_batch.test_a_batch_size_baked_into_a_reshape_is_taken_out,
            test_graph_batch.test_a_batch_size_multiplied_into_the_first_axis_is_taken_out,
        ),
        leave_the_batch_in_reshapes,
    ),
    Fault(
        12,
        "rows that are mixed",
        (
            test_graph_batch.test_a_model_that_mixes_rows_is_pinned_to_the_stated_shape,
            test_graph_batch.test_a_range_taken_over_the_whole_batch_is_noticed,
        ),
        take_every_graph_for_batchable,
    ),
    Fault(
        13,
        "a model newer than the runtime",
        (test_ort.test_a_model_newer_than_the_runtime_is_refused_at_load,),
        load_at_the_first_request,
    ),
    Fault(
        14,
        "a model bound to one processor",
        (test_graph_normalise.test_what_is_saved_is_portable,),
        save_what_one_processor_runs,
    ),
    Fault(
        15,
        "casts of a processor in a 16-bit graph",
        (test_graph_normalise.test_16_bit_floats_stay_without_the_casts_of_a_processor,),
        bake_in_the_casts_of_a_processor,
    ),
    Fault(
        15,
        "differences in the steps of another type",
        (more.test_differences_are_counted_in_steps_of_the_tensors_own_type,),
        count_every_type_in_32_bits,
    ),
    Fault(
        16,
        "names of weights clash",
        (
            test_graph_split.test_parts_of_an_optimised_graph_can_be_optimised_again,
            test_graph_split.test_equal_weights_of_one_part_are_held_once,
        ),
        keep_the_names_of_weights,
    ),
    Fault(
        17,
        "cuts are found one by one",
        (test_graph_cuts.test_finding_cuts_is_linear_in_the_graph,),
        ask_for_each_value_what_crosses,
    ),
    Fault(
        18,
        "a silent fall back to the processor",
        (
            test_graph_load.test_asking_for_a_provider_that_is_not_there_fails_instead_of_falling_back,
            test_ort.test_a_session_that_silently_runs_elsewhere_is_refused,
        ),
        fall_back_to_the_processor,
    ),
    Fault(
        19,
        "weights that prove nothing",
        (more.test_random_weights_show_a_wrong_cut_that_constant_ones_hide,),
        keep_constant_weights,
    ),
    Fault(
        19,
        "constant weights that nobody mentions",
        (more.test_constant_weights_are_named_as_a_proof_of_nothing,),
        say_nothing_of_constant_weights,
    ),
)


CASES = [
    pytest.param(fault, test, id=f"{fault.number}-{fault.plant.__name__}-{test.__name__}")
    for fault in FAULTS
    for test in fault.tests
]


def arguments(test: Callable[..., object], folder: Path, patch: Patch) -> dict[str, object]:
    """What pytest would give to a test of another module."""
    known: dict[str, object] = {
        "tmp_path": folder,
        "monkeypatch": patch,
        "rows": 2,
        "literal": 0,
        "opset": 99,
        "ir_version": 8,
        "word": "Opset 99",
    }
    wanted = inspect.signature(test).parameters
    if "path" in wanted:
        known["path"] = make_bundle(folder, "chain", max_batch=3)
    return {name: known[name] for name in wanted}


def test_every_fault_of_the_list_is_covered() -> None:
    assert {fault.number for fault in FAULTS} == set(range(1, 20))


@pytest.mark.parametrize(("fault", "test"), CASES)
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_without_the_right_behaviour_its_test_fails(
    fault: Fault, test: Callable[..., object], tmp_path: Path, monkeypatch: Patch
) -> None:
    given = arguments(test, tmp_path, monkeypatch)
    monkeypatch.folder = tmp_path
    fault.plant(monkeypatch)
    with pytest.raises(FAILS):
        test(**given)


def test_arrays_of_other_types_are_infinitely_far_apart() -> None:
    one: Array = more.np.ones(3, "float32")
    assert ulps.ulps_apart(one, one.astype("float64")) == float("inf")
