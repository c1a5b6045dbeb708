"""From facts to findings: time and processor. `verdicts_host` has the rest, `verdicts_config` what a configuration adds.

Thresholds come from what the loop needs: a held answer is let go `hold_ms` to `hold_max_ms` before the agent's guard, so that
wake-ups whose p99.9 is below the former cost nothing, and above the latter cost answers.
"""

from __future__ import annotations

from shared.doctor.facts import Cores, Facts, Frequency
from shared.doctor.findings import Finding, Verdict, grade, spread
from shared.process_settings import spans
from shared.settings import Insurance

SLOW_SOURCES = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
"""Clock sources that are read by a slow device, or are coarse."""

STOLEN = (0.001, 0.01)
OTHERS = (0.25, 0.75)
"""Shares of the cores that this process may use."""

LEAVING_US = 150
"""A sleep of a core that takes longer to leave is felt in a guard of half a millisecond."""

COLLECTION_MS = (1.0, 5.0)


def time_findings(facts: Facts, insurance: Insurance) -> list[Finding]:
    """Wake-ups, interpreter, clocks."""
    wakes = facts.wakes
    look_ms, bad_ms = insurance.hold_ms, insurance.hold_max_ms
    late = "see what takes the processor away, under PROCESSOR; process.realtime_priority, nice or cores may help"
    held = (
        "what keeps the interpreter loses its core to others, and the loop waits for both: give the executors cores of "
        "their own (process.executor_cores), or process.nice below 0"
    )
    if not busy_alone(facts, insurance):
        held = late
    found = [
        _wakes("wake-ups, alone", spread(wakes.alone), grade(wakes.alone.p999_ms, look_ms, bad_ms), late),
        _wakes("wake-ups, busy", spread(wakes.busy), grade(wakes.busy.p999_ms, look_ms, bad_ms), held),
        Finding(
            "TIME",
            "switch interval",
            f"{wakes.switch_us / 1000:g} ms: p50 {wakes.busy.p50_ms:.2f} ms beside a busy thread; Python's own 5 ms: "
            f"{wakes.busy_python.p50_ms:.2f} ms",
        ),
    ]
    collector = facts.collector
    verdict = grade(collector.young_ms, *COLLECTION_MS)
    found.append(
        Finding(
            "TIME",
            "collector",
            f"{collector.young_ms:.2f} ms at most as agent and node collect, in idle moments; all {collector.objects} "
            f"objects would take {collector.whole_ms:.0f} ms",
            verdict,
            "" if verdict == "ok" else "memory is slow here: see MEMORY, and what else runs",
        )
    )
    found += _clock_findings(facts)
    return found


def processor_findings(facts: Facts) -> list[Finding]:
    """Cores and what takes them away."""
    cores, during = facts.cores, facts.during
    may = len(cores.may)
    found = [
        Finding(
            "PROCESSOR",
            "cores",
            f"{may} of {cores.online} ({spans(cores.may)})",
            "look" if may < 2 else "ok",
            "loop and executor share one core: each waits for the other" if may < 2 else "",
        ),
        _quota(facts),
    ]
    if during.stolen is not None:
        verdict = grade(during.stolen, *STOLEN)
        advice = "the hypervisor gives these cores to others: ask for dedicated ones" if verdict != "ok" else ""
        found.append(Finding("PROCESSOR", "stolen time", f"{during.stolen:.2%} while measured", verdict, advice))
    names = ", ".join(f"{busy.name} ({busy.pid}) {busy.cores:.2f}" for busy in during.others)
    verdict = grade(during.others_cores / max(1, may), *OTHERS)
    found.append(
        Finding(
            "PROCESSOR",
            "other processes",
            f"used {during.others_cores:.2f} cores while measured{f': {names}' if names else ''}",
            verdict,
            "move them to other cores or hosts, or give headtail cores of its own (process.cores)"
            if verdict != "ok"
            else "",
        )
    )
    found += _frequency(cores, virtual=facts.kernel.virtual is True)
    found += _sleep(cores)
    found += [_preemption(facts), *_real_time_share(facts)]
    return found


def busy_alone(facts: Facts, insurance: Insurance) -> bool:
    """Whether wake-ups are late only beside a busy thread: then it is the interpreter, not the host."""
    return grade(facts.wakes.alone.p999_ms, insurance.hold_ms, insurance.hold_max_ms) == "ok"


def _wakes(name: str, value: str, verdict: Verdict, advice: str) -> Finding:
    return Finding("TIME", name, value, verdict, advice if verdict != "ok" else "")


