"""An agent whose device can be slowed down while it runs: `python -m hil.throttle edge --config FILE`.

It is `headtail edge` but for one thing: `Throttle.set` makes its executors so many times slower, as a device does that is
hot, and as fast again as they were. The factor goes by a file beside the configuration, and a signal says that it is new.
The wait that stands for a slow device (`shared.executors.slowness`) is what changes; nothing tells the agent, which has to
find out.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from edge.agent import main as run_agent
from shared.executors import build
from shared.executors.slowness import Slowness
from shared.plan import Plan
from shared.slots import Side

PROGRAM = (sys.executable, "-m", "hil.throttle")
"""What to start in place of the command `headtail`."""

CHANGED = signal.SIGRTMIN
"""A signal that the agent itself has no use for."""


class Throttle:
    """The speed of one such agent, whose configuration is `config`."""

    def __init__(self, config: Path) -> None:
        self._file = _file(config)

    def set(self, pid: int, times: float) -> None:
        """Make it `times` times slower than it began, at once; 1 is as fast as then."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{times!r}\n", encoding="utf-8")
        new.replace(self._file)
        os.kill(pid, CHANGED)


class Throttled(Slowness):
    """A slowness that the signal changes."""

    file = Path()

    def __init__(self, factor: float, plans: Mapping[str, Plan], side: Side) -> None:
        super().__init__(factor, plans, side)
        signal.signal(CHANGED, lambda number, frame: self._become(factor))

    def _become(self, factor: float) -> None:
        self.factor = factor * float(self.file.read_text(encoding="utf-8"))


def _file(config: Path) -> Path:
    return config.with_suffix(".times-slower")


def main() -> None:
    """Run the agent until SIGTERM."""
    _, _, config = sys.argv[1:]
    Throttled.file = _file(Path(config))
    build.__dict__["Slowness"] = Throttled
    run_agent(Path(config))


if __name__ == "__main__":
    main()
