"""Network namespaces that remove themselves: names with a prefix of their owner's, each locked while the owner lives.

The lock is on the namespace's own file, so that it ends with the process however that ends, and whoever comes next can tell
what a killed owner left behind and remove it. Making and removing happens under one lock, of the folder above, since `ip`
locks the folder itself.

Namespaces without a name vanish by themselves and were rejected: nobody could enter them with `ip netns exec` to see why
something does not work.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shared.errors import HeadtailError, UserError

FOLDER = Path("/run/netns")
TUN = Path("/dev/net/tun")
NAME = re.compile(r"ht-[0-9a-f]{6}-[a-z0-9-]{1,16}")
"""Namespaces of this name are ours."""

IP_S = 20.0
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
_CLONE_NEWNET = 0x40000000


def check_able(status: str | None = None, tun: Path = TUN, path: str | None = None) -> None:
    """Raise `UserError` that says what is missing here. The arguments stand for /proc/self/status, the device and PATH."""
    rights = int(_field(Path("/proc/self/status").read_text() if status is None else status, "CapEff"), 16)
    wanting: list[str] = []
    if not rights >> CAP_NET_ADMIN & rights >> CAP_SYS_ADMIN & 1:
        wanting.append("root (CAP_NET_ADMIN and CAP_SYS_ADMIN)")
    if not tun.exists():
        wanting.append(f"the device {tun} (kernel module tun)")
    if shutil.which("ip", path=path) is None:
        wanting.append("the command ip (iproute2)")
    if wanting:
        raise UserError(
            f"emulating a link packet by packet needs what is missing here: {', '.join(wanting)}; "
            "the unprivileged proxy (hil/proxy.py) carries the scenarios without packet faults"
        )


class Namespaces:
    """The namespaces of one owner. `close` removes them; `prefix` begins the name of each."""

    def __init__(self) -> None:
        self.prefix = f"ht-{os.urandom(3).hex()}"
        self._locks: dict[str, int] = {}

    def add(self, site: str) -> str:
        """Make a namespace for `site` and return its name. Raises `UserError` where the system refuses."""
        name = f"{self.prefix}-{site}"
        with _locked():
            _run_ip(["netns", "add", name])
            self._locks[name] = lock = os.open(FOLDER / name, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        configure(name, ["link set lo up"])
        return name

    def close(self) -> None:
        """Remove all of them. Doing it twice does nothing."""
        with _locked():
            for name in listed():
                if name.startswith(f"{self.prefix}-"):
                    _run_ip(["netns", "delete", name])
        while self._locks:
            os.close(self._locks.popitem()[1])


def listed() -> list[str]:
    """The names of all namespaces that are there and are of our kind, whoever owns them."""
    return sorted(path.name for path in FOLDER.iterdir() if NAME.fullmatch(path.name)) if FOLDER.exists() else []


def sweep() -> list[str]:
    """Remove what killed owners have left behind, and return the names."""
    swept: list[str] = []
    with _locked():
        for name in listed():
            if not _held(FOLDER / name):
                _run_ip(["netns", "delete", name])
                swept.append(name)
    return swept


@contextmanager
def inside(namespace: str) -> Generator[None]:
    """Be in a namespace, with the calling thread alone. Sockets and devices opened there stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(libc, there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(libc, home)
    finally:
        os.close(home)


def open_socket(namespace: str, kind: socket.SocketKind) -> socket.socket:
    """An IPv4 socket that lives in a namespace, for a process that does not."""
    with inside(namespace):
        return socket.socket(socket.AF_INET, kind)


def configure(namespace: str, commands: Sequence[str]) -> None:
    """Carry out commands of `ip` in a namespace. Raises `UserError` with what `ip` says where it refuses one."""
    _run_ip(["-n", namespace, "-batch", "-"], "\n".join(commands) + "\n")


def _enter(libc: ctypes.CDLL, fd: int) -> None:
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        raise HeadtailError(f"cannot change the network namespace: {os.strerror(ctypes.get_errno())}")


@contextmanager
def _locked() -> Generator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = os.open(FOLDER.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _held(path: Path) -> bool:
    """Whether the namespace's owner lives."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _run_ip(arguments: Sequence[str], batch: str = "") -> None:
    try:
        done = subprocess.run(  # noqa: S603 -- our own words
            ["ip", *arguments],  # noqa: S607 -- where the system has it
            input=batch,
            capture_output=True,
            text=True,
            timeout=IP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"cannot run ip {' '.join(arguments)}: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise UserError(f"ip {' '.join(arguments)} is refused by the system: {said}")


def _field(status: str, name: str) -> str:
    return next((line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")), "0")
