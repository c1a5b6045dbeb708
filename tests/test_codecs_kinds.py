"""The kinds of codings one by one: each frame is what `docs/protocol.md` says, to the bit, and decodes within the kind's
stated error. The formulas are written out here once more, with other means than the codecs'."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys

import hypothesis.extra.numpy as arrays_of
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codecs import decoded

from shared.codecs import CODECS, coding_fault, dtype_of, encode
from shared.codecs.codec import registered
from shared.codecs.installed import FIELDS
from shared.codecs.intn import IntN
from shared.codecs.raw import Raw
from shared.errors import InputError, InvariantBroken, UserError
from shared.plan import RAW, Coding, Plan, contract_digest
from shared.request import TensorSpec

FP16 = Coding("fp16", "fp16")
QOI = Coding("qoi", "qoi")
FULL = Coding("jpeg90-444", "jpeg", quality=90, subsampling="444")
FLOATS = ("float16", "float32", "float64")


def intn(bits: int, *scales: float) -> Coding:
    return Coding(f"int{bits}", "intn", bits=bits, scales=(scales,))


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_codec_is_found_by_its_kind_and_every_field_belongs_to_a_kind() -> None:
    assert set(CODECS) == {"raw", "fp16", "int8", "intn", "jpeg", "qoi", "pca"}
    assert all(codec.kind == kind for kind, codec in CODECS.items())
    used = frozenset[str]().union(*(codec.fields for codec in CODECS.values()))
    assert used | {"lossless"} == set(FIELDS) == set(Coding.__struct_fields__) - {"name", "kind"}


def test_two_codecs_of_one_kind_are_refused() -> None:
    with pytest.raises(InvariantBroken, match="two codecs are of kind 'raw'"):
        registered(Raw(), Raw())


def test_only_what_gives_back_every_bit_is_not_lossy() -> None:
    lossless = {kind for kind in CODECS if not Coding("c", kind).lossy}
    assert lossless == {"raw", "qoi"}
    assert [kind for kind in CODECS if not Coding("c", kind).coded] == ["raw"]


IMAGE = TensorSpec("image", "uint8", (1, 8, 8, 3))
FLOAT = TensorSpec("t", "float32", (1, 3, 4))
FAULTS = [
    (Coding("c", "raw", quality=90), IMAGE, "quality is given, which a coding of kind raw does not have"),
    (Coding("c", "raw", lossless=True), FLOAT, "lossless is given, which a coding of kind raw does not have"),
    (Coding("c", "fp16", scales=((1.0,),)), FLOAT, "scales is given, which a coding of kind fp16"),
    (Coding("c", "int8", scales=((1.0,) * 3,), bits=8), FLOAT, "bits is given, which a coding of kind int8"),
    (Coding("c", "qoi", subsampling="444"), IMAGE, "subsampling is given, which a coding of kind qoi"),
    (Coding("c", "jpeg", quality=90, bits=4), IMAGE, "bits is given, which a coding of kind jpeg"),
    (Coding("c", "intn", scales=((1.0,),), bits=4, quality=1), FLOAT, "quality is given, which a coding of kind intn"),
    (FP16, IMAGE, "'image' is uint8, fp16 is for floating types"),
    (intn(4, 1.0), IMAGE, "'image' is uint8, intn is for floating types"),
    (intn(1, 1.0), FLOAT, "bits 1 is not one of 2 to 8"),
    (intn(9, 1.0), FLOAT, "bits 9 is not one of 2 to 8"),
    (intn(4, 1.0, 1.0), FLOAT, "2 scales for the 3 channels of 't'"),
    (intn(4, -1.0), FLOAT, "a scale of 't' is not a positive number"),
    (Coding("c", "intn", bits=4), FLOAT, "scales for 0 tensors, the cut has 1"),
    (QOI, FLOAT, "qoi is for one uint8 tensor"),
    (QOI, TensorSpec("image", "uint8", (1, 1, 70_000, 3)), "at most 65500 pixels a side"),
    (FULL, FLOAT, "jpeg is for one uint8 tensor"),
]


@pytest.mark.parametrize(("coding", "spec", "fault"), FAULTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_coding_that_does_not_fit_is_refused_with_what_is_wrong(coding: Coding, spec: TensorSpec, fault: str) -> None:
    assert fault in (coding_fault(coding, (spec,)) or "")


@pytest.mark.parametrize(
    ("coding", "spec"),
    [(RAW, IMAGE), (FP16, FLOAT), (intn(4, 1.0), FLOAT), (intn(8, 1.0, 2.0, 3.0), FLOAT), (QOI, IMAGE), (FULL, IMAGE)],
)
def test_a_coding_that_fits_has_no_fault(coding: Coding, spec: TensorSpec) -> None:
    assert coding_fault(coding, (spec,)) is None


def test_codings_of_before_are_written_as_they_were_and_new_ones_with_what_they_need() -> None:
    for old in (
        b'{"name":"raw","kind":"raw","quality":0,"scales":[]}',
        b'{"name":"int8","kind":"int8","quality":0,"scales":[[0.5,0.25]]}',
        b'{"name":"jpeg90","kind":"jpeg","quality":90,"scales":[]}',
    ):
        assert msgspec.json.encode(msgspec.json.decode(old, type=Coding)) == old
    for new in (FP16, QOI, FULL, intn(4, 0.5)):
        written = msgspec.json.encode(new)
        assert msgspec.json.decode(written, type=Coding) == new
        # What is at its default may be written or left out: it is one coding, with one digest.
        spelt = msgspec.json.encode({"bits": 0, "subsampling": "", **msgspec.json.decode(written)})
        assert msgspec.json.encode(msgspec.json.decode(spelt, type=Coding)) == written
    assert msgspec.json.encode(FULL).endswith(b'"quality":90,"scales":[],"subsampling":"444"}')


PLAN_OF_BEFORE = (
    '{"format":1,"name":"face","model":"m","opset":17,"ir_version":8,"batchable":true,"max_batch":8,'
    '"cuts":[{"name":"input","tensors":[{"name":"image","dtype":"uint8","shape":[1,8,8,3]}],'
    '"codings":[{"name":"raw","kind":"raw","quality":0,"scales":[]},{"name":"jpeg90","kind":"jpeg",'
    '"quality":90,"scales":[]}]},{"name":"r1","tensors":[{"name":"r1","dtype":"float32",'
    '"shape":[1,2,4,4]}],"codings":[{"name":"raw","kind":"raw","quality":0,"scales":[]},{"name":"int8",'
    '"kind":"int8","quality":0,"scales":[[0.1,0.025]]}]},{"name":"output","tensors":[{"name":"y",'
    '"dtype":"float32","shape":[1,5]}],"codings":[{"name":"raw","kind":"raw","quality":0,"scales":[]}]}],'
    '"programs":[{"name":"whole","segments":[{"name":"s0","file":"s0.onnx","inputs":["image"],'
    '"outputs":["r1"]},{"name":"s1","file":"s1.onnx","inputs":["r1"],"outputs":["y"]}]}],'
    '"ladder":[{"name":"whole","program":0,"agreement":1.0}],"routes":[{"cut":0,"coding":"jpeg90",'
    '"agreement":0.98,"bytes_up":900,"bytes_down":300},{"cut":1,"coding":"int8","agreement":0.99,'
    '"bytes_up":300,"bytes_down":300}],"metric":"top1","chosen":"x","digests":{"s0.onnx":"00",'
    '"s1.onnx":"11"}}'
)
"""A plan as it was written when a coding had four fields."""


def test_a_plan_of_before_keeps_its_contract_digest() -> None:
    plan = msgspec.json.decode(PLAN_OF_BEFORE, type=Plan)
    assert [coding.kind for cut in plan.cuts for coding in cut.codings] == ["raw", "jpeg", "raw", "int8", "raw"]
    # What the code gave that wrote it.
    assert contract_digest(plan) == "2fb613c342ff1d0a42f04df84bc1a40fcaa12148195da577ce916810d3464b51"
    # The page's own recipe, with the parts as they stand in the file.
    kept = json.loads(PLAN_OF_BEFORE)
    parts = [kept[key] for key in ("format", "model", "batchable", "cuts", "programs", "ladder")]
    parts += [sorted([r["cut"], r["coding"], r["agreement"]] for r in kept["routes"]), sorted(kept["digests"].items())]
    assert hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest() == contract_digest(plan)


# --- raw --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_models_own_quantised_tensor_travels_raw_in_one_byte_an_element(dtype: str) -> None:
    array = np.arange(256, dtype=np.uint8).view(dtype).reshape(1, 4, 8, 8)
    frame = encode(array, RAW, 0)
    assert bytes(frame) == bytes(range(256))
    assert decoded(frame, RAW, TensorSpec("q", dtype, array.shape), 1).tobytes() == array.tobytes()


# --- fp16 -------------------------------------------------------------------------------------------------------------


def half_of(value: float) -> bytes:
    """A half by the standard library's rounding, which raises where the result would be infinite."""
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(65504.0, value))


