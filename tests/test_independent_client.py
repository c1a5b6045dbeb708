"""An edge and a client made from docs/protocol.md alone, with pyzmq and msgpack, talk to a real node and a real agent."""

from __future__ import annotations

import ast
import itertools
import json
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import independent
import numpy as np
import pytest
import simplejpeg
from independent import IndependentClient, IndependentEdge, contract_of
from processes import ANY_PORT, ServiceProcess, cloud_settings, edge_settings
from tiny import make_bundle

ELEMENTS = 8


class Served:
    """A node process with two bundles, and what somebody else knows of them."""

    def __init__(self, folder: Path) -> None:
        self.bundles = [
            make_bundle(folder, "identity", elements=ELEMENTS, name="same"),
            make_bundle(folder, "chain", name="chain"),
        ]
        (self.same, _), (self.chain, self.plan) = (contract_of(bundle) for bundle in self.bundles)
        settings = cloud_settings(self.bundles)
        self.process = ServiceProcess("cloud", folder, settings, "--stats", "--endpoint", ANY_PORT)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    with made.process:
        yield made


PEERS = (f"edge-{number}" for number in itertools.count())


@pytest.fixture
def edge(served: Served) -> Iterator[IndependentEdge]:
    with closing(IndependentEdge(served.process.endpoint, next(PEERS))) as made:
        welcome = made.greet([served.same, served.chain, "f" * 64])
        assert welcome["t"] == "welcome"
        assert sorted(welcome["contracts"]) == sorted([served.same, served.chain])
        assert welcome["credits"] > 0
        yield made


ONE = struct.pack("<8f", *range(ELEMENTS))
ENTRY = ["float32", [1, ELEMENTS]]


