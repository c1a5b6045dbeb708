"""Changing the cut while many requests are open, on virtual time; and what the rig of the real processes judges by."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from plans import Y, make_plan

from hil.ledger import Entry
from hil.pair import MS, Pair, stamp
from hil.switching_rules import Account, Step, Switches, Switching, account, switches
from shared.codecs import decode_into, encode
from shared.events import Action, Send, WakeAt
from shared.plan import RAW, Coding, Cut, Plan, Route, contract_digest
from shared.request import Answer, Array, TensorSpec
from shared.settings import EdgeSettings, Link, NodeAddress
from shared.wire.messages import Infer, tensor_table

X, MID = TensorSpec("x", "float32", (1, 4096)), TensorSpec("mid", "float32", (1, 1024))
INT8 = Coding("int8", "int8", scales=((1.0,) * 1024,))
ROUTES = (Route(0, "raw", 1.0, 16_700, 200), Route(1, "int8", 0.97, 1_300, 200))
DEADLINE_MS = 20.0
PERIOD_MS = 1000.0 / 300.0


def by_way(plan: Plan, inputs: tuple[Array, ...], answer: Answer) -> Array:
    """What this answer's own way makes of these inputs, computed apart."""
    if answer.source == "edge":
        return stamp(list(inputs), 0 if answer.rung == "whole" else 1, [(Y.shape, "float32")])[0]
    if answer.cut == 0:
        return stamp(list(inputs), 0, [(Y.shape, "float32")])[0]
    middle = stamp(list(inputs), 0, [(MID.shape, "float32")])[0]
    coding = plan.cuts[1].coding(answer.fidelity.name or "raw")
    assert isinstance(coding, Coding)
    decoded: Array = np.empty(MID.shape, MID.dtype)
    decode_into(encode(middle, coding, 0), coding, 0, MID, 1, decoded)
    return stamp([decoded], 0, [(Y.shape, "float32")])[0]


def test_cuts_change_under_three_hundred_requests_a_second_and_no_answer_is_of_another() -> None:
    """The link swings every second so that another cut becomes the best; several requests are open at a time."""
    _, plan = make_plan(edge_ms=(1.0, 0.4), cloud_ms=0.2, routes=ROUTES)
    cuts = (Cut("x", (X,)), Cut("mid", (MID,), (RAW, INT8)), plan.cuts[2])
    plan = msgspec.structs.replace(plan, ladder=plan.ladder[1:], cuts=cuts)
    contract = contract_digest(plan)
    edge = EdgeSettings(nodes=(NodeAddress("a", "tcp://127.0.0.1:1"),), link=Link())
    pair = Pair({contract: plan}, edge)
    pair.run(100)
    way = pair.ways["a"]
    asked: dict[int, tuple[Array, ...]] = {}
    open_most = 0
    rng = np.random.default_rng(3)
    for number in range(1_800):
        way.per_byte_ns = (1.0, 800.0)[number // 300 % 2]
        way.one_way_ns = (6 * MS, 5 * MS)[number // 300 % 2]
        inputs: tuple[Array, ...] = (rng.integers(0, 100, X.shape).astype(np.float32),)
        asked[pair.ask(inputs, DEADLINE_MS)] = inputs
        pair.run(PERIOD_MS)
        open_most = max(open_most, len(asked) - len(pair.delivered))
    pair.run(100)
    ways: Counter[tuple[int | None, str]] = Counter()
    changes, before = 0, None
    for sequence, inputs in asked.items():
        answer = pair.answer(sequence)
        assert (answer.outputs["y"] == by_way(plan, inputs, answer)).all()
        ways[answer.cut, answer.fidelity.name] += 1
        changes += before not in (None, answer.cut)
        before = answer.cut
    assert open_most >= 3
    assert changes >= 8
    assert len([cut for cut, _ in ways if cut is not None]) >= 2


def infer(cut: int, sequence: int = 1) -> Action:
    message = Infer(1, sequence, 1, "c", cut, "raw", 1, 1, 1, 1, tensor_table((X,), 1)[1])
    return Send("a/data", message)


def test_a_switch_is_an_attempt_by_another_cut_than_the_one_before() -> None:
    steps = [
        Step((infer(0),), 100),
        Step((WakeAt(1),), 900),
        Step((infer(1),), 400_000),
        Step((infer(1),), 50),
        Step((infer(0), infer(1)), 300),
    ]
    assert switches(steps) == Switches(2, 0.4, 0.0009, {"0/raw": 2, "1/raw": 3})


def run_of(**changed: object) -> Switching:
    good = Switching(
        300.0, 10, Account({"on_time": 10}, {}, ()), Switches(40, 0.2, 0.3, {}), {"agent": 110}, {"agent": 100}
    )
    return msgspec.structs.replace(good, **changed)


def test_what_is_over_a_bound_is_told() -> None:
    assert run_of().faults == ()
    assert run_of(switches=Switches(40, 1.5, 0.3, {})).faults == (
        "a switch took 1.50 ms in the broker; the bound is 1 ms",
    )
    assert run_of(switches=Switches(3, 0.2, 0.3, {})).faults == (
        "the cut changed 3 times; fewer than 20 prove nothing",
    )
    assert run_of(changing_kb={"agent": 130}).faults == ("agent took 1.30 times the memory; the bound is 1.2",)
    found = account([Entry(0, "lost"), Entry(0, "on_time", duplicates=1), Entry(0, "on_time", why_wrong="y is off")])
    assert found.faults == ("request 2: y is off", "1 requests are lost", "1 outcomes were delivered twice")
