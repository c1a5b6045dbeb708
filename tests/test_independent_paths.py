"""An edge made from docs/protocol.md alone, with several paths to a real node that tells of its fleet and leaves."""

from __future__ import annotations

import json
import os
import signal
import struct
from contextlib import closing
from pathlib import Path

from independent import IndependentEdge, contract_of
from processes import ANY_PORT, ServiceProcess, cloud_settings
from tiny import make_bundle

ELEMENTS = 8
ONE = struct.pack("<8f", *range(ELEMENTS))
ENTRY = ["float32", [1, ELEMENTS]]


class TwoPaths(IndependentEdge):
    """An edge with a second data connection."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.second = self._connect(endpoint, "data-1")

    def close(self) -> None:
        self.second.close(0)
        super().close()


def write_directory(path: Path, epoch: int, *names: str) -> None:
    nodes = "".join(f'[[nodes]]\nname = "{name}"\nendpoint = "tcp://h:{i}"\n' for i, name in enumerate(names, 1))
    beside = path.with_suffix(".new")
    beside.write_text(f"epoch = {epoch}\n{nodes}")
    beside.replace(path)


def test_copies_on_two_connections_the_nodes_of_the_fleet_and_how_a_node_leaves(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, "identity", elements=ELEMENTS, name="same")
    contract, _ = contract_of(bundle)
    fleet = tmp_path / "fleet.toml"
    write_directory(fleet, 3, "n1")
    settings = cloud_settings([bundle]).replace("[node]", f'[node]\ndirectory = "{fleet}"')
    process = ServiceProcess("cloud", tmp_path, settings, "--stats", "--endpoint", ANY_PORT)
    with process, closing(TwoPaths(process.endpoint)) as edge:
        assert edge.greet([contract])["paths"] > 1
        told, _ = edge.hear()
        assert told == {"t": "nodes", "epoch": 3, "nodes": [["n1", "tcp://h:1", 1, []]]}
        hello = {"t": "hello", "protocol": 1, "peer": "other", "incarnation": 1, "connection": "data", "path": 1}
        edge.say(edge.second, hello | {"contracts": [contract]})
        assert [edge.hear(edge.second)[0]["t"] for _ in range(2)] == ["welcome", "nodes"]

        header = edge.header(5, contract, [ENTRY])
        for socket in (edge.data, edge.second):
            edge.say(socket, header, [ONE])
        for socket in (edge.data, edge.second):
            reply, frames = edge.hear(socket)
            assert (reply["t"], reply["sequence"], frames) == ("reply", 5, [ONE])
        edge.say(edge.second, header, [ONE])
        assert edge.hear(edge.second)[0]["reason"] == "duplicate"

        write_directory(fleet, 4, "n1", "n2")
        told, _ = edge.hear()
        assert (told["t"], told["epoch"], len(told["nodes"])) == ("nodes", 4, 2)

        os.kill(process.pid, signal.SIGTERM)
        for socket in (edge.data, edge.second):
            while (said := edge.hear(socket)[0])["t"] == "nodes":
                pass
            assert said["t"] == "drain"
            assert edge.hear(socket)[0] == {"t": "bye", "reason": "closing"}
        status, out, _ = process.end()
    assert status == 0
    stats = json.loads(out.strip().splitlines()[-1])
    assert sum(count["rows"] * count["count"] for count in stats["launches"]) == 1
