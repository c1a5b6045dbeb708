"""A cloud node as a process of its own, on a free port of this host, for as long as something is to be proven on it."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cloud.node import NodeStats
from hil.own_code import environment
from hil.services import HEADTAIL
from hil.toml import to_toml
from shared.errors import HeadtailError
from shared.settings import CloudSettings, NodeGroup

START_S = 60.0
END_S = 30.0
VERIFYING = CloudSettings(node=NodeGroup(name="verify"))
READY = re.compile(r"ready (\S+) ")


class OwnNode:
    """`headtail cloud` with one bundle. Use it as a context manager; `end` gives the node's own count.

    Raises `HeadtailError` where the node does not start, with what it said.
    """

    def __init__(
        self, bundle: Path, threads: int, settings: CloudSettings = VERIFYING, place: Sequence[str] = ()
    ) -> None:
        """`settings` but for the bundle and the threads; `place` is put before the command line, and becomes it."""
        self._folder = tempfile.TemporaryDirectory(prefix="headtail-node-")
        config = Path(self._folder.name) / "cloud.toml"
        node = msgspec.structs.replace(settings.node, models=(str(bundle.resolve()),))
        execution = msgspec.structs.replace(settings.execution, threads=threads)
        settings = msgspec.structs.replace(settings, node=node, execution=execution)
        config.write_text(to_toml(settings), encoding="utf-8")
        arguments = ["cloud", "--config", str(config), "--endpoint", "tcp://127.0.0.1:*", "--stats"]
        self._process = subprocess.Popen(  # noqa: S603 -- our own command
            [*place, *HEADTAIL, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process's number."""
        return self._process.pid

    def endpoint(self) -> str:
        """Where the node listens, once it does. Raises `HeadtailError`."""
        assert self._process.stdout is not None  # noqa: S101 -- made with a pipe
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else ""
        match = READY.match(line)
        if match is None:
            self._process.kill()
            _, said = self._process.communicate()
            raise HeadtailError(
                f"the node did not start: {said.strip() or line.strip() or f'no word in {START_S:g} s'}"
            )
        return match[1]

    def end(self) -> NodeStats:
        """Ask the node to end; what it counted. Raises `HeadtailError` where it does not end or says nothing."""
        self._process.send_signal(signal.SIGTERM)
        try:
            out, said = self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            raise HeadtailError(f"the node did not end within {END_S:g} s") from None
        lines = out.strip().splitlines()
        try:
            return msgspec.json.decode(lines[-1] if lines else "", type=NodeStats)
        except msgspec.MsgspecError:
            raise HeadtailError(f"the node gave no count of its work: {said.strip() or out.strip()}") from None

    def close(self) -> None:
        """End the process in any case and remove its files."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._folder.cleanup()
