"""An agent or a node as `headtail edge` and `headtail cloud` run it, which tells what it holds when it is asked.

    python -m hil.leak_probe edge|cloud --config FILE

At each SIGUSR1 it writes one line to its output, `census` and a `hil.leak_census.Census` as JSON. The signal is taken on
the loop's own thread between two steps of the interpreter.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from cloud.node import Node
from edge.agent import Agent
from hil.leak_census import tell_census
from shared.settings_file import load_cloud, load_edge
from shared.signals import stop_on_signals

PREFIX = "census "


def main() -> None:
    """Serve until SIGTERM."""
    verb, _, config = sys.argv[1:]
    server = Agent(load_edge(Path(config))) if verb == "edge" else Node(load_cloud(Path(config)))

    def tell(number: int, frame: object) -> None:
        _say(PREFIX + tell_census(server).decode())

    signal.signal(signal.SIGUSR1, tell)
    stop_on_signals(server.stop)
    _say(f"ready {server.endpoint} ")
    server.run()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