def test_the_client_uses_nothing_of_ours() -> None:
    tree = ast.parse(Path(independent.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"__future__", "hashlib", "json", "time", "pathlib", "typing", "msgpack", "zmq"}


def test_a_request_is_answered_with_all_that_names_it(served: Served, edge: IndependentEdge) -> None:
    edge.infer(5, served.same, [ENTRY], [ONE], attempt=3)
    reply, frames = edge.hear()
    assert reply["t"] == "reply"
    asked = {
        "incarnation": 1,
        "sequence": 5,
        "attempt": 3,
        "contract": served.same,
        "cut": 0,
        "coding": "raw",
        "rows": 1,
    }
    assert {key: reply[key] for key in asked} == asked
    assert reply["tensors"] == [ENTRY]
    assert frames == [ONE]
    assert set(reply["stages"]) == {"cloud_queue", "codec", "tail"}
    wait_ns, granted = reply["load"]
    assert wait_ns >= 0
    assert granted > 0


def test_several_rows_travel_in_one_message(served: Served, edge: IndependentEdge) -> None:
    edge.infer(1, served.same, [["float32", [3, ELEMENTS]]], [ONE * 3], rows=3)
    reply, frames = edge.hear()
    assert reply["t"] == "reply", reply
    assert reply["tensors"] == [["float32", [3, ELEMENTS]]]
    assert frames == [ONE * 3]


def test_an_int8_cut_is_read_as_the_page_says(served: Served, edge: IndependentEdge) -> None:
    cut = served.plan["cuts"][1]
    shape = cut["tensors"][0]["shape"]
    scales = next(c["scales"][0] for c in cut["codings"] if c["name"] == "int8")
    quantised = np.random.default_rng(0).integers(-127, 128, shape, dtype=np.int8)
    exact = quantised.astype(np.float32) * np.asarray(scales, np.float32).reshape(-1, 1, 1)
    edge.infer(1, served.chain, [["float32", shape]], [quantised.tobytes()], cut=1, coding="int8")
    _, coded = edge.hear()
    edge.infer(2, served.chain, [["float32", shape]], [exact.tobytes()], cut=1)
    _, raw = edge.hear()
    np.testing.assert_allclose(np.frombuffer(coded[0], "<f4"), np.frombuffer(raw[0], "<f4"), rtol=1e-5, atol=1e-6)
    assert coded[1] == raw[1]


def test_several_jpegs_travel_in_one_frame(served: Served, edge: IndependentEdge) -> None:
    images = [np.full((32, 32, 3), value, np.uint8) for value in (20, 120, 220)]
    streams = [simplejpeg.encode_jpeg(image, 90, "RGB", "420") for image in images]
    frame = struct.pack("<3I", *map(len, streams)) + b"".join(streams)
    edge.infer(1, served.chain, [["uint8", [3, 32, 32, 3]]], [frame], rows=3, coding="jpeg90")
    reply, frames = edge.hear()
    assert reply["t"] == "reply", reply
    assert reply["tensors"] == [["float32", [3, 5]], ["int64", [3]]]
    decoded = b"".join(simplejpeg.decode_jpeg(stream, "RGB").tobytes() for stream in streams)
    edge.infer(2, served.chain, [["uint8", [3, 32, 32, 3]]], [decoded], rows=3)
    _, raw = edge.hear()
    np.testing.assert_allclose(np.frombuffer(frames[0], "<f4"), np.frombuffer(raw[0], "<f4"), rtol=1e-4, atol=1e-5)


def test_probes_bound_the_offset_of_the_clocks(served: Served, edge: IndependentEdge) -> None:
    """On one host the true offset is 0."""
    assert edge.greet([served.same], "probe")["t"] == "welcome"
    last = (0, 0)
    for number in range(3):
        edge.say(
            edge.probe,
            {
                "t": "probe",
                "number": number,
                "sent_ns": time.monotonic_ns(),
                "last_sent_ns": last[0],
                "last_received_ns": last[1],
            },
        )
        probed, _ = edge.hear(edge.probe)
        now = time.monotonic_ns()
        assert probed["t"] == "probed"
        assert probed["number"] == number
        assert probed["sent_ns"] - now <= 0 <= probed["received_ns"] - probed["probe_sent_ns"]
        last = (probed["sent_ns"], now)


def test_a_cancelled_attempt_gets_exactly_one_answer(served: Served, edge: IndependentEdge) -> None:
    for sequence in range(20):
        edge.infer(sequence, served.same, [ENTRY], [ONE])
        edge.say(edge.data, {"t": "cancel", "incarnation": 1, "sequence": sequence, "attempt": 0})
        header, _ = edge.hear()
        assert header["sequence"] == sequence
        assert header["t"] == "reply" or header["reason"] == "cancelled"


REFUSED: list[tuple[dict[str, Any], list[bytes] | None, str]] = [
    ({"contract": "f" * 64}, None, "contract"),
    ({"incarnation": 2}, None, "hello"),
    ({"cut": 1}, None, "input"),
    ({"cut": 9}, None, "input"),
    ({"coding": "zip"}, None, "input"),
    ({"priority": 99}, None, "input"),
    ({"rows": 1 << 20}, None, "input"),
    ({"tensors": [["float32", [1, ELEMENTS + 1]]]}, [ONE + b"0000"], "input"),
    ({"tensors": [["float64", [1, ELEMENTS]]]}, [ONE + ONE], "input"),
    ({}, [ONE[:-1]], "size"),
    ({"budget_ns": -1_000_000}, None, "expired"),
]


@pytest.mark.parametrize(("changes", "frames", "reason"), REFUSED)
def test_each_refusal_has_its_reason(
    served: Served, edge: IndependentEdge, changes: dict[str, Any], frames: list[bytes] | None, reason: str
) -> None:
    asked: dict[str, Any] = {"contract": served.same, "tensors": [ENTRY], "frames": frames or [ONE], **changes}
    edge.infer(1, **asked)
    refusal, _ = edge.hear()
    assert (refusal["t"], refusal.get("reason")) == ("refusal", reason)
    assert refusal["sequence"] == 1
    edge.infer(2, served.same, [ENTRY], [ONE])
    assert edge.hear()[0]["t"] == "reply"


def test_an_attempt_is_taken_once(served: Served, edge: IndependentEdge) -> None:
    edge.infer(1, served.same, [ENTRY], [ONE])
    edge.infer(1, served.same, [ENTRY], [ONE])
    answers = [edge.hear()[0], edge.hear()[0]]
    assert sorted(answer["t"] for answer in answers) == ["refusal", "reply"]
    assert next(a["reason"] for a in answers if a["t"] == "refusal") == "duplicate"


def test_a_stranger_and_another_version_are_told_so(served: Served) -> None:
    with closing(IndependentEdge(served.process.endpoint, "stranger")) as stranger:
        stranger.infer(1, served.same, [ENTRY], [ONE])
        assert stranger.hear()[0]["reason"] == "hello"
        assert stranger.greet([served.same], protocol=2) == {"t": "bye", "reason": "version"}


def test_keys_of_a_later_version_are_ignored(served: Served, edge: IndependentEdge) -> None:
    edge.infer(1, served.same, [ENTRY], [ONE], later={"deep": [1, {"er": None}]})
    assert edge.hear()[0]["t"] == "reply"


def test_more_than_the_credit_is_refused(served: Served) -> None:
    """The machine may answer some before it sees the others; what is over the credit is refused, nothing is lost."""
    with closing(IndependentEdge(served.process.endpoint, "greedy")) as greedy:
        granted = greedy.greet([served.same])["credits"]
        for sequence in range(granted * 3):
            greedy.infer(sequence, served.same, [ENTRY], [ONE])
        answers = [greedy.hear()[0] for _ in range(granted * 3)]
        assert sorted(answer["sequence"] for answer in answers) == list(range(granted * 3))
        assert {answer.get("reason", "credit") for answer in answers} == {"credit"}


def test_bad_messages_are_counted_and_harm_nobody(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served.process as process:
        edge = IndependentEdge(process.endpoint)
        edge.greet([served.same])
        bad = [
            [b""],
            [b"\xc1"],
            [b"\x91" * 100_000],
            [b"\x93\x01\x02\x03", b"x"],
            [b"x"] * 1_000,
        ]
        for frames in bad:
            edge.data.send_multipart(frames)
        edge.infer(1, served.same, [["float32", [-1, ELEMENTS]]], [ONE])
        edge.infer(2, served.same, [["object", [1, ELEMENTS]]], [ONE])
        edge.infer(3, served.same, [ENTRY], [ONE, ONE])
        edge.infer(4, served.same, [["uint8", [1 << 30]]], [ONE])
        edge.infer(5, served.same, [ENTRY], [ONE])
        reply, answered = edge.hear()
        assert (reply["t"], reply["sequence"]) == ("reply", 5)
        assert answered == [ONE]
        edge.close()
        status, output, errors = process.end()
    assert status == 0, errors
    counted = json.loads(output.splitlines()[-1])["wire"]
    assert counted == {"header": 4, "frames": 2, "shape": 1, "dtype": 1, "size": 1}
    assert sum(counted.values()) == len(bad) + 4


# --- a client of an agent ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The endpoint of an agent with one model, and the model's contract."""
    folder = tmp_path_factory.mktemp("agent")
    bundle = make_bundle(folder, "identity", elements=ELEMENTS, name="same")
    settings = edge_settings(f"ipc://{folder}/agent", [bundle], extra="[limits]\nmax_streams = 2")
    with ServiceProcess("edge", folder, settings) as process:
        yield process.endpoint, contract_of(bundle)[0]


CLIENTS = (f"application-{number}" for number in itertools.count())


@pytest.fixture
def client(agent: tuple[str, str]) -> Iterator[IndependentClient]:
    with closing(IndependentClient(agent[0], next(CLIENTS))) as made:
        yield made


def test_an_agent_tells_what_it_serves_and_answers(agent: tuple[str, str], client: IndependentClient) -> None:
    attached = client.attach()
    assert attached["protocol"] == 1
    (model,) = attached["models"]
    assert (model["name"], model["contract"]) == ("same", agent[1])
    assert (model["inputs"], model["outputs"]) == ([["x", "float32", [1, ELEMENTS]]], ["y"])
    for sequence, name in enumerate((model["name"], model["contract"]), 1):
        final, frames = client.submit(sequence, name, [ENTRY], [ONE])
        assert (final["sequence"], final["kind"], frames) == (sequence, "answer", [ONE])
        answer = final["answer"]
        assert (answer["source"], answer["contract"], answer["tensors"]) == ("edge", agent[1], [ENTRY])
        assert answer["fidelity"] == {"kind": "exact", "name": "", "agreement": 1.0}
        assert all(part >= 0 for part in answer["stages"].values())


def test_an_announced_stream_is_promised_an_answer_and_gets_it(client: IndependentClient) -> None:
    client.attach()
    assert client.open(7, "same") == {"t": "stream", "stream": 7, "rung": "whole", "reason": ""}
    for sequence in range(1, 4):
        final, _ = client.submit(sequence, "same", [ENTRY], [ONE], stream=7)
        assert (final["sequence"], final["kind"], final["answer"]["rung"]) == (sequence, "answer", "whole")
    client.say({"t": "close", "stream": 7})
    assert client.submit(4, "same", [ENTRY], [ONE], stream=7)[0]["kind"] == "answer"


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": 0},
        {"model": "other"},
        {"rows": 100},
        {"period_ns": 10},
        {"deadline_ns": 0},
        {"deadline_ns": 3_601_000_000_000},
        {"priority": 99},
    ],
)
def test_a_stream_that_cannot_be_is_promised_nothing(client: IndependentClient, changes: dict[str, Any]) -> None:
    client.attach()
    stream = changes.get("stream", 1)
    fields = {"model": "same", "stream": 1, **changes}
    assert client.open(**fields) == {"t": "stream", "stream": stream, "rung": "", "reason": "input"}


