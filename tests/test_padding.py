"""Requests of many lengths for plans of few: padding, the bucket that is chosen, and outputs as long as they were asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_agent import AGENT, LONG_MS, FakeAgent
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from edge.answers import to_header
from edge.buckets import bind_to_bucket
from edge.door import choose_model
from edge.front import model_infos
from shared.errors import InputError, PeerError, SettingsError
from shared.events import Send
from shared.padding import CutOutput, PaddedInput, Padding, as_asked, cut_back, pad, padding_faults, unpad
from shared.plan import Cut, contract_digest
from shared.plan_rules import plan_faults
from shared.request import EXACT, Answer, Array, Missed, TensorSpec
from shared.settings import EdgeSettings
from shared.wire import codec
from shared.wire.families import family_faults
from shared.wire.messages import PROTOCOL, Attached, Final, ModelInfo, Submit

INPUTS = (PaddedInput("ids", 1, 7.0), PaddedInput("mask", 1))


def padding(size: int, family: str = "reader") -> Padding:
    return Padding(family, "seq", size, INPUTS, (CutOutput("y", 1),))


def bucket(size: int, contract: str = "") -> ModelInfo:
    """Takes ids and a mask as long as the bucket; gives y, as long, and z."""
    inputs = (("ids", "int64", (1, size)), ("mask", "float32", (1, size)))
    return ModelInfo(f"reader-{size}", contract or f"c{size}", inputs, ("y", "z"), True, 4, padding(size))


PLAIN = ModelInfo("face", "f", (("image", "float32", (1, 3)),), ("boxes",), True, 4)
BUCKETS = {info.name: info for info in (bucket(16), bucket(4), bucket(8))}
WITH_PLAIN = {"face": PLAIN, **BUCKETS}


def asked(length: int, rows: int = 1) -> dict[str, Array]:
    return {
        "ids": np.arange(1, rows * length + 1, dtype=np.int64).reshape(rows, length),
        "mask": np.ones((rows, length), np.float32),
    }


# --- padding ---------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(1, 3))
def test_what_is_padded_and_cut_back_is_what_it_was(length: int, rows: int) -> None:
    before = asked(length, rows)
    padded = pad(padding(8), before)
    assert {name: array.shape for name, array in padded.items()} == {"ids": (rows, 8), "mask": (rows, 8)}
    assert (padded["ids"][:, length:] == 7).all()
    assert (padded["mask"][:, length:] == 0).all()
    assert {name: array.dtype for name, array in padded.items()} == {n: a.dtype for n, a in before.items()}
    again = unpad(padding(8), padded, length)
    assert all((again[name] == before[name]).all() for name in before)


def test_only_outputs_that_have_the_axis_are_cut_and_without_a_copy() -> None:
    y, z = np.arange(16.0).reshape(1, 8, 2), np.ones((1, 8))
    cut = cut_back(padding(8), {"y": y, "z": z}, 3)
    assert (cut["y"] == y[:, :3]).all()
    assert cut["y"].base is not None
    assert cut["z"] is z


def test_only_an_answer_to_what_was_padded_is_cut() -> None:
    answer = Answer({"y": np.ones((1, 8, 2))}, "edge", None, "whole", None, EXACT, "c8")
    shorter = as_asked(answer, padding(8), 5)
    assert isinstance(shorter, Answer)
    assert shorter.outputs["y"].shape == (1, 5, 2)
    assert as_asked(answer, padding(8), 0) is answer
    assert as_asked(answer, None, 5) is answer
    missed = Missed("client")
    assert as_asked(missed, padding(8), 5) is missed


SHAPES: Mapping[str, tuple[int, ...]] = {"ids": (1, 8), "mask": (1, 8)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"inputs": ()}, "no input is padded"),
        ({"inputs": (PaddedInput("nobody", 1),)}, "'nobody' is no input"),
        ({"inputs": (PaddedInput("ids", 0),)}, "has not 8 on axis 0"),
        ({"inputs": (PaddedInput("ids", 2),)}, "has not 8 on axis 2"),
        ({"inputs": (PaddedInput("ids", 1, float("nan")),)}, "which is no number"),
        ({"size": 9}, "has not 9 on axis 1"),
        ({"outputs": (CutOutput("x", 1),)}, "'x' is no output"),
        ({"outputs": (CutOutput("y", 0),)}, "0 no axis after its first"),
        ({"family": ""}, "1 to 128 characters"),
        ({"dimension": "d" * 129}, "1 to 128 characters"),
    ],
)
def test_a_padding_that_does_not_fit_its_tensors_is_named(changes: dict[str, Any], told: str) -> None:
    assert list(padding_faults(padding(8), SHAPES, ("y", "z"))) == []
    faults = list(padding_faults(msgspec.structs.replace(padding(8), **changes), SHAPES, ("y", "z")))
    assert told in " ".join(faults)


def test_a_plan_that_pads_is_another_contract_and_has_nothing_that_was_not_proven() -> None:
    contract, plan = make_plan(ladder=False)
    x = TensorSpec("x", "float32", (1, 8, 4))
    y = TensorSpec("y", "float32", (1, 8, 2))
    whole = msgspec.structs.replace(
        plan, cuts=(Cut("x", (x,)), plan.cuts[1], Cut("y", (y,))), programs=plan.programs[:1], routes=(), profiles=()
    )
    padded = msgspec.structs.replace(
        whole, padding=Padding("m", "seq", 8, (PaddedInput("x", 1),), (CutOutput("y", 1),))
    )
    assert contract_digest(padded) != contract_digest(whole)
    before = {fault for fault in plan_faults(whole) if "digest" not in fault}
    assert {fault for fault in plan_faults(padded) if "digest" not in fault} - before == {
        "padding: a plan that pads has no other program and no lossy coding: nothing is proven of these"
    }, "its middle cut has a lossy coding"
    wrong = msgspec.structs.replace(
        padded, padding=msgspec.structs.replace(padded.padding, outputs=(CutOutput("y", 2),))
    )
    assert any("has not 8 on axis 2" in fault for fault in plan_faults(wrong))
    ones = Padding("m", "seq", 8, (PaddedInput("x", 1, 1.0),), (CutOutput("y", 1),))
    twin = msgspec.structs.replace(padded, name="twin", padding=ones)
    with pytest.raises(SettingsError, match=r"agent\.models: .* are both the bucket 8 of 'm'; expected one"):
        model_infos({contract_digest(one): one for one in (padded, twin)}, EdgeSettings())
    assert b"padding" not in msgspec.json.encode(whole), "a plan that pads nothing reads as ever"
    assert msgspec.json.decode(msgspec.json.encode(padded), type=type(plan)) == padded
    assert contract == contract_digest(plan)


# --- which bucket --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "size"), [(1, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16)])
def test_a_request_goes_to_the_smallest_bucket_that_it_fits_into(length: int, size: int) -> None:
    for models, name in ((WITH_PLAIN, "reader"), (BUCKETS, "reader"), (BUCKETS, None)):
        info, arrays, rows, before = bind_to_bucket(models, name, asked(length, 2))
        assert info.name == f"reader-{size}"
        assert [array.shape for array in arrays] == [(2, size), (2, size)]
        assert rows == 2
        assert before == (0 if length == size else length)


def test_a_bucket_by_its_own_name_takes_what_is_shorter_and_nothing_longer() -> None:
    assert bind_to_bucket(WITH_PLAIN, "reader-8", asked(3))[0].name == "reader-8"
    with pytest.raises(InputError, match=r"expected shape \[n, 1 to 8\], seq being padded to 8, got \[1, 9\]"):
        bind_to_bucket(WITH_PLAIN, "reader-8", asked(9))


def test_what_passes_is_the_clients_own() -> None:
    for length in (3, 4):
        given = asked(length)
        _, arrays, _, _ = bind_to_bucket(BUCKETS, "reader", given)
        assert not any(np.shares_memory(a, b) for a, b in zip(arrays, given.values(), strict=True))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"ids": np.zeros((1, 17), np.int64)},
            r"input 'ids': expected shape \[n, 1 to 16\], seq being padded to 4, 8, 16, got",
        ),
        ({"ids": np.zeros((1, 0), np.int64)}, r"1 to 16\], seq being padded to 4, 8, 16, got \[1, 0\]"),
        ({"ids": np.zeros(3, np.int64)}, r"got \[3\]"),
        ({"ids": np.zeros((1, 3, 1), np.int64)}, r"got \[1, 3, 1\]"),
        ({"mask": np.ones((1, 4), np.float32)}, "'mask': is 4 long where 'ids' is 3: seq is the same"),
        ({"ids": np.zeros((1, 3))}, "'ids': expected dtype int64, got float64"),
        ({"mask": np.ones((2, 3), np.float32)}, "'mask' has 2 rows where 'ids' has 1"),
        ({"more": np.ones(1)}, "unknown 'more'"),
        (asked(3, 0), r"'ids': shape \[0, 3\] holds no element; expected \[n, 3\] with n from 1 to 4"),
        (asked(3, 5), "'ids': 5 rows are too many; model 'reader-4' takes at most 4"),
    ],
)
def test_what_no_bucket_takes_is_refused_by_name(change: dict[str, Array], told: str) -> None:
    with pytest.raises(InputError, match=told):
        bind_to_bucket(WITH_PLAIN, "reader", {**asked(3), **change})


def test_models_that_pad_nothing_are_asked_as_ever() -> None:
    info, _, rows, length = bind_to_bucket(WITH_PLAIN, "face", np.zeros((2, 3), np.float32))
    assert (info, rows, length) == (PLAIN, 2, 0)
    with pytest.raises(InputError, match="name one of the agent's 4 models"):
        bind_to_bucket(WITH_PLAIN, None, asked(3))
    with pytest.raises(InputError, match="the agent has: face, reader, reader-16, reader-4, reader-8"):
        bind_to_bucket(WITH_PLAIN, "writer", asked(3))


def test_a_bucket_of_which_there_is_but_one_row_says_what_was_given_and_not_what_that_was_padded_to() -> None:
    single = {"reader-8": msgspec.structs.replace(bucket(8), batchable=False)}
    with pytest.raises(InputError, match=r"'ids': expected shape \[1, 3\], got \[2, 3\]"):
        bind_to_bucket(single, "reader", asked(3, 2))


OTHER = msgspec.structs.replace(bucket(8), name="other-8")


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ((msgspec.structs.replace(PLAIN, name="reader"),), "model 'reader' has the name of the family of 'reader-4'"),
        (
            (msgspec.structs.replace(OTHER, name="reader", padding=padding(8, "x")),),
            "'reader' has the name of the family",
        ),
        ((OTHER, bucket(8, "again")), "'other-8' and 'reader-8' are both the bucket 8 of 'reader'"),
        (
            (msgspec.structs.replace(OTHER, outputs=("y",)),),
            "'reader-4' and 'other-8' are buckets of 'reader', and their",
        ),
        ((msgspec.structs.replace(OTHER, batchable=False),), "their tensors differ"),
        (
            (msgspec.structs.replace(OTHER, inputs=(*OTHER.inputs, ("more", "float32", (1, 2)))),),
            "their tensors differ by more than the length",
        ),
    ],
)
def test_models_that_no_name_tells_apart_are_refused(models: tuple[ModelInfo, ...], told: str) -> None:
    assert list(family_faults(tuple(WITH_PLAIN.values()))) == []
    told_of = (bucket(4), *models)
    assert told in " ".join(family_faults(told_of))
    with pytest.raises(PeerError, match=r"famil|bucket"):
        codec.decode_agent(codec.encode(Attached(PROTOCOL, "edge", 3, told_of)))


def test_a_stream_of_a_family_is_announced_as_its_largest_bucket() -> None:
    assert choose_model(WITH_PLAIN, "reader").name == "reader-16"
    assert choose_model(BUCKETS, None).name == "reader-16"


# --- client and agent ------------------------------------------------------------------------------------------------------


class Summer(FakeAgent):
    """Gives y = ids and z, their sum, of whatever it is sent."""

    def answer(self, submit: Submit, send: Send) -> None:
        ids = np.asarray(send.frames[0])
        given = Answer({"y": ids * 1.0, "z": ids.sum(axis=1)}, "edge", None, "whole", None, EXACT, submit.model)
        header, arrays = to_header(given)
        frames = tuple(array.tobytes() for array in arrays)
        self.transport.deliver(AGENT, Final(submit.sequence, "answer", header), frames)


def test_a_client_gets_outputs_as_long_as_what_it_asked() -> None:
    agent = Summer(tuple(BUCKETS.values()))
    with agent.client() as client:
        assert client.wait_attached()
        for length, contract in ((3, "c4"), (4, "c4"), (7, "c8")):
            answer = client.infer(asked(length), LONG_MS, model="reader")
            assert isinstance(answer, Answer)
            assert answer.contract == contract
            assert answer.outputs["y"].tolist() == [list(range(1, length + 1))]
            assert answer.outputs["z"].item() == length * (length + 1) / 2 + 7 * (int(contract[1:]) - length)
        assert client.stats().padded == 2


def test_what_was_asked_before_the_agent_came_finds_its_bucket_then() -> None:
    agent = Summer(tuple(BUCKETS.values()))
    with agent.client(connect=False) as client:
        early = client.submit(asked(5), LONG_MS, model="reader")
        wrong = client.submit(asked(40), LONG_MS, model="reader")
        agent.transport.connect(AGENT)
        answer = early.result(30)
        assert isinstance(answer, Answer)
        assert (answer.contract, answer.outputs["y"].shape) == ("c8", (1, 5))
        assert "1 to 16" in str(wrong.result(30))


def test_an_agent_that_comes_back_with_other_buckets_is_asked_what_was_asked_before() -> None:
    """Not what it was padded to."""
    agent = Summer(tuple(BUCKETS.values()))
    agent.on_submit = lambda submit, send: None
    with agent.client() as client:
        assert client.wait_attached()
        waits = client.submit(asked(5), LONG_MS, model="reader")
        seen = agent.seen.get(timeout=30)
        while not isinstance(seen, Submit):
            seen = agent.seen.get(timeout=30)
        assert seen.model == "c8"
        agent.on_submit = agent.answer
        agent.models = (bucket(6, "new6"), bucket(12, "new12"))
        agent.attach(2)
        answer = waits.result(30)
        assert isinstance(answer, Answer)
        assert (answer.contract, answer.outputs["y"].tolist()) == ("new6", [[1, 2, 3, 4, 5]])


def test_a_padding_travels_with_its_model_and_one_that_does_not_fit_is_refused() -> None:
    told = Attached(PROTOCOL, "edge", 3, (bucket(8), PLAIN))
    (header,) = codec.encode(told)
    assert codec.decode_agent([header])[0] == told
    assert b"padding" not in codec.encode(Attached(PROTOCOL, "edge", 3, (PLAIN,)))[0]
    wrong = msgspec.structs.replace(bucket(8), padding=padding(9))
    with pytest.raises(PeerError, match="the padding of model 'reader-8'") as refused:
        codec.decode_agent(codec.encode(Attached(PROTOCOL, "edge", 3, (wrong,))))
    assert refused.value.reason == "shape"
