"""How agent and node end, as processes: whatever signals come late, whoever takes what they say, with nothing left."""

from __future__ import annotations

import sys
from pathlib import Path

import processes
import pytest
from processes import ServiceProcess, cloud_settings, edge_settings
from tiny import make_bundle

VERBS = pytest.mark.parametrize("verb", ["edge", "cloud"])

LATE = """
import os, signal

class Late:
    def __init__(self, number):
        self.number = number

    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, self.number)

late = [Late(signal.SIGTERM), Late(signal.SIGINT), Late(signal.SIGUSR1)]
from shared.cli import main
main()
"""
"""`headtail`, which gets signals when the interpreter takes its modules apart and handles none any more."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


def settings_of(verb: str, folder: Path, bundle: Path) -> str:
    endpoint = f"ipc://{folder}/socket"
    return edge_settings(endpoint, [bundle]) if verb == "edge" else cloud_settings([bundle], endpoint)


@VERBS
def test_signals_in_the_last_moments_of_a_service_do_not_change_its_status(
    verb: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", LATE))
    with ServiceProcess(verb, tmp_path, settings_of(verb, tmp_path, bundle)) as service:
        assert service.end() == (0, "", "")
