"""What a faulty peer puts on the wire: which decoder refuses it, and what is left of it where none can."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from hil.scenarios.meddling import meddled
from hil.scenarios.scenario import What
from shared.errors import PeerError
from shared.wire.codec import decode_node, encode
from shared.wire.messages import Load, ProbeReply, Reply, Tensor

SCORES = np.arange(8, dtype=np.float32).reshape(1, 8)
REPLY = Reply(7, 3, 1, "c" * 64, 0, "raw", 1, (Tensor("float32", (1, 8)),), {"tail": 5}, 99, Load(0, 4))


def heard(what: What, seed: int) -> Reply | str:
    frames = meddled(what, REPLY, (SCORES,), encode, random.Random(seed))
    try:
        message, _ = decode_node([bytes(frame) for frame in frames])
    except PeerError as error:
        return error.reason
    assert isinstance(message, Reply)
    return message


def test_another_identity_is_well_formed_and_another() -> None:
    found = {(r.incarnation, r.sequence, r.attempt) for n in range(30) if isinstance(r := heard("identity", n), Reply)}
    assert found == {(7, 4, 1), (7, 3, 2), (6, 3, 1)}


def test_another_cut_and_another_shape_are_well_formed() -> None:
    cut, shape = heard("cut", 1), heard("shape", 1)
    assert isinstance(cut, Reply)
    assert isinstance(shape, Reply)
    assert cut.cut == 1
    assert shape.tensors == (Tensor("float32", (1, 7)),)


def test_a_message_that_is_cut_short_is_refused() -> None:
    reasons = Counter(str(heard("truncate", n)) for n in range(100))
    assert set(reasons) == {"header", "size"}


def test_damaged_headers_are_refused_or_say_something_else() -> None:
    found = [heard("corrupt", n) for n in range(300)]
    assert sum(isinstance(one, str) for one in found) > 100
    assert REPLY not in found


@pytest.mark.parametrize("what", ["identity", "shape", "cut", "mute"])
def test_what_is_for_replies_leaves_other_messages_alone(what: What) -> None:
    probe = ProbeReply(1, 2, 3, 4, Load(0, 1))
    assert meddled(what, probe, (), encode, random.Random(1)) == encode(probe)
