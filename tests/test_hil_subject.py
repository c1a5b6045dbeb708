"""The clocks of a process that suffers: they jump for it alone, and its timers with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from hil.scenarios.orders import Orders, write_orders
from hil.scenarios.subject import PROGRAM as SUBJECT

HOUR_NS = 3_600 * 10**9

PROGRAM = f"""
import json, select, time

host_ns = time.monotonic_ns
from hil.scenarios.orders import Orders
from hil.scenarios.subject import Clocks

clocks = Clocks()
clocks.install()
from shared.driver import BOOT_NS, JumpWatch, SystemClock
from shared.timer import make_timer

watch = JumpWatch()
timer = make_timer()
timer.set(SystemClock.now() + {HOUR_NS} + 50_000_000)
poll = select.poll()
poll.register(timer.fileno(), select.POLLIN)
early = bool(poll.poll(0))
clocks.move(Orders(boot_ns={HOUR_NS}))
jumped = round(watch.jumped() / 1e9)
again = watch.jumped()
clocks.move(Orders(boot_ns={HOUR_NS}, clock_ns={HOUR_NS}, wall_ns={2 * HOUR_NS}))
print(json.dumps(dict(
    early=early, jumped=jumped, again=again,
    monotonic=round((SystemClock.now() - host_ns()) / 1e9),
    seconds=round(time.monotonic() - host_ns() / 1e9),
    boot=round((BOOT_NS() - SystemClock.now()) / 1e9) >= 3600,
    after_step=watch.jumped(),
    fired=bool(poll.poll(30_000)),
)))
"""


def test_clocks_jump_for_one_process_alone_and_timers_keep_their_time() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout) == {
        "early": False,
        "jumped": 3600,
        "again": 0,
        "monotonic": 3600,
        "seconds": 3600,
        "boot": True,
        "after_step": 0,
        "fired": True,
    }


def test_what_a_node_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("[node]\nfoo = 1\n", encoding="utf-8")
    write_orders(config, Orders())
    done = subprocess.run(
        [*SUBJECT, "cloud", "--config", str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"{config}: node.foo: unknown key" in done.stderr
