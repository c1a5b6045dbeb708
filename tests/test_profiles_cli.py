"""`headtail profile` as a user calls it, on this machine and on another one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, classifier
from onnx import external_data_helper
from typer.testing import CliRunner

from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.recipe import Recipe, build
from partitioner.profile_cli import batches_of, buckets_of, main
from partitioner.profiles.file import load_profile
from partitioner.profiles.lookup import times_for, whole_us
from partitioner.profiles.machine import PowerMeter, energy_used_j, read_clocks
from partitioner.profiles.measure import provider_named
from partitioner.profiles.record import Power
from partitioner.profiles.remote import Host
from shared.errors import UserError

QUICK = ("--as", "edge", "--cadence", "1000", "--seconds", "0", "--batch", "1,2")
REPOSITORY = Path(__file__).parents[1]


def call(*arguments: object) -> tuple[int, str]:
    """Status and all that was printed."""
    done = CliRunner().invoke(main(), [str(argument) for argument in arguments], prog_name="profile")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return classifier().save(tmp_path / "net.onnx")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of the small classifier at two shapes, as an image."""
    folder = tmp_path_factory.mktemp("measured")
    path = classifier().save(folder / "net.onnx")
    shapes = ("--shape", "1,3,16,16", "--shape", "1,3,32,32")
    status, said = call(path, *QUICK, *shapes, "--preprocess", "image", "-o", folder / "a.profile")
    assert status == 0, said
    assert "net.onnx, edge: measured" in said
    return folder / "a.profile"


def test_a_profile_that_was_measured_answers_for_its_model_at_each_shape(measured: Path) -> None:
    profile = load_profile(measured)
    assert [bucket.inputs[0].shape for bucket in profile.buckets] == [(1, 16, 16, 3), (1, 32, 32, 3)]
    for shape in ("1,3,16,16", "1,3,32,32"):
        model = build(Recipe(measured.with_name("net.onnx"), (shape,), "image"))
        groups = find_groups(CutFinder(model))
        for batch in (1, 2):
            found = times_for(profile, groups, batch)
            assert set(found) == set(range(len(groups.nodes)))
            assert sum(found.values()) == pytest.approx(whole_us(profile, batch, model.digest))
    assert {times.guessed_share for bucket in profile.buckets for times in bucket.batches} == {0.0}
    assert all(times.runs >= 8 for bucket in profile.buckets for times in bucket.batches)
    assert {codec.name for codec in profile.codecs} == {"raw", "fp16", "int8", "int4", "qoi", "jpeg90"}
    assert profile.machine.versions["onnxruntime"][0].isdigit()


def test_scaling_and_comparing_on_the_command_line(measured: Path, tmp_path: Path) -> None:
    status, said = call("scale", measured, "--by", "2", "--conv", "4", "-o", tmp_path / "b.profile")
    assert status == 0
    assert "NOT MEASURED, SCALED (a.profile x 2, conv x 4)" in said
    status, said = call("diff", measured, tmp_path / "b.profile")
    assert status == 0
    assert said.index("NOT MEASURED, SCALED") < said.index("Conditions that differ") < said.index("B / A")
    status, said = call("diff", measured, tmp_path / "b.profile", "--json")
    told = json.loads(said)
    assert told["conditions"][0]["b"] == "scaled: a.profile x 2, conv x 4"
    assert 2.0 < told["wholes"][0]["whole"]["ratio"] < 4.0
    assert {round(group["ratio"], 6) for group in told["wholes"][0]["groups"] if group["ratio"]} == {2.0, 4.0}


def test_an_estimate_is_of_the_same_model_and_says_what_it_is(model: Path, tmp_path: Path, measured: Path) -> None:
    roof = ("--flops", "2e12", "--bytes-per-s", "50e9", "--efficiency", "0.25")
    shape = ("--shape", "1,3,16,16", "--preprocess", "image")
    status, said = call("estimate", model, *roof, *shape, "--device", "board", "-o", tmp_path / "e.profile")
    assert status == 0, said
    assert "NOT MEASURED, ESTIMATED (roofline: 2e+12 operations/s, 5e+10 bytes/s, efficiency 0.25)" in " ".join(
        said.split()
    )
    made = load_profile(tmp_path / "e.profile")
    assert made.buckets[0].digest == load_profile(measured).buckets[0].digest
    assert (made.machine.device, [times.batch for times in made.buckets[0].batches]) == ("board", [1, 2, 4])
    assert whole_us(made, 4) > whole_us(made, 1)
    assert call("show", tmp_path / "e.profile")[0] == 0


