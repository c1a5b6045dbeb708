"""What a process runs its plans with: bundles read and proven, executors built, warmed and started.

Agent and node need the same few lines for it, and neither may import the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.bundle import load_bundle
from shared.driver import Mailbox
from shared.errors import SettingsError
from shared.events import Abort, Action, Event, Run
from shared.executors.build import build_executors
from shared.plan import Plan
from shared.settings import Batching, Execution, Memory
from shared.slots import Side, served_plan


class Workshop:
    """The executors of a process. `plans` by contract digest, as far as this side serves them, `folders` the bundles that
    they were read from; `finished` is the source of `Finished` and `Failed`.

    Built warm. Raises `SettingsError` (`key` names the setting that lists the models) and `BundleError`.
    """

    def __init__(
        self,
        models: Sequence[str],
        key: str,
        *,
        side: Side,
        execution: Execution,
        batching: Batching,
        memory: Memory,
    ) -> None:
        if not models:
            raise SettingsError(f"{key}: names no bundle; expected at least one NAME.plan folder")
        bundles = [load_bundle(path) for path in models]
        self.folders: Mapping[str, Path] = {bundle.contract: bundle.path for bundle in bundles}
        self.plans: Mapping[str, Plan] = {bundle.contract: served_plan(bundle.plan, side) for bundle in bundles}
        self.finished = Mailbox()
        try:
            self._executors = build_executors(bundles, execution, memory, batching, side=side, sink=self.finished.put)
        except BaseException:
            self.finished.close()
            raise

    def perform(self, action: Action) -> Event | None:
        """Carry out a `Run` or an `Abort`; other actions are none of this. The end of a run in place is returned."""
        if isinstance(action, Run):
            if action.in_place:
                return self._executors[action.executor].run_in_place(action)
            self._executors[action.executor].submit(action)
        elif isinstance(action, Abort):
            self._executors[action.executor].abort(action.run)
        return None

    def close(self) -> None:
        """Abort what runs and release everything."""
        for executor in self._executors:
            executor.close()
        self.finished.close()
