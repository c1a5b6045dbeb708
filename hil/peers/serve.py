"""`python -m hil.peers.serve MODEL PORT FOLDER NODES`: a node that serves one model of the harness, with its executions
counted, and NODES - 1 more at the ports behind it.

The harness tells executed work from answered work by a counter in shared memory: three 64-bit integers (process, batches,
rows) in the file that `PEERS_COUNTER` names. The models lie under `PEERS_ROOT/models`.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from cloud.node import Node
from hil.peers.bundle import write_served
from shared.bundle import load_bundle
from shared.errors import UserError
from shared.events import Action, Event, Finished
from shared.settings import CloudLimits, CloudSettings, NodeBatching, NodeExecution, NodeGroup, NodeScheduling
from shared.signals import stop_on_signals

CREDITS = {"tiny": 128}
CREDITS_ELSE = 32
"""As much as the one client may have out: about what can be done within its deadline of 10 ms."""

COUNTS = struct.Struct("<qqq")


class Counter:
    """The harness's counter; none where it names no file."""

    def __init__(self, path: str, *, mine: bool = True) -> None:
        """`mine`: this process is named before it has executed anything."""
        self._map: mmap.mmap | None = None
        if path:
            with open(path, "r+b") as file:  # noqa: PTH123 - mmap takes a descriptor
                self._map = mmap.mmap(file.fileno(), COUNTS.size)
            if mine:
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
        batching=NodeBatching(max_batch_size=16),
        scheduling=NodeScheduling(max_queued=2 * lent),
        limits=CloudLimits(max_open=2 * lent),
    )


def main() -> None:
    """Serve until SIGTERM."""
    if len(sys.argv) not in {5, 6}:
        raise UserError("expected MODEL PORT FOLDER NODES")
    name, port, folder, nodes = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    if len(sys.argv) == 6:
        serve(Path(sys.argv[5]), name, port, mine=False)
        return
    root = Path(os.environ.get("PEERS_ROOT", str(Path(tempfile.gettempdir()) / "peers")))
    bundle, shape, sample = write_served(root / "models" / f"{name}.onnx", folder)
    told = {"contract": load_bundle(bundle).contract, "shape": shape, "sample": sample}
    own = [sys.executable, "-m", "hil.peers.serve", name]
    others = [
        subprocess.Popen([*own, str(port + number), str(folder), "1", str(bundle)])  # noqa: S603 -- our own command
        for number in range(1, nodes)
    ]
    (folder / f"{name}.told").write_bytes(msgspec.msgpack.encode(told))
    serve(bundle, name, port, mine=True)
    for other in others:
        other.terminate()
        other.wait()


def serve(bundle: Path, name: str, port: int, *, mine: bool) -> None:
    """Serve a bundle until SIGTERM. `mine`: the harness takes this process for the one that executes."""
    settings = settings_for(bundle, port, CREDITS.get(name, CREDITS_ELSE))
    node = CountingNode(settings, Counter(os.environ.get("PEERS_COUNTER", ""), mine=mine))
    stop_on_signals(node.stop)
    node.run()


if __name__ == "__main__":
    main()
