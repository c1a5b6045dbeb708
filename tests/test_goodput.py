"""Goodput of schedulers: cases, arrivals, the world that keeps time, policies, and how headtail's own does beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from hil.goodput.arrivals import Offered, offer, times
from hil.goodput.case import Arrivals, Case, Fault, Model, Network, largest, read_case
from hil.goodput.policies import POLICIES
from hil.goodput.search import run, search
from hil.goodput.world import NEVER, Launch, Played, play
from hil.sim.check_cli import group
from shared.errors import UserError

MS = 1_000_000
CASES = sorted((Path(__file__).parents[1] / "configs" / "goodput").glob("*.toml"))


def case(devices: int = 1, *, count: int = 1, deadline_ms: float = 25.0, alpha: float = 1.0, beta: float = 5.0) -> Case:
    model = Model(name="m", count=count, deadline_ms=deadline_ms, alpha_ms=alpha, beta_ms=beta)
    return Case(about="a case", devices=devices, models=(model,))


# --- cases -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_case_that_is_shipped_is_read(path: Path) -> None:
    found = read_case(path)
    assert found.most_per_s() > 0


def test_the_staggered_bound_is_the_published_one() -> None:
    by_name = {path.stem: read_case(path) for path in CASES}
    assert by_name["one_model"].staggered_per_s() == pytest.approx(5839, abs=1)
    assert by_name["one_model_10_ms"].staggered_per_s() == pytest.approx(12000, abs=1)


def test_durations_follow_the_line_or_the_points() -> None:
    line = Model(name="m", deadline_ms=10, alpha_ms=0.5, beta_ms=2)
    assert line.duration_ns(4) == 4 * MS
    points = Model(name="m", deadline_ms=10, points=((1, 2.0), (4, 5.0), (8, 7.0)))
    assert [points.duration_ns(b) for b in (1, 2, 4, 6, 8, 16)] == [2 * MS, 3 * MS, 5 * MS, 6 * MS, 7 * MS, 11 * MS]
    assert largest(line, 4 * MS) == 4
    assert largest(line, 2 * MS) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing required field"),
        ("about = 'x'\ndevices = 0\nmodels = [{name = 'm', deadline_ms = 1, alpha_ms = 1}]", "devices"),
        ("about = 'x'\ndevices = 1\nmodels = []", "models"),
        ("about = 'x'\ndevices = 1\nmodels = [{name = 'm', deadline_ms = 1}]", "give alpha_ms and beta_ms, or points"),
        ("about = 'x'\ndevices = 1\nmodels = [{name = 'm', deadline_ms = 1, alpha_ms = 1, typo = 1}]", "typo"),
        (
            "about = 'x'\ndevices = 1\nmodels = [{name = 'm', deadline_ms = 1, alpha_ms = 1, points = [[1, 2.0]]}]",
            "not both",
        ),
        (
            "about = 'x'\ndevices = 1\nmodels = [{name = 'm', deadline_ms = 1, points = [[2, 2.0], [1, 3.0]]}]",
            "must rise",
        ),
        (
            "about = 'x'\ndevices = 1\nmodels = [{name = 'm', deadline_ms = 1, alpha_ms = 1, "
            "arrivals = {process = 'trace'}}]",
            "a file of arrivals",
        ),
        (
            "about = 'x'\ndevices = 1\nfaults = [{device = 1, at_s = 0, for_s = 1}]\n"
            "models = [{name = 'm', deadline_ms = 1, alpha_ms = 1}]",
            "device 1",
        ),
    ],
)
def test_a_case_that_breaks_a_rule_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "case.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        read_case(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a = " + b"[" * 20_000, "case.toml: not valid TOML: brackets stand too deep"),
        (b"a = " + b"9" * 5_000, "case.toml: holds a number that is too long"),
        (b"a = \xff", "case.toml: not a text file in UTF-8"),
        (b"a = ", "case.toml: not valid TOML: .*line 1"),
    ],
)
def test_what_is_no_toml_is_no_case(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "case.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says):
        read_case(path)


# --- arrivals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("process", "cv", "low", "high"), [("poisson", 1.0, 0.95, 1.05), ("gamma", 3.16, 2.8, 3.5)])
def test_gaps_have_the_mean_and_the_variation_that_are_asked(process: str, cv: float, low: float, high: float) -> None:
    arrivals = msgspec.convert({"process": process, "cv": cv}, Arrivals)
    model = Model(name="m", deadline_ms=1, alpha_ms=1, arrivals=arrivals)
    gaps = np.diff(times(model, 1000.0, 60.0, np.random.default_rng(1)))
    assert gaps.mean() == pytest.approx(1e-3, rel=0.05)
    assert low < gaps.std() / gaps.mean() < high


def test_periodic_requests_come_evenly() -> None:
    model = Model(name="m", deadline_ms=1, alpha_ms=1, arrivals=Arrivals(process="periodic"))
    assert np.diff(times(model, 100.0, 1.0, np.random.default_rng(1))) == pytest.approx(0.01)


def test_a_trace_is_stretched_to_the_rate_and_goes_on_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("5\n6\n8\n")
    model = Model(name="m", deadline_ms=1, alpha_ms=1, arrivals=Arrivals(process="trace", file=str(path)))
    found = times(model, 10.0, 0.9, np.random.default_rng(1))
    assert len(found) == 9
    assert np.diff(found[:3])[1] == pytest.approx(2 * np.diff(found[:3])[0])
    path.write_text("5\nx\n")
    with pytest.raises(UserError, match=r"trace\.txt"):
        times(model, 10.0, 1.0, np.random.default_rng(1))


def test_the_same_seed_offers_the_same_and_another_rate_only_stretches_it() -> None:
    one, again = offer(case(), 100.0, 1000, 7), offer(case(), 100.0, 1000, 7)
    assert one == again
    double = offer(case(), 200.0, 1000, 7)
    assert np.array(double.came_ns[:900]) * 2 == pytest.approx(np.array(one.came_ns[:900]), abs=2)


def test_models_with_rates_of_their_own_do_not_shorten_a_run_nor_change_the_others_draw() -> None:
    which = read_case(next(path for path in CASES if path.stem == "tight_and_background"))
    alone, beside = (offer(which.with_background(times), 1000.0, 2000, 1) for times in (0.0, 1.0))
    assert len(beside.came_ns) > 5 * len(alone.came_ns)
    assert [c for c, m in zip(beside.came_ns, beside.model, strict=True) if m == 0] == alone.came_ns
    with pytest.raises(UserError, match="no model has a rate of its own"):
        case().with_background(2.0)


def test_deadlines_hold_at_the_edge() -> None:
    far = msgspec.structs.replace(case(), network=Network(up_ms=3, down_ms=4))
    found = offer(far, 100.0, 1000, 1)
    assert all(c - s == pytest.approx(3 * MS, abs=2) for s, c in zip(found.sent_ns, found.came_ns, strict=True))
    assert all(d - s == pytest.approx(21 * MS, abs=2) for s, d in zip(found.sent_ns, found.due_ns, strict=True))


# --- the world ---------------------------------------------------------------------------------------------------------


class Scripted:
    """Launches each request alone on device 0, if it is idle."""

    wake_ns = NEVER

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.idle = True

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        self.waiting.append(request)

    def ended(self, device: int, now: int) -> None:
        self.idle = True

    def decide(self, now: int) -> Sequence[Launch]:
        if not self.idle or not self.waiting:
            return ()
        self.idle = False
        return [Launch(0, 0, [self.waiting.pop(0)])]


def offered(*came_ms: float, deadline_ms: float = 25.0) -> Offered:
    came = [int(c * MS) for c in came_ms]
    return Offered(came, came, [0] * len(came), [c + int(deadline_ms * MS) for c in came])


def test_what_ends_by_its_deadline_is_in_time_and_what_waits_too_long_is_late() -> None:
    played = play(case(), offered(0, 1, 2, 3, 30, 31), Scripted(), warm=0.0)
    assert (played.classes[0].offered, played.classes[0].on_time, played.classes[0].late) == (6, 6, 0)
    crowded = play(case(), offered(0, 1, 2, 3, 4, 5), Scripted(), warm=0.0)
    assert (crowded.classes[0].on_time, crowded.classes[0].late) == (4, 2), (
        "launches end at 6, 12, 18, 24, 30 and 36 ms"
    )
    assert crowded.busy == pytest.approx(1.0)


def test_a_stopped_device_ends_nothing_until_it_goes_on_and_a_slowed_one_takes_longer() -> None:
    stopped = msgspec.structs.replace(case(), faults=(Fault(device=0, at_s=0.001, for_s=0.030),))
    assert play(stopped, offered(0, 40), Scripted(), warm=0.0).classes[0].on_time == 1
    slowed = msgspec.structs.replace(case(), faults=(Fault(device=0, at_s=0.0, for_s=1.0, slowdown=5.0),))
    assert play(slowed, offered(0), Scripted(), warm=0.0).classes[0].late == 1


# --- policies ----------------------------------------------------------------------------------------------------------


def counted(name: str, which: Case, rate: float) -> tuple[Played, Counter[int]]:
    """A run of a policy, and how often each request was launched."""
    policy = POLICIES[name](which)
    seen: Counter[int] = Counter()
    decide = policy.decide

    class Watched:
        arrived = policy.arrived
        ended = policy.ended

        @property
        def wake_ns(self) -> int:
            return policy.wake_ns

        def decide(self, now: int) -> Sequence[Launch]:
            launches = decide(now)
            for launch in launches:
                seen.update(launch.requests)
            return launches

    return play(which, offer(which, rate, 3000, 1), Watched()), seen


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_serves_a_light_load_in_time_and_each_request_once(name: str) -> None:
    played, seen = counted(name, case(2, count=3), 100.0)
    assert played.share([True] * 3) > 0.99
    assert len(seen) > 0.98 * (sum(c.offered for c in played.classes) / 0.9), "deferred batches may be dropped"
    if name != "shepherd":  # it stops launches and begins them again
        assert set(seen.values()) == {1}


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_launches_more_than_devices_can_do(name: str) -> None:
    played, _ = counted(name, case(2, count=3), 3000.0)
    assert played.busy <= 1.0 + 1e-9
    assert sum(c.on_time for c in played.classes) <= 3000


@pytest.mark.parametrize(
    ("stem", "least"),
    [
        ("one_model", 5291),
        ("ten_models", 3886),
        ("ten_models_bursty", 3605),
        ("one_model_10_ms", 10900),
        ("eight_models_10_ms", 6000),
        ("nexus_alpha_1.0", 449),
        ("nexus_alpha_1.8", 470),
    ],
)
def test_headtail_serves_what_the_best_published_policy_does(stem: str, least: float) -> None:
    """At 4 % below the best of the published policies' goodput, with a tenth of the requests that the figures rest on."""
    which = read_case(next(path for path in CASES if path.stem == stem))
    assert run(which, "headtail", least * 0.96, 10_000, 1).share([True] * len(which.each)) >= 0.99