@settings(deadline=None, max_examples=50)
@given(
    dtype=st.sampled_from(FLOATS),
    shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    data=st.data(),
)
def test_fp16_is_the_nearest_half_and_never_a_new_infinity(
    dtype: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    near = st.sampled_from([65504.0, 65519.0, 65520.0, -65520.0, 2.0**-24, 2.0**-25, 1.0 + 2.0**-11, math.inf])
    wide = {"float16": 16, "float32": 32, "float64": 64}[dtype]
    elements = st.one_of(st.floats(allow_nan=False, width=wide), near)
    with np.errstate(over="ignore"):
        values = data.draw(st.lists(elements, min_size=math.prod(shape), max_size=math.prod(shape)))
        array = np.array(values).astype(dtype).reshape(shape)
    frame = bytes(encode(array, FP16, 0))
    assert frame == b"".join(half_of(value) for value in array.reshape(-1).tolist())
    back = decoded(frame, FP16, TensorSpec("t", dtype, shape), 1)
    assert back.dtype == array.dtype
    for given_, read in zip(array.reshape(-1).tolist(), back.reshape(-1).tolist(), strict=True):
        if abs(given_) <= 65504:
            assert abs(read - given_) <= max(2.0**-11 * abs(given_), 2.0**-25)


def test_fp16_keeps_infinities_and_what_is_not_a_number() -> None:
    array = np.array([np.inf, -np.inf, np.nan, 1e6, -1e6, 65504.0], np.float32)
    back = decoded(encode(array, FP16, 0), FP16, TensorSpec("t", "float32", (6,)), 1)
    assert back[:2].tolist() == [math.inf, -math.inf]
    assert math.isnan(back[2])
    assert back[3:].tolist() == [65504.0, -65504.0, 65504.0]


def test_fp16_takes_bfloat16_and_gives_it_back() -> None:
    array = np.array([[1.5, -2.25, 1e6]], np.float32).astype(dtype_of("bfloat16"))
    spec = TensorSpec("t", "bfloat16", (1, 3))
    assert decoded(encode(array, FP16, 0), FP16, spec, 1).astype(np.float32).tolist() == [[1.5, -2.25, 65536.0]]


def test_fp16_is_for_floats() -> None:
    with pytest.raises(InputError, match="floating types, not int32"):
        encode(np.zeros(3, np.int32), FP16, 0)


# --- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "coding", "array"),
    [
        ("qoi", QOI, np.zeros((1, 4, 4, 3), np.uint8)),
        ("simplejpeg", FULL, np.zeros((1, 4, 4, 3), np.uint8)),
        ("zstandard", intn(4, 1.0), np.zeros((1, 1, 4), np.float32)),
    ],
)
def test_a_missing_library_is_named_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, package: str, coding: Coding, array: np.ndarray
) -> None:
    frame = bytes(encode(array, coding, 0))
    monkeypatch.setitem(sys.modules, package, None)
    codec = IntN() if package == "zstandard" else CODECS[coding.kind]
    with pytest.raises(UserError, match=f"needs the package {package}"):
        codec.encode(array, coding, 0)
    with pytest.raises(UserError, match=f"needs the package {package}"):
        codec.decode(frame, coding, 0, TensorSpec("t", str(array.dtype), array.shape), array.copy())
