from __future__ import annotations

import math
import re
from collections import UserDict
from collections.abc import Callable

import numpy as np
import pytest

from edge.door import bind, choose_model, deadline, flag, own, span, whole
from shared.errors import InputError, shown
from shared.request import Array
from shared.wire.messages import ModelInfo

MS = 1_000_000
ONE = ModelInfo("face", "c1", (("image", "uint8", (1, 4, 4, 3)),), ("boxes",), True, 4)
TWO = ModelInfo("pair", "c2", (("a", "float32", (1, 3)), ("b", "int64", (1, 2))), ("y",), True, 4)
FIXED = ModelInfo("fixed", "c3", (("x", "float32", (5, 3)),), ("y",), False, 1)


def image(rows: int = 1, dtype: str = "uint8") -> Array:
    return np.arange(rows * 48).reshape(rows, 4, 4, 3).astype(dtype)


def refusal(info: ModelInfo, inputs: object) -> str:
    with pytest.raises(InputError) as caught:
        bind(info, inputs)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_one_array_is_enough_for_a_model_with_one_input() -> None:
    (array,), rows = bind(ONE, image(3))
    assert rows == 3
    np.testing.assert_array_equal(array, image(3))


def test_named_arrays_come_out_in_the_plans_order() -> None:
    named: dict[str, Array] = {"b": np.zeros((2, 2), np.int64), "a": np.ones((2, 3), np.float32)}
    arrays, rows = bind(TWO, named)
    assert [a.dtype.name for a in arrays] == ["float32", "int64"]
    assert rows == 2


def test_what_passes_is_a_private_copy() -> None:
    given = image()
    (array,), _ = bind(ONE, given)
    given[:] = 0
    np.testing.assert_array_equal(array, image())


def test_a_wrong_dtype_names_the_tensor_and_both_types() -> None:
    assert refusal(ONE, image(dtype="float32")) == "input 'image': expected dtype uint8, got float32"


def test_a_wrong_shape_names_the_tensor_and_both_shapes() -> None:
    message = refusal(ONE, np.zeros((1, 5, 4, 3), np.uint8))
    assert message == "input 'image': expected shape [n, 4, 4, 3] with n from 1 to 4, got [1, 5, 4, 3]"


def test_a_missing_axis_is_a_wrong_shape() -> None:
    assert "got [4, 4, 3]" in refusal(ONE, np.zeros((4, 4, 3), np.uint8))


def test_a_scalar_is_a_wrong_shape() -> None:
    assert "got []" in refusal(ONE, np.uint8(3))


def test_a_wrong_name_says_what_is_missing_unknown_and_expected() -> None:
    message = refusal(ONE, {"img": image()})
    assert message == "inputs of model 'face': missing 'image'; unknown 'img'; expected 'image'"


def test_a_missing_input_is_named() -> None:
    assert "missing 'b'" in refusal(TWO, {"a": np.ones((1, 3), np.float32)})


def test_a_surplus_input_is_named() -> None:
    assert "unknown 'c'" in refusal(TWO, dict.fromkeys("abc", image()))


def test_a_bare_array_is_not_enough_for_two_inputs() -> None:
    assert "has 2 inputs (a, b)" in refusal(TWO, np.ones((1, 3), np.float32))


def test_a_name_that_is_no_string_is_refused() -> None:
    with pytest.raises(InputError, match="name is a string"):
        own({3: image()})  # type: ignore[dict-item]


@pytest.mark.parametrize("view", ["transposed", "reversed", "strided"])
def test_arrays_that_are_not_contiguous_are_converted(view: str) -> None:
    base = np.arange(4 * 4 * 3 * 2, dtype=np.uint8)
    strange = {
        "transposed": base[:48].reshape(3, 4, 4).T[np.newaxis],
        "reversed": base[:48].reshape(1, 4, 4, 3)[:, ::-1],
        "strided": base.reshape(1, 4, 4, 6)[..., ::2],
    }[view]
    assert not strange.flags.c_contiguous
    (array,), _ = bind(ONE, strange)
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, strange)


