"""Records for tests: random ones, and one whose map has several winning regions."""

from __future__ import annotations

from hypothesis import strategies as st

from partitioner.costs.conditions import Conditions
from partitioner.costs.cost import NOTHING, Spread
from partitioner.options import LinkGuess
from partitioner.records.record import RECORD_FORMAT, Data, Machine, Proven, Record, Way

ASKED = Conditions(LinkGuess(50.0, 6.0), 8.0, 40_000_000, 0.5)


def spread(middle_ms: float, excess_ms: float = 0.0) -> Spread:
    return Spread(middle_ms * 1000.0, (middle_ms + excess_ms) * 1000.0)


def device(rung: str, head_ms: float, agreement: float, excess_ms: float = 0.4) -> Way:
    head = spread(head_ms, excess_ms)
    return Way("device", "", "", rung, head, NOTHING, NOTHING, NOTHING, 0, 0, agreement, True)


def away(
    cut: str,
    coding: str,
    head_ms: float,
    tail_ms: float,
    bytes_up: int,
    agreement: float | None = 1.0,
    measured: bool = True,
    encode_ms: float = 0.1,
    excess_ms: float = 0.6,
) -> Way:
    return Way(
        kind="input" if cut == "input" else "split",
        cut=cut,
        coding=coding,
        rung="",
        head=spread(head_ms, 0.3) if head_ms else NOTHING,
        encode=spread(encode_ms, 0.05),
        decode=spread(0.2, 0.05),
        tail=spread(tail_ms, excess_ms),
        bytes_up=bytes_up,
        bytes_down=2_200,
        agreement=agreement,
        measured=measured,
    )


SEVERAL = (
    device("whole", 7.0, 1.0),
    device("res-320", 3.4, 0.93),
    device("res-224", 1.6, 0.81),
    away("input", "raw", 0.0, 7.0, 1_229_056),
    away("input", "qoi", 0.0, 7.0, 610_000, encode_ms=0.9),
    away("input", "jpeg90", 0.0, 7.0, 96_000, 0.972, encode_ms=0.5),
    away("backbone/stage2/conv3", "raw", 1.6, 5.3, 410_000),
    away("backbone/stage2/conv3", "int8", 1.6, 5.3, 103_000, 0.991),
    away("backbone/stage2/conv3", "int4", 1.6, 5.3, 31_000, 0.978),
    away("neck", "int8", 3.6, 3.3, 52_000, 0.994),
    away("stem", "raw", 0.3, 6.6, 3_276_800, measured=False),
    away("stem", "int8", 0.3, 6.6, 819_456, None, measured=False),
    away("backbone/stage1/conv1", "raw", 0.9, 6.0, 1_638_400, measured=False),
    away("backbone/stage3/conv2", "raw", 2.7, 4.2, 204_800, measured=False),
    away("head/reg/conv", "raw", 5.9, 1.0, 819_200, measured=False),
)
"""Ways of which the device, the input in two codings and two splits win somewhere."""


def record(ways: tuple[Way, ...] = SEVERAL, asked: Conditions = ASKED, **changes: object) -> Record:
    fields: dict[str, object] = {
        "format": RECORD_FORMAT,
        "name": "several",
        "asked": asked,
        "cadence_hz": 30.0,
        "forced": (),
        "metric": "detection",
        "metric_means": "F1 of boxes",
        "data": Data("64 images of photos", True, 32, 96, 180),
        "ways": ways,
        "best": 7 if len(ways) > 7 else None,
        "routes": (7, 8) if len(ways) > 8 else (),
        "rungs": tuple(number for number, way in enumerate(ways) if way.kind == "device"),
        "notes": ("agreement rests on 40 findings in the held-out data: give more data for firmer figures",),
        "proofs": (Proven("input", "raw", 1, True, 2.1e-7), Proven("rung res-224", "", 1, False, 0.81)),
        "machine": Machine("A processor of 2 cores", "Linux", "3.11.2", {"headtail": "0.1.0", "onnx": "1.17.0"}),
        "threads": 1,
        "seed": 0,
        "quick": False,
        "seconds": 61.5,
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


times_ms = st.integers(1, 3000).map(lambda value: value / 100)
excesses_ms = st.integers(0, 400).map(lambda value: value / 100)
agreements = st.sampled_from((1.0, 0.997, 0.99, 0.96, 0.9, 0.8, 0.6))


@st.composite
def random_ways(draw: st.DrawFn) -> tuple[Way, ...]:
    """Rungs, codings of the input and splits with random times, bytes and agreements; some only estimated."""
    rungs = [
        device(f"rung-{n}", draw(times_ms) / (n + 1), 1.0 if n == 0 else draw(agreements), draw(excesses_ms))
        for n in range(draw(st.integers(1, 3)))
    ]
    rest = [
        away(
            f"cut-{n}" if draw(st.booleans()) else "input",
            f"coding-{n}",
            0.0,
            draw(times_ms),
            draw(st.integers(300, 2_000_000)),
            draw(agreements),
            draw(st.integers(0, 4)) > 0,
            draw(times_ms),
            draw(excesses_ms),
        )
        for n in range(draw(st.integers(1, 8)))
    ]
    heads = [draw(times_ms) for _ in rest]
    split = [
        Way(**{**{f: getattr(w, f) for f in w.__struct_fields__}, "head": spread(head, 0.2)})
        if w.kind == "split"
        else w
        for w, head in zip(rest, heads, strict=True)
    ]
    return (*rungs, *split)


random_conditions = st.builds(
    Conditions,
    link=st.builds(LinkGuess, st.floats(1.0, 2000.0), st.floats(0.0, 60.0)),
    edge_slowdown=st.floats(1.0, 40.0),
    deadline_ns=st.integers(500_000, 200_000_000),
    min_agreement=st.sampled_from((0.0, 0.5, 0.8, 0.95, 0.999)),
)
