"""Real hosts: the commands that shape their devices, and the way over ssh, with a stand-in that runs the words here."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from hil.emulator.shape import GilbertElliott, Shape
from hil.scenarios import netem
from hil.scenarios.hosts import Hosts, load_hosts
from hil.scenarios.orders import Orders, orders_file, read_orders
from hil.scenarios.remote import RemoteNetwork, RemoteService
from hil.scenarios.scenario import Fault, LinkPart, Scenario
from hil.scenarios.subject import PROGRAM
from hil.small_plans import write_small
from shared.errors import SettingsError, UserError
from shared.settings import CloudSettings, Journal, NodeGroup

HOSTS = """
sudo = false

[vehicle]
device = "wlan0"

[cloud]
ssh = "user@rack"
address = "127.0.0.1"
device = "eth0"
python = "{python}"
folder = "{folder}"
first_port = {port}
"""
PATIENCE_S = 60.0
CHANGE = "tc qdisc change dev wlan0 parent 1:4 handle 40: netem"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(), "limit 175"),
        (Shape(delay_ms=5.0), "limit 591 delay 5ms"),
        (Shape(delay_ms=5.0, jitter_ms=2.0, rate_mbit=20.0), "limit 186 delay 6ms 1ms rate 20000000bit"),
        (Shape(rate_mbit=20.0, loss=0.015, queue_bytes=30000), "limit 20 loss 1.5% rate 20000000bit"),
        (Shape(bursts=GilbertElliott(0.01, 0.25, 0.9, 0.001)), "limit 175 loss gemodel 1% 25% 90% 0.1%"),
    ],
)
def test_a_shape_is_told_in_words_of_netem(shape: Shape, words: str) -> None:
    assert " ".join(netem.shape("wlan0", shape, "open")) == f"{CHANGE} {words}"


def test_what_lets_nothing_pass_loses_everything() -> None:
    for state in ("stalled", "dark"):
        assert " ".join(netem.shape("wlan0", Shape(delay_ms=5.0), state)) == f"{CHANGE} limit 8 loss 100%"


@pytest.mark.parametrize("shape", [Shape(reorder=0.1, reorder_ms=1.0), Shape(burst_bytes=9000)])
def test_what_netem_does_otherwise_is_refused(shape: Shape) -> None:
    with pytest.raises(UserError, match="netem, which has no reorder and no burst_bytes"):
        netem.shape("wlan0", shape, "open")
    with pytest.raises(UserError, match="one kind of loss"):
        netem.shape("wlan0", Shape(loss=0.1, bursts=GilbertElliott.of(0.1, 2.0)), "open")


def test_only_the_nodes_ports_are_shaped() -> None:
    root, band, first, second = (" ".join(command) for command in netem.begin("eth0", "sport", [7711, 7712]))
    assert root.startswith("tc qdisc replace dev eth0 root handle 1: prio bands 4 priomap 1 2 2 2 ")
    assert band == "tc qdisc replace dev eth0 parent 1:4 handle 40: netem"
    for told, port in ((first, 7711), (second, 7712)):
        assert told == (
            "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
            f"match ip sport {port} 0xffff flowid 1:4"
        )
    assert netem.end("eth0") == ["tc", "qdisc", "del", "dev", "eth0", "root"]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Two hosts that are this one: `ssh` runs its last word in a shell, `tc` writes down what it is told."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "ssh").write_text('#!/bin/sh\nfor words; do :; done\nexec sh -c "$words"\n')
    (bin_ / "tc").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/tc.log\n')
    for program in bin_.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    port = 20_000 + os.getpid() % 20_000
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS.format(python=sys.executable, folder=tmp_path / "far", port=port), encoding="utf-8")
    return load_hosts(file)


def told(folder: Path) -> list[str]:
    return (folder / "tc.log").read_text().splitlines()


def test_a_hosts_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS.format(python="python3; rm", folder="/tmp/x", port=7711), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"cloud\.python: is 'python3; rm'"):
        load_hosts(file)


@pytest.mark.parametrize("kind", ["readdress", "crowd"])
def test_what_real_hosts_cannot_carry_is_refused_first(hosts: Hosts, tmp_path: Path, kind: str) -> None:
    scenario = Scenario(name="x", about="y", faults=(Fault(at_s=1.0, kind=kind, link="air", for_s=1.0),))
    with pytest.raises(UserError, match=f"x: real hosts cannot carry a fault '{kind}'"):
        RemoteNetwork(scenario, hosts)
    assert not (tmp_path / "tc.log").exists()


def test_both_ends_are_shaped_and_given_back(hosts: Hosts, tmp_path: Path) -> None:
    link = LinkPart(up=Shape(delay_ms=3.0), down=Shape(delay_ms=4.0))
    network = RemoteNetwork(Scenario(name="x", about="y", links=(link,)), hosts)
    begun = told(tmp_path)
    assert [line.split()[3] for line in begun] == ["wlan0"] * 4 + ["eth0"] * 4 + ["wlan0", "eth0"]
    assert begun[-2].endswith("delay 3ms")
    assert begun[-1].endswith("delay 4ms")
    network.state("air", "stalled")
    network.shape("air", Shape(delay_ms=9.0), Shape(delay_ms=9.0))
    assert all(line.endswith("loss 100%") for line in told(tmp_path)[-4:]), "it stays stalled"
    network.state("air", "open")
    assert all(line.endswith("delay 9ms") for line in told(tmp_path)[-2:])
    network.close()
    assert told(tmp_path)[-2:] == ["qdisc del dev wlan0 root", "qdisc del dev eth0 root"]


def test_a_node_is_started_told_stopped_and_ended_over_ssh(hosts: Hosts, tmp_path: Path) -> None:
    network = RemoteNetwork(Scenario(name="x", about="y"), hosts)
    here = tmp_path / "here"
    here.mkdir()
    bundle = write_small(here, "small", rungs=("small",), routes=("raw",))
    node = NodeGroup(name="node-a", endpoint=network.binds("node-a"), models=(str(bundle),))
    journal = Journal(folder=str(here / "journals"))
    service = network.service("node-a", "cloud", CloudSettings(node=node, journal=journal), here, PROGRAM)
    assert isinstance(service, RemoteService)
    try:
        service.start()
        end = time.monotonic() + PATIENCE_S
        while not service.ready:
            assert time.monotonic() < end, service.log.read_text()
        network.order(service, Orders(times=2.0))
        assert read_orders(Path(service.far_config)).times == 2.0
        assert orders_file(Path(service.far_config)).parent == tmp_path / "far"
        service.stop()
        service.resume()
        assert service.running
    finally:
        service.end()
        network.close()
    assert not service.running
    network.collect(here)
    assert (here / "journals").is_dir()
