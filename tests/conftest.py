"""Property tests behave alike everywhere: the same examples on every run, and no limit on time, which a busy machine would
break. Plans that tests make for themselves are timed for a moment only, without the pauses of a stream: what they hold is not
how firm their times are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("headtail", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headtail")

PACE_HZ = 1000.0


@pytest.fixture(scope="session", autouse=True)
def _timed_for_a_moment() -> Iterator[None]:
    # Only where a test has imported it already: most have no need of a runtime.
    study, timing = sys.modules.get("partitioner.study"), sys.modules.get("partitioner.costs.timing")
    with pytest.MonkeyPatch.context() as patch:
        if timing is not None:
            paced = timing.Pace.of
            patch.setattr(timing.Pace, "of", lambda cadence_hz, threads: paced(max(cadence_hz, PACE_HZ), threads))
        if study is not None:
            patch.setattr(study, "QUICK", replace(study.QUICK, profile_s=0.1))
            patch.setattr(study, "THOROUGH", replace(study.THOROUGH, weigh_s=0.1, profile_s=0.1))
        yield
