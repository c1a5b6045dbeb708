"""An agent whose device can be slowed down while it runs: `python -m hil.throttle edge --config FILE`.

It is `headtail edge` but for one thing: at the signal `HALF_SPEED` its executors become half as fast, at `FULL_SPEED` as
fast again as they were, as a device does that throttles when it is hot and recovers. The wait that stands for a slow device
(`shared.executors.slowness`) is what changes; nothing tells the agent, which has to find out.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from edge.agent import main as run_agent
from shared.executors import build
from shared.executors.slowness import Slowness
from shared.plan import Plan
from shared.slots import Side

HALF_SPEED, FULL_SPEED = signal.SIGRTMIN, signal.SIGRTMIN + 1
"""Signals that the agent itself has no use for."""

TIMES_SLOWER = 2.0


class Throttled(Slowness):
    """A slowness that the signals change."""

    def __init__(self, factor: float, plans: Mapping[str, Plan], side: Side) -> None:
        super().__init__(factor, plans, side)
        signal.signal(HALF_SPEED, lambda number, frame: self._become(factor * TIMES_SLOWER))
        signal.signal(FULL_SPEED, lambda number, frame: self._become(factor))

    def _become(self, factor: float) -> None:
        self.factor = factor


def main() -> None:
    """Run the agent until SIGTERM."""
    _, _, config = sys.argv[1:]
    build.__dict__["Slowness"] = Throttled
    run_agent(Path(config))


if __name__ == "__main__":
    main()
