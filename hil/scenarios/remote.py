"""The network of a scenario as it is between two real hosts, with `tc` and netem on both ends.

The rig runs on the vehicle itself: its agents are processes of this host, the nodes are started over ssh. The way up is
shaped where it leaves the vehicle, the way down where it leaves the cloud. Outages and stalls lose what is sent into them,
since netem cannot hold it. Addresses are the hosts' own and are left alone.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hil.emulator.shape import Shape
from hil.links.trace import Conditions, Moment, Trace
from hil.scenarios import netem
from hil.scenarios.hosts import Hosts
from hil.scenarios.orders import CHANGED, Orders, order_here, orders_file
from hil.scenarios.playing import Playing
from hil.scenarios.scenario import Scenario, Site, State
from hil.services import Service
from shared.errors import HeadtailError, UserError
from shared.settings import CloudSettings, EdgeSettings

SSH_S = 30.0
STEP_S = 0.05
"""A trace is played in steps of this length or longer: each is a command to either host."""

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ControlMaster=auto", "-o", "ControlPersist=60")


class Shell:
    """Commands on the cloud's host. `control` is a socket by which all of them share one connection."""

    def __init__(self, ssh: str, control: Path) -> None:
        self._begins = [*SSH, "-o", f"ControlPath={control}", ssh]

    def command(self, words: str) -> list[str]:
        """The local command line that runs these words of a shell there."""
        return [*self._begins, words]

    def run(self, words: str, given: bytes = b"") -> bytes:
        """Run words of a shell there; what they wrote. Raises `UserError` with what they said where they fail."""
        return run_here(self.command(words), given)


