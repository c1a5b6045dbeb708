from __future__ import annotations

from pathlib import Path

import pytest

from partitioner.options import (
    LinkGuess,
    PlanOptions,
    check_options,
    parse_duration,
    parse_link,
    parse_rate,
    parse_shape,
)
from shared.errors import UserError


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


def test_a_shape_is_positive_whole_numbers() -> None:
    assert parse_shape("1,3, 192,192") == (1, 3, 192, 192)


@pytest.mark.parametrize("text", ["", "1,,3", "1x3", "1,-3", "1,0", "1,3.5", "1,2,3,4,5,6,7,8,9"])
def test_a_bad_shape_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="shape"):
        parse_shape(text)


def test_options_are_refused_by_name(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"x")
    out = tmp_path / "m.plan"
    check_options(PlanOptions(model, out, (1, 3)))
    cases: list[tuple[PlanOptions, str]] = [
        (PlanOptions(tmp_path / "none.onnx", out, (1,)), "no such file"),
        (PlanOptions(model, out, (1,), edge_slowdown=0.5), "edge slowdown"),
        (PlanOptions(model, out, (1,), cadence_hz=0.0), "cadence"),
        (PlanOptions(model, out, (1,), min_agreement=1.5), "least agreement"),
        (PlanOptions(model, out, (1,), threads=0), "threads"),
        (PlanOptions(model, out, (1,), jpeg_qualities=(0,)), "JPEG quality"),
        (PlanOptions(model, tmp_path / "m.out", (1,)), "ends in .plan"),
        (PlanOptions(model, model, (1,)), "is no plan"),
    ]
    for options, words in cases:
        with pytest.raises(UserError, match=words):
            check_options(options)