def test_foreign_byte_order_is_converted_with_the_values_kept() -> None:
    values = np.array([[1.5, -2.0, 3.25]] * 5)
    (array,), _ = bind(FIXED, values.astype(">f4"))
    assert array.dtype == np.dtype("float32")
    assert array.dtype.isnative
    np.testing.assert_array_equal(array, values.astype(np.float32))


def test_nan_and_infinity_pass() -> None:
    given = np.full((5, 3), math.nan, np.float32)
    given[0, 0] = math.inf
    (array,), _ = bind(FIXED, given)
    np.testing.assert_array_equal(array, given)


def test_no_rows_are_refused() -> None:
    assert "holds no element" in refusal(ONE, np.zeros((0, 4, 4, 3), np.uint8))


def test_too_many_rows_are_refused_with_the_bound() -> None:
    assert refusal(ONE, image(5)) == "input 'image': 5 rows are too many; model 'face' takes at most 4"


def test_inputs_with_different_rows_are_refused() -> None:
    message = refusal(TWO, {"a": np.ones((1, 3), np.float32), "b": np.zeros((2, 2), np.int64)})
    assert "input 'b' has 2 rows where 'a' has 1" in message


def test_the_first_axis_of_a_model_without_batches_is_fixed() -> None:
    assert "expected shape [5, 3], got [10, 3]" in refusal(FIXED, np.zeros((10, 3), np.float32))


def test_a_list_passes_only_with_the_models_own_dtype() -> None:
    assert "expected dtype float32, got float64" in refusal(FIXED, [[1.0, 2.0, 3.0]] * 5)
    whole = ModelInfo("ints", "c", (("x", "int64", (1, 2)),), ("y",), True, 1)
    (array,), _ = bind(whole, [[1, 2]])
    assert array.tolist() == [[1, 2]]


@pytest.mark.parametrize("thing", [None, object(), "text", [[1], [2, 3]], {1, 2}])
def test_things_that_are_no_arrays_are_refused(thing: object) -> None:
    assert re.match("input 'image': ", refusal(ONE, thing))


def test_inputs_kept_for_later_are_copies_and_are_bound_as_given() -> None:
    given = image()
    kept = own(given)
    given[:] = 0
    (array,), rows = bind(ONE, kept, copy=False)
    assert rows == 1
    np.testing.assert_array_equal(array, image())


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="model 'x' is unknown; the agent has: face, pair"):
        choose_model({"face": ONE, "pair": TWO}, "x")


def test_the_only_model_needs_no_name_and_several_do() -> None:
    assert choose_model({"face": ONE}, None) is ONE
    with pytest.raises(InputError, match="name one of the agent's 2 models"):
        choose_model({"face": ONE, "pair": TWO}, None)


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan, math.inf, True, "10", None, 10**400, 1j, np.complex64(10)])
def test_a_deadline_that_is_no_positive_duration_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match="deadline_ms: expected a positive number of milliseconds"):
        deadline(0, 0, value, None)  # type: ignore[arg-type]


def test_a_duration_counts_from_the_scheduled_time() -> None:
    assert deadline(7 * MS, 5 * MS, 10, None) == 15 * MS


def test_an_absolute_deadline_in_the_past_is_refused() -> None:
    with pytest.raises(InputError, match=r"deadline_ns: lies 1\.000 ms in the past"):
        deadline(5 * MS, 5 * MS, None, 4 * MS)


@pytest.mark.parametrize("value", [1.5, "x", True, 1 << 80])
def test_an_absolute_deadline_is_an_integer(value: object) -> None:
    with pytest.raises(InputError, match="deadline_ns: expected an integer"):
        deadline(0, 0, None, value)  # type: ignore[arg-type]


def test_a_deadline_too_far_ahead_is_refused() -> None:
    with pytest.raises(InputError, match="too far"):
        deadline(0, 0, 1e12, None)


def test_numbers_of_numpy_become_pythons_own() -> None:
    assert type(whole("priority", np.int64(2), 0, 9, "a number")) is int
    assert type(deadline(0, 0, np.float32(10), None)) is int
    assert type(deadline(0, 0, None, np.int64(5))) is int


@pytest.mark.parametrize("name", [3, b"face", ["face"]])
def test_a_model_that_is_no_string_is_unknown(name: object) -> None:
    with pytest.raises(InputError, match="is unknown; the agent has: face"):
        choose_model({"face": ONE}, name)  # type: ignore[arg-type]


