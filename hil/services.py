"""headtail's own processes, as a rig starts, kills and ends them.

Each runs the very command that a user would run, in a session of its own, with its output in a file that is named when
something goes wrong. A process that ends by itself is an error of the rig's run, told with its last words.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hil.own_code import environment
from hil.toml import to_toml
from shared.errors import HeadtailError
from shared.settings import CloudSettings, EdgeSettings

HEADTAIL = (sys.executable, "-c", "from shared.cli import main; main()")
"""The command `headtail` of this very environment, wherever its script lies."""

END_S = 5.0
"""How long a process may take to end when it is asked to."""


class Service:
    """One `headtail VERB --config FILE`, started anew as often as wanted. `folder` takes its settings and its output."""

    def __init__(
        self,
        name: str,
        verb: str,
        settings: EdgeSettings | CloudSettings,
        folder: Path,
        program: Sequence[str] = HEADTAIL,
        place: Sequence[str] = (),
    ) -> None:
        """`program` takes the verb in place of the command `headtail`. `place` is put before the whole command line: what
        runs a command somewhere else, and becomes it."""
        self.name = name
        self.config = config = folder / f"{name}.toml"
        config.write_text(to_toml(settings), encoding="utf-8")
        self.log = folder / f"{name}.log"
        self._command = [*place, sys.executable, "-m", "hil.weight", *program, verb, "--config", str(config)]
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def wanted(self) -> bool:
        """Whether its process ought to be there: it was started, and neither killed nor ended since."""
        return self._process is not None

    def start(self) -> None:
        """Start its process; does nothing where it runs."""
        if self.running:
            return
        with self.log.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 -- our own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment(),
            )

    @property
    def ready(self) -> bool:
        """Whether its process has said that it serves. Raises `HeadtailError` where it has ended by itself."""
        self.check()
        said = self.log.read_bytes()[self._said_before :] if self.log.exists() else b""
        return self.running and any(line.startswith(b"ready ") for line in said.splitlines())

    def kill(self) -> None:
        """SIGKILL; returns when the process has gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGSTOP, where it runs: it stands still until `resume`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, where it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Its process's number. Raises `HeadtailError` where there is none."""
        if self._process is None:
            raise HeadtailError(f"the process {self.name!r} was not started")
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to its process, where it runs."""
        if self.running and self._process is not None:
            self._process.send_signal(number)

    def end(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough; returns when the process has gone."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def wait(self, timeout_s: float) -> None:
        """Block until its process has ended by itself. Raises `HeadtailError` where it has not after `timeout_s`."""
        try:
            if self._process is not None:
                self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise HeadtailError(f"the process {self.name!r} has not ended after {timeout_s:g} s") from None

    def check(self) -> None:
        """Raise `HeadtailError`, with the last words of its output, where its process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            words = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise HeadtailError(
                f"the process {self.name!r} ended with status {self._process.returncode}: {' / '.join(words) or 'no words'} "
                f"(all of its output: {self.log})"
            )


def wait_ready(services: Sequence[Service], timeout_s: float) -> None:
    """Block until all of them serve that were not killed on purpose. Raises `HeadtailError` where one ends instead, or takes
    longer."""
    end = time.monotonic() + timeout_s
    while slow := [service for service in services if service.wanted and not service.ready]:
        if time.monotonic() > end:
            names = ", ".join(f"{service.name!r} ({service.log})" for service in slow)
            raise HeadtailError(f"not ready after {timeout_s:g} s: {names}")
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [cast(int, sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def run_folder() -> Path:
    """A folder for sockets, short enough for the kernel's limit on their paths, of the user's own."""
    return Path(tempfile.mkdtemp(prefix="headtail-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))  # noqa: S108
