"""The verbs of `headtail` that belong to neither side: they are for devices and nodes alike."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "doctor",
        "Say how well this host can keep promises in time, and what to do about it.",
        "shared.doctor.cli:main",
        extra="edge",
        requires=("psutil",),
    ),
)
