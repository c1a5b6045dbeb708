"""Real hosts, as their file says them: the vehicle is the host that runs the rig, the cloud is reached by ssh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from shared.settings import Group, Text
from shared.settings_file import load

Port = Annotated[int, Meta(ge=1, le=65535)]
Plain = Annotated[str, Meta(pattern=r"^[A-Za-z0-9@._:/~-]+$")]
"""Words that a shell takes as they are."""


class Cloud(Group, frozen=True):
    """The host of the nodes. `ssh` is how it is reached, `address` where the vehicle finds it, `device` its network device
    towards the vehicle, `python` an interpreter that has headtail, `folder` where the rig may put its files. Node number n
    listens on `first_port` + n."""

    ssh: Plain
    address: Plain
    device: Plain
    python: Plain = "python3"
    folder: Plain = "/tmp/headtail-hil"  # noqa: S108 -- the user's own choice
    first_port: Port = 7711


class Vehicle(Group, frozen=True):
    """This host. `device` is its network device towards the cloud."""

    device: Text


class Hosts(Group, frozen=True):
    """All of the file. `sudo`: whether `tc` needs it, without a password, on both hosts."""

    cloud: Cloud
    vehicle: Vehicle
    sudo: bool = True


def load_hosts(path: Path) -> Hosts:
    """The hosts in a file. Raises `SettingsError` that names the file and the key."""
    return load(path, Hosts)