def refused(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    status, said = call(*arguments)
    said += capfd.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    return " ".join(said.split())


def test_bad_input_is_one_clear_error(
    capfd: pytest.CaptureFixture[str], model: Path, tmp_path: Path, measured: Path
) -> None:
    out, shape = ("-o", tmp_path / "x.profile"), ("--shape", "1,3,16,16")
    assert "ends in .profile" in refused(capfd, model, *QUICK, *shape, "-o", tmp_path / "x.json")
    assert "there is no such file" in refused(capfd, tmp_path / "no.onnx", *QUICK, *out)
    assert "expected numbers joined by commas" in refused(capfd, model, "--as", "edge", "--batch", "1;2", *out)
    assert "batch 0: expected 1 to 1024" in refused(capfd, model, "--as", "edge", "--batch", "0", *shape, *out)
    assert "expected one that is installed" in refused(capfd, model, *QUICK, "--provider", "abacus", *out)
    assert "threads 0: expected" in refused(capfd, model, *QUICK, "--threads", "0", *out)
    assert "seconds -1: expected" in refused(capfd, model, "--as", "edge", "--seconds", "-1", *out)
    assert "cadence 0 Hz: expected" in refused(capfd, model, "--as", "edge", "--cadence", "0", *out)
    assert "state them with --shape" in refused(capfd, Open().save(tmp_path / "open.onnx"), *QUICK, *out)
    assert "nothing to scale by" in refused(capfd, "scale", measured, *out)
    assert "a damaged one" in refused(capfd, "diff", measured, model)
    assert "efficiency 2: expected" in refused(
        capfd, "estimate", model, "--flops", "1", "--bytes-per-s", "1", "--efficiency", "2", *out
    )
    assert not (tmp_path / "x.profile").exists()


class Open(Net):
    """A net whose picture may have any size."""

    def __init__(self) -> None:
        super().__init__()
        self.input("x", ["batch", 3, "height", "width"])
        self.conv("x", "y", (3, 4))
        self.output("y")


def test_rows_that_cannot_be_joined_are_measured_alone(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    net = Net()
    net.input("x", [3, 8])
    net.add("ReduceSum", ["x", net.hold("axes", np.array([0]))], "y", keepdims=0)
    net.output("y")
    path, out = net.save(tmp_path / "net.onnx"), ("-o", tmp_path / "x.profile")
    assert "cannot be joined into a batch" in refused(capfd, path, *QUICK, *out)
    assert call(path, *QUICK[:-2], *out)[0] == 0
    assert [times.batch for times in load_profile(tmp_path / "x.profile").buckets[0].batches] == [1]


def test_a_second_shape_of_one_input_begins_the_next_bucket() -> None:
    assert buckets_of([]) == ((),)
    assert buckets_of(["1,3,8,8", "1,3,9,9"]) == (("1,3,8,8",), ("1,3,9,9",))
    assert buckets_of(["a=1", "b=2", "a=3", "b=4"]) == (("a=1", "b=2"), ("a=3", "b=4"))
    assert (batches_of(None), batches_of("1, 8")) == (None, (1, 8))
    assert provider_named("CPU") == provider_named("CPUExecutionProvider") == "CPUExecutionProvider"


# What the system tells


def write(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def test_power_is_the_mean_of_what_can_be_read_and_absent_where_nothing_can(tmp_path: Path) -> None:
    package, battery = "sys/class/powercap/intel-rapl:0", "sys/class/power_supply/BAT0"
    sensor = "sys/class/hwmon/hwmon3"
    root = write(
        tmp_path / "board",
        {
            f"{package}/name": "package-0",
            f"{package}/energy_uj": 9_000_000,
            f"{package}/max_energy_range_uj": 10_000_000,
            "sys/class/powercap/intel-rapl:0:0/name": "core",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": 5,
            "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj": 9,
            f"{battery}/type": "Battery",
            f"{battery}/status": "Discharging",
            f"{battery}/current_now": 500_000,
            f"{battery}/voltage_now": 12_000_000,
            "sys/class/power_supply/AC/type": "Mains",
            f"{sensor}/name": "ina3221",
            f"{sensor}/power1_input": 2_000_000,
            f"{sensor}/power1_label": "VDD_IN",
        },
    )
    times = iter([100.0, 104.0])
    meter = PowerMeter(root, lambda: next(times))
    write(root, {f"{package}/energy_uj": 1_000_000, f"{sensor}/power1_input": 4_000_000})
    assert meter.power() == (
        Power("package-0 (intel-rapl:0)", 0.5),  # the counter began anew: 2 J in 4 s
        Power("battery BAT0", 6.0),
        Power("ina3221 VDD_IN", 3.0),
    )
    assert PowerMeter(tmp_path / "nothing").power() == ()
    assert energy_used_j(5_000_000, 7_000_000, 10_000_000) == 2.0


def test_clocks_are_read_where_the_system_tells_them(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    names = {"cpuinfo_min": 800, "cpuinfo_max": 2000, "scaling_max": 1500, "scaling_cur": 1200}
    root = write(tmp_path, {f"{folder}/{name}_freq": mhz * 1000 for name, mhz in names.items()})
    write(root, {f"{folder}/scaling_governor": "schedutil"})
    [clock] = read_clocks(root)
    assert (clock.cores, clock.governor, clock.highest_mhz, clock.limit_mhz, clock.now_mhz) == (
        *(1, "schedutil", 2000, 1500),
        1200,
    )
    assert read_clocks(tmp_path / "nothing") == ()


# Another machine

SSH = """while [ "$1" = -o ]; do shift 2; done
echo "$2" >> {log}
exec sh -c "$2"
"""
SCP = """while :; do case "$1" in -o) shift 2;; -q|--) shift;; *) break;; esac; done
n=$#; i=1
for a; do [ $i -eq $n ] && to=${a#*:} || from="$from ${a#*:}"; i=$((i + 1)); done
exec cp $from $to
"""
HEADTAIL = """PYTHONPATH={repository} exec {python} -c 'from shared.cli import main; main()' "$@"
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put an `ssh` and an `scp` on PATH that work on this machine; the folder that they lie in. The commands that ssh was
    given are in its file `log`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(**scripts: str) -> Path:
        places = {"log": folder / "log", "repository": REPOSITORY, "python": sys.executable}
        for name, script in ({"ssh": SSH, "scp": SCP, "headtail": HEADTAIL} | scripts).items():
            text = f"#!/bin/sh\n{script}"
            for place, path in places.items():
                text = text.replace(f"{{{place}}}", str(path))
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder

    return make


def folders(log: Path) -> Sequence[Path]:
    """The temporary folders that were made there, by the commands that removed them."""
    return [Path(line.rpartition(" ")[2]) for line in log.read_text().splitlines() if line.startswith("rm -rf ")]


def test_a_profile_can_be_measured_on_another_machine(there: Callable[..., Path], tmp_path: Path) -> None:
    folder = there()
    path = classifier().save(tmp_path / "net.onnx")
    proto = onnx.load(str(path))
    external_data_helper.convert_model_to_external_data(proto, location="far.bin", size_threshold=64)
    onnx.save(proto, str(tmp_path / "far.onnx"))
    out = tmp_path / "far.profile"
    status, said = call(tmp_path / "far.onnx", *QUICK, "--shape", "1,3,16,16", "--host", "user@board", "-o", out)
    assert status == 0, said
    profile = load_profile(out)
    assert profile.model == "far.onnx"
    assert profile.buckets[0].digest == build(Recipe(path, ("1,3,16,16",))).digest
    [removed] = folders(folder / "log")
    assert removed.name.startswith("headtail-profile.")
    assert not removed.exists()


@pytest.mark.parametrize(
    ("scripts", "said"),
    [
        ({"ssh": "echo 'ssh: connect to host board: refused' >&2; exit 255"}, "cannot be reached by ssh: ssh: connect"),
        ({"ssh": "exit 0"}, "no temporary folder could be made there"),
        (
            {"headtail": "echo 'headtail: net.onnx: no such file' >&2; exit 2"},
            "user@board: headtail: net.onnx: no such file",
        ),
        ({"headtail": "exit 0"}, "cannot copy user@board:/tmp/headtail-profile."),
        ({"headtail": "echo '{' > result.profile"}, "not a profile, or a damaged one"),
        ({"scp": "echo 'scp: no space left' >&2; exit 1"}, "cannot copy .*: scp: no space left"),
        ({"headtail": "exit 124"}, "took too long there"),
    ],
)
def test_what_goes_wrong_there_is_one_clear_error(
    there: Callable[..., Path], tmp_path: Path, scripts: dict[str, str], said: str
) -> None:
    folder = there(**scripts)
    with pytest.raises(UserError, match=said):
        Host("user@board").profile([classifier().save(tmp_path / "net.onnx")], ["net.onnx", "--as", "edge"], 1.0)
    if "ssh" not in scripts:
        assert [left for left in folders(folder / "log") if left.exists()] == []
        assert len(folders(folder / "log")) == 1


def test_a_headtail_or_an_ssh_that_is_missing_is_named(there: Callable[..., Path], tmp_path: Path) -> None:
    folder = there()
    (folder / "headtail").unlink()
    with pytest.raises(UserError, match=r"headtail is not found there .* --headtail-there"):
        Host("user@board").profile([classifier().save(tmp_path / "net.onnx")], ["net.onnx"], 1.0)
    with pytest.raises(UserError, match="as ssh takes it"):
        Host("-oProxyCommand=x")


def test_without_the_client_of_openssh_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="ssh is not installed here"):
        Host("user@board").profile([], ["net.onnx"], 1.0)
