"""A grid of conditions in a file: every combination, and one clear error for everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioner.grids.file import read_grid
from partitioner.grids.grid import MOST_POINTS, GridPoint, parse_grid
from shared.errors import UserError

GOOD = {"rates": '["10mbit", "1gbit"]', "round_trips": '["0ms", "250us"]', "device_ratios": "[1, 4.5]"}


def text(**changes: str) -> str:
    lists = {**GOOD, **changes}
    return "\n".join(f"{key} = {value}" for key, value in lists.items() if value) + "\n"


def test_every_rate_is_combined_with_every_round_trip_and_device_and_weights_multiply() -> None:
    points = parse_grid(text() + "[weights]\nrates = [1, 3]\ndevice_ratios = [0.5, 2]\n", "g.toml")
    assert len(points) == 8
    assert points[0] == GridPoint(10.0, 0.0, 1.0, 0.5)
    assert points[-1] == GridPoint(1000.0, 0.25, 4.5, 6.0)
    assert str(points[-1]) == "1000 Mbit/s, 0.25 ms round trip, a device 4.5 times slower"


def test_the_example_is_a_grid() -> None:
    points = read_grid(Path(__file__).parent.parent / "configs" / "conditions.toml")
    assert len(points) == 4 * 3 * 3
    assert {point.weight for point in points} == {1.0, 2.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": ""}, "rates is missing: expected a list such as"),
        ({"rates": "[]"}, "rates: expected a list with at least one value"),
        ({"rates": '"10mbit"'}, "rates: expected a list"),
        ({"rates": '["10mbit", "10"]'}, "rates, value 2: rate '10': expected a number with a unit"),
        ({"rates": '["-5mbit"]'}, "rates, value 1: rate '-5mbit'"),
        ({"rates": '["0mbit"]'}, "rates, value 1: .* more than zero"),
        ({"rates": "[10]"}, "rates, value 1: expected a rate such as '200mbit' with its unit, not 10"),
        ({"rates": '["10mbit", "10mbit"]'}, "rates, value 2: '10mbit' is there already"),
        ({"round_trips": '["2ms", "-1ms"]'}, "round_trips, value 2: duration '-1ms'"),
        ({"device_ratios": "[-2]"}, "device_ratios, value 1: device ratio -2: expected 1 to 1000"),
        ({"device_ratios": "[1, inf]"}, "device_ratios, value 2: device ratio inf"),
        ({"device_ratios": "[nan]"}, "device_ratios, value 1: device ratio nan"),
        ({"device_ratios": "[true]"}, "device_ratios, value 1: expected a number, not True"),
        pytest.param(
            {"device_ratios": "[1, 1" + "0" * 400 + "]"}, "device_ratios, value 2: device ratio inf", id="400"
        ),
        pytest.param({"device_ratios": "[1" + "0" * 5000 + "]"}, "holds a number that is too long", id="5000"),
        pytest.param({"rates": "[" * 20_000}, "not valid TOML: brackets stand too deep", id="brackets"),
        ({"bandwidths": "[1]"}, "unknown key 'bandwidths': expected rates, round_trips, device_ratios or weights"),
        ({"weights": "3"}, "weights: expected a table"),
        ({"weights": "{ rates = [1] }"}, "weights.rates: expected 2 weights, one for each value of rates"),
        ({"weights": "{ rates = [1, 0] }"}, "weights.rates, value 2: weight 0: expected a number of more than zero"),
        ({"weights": "{ rates = [1, -1] }"}, "weights.rates, value 2: weight -1"),
        ({"weights": "{ speed = [1] }"}, "unknown key 'weights.speed'"),
        ({"rates": '["1mbit"'}, "not valid TOML: .*line 2"),
        ({"device_ratios": str([1 + n for n in range(999)])}, f"3996 combinations, expected at most {MOST_POINTS}"),
    ],
)
def test_a_bad_grid_is_refused_by_file_and_key(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=rf"^g\.toml: {message}"):
        parse_grid(text(**changes), "g.toml")


def test_a_file_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        read_grid(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"bytes\.toml: not UTF-8 text at byte 0"):
        read_grid(tmp_path / "bytes.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_grid(tmp_path)
