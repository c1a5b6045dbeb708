"""`headtail` where standard streams are closed or take nothing: a status as ever, and a line where it can be said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import COMMAND, PATIENCE_S

JOURNAL = Path(__file__).parent / "journals" / "node-beside-a-killed-one.journal"
REPLAY = ("replay", str(JOURNAL), "--rerun")
FULL = "headtail: standard output: No space left on device\n"


def ended(
    redirections: str, *command: str, buffered: bool = True, stdout: int = subprocess.PIPE
) -> tuple[int, str, str]:
    """The status of a command with these redirections of a shell, and what it said."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *command],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"},
        timeout=4 * PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout or "", done.stderr


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [REPLAY, ("--help",), ("--version",)], ids=lambda arguments: arguments[0])
def test_an_output_that_takes_nothing_is_one_line_and_status_2(arguments: tuple[str, ...], buffered: bool) -> None:
    assert ended(">/dev/full", *COMMAND, *arguments, buffered=buffered) == (2, "", FULL)


@pytest.mark.parametrize("redirections", [">&-", "<&- >&-", "<&- >&- 2>&-", "2>&-", "<&-", ">&- 2>/dev/full"])
def test_a_verb_ends_as_ever_where_standard_streams_are_closed(redirections: str) -> None:
    status, said, errors = ended(redirections, *COMMAND, *REPLAY)
    assert (status, errors) == (0, "")
    assert bool(said) == (">&-" not in redirections.replace("2>&-", ""))


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full", ">&- 2>&-"])
def test_a_mistake_has_its_status_although_nobody_can_be_told(redirections: str) -> None:
    assert ended(redirections, *COMMAND, "replay", "/nowhere") == (2, "", "")
    assert ended(redirections, *COMMAND, "replay", "--nothing-like-that") == (2, "", "")


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full"])
def test_a_bug_has_its_status_although_nobody_can_be_told(redirections: str) -> None:
    program = (
        "from shared import cli, errors, standard_streams\n"
        "standard_streams.open_missing_streams()\n"
        "with cli.endings():\n"
        "    raise errors.InvariantBroken('all is lost')\n"
    )
    assert ended(redirections, sys.executable, "-c", program) == (70, "", "")


def test_a_verb_that_shows_how_far_it_is_needs_nobody_to_show_it_to() -> None:
    status, said, _ = ended("2>&-", *COMMAND, "sim", "check", "--seeds", "1")
    assert status == 0
    assert "none broken" in said


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [REPLAY, (*REPLAY, "--json"), ("--help",)], ids=lambda arguments: arguments[-1])
def test_nothing_is_told_of_a_reader_that_has_left(arguments: tuple[str, ...], buffered: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert ended("", *COMMAND, *arguments, buffered=buffered, stdout=writer) == (2, "", "")
    finally:
        os.close(writer)


def test_a_stream_that_is_missing_becomes_the_null_device_for_children_too_and_no_other_files_number() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from shared.standard_streams import open_missing_streams\n"
        "taken = os.open('/dev/zero', os.O_RDONLY)\n"
        "open_missing_streams()\n"
        "child = 'import os, sys; print(*(os.readlink(f\"/proc/self/fd/{n}\") for n in range(3)), file=sys.stderr)'\n"
        "assert taken == 0\n"
        "assert sys.stdin.read() == ''\n"
        "print('nobody reads this')\n"
        "subprocess.run([sys.executable, '-c', child], stdin=subprocess.DEVNULL)\n"
    )
    status, _, errors = ended("<&- >&-", sys.executable, "-c", program)
    assert (status, errors) == (0, "/dev/null /dev/null " + errors.split()[-1] + "\n")
    assert errors.split()[-1].startswith("pipe:")
