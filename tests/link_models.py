"""Models of links for the tests on them."""

from __future__ import annotations

from hil.links.model import LinkModel, State


def model(*states: State, step_ms: float = 10.0) -> LinkModel:
    return LinkModel(name="test", about="", sources=(), step_ms=step_ms, states=states)


def good(**fields: object) -> State:
    base = State(name="good", dwell_ms=4000.0, next=(1.0,), floor_ms=12.0, median_ms=6.0, sigma=0.4)
    return State(**{**{field: getattr(base, field) for field in base.__struct_fields__}, **fields})


FOUR = model(
    good(
        next=(0.0, 0.7, 0.25, 0.05),
        delay_memory_ms=80.0,
        tail_share=0.02,
        tail_alpha=4.0,
        cap_ms=200.0,
        rate_mbit=(20.0, 60.0),
        rate_sigma=(0.3, 0.5),
        rate_memory_ms=1000.0,
        burst_share=0.02,
        burst_ms=60.0,
        burst_loss=(0.1, 0.05),
        other_loss=(0.001, 0.0),
    ),
    State(
        name="congested",
        dwell_ms=3000.0,
        next=(0.8, 0.0, 0.2, 0.0),
        floor_ms=20.0,
        median_ms=15.0,
        sigma=0.2,
        delay_memory_ms=60.0,
        rate_mbit=(5.0, 10.0),
        rate_sigma=(0.2, 0.2),
        rate_memory_ms=500.0,
        other_loss=(0.01, 0.02),
    ),
    State(name="hand_over", dwell_ms=300.0, next=(0.5, 0.5, 0.0, 0.0), dwell="lognormal", dwell_sigma=0.3, outage=True),
    State(name="outage", dwell_ms=5000.0, next=(1.0, 0.0, 0.0, 0.0), dwell="lognormal", dwell_sigma=0.4, outage=True),
)
"""A link of four states that thresholds can tell apart."""