def _clock_findings(facts: Facts) -> list[Finding]:
    clocks = facts.clocks
    found: list[Finding] = []
    if clocks.source is not None:
        slow = clocks.source in SLOW_SOURCES
        better = [source for source in clocks.available if source not in SLOW_SOURCES]
        advice = (
            f"each reading of the clock is slow; use {better[0]}" if better else "each reading of the clock is slow"
        )
        found.append(Finding("TIME", "clock source", clocks.source, "bad" if slow else "ok", advice if slow else ""))
    if clocks.suspended_s is None:
        advice = (
            "after a suspension, requests of before it are answered as if no time had passed: do not suspend this host"
        )
        found.append(Finding("TIME", "suspension", "not noticed: no boot clock here", "look", advice))
    else:
        since = f"{clocks.suspended_s:.0f} s since boot" if clocks.suspended_s >= 1 else "none since boot"
        found.append(Finding("TIME", "suspension", f"noticed; {since}"))
    return found


def _quota(facts: Facts) -> Finding:
    quota, throttled = facts.cores.quota, facts.during.throttled
    stops = ""
    if throttled is not None and throttled.times > 0:
        stops = f"; stopped {throttled.times} times for {throttled.stopped_ms:.0f} ms in all while measured"
    if quota is None:
        verdict: Verdict = "bad" if stops else "ok"
        return Finding("PROCESSOR", "quota", f"none{stops}", verdict, "raise the quota" if stops else "")
    value = f"{quota.cores:.2f} cores in each {quota.period_ms:.0f} ms ({quota.group}){stops}"
    if stops:
        advice = "the control group stops everything in it until its period is over: raise or remove its quota"
        return Finding("PROCESSOR", "quota", value, "bad", advice)
    if quota.cores < len(facts.cores.may):
        advice = "enough for what ran now; what uses it up is stopped for the rest of the period: raise or remove it"
        return Finding("PROCESSOR", "quota", value, "look", advice)
    return Finding("PROCESSOR", "quota", value)


def _frequency(cores: Cores, *, virtual: bool) -> list[Finding]:
    if not cores.frequencies:
        why = "a virtual machine hides them" if virtual else "the kernel does not show them"
        return [Finding("PROCESSOR", "clock speed", f"governor and limits not readable: {why}")]
    found: list[Finding] = []
    for group in cores.frequencies:
        advice = [
            *(_governor_advice(group) if group.governor != "performance" else ()),
            *(["its limit is below what it can: raise scaling_max_freq"] if group.limit < group.highest else ()),
        ]
        now = f", now {group.now}" if group.now else ""
        value = f"{group.governor}, {group.lowest} to {group.limit} of {group.highest} MHz{now} ({group.cores} cores)"
        found.append(Finding("PROCESSOR", "clock speed", value, "look" if advice else "ok", "; ".join(advice)))
    return found


def _governor_advice(group: Frequency) -> tuple[str, ...]:
    return (
        f"{group.governor} lets an idle core slow down, and the first run after a pause is late: cpupower frequency-set -g "
        f"performance",
    )


def _sleep(cores: Cores) -> list[Finding]:
    if cores.idle is None:
        return []
    deep = cores.idle.leaves_us > LEAVING_US
    advice = "keep the cores awake: hold /dev/cpu_dma_latency at 100, or cpupower idle-set -D 100" if deep else ""
    value = f"deepest {cores.idle.name}, left in {cores.idle.leaves_us} µs"
    return [Finding("PROCESSOR", "core sleep", value, "look" if deep else "ok", advice)]


def _preemption(facts: Facts) -> Finding:
    named = {
        "rt": "real-time kernel",
        "full": "full",
        "lazy": "lazy",
        "dynamic": "chosen at boot; not shown without debugfs",
        "voluntary": "voluntary",
        "none": "none",
        None: "not known",
    }
    model = facts.kernel.preemption
    slow = model in {"none", "voluntary"}
    advice = "the kernel may keep a core for milliseconds: boot with preempt=full" if slow else ""
    return Finding("PROCESSOR", "preemption", named.get(model, str(model)), "look" if slow else "ok", advice)


def _real_time_share(facts: Facts) -> list[Finding]:
    share = facts.kernel.rt_share
    if share is None or 0 < share < 1:
        return []
    if share == 0:
        advice = "real-time threads never run: sysctl kernel.sched_rt_runtime_us=950000"
        return [Finding("PROCESSOR", "real-time share", "0 %", "look", advice)]
    advice = "a real-time thread that never waits would keep its core for ever"
    return [Finding("PROCESSOR", "real-time share", "not bounded", "look", advice)]
