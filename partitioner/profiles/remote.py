"""The same measurement on another machine, by the OpenSSH client of this one.

The model is copied to a fresh temporary folder there, `headtail profile` runs there, its result is copied back and checked,
and the folder is removed, whatever happened. Nothing is asked for: a machine that wants a password is one that cannot be
reached. Everything is bounded in time. A device that serves is measured through its own agent or node
(`partitioner.profiles.through`).
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from partitioner.profiles.file import load_profile
from partitioner.profiles.record import DeviceProfile
from shared.errors import UserError

CONNECT_S = 10
REACH_S = 30.0
COPY_S = 600.0
LOADING_S = 600.0
"""For reading and normalising a model there, on top of the time for timing."""

OPTIONS = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
LOST = 255
NO_COMMAND = 127
OVER_TIME = 124
RESULT = "result.profile"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine as ssh names it, and how headtail is called there. Raises `UserError` for a name that ssh would take for an
    option."""

    name: str
    headtail: str = "headtail"

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith("-") or any(c.isspace() for c in self.name):
            raise UserError(f"host {self.name!r}: expected user@machine, as ssh takes it")

    def profile(self, files: Sequence[Path], arguments: Sequence[str], seconds: float) -> DeviceProfile:
        """Copy `files` there, run `headtail profile ARGUMENTS` in the folder that holds them, and give its result back.

        `arguments` name the files by their bare names. Raises `UserError` where ssh or scp are missing here, the machine
        cannot be reached, headtail is missing there or refuses, or a limit of time is passed.
        """
        made = self._there(["mktemp", "-d", "/tmp/headtail-profile.XXXXXXXX"], REACH_S)  # noqa: S108  (mktemp makes it fresh)
        folder = PurePosixPath(made.strip().splitlines()[-1] if made.strip() else "")
        if not folder.name.startswith("headtail-profile."):
            raise UserError(f"host {self.name}: no temporary folder could be made there (mktemp said {made.strip()!r})")
        try:
            found = self._measure(folder, files, arguments, LOADING_S + seconds)
        except BaseException:
            with suppress(UserError):  # what went wrong first is what is told
                self._remove(folder)
            raise
        self._remove(folder)
        return found

    def _measure(
        self, folder: PurePosixPath, files: Sequence[Path], arguments: Sequence[str], limit_s: float
    ) -> DeviceProfile:
        self._copy([*map(str, files), f"{self.name}:{folder}/"])
        limited = ["timeout", f"{limit_s:.0f}"]  # else it would go on there when the ssh here is ended
        command = shlex.join([*limited, self.headtail, "profile", *arguments, "-o", RESULT])
        self._there_shell(f"cd {shlex.quote(str(folder))} && {command}", limit_s + REACH_S)
        with tempfile.TemporaryDirectory() as here:
            result = Path(here) / RESULT
            self._copy([f"{self.name}:{folder}/{RESULT}", str(result)])
            return load_profile(result)

    def _remove(self, folder: PurePosixPath) -> None:
        try:
            self._there(["rm", "-rf", str(folder)], REACH_S)
        except UserError as error:
            raise UserError(f"{error}; the folder {folder} may be left there") from error

    def _there(self, command: Sequence[str], limit_s: float) -> str:
        return self._there_shell(shlex.join(command), limit_s)

    def _there_shell(self, command: str, limit_s: float) -> str:
        done = _run(["ssh", *OPTIONS, self.name, command], limit_s, self.name)
        said = _last_line(done.stderr)
        if done.returncode == LOST:
            raise UserError(f"host {self.name}: cannot be reached by ssh: {said or 'no reason given'}")
        if done.returncode == NO_COMMAND:
            raise UserError(
                f"host {self.name}: {self.headtail} is not found there ({said}); install headtail[plan] there, or say where "
                "it is with --headtail-there"
            )
        if done.returncode == OVER_TIME:
            raise UserError(f"host {self.name}: it took too long there and was ended")
        if done.returncode:
            raise UserError(f"host {self.name}: {said or f'status {done.returncode}'}")
        return done.stdout

    def _copy(self, arguments: Sequence[str]) -> None:
        done = _run(["scp", "-q", *OPTIONS, "--", *arguments], COPY_S, self.name)
        if done.returncode:
            raise UserError(f"host {self.name}: cannot copy {arguments[0]}: {_last_line(done.stderr)}")


def _run(command: Sequence[str], limit_s: float, host: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (no shell here; the host's name cannot be an option)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError:
        raise UserError(f"host {host}: {command[0]} is not installed here; --host needs the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"host {host}: {command[0]} took longer than {limit_s:.0f} s") from None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