def test_overload_takes_nothing_from_goodput() -> None:
    which = read_case(next(path for path in CASES if path.stem == "ten_models"))
    at_most = 3800.0 * 0.99
    played = run(which, "headtail", 2 * 3800.0, 20_000, 1)
    assert sum(c.on_time for c in played.classes) / sum(c.offered for c in played.classes) * 7600 > 0.9 * at_most
    assert sum(c.late for c in played.classes) == 0, "nothing late is executed"


@pytest.mark.parametrize("background", [0.25, 2.0])
def test_a_tight_class_keeps_its_share_beside_any_background(background: float) -> None:
    which = read_case(next(path for path in CASES if path.stem == "tight_and_background"))
    alone = run(which.with_background(0.0), "headtail", 3000.0, 10_000, 1)
    beside = run(which.with_background(background), "headtail", 3000.0, 10_000, 1)
    assert beside.classes[0].share >= alone.classes[0].share - 0.001
    assert sum(c.on_time for c in beside.classes[1:]) > 0, "the background gets what is left"


@pytest.mark.parametrize(("stem", "rate"), [("clockwork_12", 600.0), ("clockwork_48", 600.0), ("clockwork_12", 2400.0)])
def test_headtail_keeps_10_ms_where_devices_are_not_loaded_to_the_brim(stem: str, rate: float) -> None:
    """Clockwork's section 6.3 with a tenth of the requests that the figures rest on."""
    which = read_case(next(path for path in CASES if path.stem == stem))
    assert run(which, "headtail", rate, 10_000, 1).share([True] * len(which.each)) >= 0.999