def test_one_stream_too_many_of_all_clients_is_promised_nothing(
    agent: tuple[str, str], client: IndependentClient
) -> None:
    client.attach()
    with closing(IndependentClient(agent[0], next(CLIENTS))) as other:
        other.attach()
        assert client.open(1, "same")["rung"] == other.open(1, "same")["rung"] == "whole"
        assert (full := other.open(2, "same"))["rung"] == ""
        assert full["reason"] == "full"
        client.say({"t": "close", "stream": 1})
        assert client.submit(1, "same", [ENTRY], [ONE])[0]["kind"] == "answer"
        assert other.open(2, "same")["rung"] == "whole"


def test_a_bad_request_of_a_client_is_rejected_in_words_and_a_stranger_told_to_greet(client: IndependentClient) -> None:
    client.say({"t": "withdraw", "sequence": 1})
    assert client.hear("bye")[0] == {"t": "bye", "reason": "hello"}
    client.attach()
    final, _ = client.submit(1, "same", [["float64", [1, ELEMENTS]]], [ONE + ONE])
    assert (final["kind"], final["reason"]) == ("rejected", "input")
    assert "expected dtype float32, got float64" in final["detail"]


def test_a_greeting_may_be_repeated_at_any_time_to_see_whether_the_agent_lives(client: IndependentClient) -> None:
    first = client.attach()
    assert client.open(1, "same")["rung"] == "whole"
    assert client.attach() == first
    assert client.submit(1, "same", [ENTRY], [ONE], stream=1)[0]["kind"] == "answer"
