"""`python -m hil.peers.serve MODEL PORT FOLDER`: a node that serves one model of the harness, with its executions counted.

The harness tells executed work from answered work by a counter in shared memory: three 64-bit integers (process, batches,
rows) in the file that `PEERS_COUNTER` names. The models lie under `PEERS_ROOT/models`.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
from pathlib import Path

import msgspec

from cloud.node import Node
from hil.peers.bundle import write_served
from shared.errors import UserError
from shared.events import Action, Event, Finished
from shared.settings import Batching, CloudLimits, CloudSettings, NodeExecution, NodeGroup, NodeScheduling
from shared.signals import stop_on_signals

CREDITS = {"tiny": 128}
CREDITS_ELSE = 32
"""As much as the one client may have out: about what can be done within its deadline of 10 ms."""

COUNTS = struct.Struct("<qqq")


class Counter:
    """The harness's counter; none where it names no file."""

    def __init__(self, path: str) -> None:
        self._map: mmap.mmap | None = None
        if path:
            with open(path, "r+b") as file:  # noqa: PTH123 - mmap takes a descriptor
                self._map = mmap.mmap(file.fileno(), COUNTS.size)
            _, batches, rows = COUNTS.unpack_from(self._map, 0)
            COUNTS.pack_into(self._map, 0, os.getpid(), batches, rows)

    def add(self, rows: int) -> None:
        """One more launch of so many rows has run."""
        if self._map is not None:
            _, batches, before = COUNTS.unpack_from(self._map, 0)
            COUNTS.pack_into(self._map, 0, os.getpid(), batches + 1, before + rows)


class CountingNode(Node):
    """A node that tells the harness of its launches."""

    def __init__(self, settings: CloudSettings, counter: Counter) -> None:
        super().__init__(settings)
        self._counter = counter

    def handle(self, event: Event, now: int) -> list[Action]:
        """The node's own, with what has run counted."""
        if isinstance(event, Finished):
            self._counter.add(len(event.results))
        return super().handle(event, now)


def settings_for(bundle: Path, port: int, lent: int = CREDITS_ELSE) -> CloudSettings:
    """One executor of one thread; what is not named is as ever."""
    return CloudSettings(
        node=NodeGroup(name="peers", endpoint=f"tcp://127.0.0.1:{port}", models=(str(bundle),), credits=lent),
        execution=NodeExecution(threads=1, executors=1),
        batching=Batching(max_batch_size=16),
        scheduling=NodeScheduling(max_queued=2 * lent),
        limits=CloudLimits(max_open=2 * lent),
    )


def main() -> None:
    """Serve until SIGTERM."""
    if len(sys.argv) != 4:
        raise UserError("expected MODEL PORT FOLDER")
    name, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    root = Path(os.environ.get("PEERS_ROOT", str(Path(tempfile.gettempdir()) / "peers")))
    bundle, shape, sample = write_served(root / "models" / f"{name}.onnx", folder)
    node = CountingNode(
        settings_for(bundle, port, CREDITS.get(name, CREDITS_ELSE)), Counter(os.environ.get("PEERS_COUNTER", ""))
    )
    told = {"contract": next(iter(node.models.values())), "shape": shape, "sample": sample}
    (folder / f"{name}.told").write_bytes(msgspec.msgpack.encode(told))
    stop_on_signals(node.stop)
    node.run()


if __name__ == "__main__":
    main()