def test_a_search_ends_where_the_share_falls_below_what_is_asked() -> None:
    found = search(case(2), "case", "clockwork", 0.99, 2000, 1, steps=7)
    below = [p for p in found.points if p.rate_per_s <= found.rate_per_s]
    assert below[-1].share >= 0.99
    assert found.played is not None
    above = [p for p in found.points if p.rate_per_s > found.rate_per_s]
    assert above[0].share < 0.99


# --- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_writes_and_draws(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        "about = 'small'\ndevices = 2\n[[models]]\nname = 'm'\ndeadline_ms = 25\nalpha_ms = 1\nbeta_ms = 5\n"
    )
    arguments = [
        "goodput",
        str(path),
        "--policy",
        "clockwork",
        "--policy",
        "headtail",
        "--requests",
        "1000",
        "--seeds",
        "1",
    ]
    written, drawn = tmp_path / "found.json", tmp_path / "charts"
    result = CliRunner().invoke(group(), [*arguments, "--jobs", "1", "--json", str(written), "--svg", str(drawn)])
    assert result.exit_code == 0, result.output
    assert "clockwork" in result.output
    assert "staggered bound" in result.output
    found = json.loads(written.read_text())
    assert {one["policy"] for one in found["searches"]} == {"clockwork", "headtail"}
    assert (drawn / "small.svg").read_text().startswith("<svg")


