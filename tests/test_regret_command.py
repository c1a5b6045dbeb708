"""What `headtail sim regret` prints, and when it says no."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hil.regret.chart import Line, Panel, page, rolling, ticks
from hil.regret.predicted import Predicted
from hil.regret.words import CaseRows, Row, mean, regret, together, verdict
from hil.sim.check_cli import group

FINE = """# headtail link trace 1
t_ms,rtt_ms,up_rate_mbit,down_rate_mbit
0,2,100,100
10,2,100,100
"""


@pytest.fixture
def run() -> CliRunner:
    return CliRunner()


def link(folder: Path, steps: int = 400) -> Path:
    path = folder / "fine.csv"
    rows = "".join(f"{10 * i},4,100,100\n" for i in range(steps))
    path.write_text(FINE.partition("0,2")[0] + rows)
    return path


def test_a_fine_link_has_no_regret_and_every_fixed_route_is_beaten(tmp_path: Path, run: CliRunner) -> None:
    svg = tmp_path / "out.svg"
    arguments = ["regret", str(link(tmp_path)), "--seconds", "4", "--jobs", "1", "--json", "--svg", str(svg)]
    done = run.invoke(group(), arguments)
    found = json.loads(done.output)
    rows = {row["policy"]: row for row in found["cases"][0]["rows"]}
    assert list(rows) == ["best", "device", "0/raw", "1/raw", "1/int8", "0/jpeg90", "oracle"]
    assert (rows["oracle"]["on_time"], rows["oracle"]["exact"]) == (1.0, 1.0)
    assert rows["device"]["exact"] == 0.0
    assert found["regret"]["exact_points"] < 15.0  # in four seconds the first requests count
    assert done.exit_code == (0 if found["regret"]["within"] else 1)
    assert svg.read_text().startswith("<svg ")


def test_the_table_is_for_people(tmp_path: Path, run: CliRunner) -> None:
    done = run.invoke(group(), ["regret", str(link(tmp_path)), "--seconds", "2", "--jobs", "1", "--deadline-ms", "50"])
    assert "fine.csv: 60 requests in 2 s, each due after 50 ms" in done.output
    assert "regret: " in done.output
    assert "requests a second of one core" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv"], "nowhere.csv: cannot be read"),
        (["bad.csv"], "bad.csv"),
    ],
)
def test_what_cannot_be_replayed_is_named(
    arguments: list[str], words: str, tmp_path: Path, run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    done = run.invoke(group(), ["regret", *arguments])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("100000000000,5,50,50,0,0,0,0", "odd.csv: a delay up of 1e+11 ms; expected at most 60000"),
        ("5,5,50,0.000001,0,0,0,0", "odd.csv: a rate down of 1e-06 Mbit/s; expected 0.001 or more, or 0 for any"),
    ],
)
def test_a_link_on_which_nothing_could_be_replayed_is_refused(
    values: str, words: str, tmp_path: Path, run: CliRunner
) -> None:
    heads = "t_ms,up_delay_ms,down_delay_ms,up_rate_mbit,down_rate_mbit,up_loss,down_loss,up_outage,down_outage"
    path = tmp_path / "odd.csv"
    path.write_text(f"# headtail link trace 1\n{heads}\n0,{values}\n10,{values}\n")
    done = run.invoke(group(), ["regret", str(path)])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def row(policy: str, on_time: float, exact: float, agreement: float) -> Row:
    return Row(policy, on_time, exact, agreement, 10, 20, {"0/raw": Predicted(10, 1, 2)})


def case(*rows: Row) -> CaseRows:
    return CaseRows("a", 20.0, 100, 4.0, rows)


ORACLE = row("oracle", 1.0, 0.9, 0.99)


def test_regret_is_a_mean_over_cases_in_points() -> None:
    cases = [
        case(row("best", 1.0, 0.9, 0.98), row("device", 1.0, 0.0, 0.9), ORACLE),
        case(row("best", 0.99, 0.8, 0.96), row("device", 1.0, 0.0, 0.9), ORACLE),
    ]
    found = regret(cases, "best", "oracle")
    assert (found.on_time_points, found.exact_points, found.agreement_points) == pytest.approx((0.5, 5.0, 2.0))
    assert found.unbeaten == ("device",)  # it is more often in time
    assert not found.within
    assert "not beaten: device" in verdict(found)
    assert mean(cases, "best").predictions == {"0/raw": Predicted(20, 2, 4)}


def test_within_the_bounds_nothing_is_held_against_a_policy() -> None:
    found = regret([case(row("best", 0.996, 0.86, 0.98), row("0/raw", 0.99, 0.8, 0.9), ORACLE)], "best", "oracle")
    assert found.within
    assert "every fixed route is beaten" in verdict(found)


def test_predictions_add_up() -> None:
    added = together([{"a": Predicted(1, 1, 0)}, {"a": Predicted(3, 0, 2), "b": Predicted()}])
    assert added == {"a": Predicted(4, 1, 2), "b": Predicted()}
    assert (added["a"].share, added["b"].share) == (0.25, 0.0)


def test_a_chart_is_a_drawing_that_anything_can_read() -> None:
    drawn = page("<a>", [Panel("one & two", "s", (Line("x", ((0.0, 0.0), (2.0, 1.0))),), ((0.5, 1.0),), 0.8)])
    assert "&lt;a&gt;" in drawn
    assert "one &amp; two" in drawn
    assert drawn.count("<polyline") == 1
    assert ticks(1.0, 4) == [0.0, 0.5, 1.0]
    assert rolling([(0.1, 1.0), (0.9, 0.0), (1.2, 4.0)], 1.0) == ((0.5, 0.5), (1.5, 4.0))
    assert msgspec.json.encode(Panel("t", "u", ())) is not None