def run_here(command: Sequence[str], given: bytes = b"") -> bytes:
    """Run a command of this host. Raises `UserError` with what it said where it fails."""
    try:
        done = subprocess.run(  # noqa: S603 -- our own words
            list(command), input=given, capture_output=True, timeout=SSH_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"cannot run {shlex.join(command)}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
        raise UserError(f"{shlex.join(command)}: {said}")
    return done.stdout


class RemoteService(Service):
    """A process on the cloud's host: the local process is the ssh that waits for it."""

    def __init__(
        self, name: str, settings: CloudSettings, folder: Path, program: Sequence[str], shell: Shell, hosts: Hosts
    ) -> None:
        super().__init__(name, "cloud", settings, folder, program)
        self._shell = shell
        self._pid_file = f"{hosts.cloud.folder}/{name}.pid"
        self.far_config = f"{hosts.cloud.folder}/{name}.toml"
        shell.run(f"cat > {self.far_config}", self.config.read_bytes())
        words = [hosts.cloud.python, "-m", "hil.weight", hosts.cloud.python, *program[1:], "cloud"]
        # The shell writes its own number and then becomes the node.
        self._command = shell.command(
            f"echo $$ > {self._pid_file} && exec {shlex.join([*words, '--config', self.far_config])}"
        )

    def kill(self) -> None:
        """SIGKILL, there; returns when it has gone."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGSTOP, there."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, there."""
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send it a signal, where it runs."""
        if self.running:
            self._shell.run(f"kill -{int(number)} $(cat {self._pid_file})")

    def end(self) -> None:
        """SIGTERM, there, and SIGKILL where that is not enough; returns when it has gone."""
        if self._process is None:
            return
        if self.running:
            self.resume()
            self.signal(signal.SIGTERM)
        try:
            self.wait(5.0)
        except HeadtailError:
            self.kill()
        self._process = None


class RemoteNetwork:
    """A `Backend`. Raises `UserError` where a host cannot be reached or a command is refused, with what it said."""

    def __init__(self, scenario: Scenario, hosts: Hosts) -> None:
        _check(scenario)
        self._hosts = hosts
        self._folder = Path(f"{hosts.cloud.folder}-here")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._shell = Shell(hosts.cloud.ssh, self._folder / "ssh")
        self._ports = {node: hosts.cloud.first_port + number for number, node in enumerate(scenario.nodes)}
        self._state: State = "open"
        link = scenario.links[0]
        self._shapes = (link.up, link.down)
        self._playing: Playing | None = None
        self._lock = threading.Lock()
        self._shell.run(f"mkdir -p {hosts.cloud.folder}")
        ports = list(self._ports.values())
        for command in netem.begin(hosts.vehicle.device, "dport", ports):
            run_here(self._sudo(command))
        self._there(netem.begin(hosts.cloud.device, "sport", ports))
        self._apply()

    def service(
        self, name: str, verb: str, settings: EdgeSettings | CloudSettings, folder: Path, program: Sequence[str]
    ) -> Service:
        """An agent here, or a node there, with its bundles beside it."""
        if not isinstance(settings, CloudSettings):
            return Service(name, verb, settings, folder, program)
        far = self._hosts.cloud.folder
        for model in settings.node.models:
            bundle = Path(model)
            packed = run_here(["tar", "-C", str(bundle.parent), "-cf", "-", bundle.name])
            self._shell.run(f"tar -C {far} -xf -", packed)
        models = tuple(f"{far}/{Path(model).name}" for model in settings.node.models)
        node = replace(settings.node, models=models)
        journal = replace(settings.journal, folder=f"{far}/journals")
        return RemoteService(
            name, replace(settings, node=node, journal=journal), folder, program, self._shell, self._hosts
        )

    def order(self, service: Service, orders: Orders) -> None:
        """Tell a process what to suffer, wherever it is."""
        if not isinstance(service, RemoteService):
            order_here(service, orders)
            return
        far = orders_file(Path(service.far_config))
        self._shell.run(f"cat > {far}.new && mv {far}.new {far}", msgspec.json.encode(orders))
        if service.running and service.ready:
            service.signal(CHANGED)

    def collect(self, folder: Path) -> None:
        """Fetch the nodes' journals."""
        far = self._hosts.cloud.folder
        packed = self._shell.run(f"mkdir -p {far}/journals && tar -C {far} -cf - journals && rm -r {far}/journals")
        run_here(["tar", "-C", str(folder), "-xf", "-"], packed)

    def place(self, site: Site) -> Sequence[str]:
        """The vehicle is here; nothing but nodes runs there."""
        if site != "vehicle":
            raise UserError(f"real hosts have no site {site!r} for other processes")
        return ()

    def binds(self, node: str) -> str:
        """Every address of the cloud's host."""
        return f"tcp://*:{self._ports[node]}"

    def endpoints(self, node: str) -> Sequence[str]:
        """The cloud's host, as the vehicle finds it."""
        return [f"tcp://{self._hosts.cloud.address}:{self._ports[node]}"]

    def crowd_endpoint(self, node: str) -> str:
        """Raises `UserError`: there is no third host."""
        raise UserError(f"real hosts have no crowd that asks {node!r}")

    def shape(self, link: str, up: Shape, down: Shape) -> None:
        """Both ends send so from now on."""
        del link
        self._shapes = (up, down)
        self._apply()

    def state(self, link: str, state: State) -> None:
        """Let everything pass, or nothing."""
        del link
        self._state = state
        self._apply()

    def play(self, link: str, trace: Trace, queue_bytes: int) -> int:
        """Play a trace from a thread of the rig's own."""
        del link
        self._stop_playing()

        def shape(now: Conditions) -> Shape:
            return Shape(delay_ms=now.delay_ms, rate_mbit=now.rate_mbit, loss=now.loss, queue_bytes=queue_bytes)

        def at(moment: Moment) -> None:
            outage = moment.up.outage or moment.down.outage
            self.apply(shape(moment.up), shape(moment.down), "dark" if outage else "open")

        self._playing = Playing(trace, at, STEP_S)
        return self._playing.began_ns

    def readdress(self, link: str) -> str:
        """Raises `UserError`: addresses are the hosts' own."""
        raise UserError(f"the addresses of real hosts are left alone, also on {link!r}")

    def told(self) -> tuple[str, ...]:
        """What netem does otherwise than the emulator."""
        return ("Real hosts, shaped by netem: outages and stalls lost what was sent into them.",)

    def close(self) -> None:
        """Give both devices their own queues back."""
        self._stop_playing()
        here = self._sudo(netem.end(self._hosts.vehicle.device))
        there = self._shell.command(shlex.join(self._sudo(netem.end(self._hosts.cloud.device))))
        for undo in (here, there):
            try:
                run_here(undo)
            except UserError as error:
                sys.stderr.write(f"headtail: {error}\n")

    def apply(self, up: Shape, down: Shape, state: State) -> None:
        """Tell both ends; does nothing where they are told already."""
        with self._lock:
            run_here(self._sudo(netem.shape(self._hosts.vehicle.device, up, state)))
            self._there([netem.shape(self._hosts.cloud.device, down, state)])

    def _apply(self) -> None:
        self.apply(*self._shapes, self._state)

    def _there(self, commands: Sequence[Sequence[str]]) -> None:
        self._shell.run(" && ".join(shlex.join(self._sudo(command)) for command in commands))

    def _sudo(self, command: Sequence[str]) -> list[str]:
        return ["sudo", "-n", *command] if self._hosts.sudo else list(command)

    def _stop_playing(self) -> None:
        if self._playing is not None:
            self._playing.stop()
            self._playing = None


def _check(scenario: Scenario) -> None:
    wrong = [fault.kind for fault in scenario.faults if fault.kind in ("readdress", "crowd")]
    if wrong:
        raise UserError(f"{scenario.name}: real hosts cannot carry a fault {wrong[0]!r}")
    if len(scenario.links) > 1:
        raise UserError(f"{scenario.name}: real hosts have one link here, the scenario has {len(scenario.links)}")
