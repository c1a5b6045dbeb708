"""Agents and nodes as real processes, for tests: started, waited for, stopped, and always ended.

`ServiceProcess("edge", folder, text)` writes the settings `text`, starts `headtail edge --config ...` and returns when
the process has said that it is ready. Waiting is bounded by `PATIENCE_S`, not by how fast the machine is.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shared.bundle import write_manifest
from shared.events import Received, Send
from shared.plan import PLAN_FILE, Plan
from shared.settings import CloudLimits
from shared.transport import Router
from shared.wire.codec import decode_edge
from shared.wire.messages import PROTOCOL, Hello, Infer, Load, Message, Probe, ProbeReply, Welcome

PATIENCE_S = 30.0
ANY_PORT = "tcp://127.0.0.1:*"
COMMAND = (sys.executable, "-c", "from shared.cli import main; main()")


class ServiceProcess:
    """One process of `headtail VERB`. `endpoint` is where it says that it is."""

    def __init__(self, verb: str, folder: Path, settings: str, *options: str) -> None:
        config = folder / f"{verb}.toml"
        config.write_text(settings)
        self._process = subprocess.Popen(
            [*COMMAND, verb, "--config", str(config), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.endpoint = self._ready()

    def _ready(self) -> str:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if readable else ""
        if not line.startswith("ready "):
            self._process.kill()
            _, errors = self._process.communicate()
            raise AssertionError(f"not ready: {line!r} {errors}")
        return line.split()[1]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def told(self, number: signal.Signals) -> str:
        """Send a signal; the line that it answers with."""
        assert self._process.stdout is not None
        self._process.send_signal(number)
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert readable, f"nothing is told at {number.name}"
        return self._process.stdout.readline()

    def end(self) -> tuple[int, str, str]:
        """SIGTERM; its status and the rest of what it said, once it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
        try:
            output, errors = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, output, errors

    def __enter__(self) -> ServiceProcess:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._process.poll() is None:
            self.kill()
        elif self._process.stdout is not None and not self._process.stdout.closed:
            self._process.communicate()


def refused(verb: str, folder: Path, settings: str) -> tuple[int, str]:
    """Start a process that should not come up: its status and what it said on stderr."""
    config = folder / "refused.toml"
    config.write_text(settings)
    done = subprocess.run(
        [*COMMAND, verb, "--config", str(config)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stderr


def edge_settings(endpoint: str, models: Sequence[Path], nodes: Sequence[tuple[str, str]] = (), extra: str = "") -> str:
    """An agent's settings as TOML."""
    names = ", ".join(f'"{model}"' for model in models)
    tables = "".join(f'\n[[nodes]]\nname = "{name}"\nendpoint = "{where}"\n' for name, where in nodes)
    return f'[agent]\nendpoint = "{endpoint}"\nmodels = [{names}]\n{tables}\n{extra}\n'


def cloud_settings(models: Sequence[Path], endpoint: str = "tcp://127.0.0.1:7711") -> str:
    """A node's settings as TOML. A port that the system chooses is asked for with `--endpoint`, `ANY_PORT`."""
    names = ", ".join(f'"{model}"' for model in models)
    return f'[node]\nname = "n1"\nendpoint = "{endpoint}"\nmodels = [{names}]\n[memory]\npreallocated_memory_mb = 64\n'


def with_ladder(bundle: Path, *rungs: str) -> Path:
    """The bundle with only these rungs left on its ladder."""
    plan = msgspec.json.decode((bundle / PLAN_FILE).read_bytes(), type=Plan)
    ladder = tuple(rung for rung in plan.ladder if rung.name in rungs)
    (bundle / PLAN_FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(plan, ladder=ladder)))
    write_manifest(bundle)
    return bundle


class SilentNode:
    """A node that greets, answers probes, takes every request and never answers one. `asked` is set at each."""

    def __init__(self) -> None:
        self._router = Router(ANY_PORT, decode_edge, max_message_mb=CloudLimits().max_message_mb)
        self.endpoint = self._router.endpoint
        self.asked = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for event in self._router.drain():
                assert isinstance(event, Received)
                answer = self._answer(event.message)
                if answer is not None:
                    self._router.send(Send(event.link, answer))
            if not self._router.pending():
                select.select([self._router.fileno()], [], [], 0.05)
        self._router.close()

    def _answer(self, message: Message) -> Message | None:
        now = time.monotonic_ns()
        match message:
            case Hello():
                return Welcome(PROTOCOL, "n1", 1, message.contracts, 8)
            case Probe():
                return ProbeReply(message.number, message.sent_ns, now, now, Load(0, 8))
            case Infer():
                self.asked.set()
                return None
            case _:
                return None

    def __enter__(self) -> SilentNode:
        return self

    def __exit__(self, *ending: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
