from __future__ import annotations

import math
from pathlib import Path

import pytest

from partitioner.options import (
    LinkGuess,
    PlanOptions,
    check_options,
    parse_bytes,
    parse_duration,
    parse_link,
    parse_rate,
)
from shared.errors import UserError
from shared.settings import EdgeSettings
from shared.settings_check import decode


@pytest.mark.parametrize(
    ("text", "value_ns"),
    [("10ms", 10_000_000), ("1.5s", 1_500_000_000), ("250us", 250_000), ("7 ns", 7), ("10MS", 10_000_000)],
)
def test_a_duration_is_read_with_its_unit(text: str, value_ns: int) -> None:
    assert parse_duration(text) == value_ns


@pytest.mark.parametrize("text", ["10", "ms", "", "-5ms", "0ms", "1h", "nanms", "1e3ms"])
def test_a_bad_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="duration"):
        parse_duration(text)


def test_a_link_is_a_rate_and_a_round_trip() -> None:
    assert parse_link("200mbit,2ms") == LinkGuess(200.0, 2.0)
    assert parse_link("1gbit, 0ms") == LinkGuess(1000.0, 0.0)
    assert parse_rate("500kbit") == 0.5


@pytest.mark.parametrize(
    ("text", "what"), [("200mbit", "link"), ("200,2ms", "rate"), ("200mbit,2", "duration"), ("0mbit,2ms", "rate")]
)
def test_a_bad_link_says_which_half_is_wrong(text: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        parse_link(text)


@pytest.mark.parametrize("number", ["9" * 400, "9" * 30, "0." + "0" * 330 + "1", "0.0000001"])
def test_numbers_that_nothing_could_be_reckoned_with_are_refused_in_one_short_line(number: str) -> None:
    for parse, text in (
        (parse_duration, f"{number}s" if number[0] == "9" else f"{number}ns"),
        (parse_rate, f"{number}mbit"),
        (parse_bytes, f"{number}kb"),
        (parse_link, f"{number}mbit,1ms"),
        (parse_link, f"1mbit,{number}s" if number[0] == "9" else f"1mbit,{number}ns"),
    ):
        with pytest.raises(UserError) as refused:
            parse(text)
        assert len(str(refused.value)) < 200


def test_the_rates_of_a_plan_are_those_that_settings_take() -> None:
    for rate_mbit in (parse_rate("1kbit"), parse_rate("1000gbit")):
        assert decode({"link": {"rate_mbit": rate_mbit}}, EdgeSettings).link.rate_mbit == rate_mbit


def test_options_are_refused_by_name(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"x")
    out = tmp_path / "m.plan"
    check_options(PlanOptions(model, out))
    cases: list[tuple[PlanOptions, str]] = [
        (PlanOptions(tmp_path / "none.onnx", out), "no such file"),
        (PlanOptions(model, out, edge_slowdown=0.5), "edge slowdown"),
        (PlanOptions(tmp_path, out), "not a file"),
        (PlanOptions(model, out, edge_slowdown=math.nan), "edge slowdown"),
        (PlanOptions(model, out, edge_slowdown=math.inf), "edge slowdown"),
        (PlanOptions(model, out, threads=100_000), "threads"),
        (PlanOptions(model, out, seed=-1), "seed"),
        (PlanOptions(model, out, seed=10**30), "seed"),
        (PlanOptions(model, out, seed=10**5000), "seed"),
        (PlanOptions(model, out, max_bytes_per_second=10**31), "max-bytes-per-second"),
        (PlanOptions(model, out, max_bytes_per_second=10**400), "max-bytes-per-second"),
        (PlanOptions(model, tmp_path / f"{'m' * 129}.plan"), "128 characters"),
        (PlanOptions(model, out, cadence_hz=0.0), "cadence"),
        (PlanOptions(model, out, min_agreement=1.5), "least agreement"),
        (PlanOptions(model, out, threads=0), "threads"),
        (PlanOptions(model, out, jpeg_qualities=(0,)), "JPEG quality"),
        (PlanOptions(model, tmp_path / "m.out"), "ends in .plan"),
        (PlanOptions(model, model), "ends in .plan"),
    ]
    for options, words in cases:
        with pytest.raises(UserError, match=words):
            check_options(options)