def test_a_tensor_that_no_agent_would_take_is_not_copied_while_there_is_none() -> None:
    with pytest.raises(InputError, match=r"input 'input': has \d+ bytes; expected at most"):
        own(np.broadcast_to(np.float32(0), (1, 1 << 42)))


class Contrary:
    """A tensor of another library that will be no array, as one of torch's that needs a gradient, and has no words for it."""

    def __array__(self, *_: object, **__: object) -> Array:
        raise RuntimeError("call\ndetach() first")

    def __repr__(self) -> str:
        raise RuntimeError


class Torn(UserDict[str, Array]):
    """A mapping whose values cannot be read, as those of a file that was closed."""

    def __getitem__(self, key: str) -> Array:
        raise OSError("the file is closed")


@pytest.mark.parametrize(
    "value",
    [np.timedelta64(10, "ms"), np.timedelta64(10, "ns"), np.timedelta64(10), 10**5000, Contrary()],
    ids=lambda value: type(value).__name__,
)
def test_what_has_a_unit_or_no_end_is_neither_a_duration_nor_a_number(value: object) -> None:
    with pytest.raises(InputError, match="deadline_ms: expected a positive number of milliseconds, got "):
        span("deadline_ms", value)
    with pytest.raises(InputError, match="priority: expected 0 to 9, got "):
        whole("priority", value, 0, 9, "0 to 9")
    with pytest.raises(InputError, match="latest_wins: expected True or False, got "):
        flag("latest_wins", value)
    with pytest.raises(InputError, match="is unknown; the agent has: face"):
        choose_model({"face": ONE}, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1e13, 1e305, np.float64(1e305), 10**300, np.finfo(np.float64).max])
def test_no_duration_is_too_long_to_be_told_so(value: float) -> None:
    with pytest.raises(InputError, match="s ahead is too far; expected at most an hour"):
        deadline(0, 0, value, None)


def test_an_absolute_deadline_lies_behind_the_time_at_which_the_request_is_due() -> None:
    with pytest.raises(InputError, match=r"deadline_ns: lies 1\.000 ms before scheduled_ns; expected a later time"):
        deadline(0, 3 * MS, None, 2 * MS)


def test_a_thing_that_refuses_to_be_an_array_is_refused_in_its_own_words_on_one_line() -> None:
    assert refusal(ONE, Contrary()) == "input 'image': Contrary is no array: call detach() first"
    with pytest.raises(InputError, match="Contrary is no array"):
        own(Contrary())  # type: ignore[arg-type]


def test_a_mapping_that_cannot_be_read_is_refused_in_its_own_words() -> None:
    assert refusal(TWO, Torn(a=image())) == "inputs: Torn cannot be read: the file is closed"
    with pytest.raises(InputError, match="Torn cannot be read"):
        own(Torn(a=image()))


@pytest.mark.parametrize(
    "dtype", [np.dtypes.StringDType(), "U3", "S3", "M8[ns]", "V48", object, [("r", "u1"), ("g", "u1")]]
)
def test_element_types_that_no_model_has_are_wrong_dtypes(dtype: object) -> None:
    assert refusal(ONE, np.empty((1, 4, 4, 3), dtype)).startswith("input 'image': expected dtype uint8, got ")  # type: ignore[call-overload]


@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: [array[0]], lambda array: ([*array[0]],)])
def test_a_masked_array_is_refused_since_its_mask_would_be_forgotten(wrap: Callable[[Array], object]) -> None:
    masked = np.ma.MaskedArray(image(), mask=image() > 40)
    assert "a masked array" in refusal(ONE, wrap(masked))
    with pytest.raises(InputError, match="a masked array"):
        own(wrap(masked))  # type: ignore[arg-type]
    (array,), _ = bind(ONE, masked.filled(7))
    assert array.max() == 40


def test_a_value_in_a_message_takes_one_short_line_whatever_it_is() -> None:
    assert shown("x") == "'x'"
    assert shown(10**5000) == "a value of type int that cannot be shown"
    assert shown(Contrary()) == "a value of type Contrary that cannot be shown"
    assert len(shown(np.zeros((50, 50)))) == 80
    assert "\n" not in shown(np.zeros((50, 50)))
