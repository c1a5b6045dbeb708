"""What the settings ask of the process, against a kernel that grants or refuses by script."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.process_host import BEGIN_S, Adaptation, LinuxHost, suspended_s, wait_for
from shared.process_settings import Effect, Limits, apply, asks, check_cores, check_untouched, spans
from shared.settings import Process

LOOP, ZMQ, EXECUTOR, POOL = 10, 11, 12, 13
FULL = Process(realtime_priority=50, nice=-5, cores=(0,), executor_cores=(1, 2), lock_memory=True)
GENEROUS = Limits(rtprio=99, nice=-20, memlock_kb=None)


def asking(**fields: object) -> Process:
    """Settings that ask for this and nothing else."""
    return Process(slice_us=0.0, **fields)  # type: ignore[arg-type]


class FakeHost:
    """Grants everything but what is in `refused`; `done` is what it was asked, in order."""

    def __init__(self, limits: Limits = GENEROUS, refused: Mapping[str, int] | None = None) -> None:
        self._limits = limits
        self._refused = refused or {}
        self.gone: set[int] = set()
        self.boots = True
        self.done: list[tuple[object, ...]] = []

    def cores(self) -> frozenset[int]:
        return frozenset({0, 1, 2, 3})

    def limits(self) -> Limits:
        return self._limits

    def boot_clock(self) -> bool:
        return self.boots

    def own_thread(self) -> int:
        return LOOP

    def threads(self) -> frozenset[int]:
        return frozenset({LOOP, ZMQ, EXECUTOR, POOL})

    def set_realtime(self, thread: int, priority: int) -> None:
        self._do("realtime", thread, priority)

    def set_nice(self, thread: int, nice: int) -> None:
        self._do("nice", thread, nice)

    def set_cores(self, thread: int, cores: Collection[int]) -> None:
        self._do("cores", thread, tuple(cores))

    def set_slice(self, thread: int, slice_ns: int) -> None:
        self._do("slice", thread, slice_ns)

    def lock_memory(self) -> None:
        self._do("lock", 0)

    def _do(self, what: str, thread: int, *value: object) -> None:
        if what in self._refused:
            raise OSError(self._refused[what], os.strerror(self._refused[what]))
        if thread in self.gone:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        self.done.append((what, thread, *value))


def only(effects: tuple[Effect, ...]) -> Effect:
    (effect,) = effects
    return effect


def test_only_short_turns_of_the_loop_are_asked_for_by_default() -> None:
    host = FakeHost()
    assert only(apply(Process(), host, [ZMQ])).setting == "process.slice_us"
    assert set(host.done) == {("slice", LOOP, 100_000), ("slice", ZMQ, 100_000)}
    assert asks(Process()) == ()


def test_that_there_are_no_short_turns_is_said_only_where_they_were_asked_for() -> None:
    refused = {"slice": errno.EOPNOTSUPP}
    assert apply(Process(), FakeHost(refused=refused)) == ()
    effect = only(apply(Process(slice_us=200.0), FakeHost(refused=refused)))
    assert not effect.in_force
    assert "6.12" in str(effect)


def test_no_turns_are_asked_for_beside_real_time() -> None:
    host = FakeHost()
    apply(Process(realtime_priority=1), host)
    assert {call[0] for call in host.done} == {"realtime"}


def test_the_kernel_takes_a_turn_for_a_thread_of_ours_or_says_that_it_does_not() -> None:
    thread = threading.get_native_id()
    try:
        LinuxHost().set_slice(thread, 150_000)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP  # noqa: PT017 - one of two right ends
    with pytest.raises(OSError, match="No such process"):
        LinuxHost().set_slice(1 << 22, 150_000)


def test_the_loop_and_its_transport_are_real_time_and_apart_from_the_executors() -> None:
    host = FakeHost()
    effects = apply(FULL, host, [ZMQ])
    assert all(effect.in_force for effect in effects)
    assert [effect.setting for effect in effects] == list(asks(FULL))
    done = set(host.done)
    assert {call for call in done if call[0] == "realtime"} == {("realtime", LOOP, 50), ("realtime", ZMQ, 50)}
    assert {call for call in done if call[0] == "cores"} == {
        *(("cores", thread, (0,)) for thread in (LOOP, ZMQ)),
        *(("cores", thread, (1, 2)) for thread in (EXECUTOR, POOL)),
    }
    assert {call for call in done if call[0] == "nice"} == {("nice", t, -5) for t in (LOOP, ZMQ, EXECUTOR, POOL)}
    assert ("lock", 0) in done


def test_a_thread_that_ends_meanwhile_is_no_fault() -> None:
    host = FakeHost()
    host.gone.add(POOL)
    assert only(apply(Process(nice=3, slice_us=0.0), host)).in_force
    assert ("nice", EXECUTOR, 3) in host.done


@pytest.mark.parametrize(
    ("settings", "limits", "refused", "says"),
    [
        (asking(realtime_priority=50), Limits(), {"realtime": errno.EPERM}, ("RLIMIT_RTPRIO", "ulimit -r 50")),
        (asking(realtime_priority=50), Limits(rtprio=20), {"realtime": errno.EPERM}, ("is 20", "LimitRTPRIO=50")),
        (asking(realtime_priority=50), Limits(sys_nice=True), {"realtime": errno.EPERM}, ("cpu.rt_runtime_us",)),
        (asking(realtime_priority=50), GENEROUS, {"realtime": errno.ENOSYS}, ("ENOSYS", "process.nice")),
        (asking(nice=-5), Limits(), {"nice": errno.EACCES}, ("RLIMIT_NICE", "ulimit -e 25", "LimitNICE=-5")),
        (asking(nice=-5), Limits(sys_nice=True), {"nice": errno.EPERM}, ("EPERM",)),
        (asking(cores=(1,)), GENEROUS, {"cores": errno.EINVAL}, ("EINVAL", "cpuset")),
        (asking(executor_cores=(1,)), GENEROUS, {"cores": errno.EINVAL}, ("process.executor_cores = [1]",)),
        (asking(lock_memory=True), Limits(memlock_kb=8192), {}, ("8192 KiB", "LimitMEMLOCK=infinity")),
        (asking(lock_memory=True), Limits(memlock_kb=None), {"lock": errno.EPERM}, ("EPERM", "sandbox")),
    ],
)
def test_what_is_refused_is_told_in_one_line_with_its_reason_and_what_to_do(
    settings: Process, limits: Limits, refused: dict[str, int], says: tuple[str, ...]
) -> None:
    host = FakeHost(limits, refused)
    effect = only(apply(settings, host))
    assert not effect.in_force
    line = str(effect)
    assert line.startswith(f"{only_path(settings)} = ")
    assert "\n" not in line
    assert all(word in line for word in says), line


def only_path(settings: Process) -> str:
    (path,) = asks(settings)
    return path


def test_memory_is_not_locked_under_a_limit_at_which_later_allocations_would_fail() -> None:
    host = FakeHost(Limits(memlock_kb=1 << 20))
    apply(asking(lock_memory=True), host)
    assert host.done == []
    host = FakeHost(Limits(memlock_kb=64, ipc_lock=True))
    apply(asking(lock_memory=True), host)
    assert host.done == [("lock", 0)]


def test_one_setting_that_is_refused_keeps_no_other_from_being_applied() -> None:
    effects = apply(FULL, FakeHost(Limits(nice=-20, memlock_kb=None), {"realtime": errno.EPERM}))
    assert [effect.setting for effect in effects if not effect.in_force] == ["process.realtime_priority"]


def test_required_refuses_to_start_and_names_all_that_could_not_be_had() -> None:
    settings = asking(realtime_priority=50, lock_memory=True, required=True)
    with pytest.raises(SettingsError) as refusal:
        apply(settings, FakeHost(Limits(), {"realtime": errno.EPERM}))
    assert "process.realtime_priority = 50" in str(refusal.value)
    assert "process.lock_memory = true" in str(refusal.value)
    assert apply(settings, FakeHost(GENEROUS))


def test_a_core_that_the_process_may_not_use_is_refused_before_anything_else() -> None:
    with pytest.raises(SettingsError, match=r"process\.executor_cores: names core 7, .* expected some of 0-3"):
        check_cores(asking(cores=(0,), executor_cores=(1, 7)), FakeHost())
    with pytest.raises(SettingsError):
        Adaptation(asking(cores=(4,)), FakeHost())


def test_what_is_not_in_force_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    adaptation = Adaptation(asking(nice=-5, cores=(0,)), FakeHost(Limits(), {"nice": errno.EPERM}))
    adaptation.apply()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headtail: process.nice = -5 is not in force: ")
    assert [effect.in_force for effect in adaptation.effects] == [True, False]


def test_an_embedded_agent_says_what_it_does_not_apply_and_refuses_where_it_is_required() -> None:
    assert check_untouched(Process()) == ""
    assert "process.switch_interval_us" in check_untouched(Process(switch_interval_us=50))
    line = check_untouched(asking(nice=3, lock_memory=True))
    assert "process.nice, process.lock_memory" in line
    with pytest.raises(SettingsError, match=r"process\.required"):
        check_untouched(asking(nice=3, required=True))


def test_spans_of_cores_are_written_shortly() -> None:
    assert spans({3, 0, 1, 2, 6, 9, 8}) == "0-3, 6, 8-9"
    assert spans(()) == ""


def test_a_kernel_without_boot_time_is_told_of_and_refuses_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.boots = False
    Adaptation(Process(required=True), host).apply()
    (line,) = capsys.readouterr().err.splitlines()
    assert "CLOCK_BOOTTIME" in line
    assert "do not suspend this host" in line


def test_the_real_kernel_knows_this_process() -> None:
    host = LinuxHost()
    assert host.cores() == os.sched_getaffinity(0)
    assert host.own_thread() in host.threads()
    assert host.boot_clock() is (suspended_s() is not None)
    host.set_cores(host.own_thread(), host.cores())
    assert host.cores() == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("mask", "sys_nice", "ipc_lock"),
    [("0000000000000000", False, False), ("0000000000004000", False, True), ("000001ffffffffff", True, True)],
)
def test_capabilities_are_read_from_the_status(tmp_path: Path, mask: str, sys_nice: bool, ipc_lock: bool) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Name:\tx\nCapEff:\t{mask}\n")
    limits = LinuxHost(tmp_path).limits()
    assert (limits.sys_nice, limits.ipc_lock) == (sys_nice, ipc_lock)


def test_a_thread_of_the_transport_has_begun_when_it_has_its_name_or_is_over(tmp_path: Path) -> None:
    for thread, name in ((7, "python"), (8, "ZMQbg/IO/0"), (9, "ZMQbg/Reaper")):
        task = tmp_path / "self" / "task" / str(thread)
        task.mkdir(parents=True)
        (task / "comm").write_text(name)
    host = LinuxHost(tmp_path)
    assert [host.begun(thread) for thread in (7, 8, 9, 10)] == [False, True, True, True]


def test_the_transports_threads_are_waited_for_and_not_for_ever() -> None:
    looked: list[int] = []
    slept: list[float] = []
    wait_for((1, 2), lambda thread: looked.append(thread) is None and (thread == 1 or len(slept) == 3), slept.append)
    assert len(slept) == 3
    assert looked == [1, 2] * 4
    slept.clear()
    wait_for((1,), lambda _: False, slept.append)
    assert sum(slept) == pytest.approx(BEGIN_S)