def test_a_policy_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        "about = 'small'\ndevices = 2\n[[models]]\nname = 'm'\ndeadline_ms = 25\nalpha_ms = 1\nbeta_ms = 5\n"
    )
    result = CliRunner().invoke(group(), ["goodput", str(path), "--policy", "best"])
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2


def test_shares_by_class_at_given_rates_alone_and_beside_a_background(tmp_path: Path) -> None:
    which = next(path for path in CASES if path.stem == "tight_and_background")
    written = tmp_path / "found.json"
    arguments = ["goodput", str(which), "--rate", "500", "--rate", "1000", "--background", "0", "--background", "0.1"]
    arguments += ["--requests", "1000", "--seeds", "2", "--jobs", "1", "--json", str(written)]
    result = CliRunner().invoke(group(), arguments)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert sum("tight " in line and "class 0" in line for line in lines) == 4
    assert sum("background " in line and "class 2" in line for line in lines) == 2
    runs = json.loads(written.read_text())["runs"]
    assert [(one["rate_per_s"], one["seed"]) for one in runs[:4]] == [(500, 1), (500, 2), (1000, 1), (1000, 2)]
    assert all(one["share"] > 0.99 for one in runs)


@pytest.mark.parametrize(
    ("stem", "extra", "says"),
    [
        ("one_model", ["--background", "2"], "no model has a rate of its own"),
        ("one_model", ["--rate", "5", "--svg", "charts"], "leave one of them out"),
        ("one_model", ["--rate", "inf"], "less than or equal to 1000000000"),
    ],
)
def test_options_that_do_not_fit_are_refused(stem: str, extra: list[str], says: str) -> None:
    which = next(path for path in CASES if path.stem == stem)
    result = CliRunner().invoke(group(), ["goodput", str(which), *extra])
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert says in result.output
