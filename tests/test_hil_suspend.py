"""A client whose host was suspended, as far as its clock port says: what was open is over at once, and the client goes on."""

from __future__ import annotations

import select
import time
from pathlib import Path

from hil.scenarios.strikes import DeviceClock
from hil.small_plans import make_images
from hil.tap import tapped_client
from shared.request import Missed, Outcome

HOUR_NS = 3_600 * 10**9
PATIENCE_S = 30.0


def test_what_was_open_is_over_when_the_device_wakes(tmp_path: Path) -> None:
    device = DeviceClock()
    seen: list[Outcome] = []
    client = tapped_client(
        f"ipc://{tmp_path}/nobody", "sleeper", lambda _, outcome, __: seen.append(outcome), jumps=device.watch()
    )
    with client:
        before = client.submit(make_images(1, 1)[0], deadline_ms=600_000.0)
        end = time.monotonic() + PATIENCE_S
        while client.stats().open < 1:
            assert time.monotonic() < end, "the request was not taken"
            select.select([], [], [], 0.005)
        device.ahead_ns += HOUR_NS
        client.submit(make_images(1, 2)[0], deadline_ms=600_000.0)
        outcome = before.result(PATIENCE_S)
        assert isinstance(outcome, Missed)
        assert outcome.stage == "client"
        assert "suspended for 3600000 ms" in outcome.detail
        assert seen[0] == outcome
        after = client.submit(make_images(1, 3)[0], deadline_ms=50.0).result(PATIENCE_S)
        assert "suspended" not in str(after)
