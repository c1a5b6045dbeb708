"""From facts to findings: memory, limits, libraries, heat, graphics devices."""

from __future__ import annotations

from shared.doctor.facts import Facts, Gpu, Sensor
from shared.doctor.findings import Finding, Verdict, grade
from shared.doctor.promise import epsilon_ms
from shared.settings import Insurance

NEEDED = frozenset({"onnxruntime", "pyzmq"})
"""Libraries without which neither agent nor node runs."""

LEAST_FILES = 1024
NEAR_HIGH = 10.0
"""Degrees below where the hardware begins to mind."""


def memory_findings(facts: Facts) -> list[Finding]:
    """Memory, swap, pages."""
    memory = facts.memory
    free = memory.available_mb / max(1, memory.total_mb)
    verdict = grade(1 - free, 0.9, 0.97)
    advice = "what does not fit is paged out or killed: free some" if verdict != "ok" else ""
    value = f"{memory.available_mb} of {memory.total_mb} MiB available"
    found = [Finding("MEMORY", "memory", value, verdict, advice)]
    if memory.swap_mb == 0:
        found.append(Finding("MEMORY", "swap", "none"))
    else:
        used = memory.swapped_mb > 0
        advice = "a page that was swapped out comes back in milliseconds: swapoff -a, or process.lock_memory"
        value = f"{memory.swapped_mb} of {memory.swap_mb} MiB used"
        found.append(Finding("MEMORY", "swap", value, "look" if used else "ok", advice if used else ""))
    if facts.during.major_faults:
        value = f"{facts.during.major_faults} pages were fetched from a disk while measured"
        found.append(Finding("MEMORY", "page faults", value, "look", "process.lock_memory keeps pages in memory"))
    if facts.kernel.huge_pages is not None:
        always = facts.kernel.huge_pages == "always"
        advice = (
            "the kernel may stop a thread to gather a huge page: write madvise to "
            "/sys/kernel/mm/transparent_hugepage/enabled"
        )
        value = f"transparent: {facts.kernel.huge_pages}"
        found.append(Finding("MEMORY", "huge pages", value, "look" if always else "ok", advice if always else ""))
    return found


def limit_findings(facts: Facts, insurance: Insurance) -> list[Finding]:
    """What this process, and an agent or node started like it, may ask of the system. What would help against late wake-ups
    is worth a look only where they are late."""
    privileges = facts.privileges
    limits = privileges.limits
    late: Verdict = "look" if epsilon_ms(facts.wakes) > insurance.hold_ms else "ok"
    if privileges.realtime.allowed:
        found = [Finding("LIMITS", "real time", "allowed (tried)")]
    else:
        advice = "process.realtime_priority needs LimitRTPRIO=50 in the systemd unit, or CAP_SYS_NICE"
        value = f"not allowed ({privileges.realtime.error}; RLIMIT_RTPRIO {_bound(limits.rtprio)})"
        found = [Finding("LIMITS", "real time", value, late, advice)]
    lowest = "-20" if limits.sys_nice or limits.nice is None else str(limits.nice)
    if lowest.startswith("-"):
        found.append(Finding("LIMITS", "nice", f"down to {lowest}"))
    else:
        advice = "process.nice below 0 needs LimitNICE=-10 in the systemd unit, or CAP_SYS_NICE"
        found.append(Finding("LIMITS", "nice", "never below what it is", late, advice))
    if privileges.lock.allowed and (limits.ipc_lock or limits.memlock_kb is None):
        found.append(Finding("LIMITS", "locked memory", "no bound (a page was locked and unlocked)"))
    else:
        paged = facts.memory.swapped_mb > 0 or facts.during.major_faults > 0
        advice = "process.lock_memory needs LimitMEMLOCK=infinity in the systemd unit, or CAP_IPC_LOCK"
        why = f"{limits.memlock_kb} KiB" if privileges.lock.allowed else f"refused ({privileges.lock.error})"
        found.append(Finding("LIMITS", "locked memory", why, "look" if paged else "ok", advice))
    files = privileges.open_files
    few = files is not None and files < LEAST_FILES
    advice = "each client, node and edge takes some: LimitNOFILE=65536 in the systemd unit, or ulimit -n"
    found.append(Finding("LIMITS", "open files", _bound(files), "look" if few else "ok", advice if few else ""))
    return found


def library_findings(facts: Facts) -> list[Finding]:
    """Libraries and what they were built with."""
    found = [Finding("SOFTWARE", "headtail", f"{facts.headtail}, Python {facts.python}")]
    for library in facts.libraries:
        missing = not library.version
        needed = missing and library.name in NEEDED
        value = "missing" if missing else ", ".join(filter(None, (library.version, library.detail)))
        advice = (
            f"neither agent nor node runs without {library.name}: install the extra edge or cloud" if needed else ""
        )
        found.append(Finding("SOFTWARE", library.name, value, "bad" if needed else "ok", advice, stops=needed))
    if facts.providers:
        found.append(Finding("SOFTWARE", "providers", ", ".join(facts.providers)))
    return found


def heat_findings(facts: Facts) -> list[Finding]:
    """Temperatures, and what was slowed down for its heat."""
    found = [_sensor(sensor) for sensor in facts.sensors]
    stops = facts.during.heat_stops
    if stops is not None:
        advice = "cool it: a core that is slowed down breaks the times that plans were made with" if stops else ""
        value = f"cores slowed down {stops} times while measured"
        found.append(Finding("HEAT", "slowed for heat", value, "bad" if stops else "ok", advice))
    if not found:
        why = "a virtual machine hides it" if facts.kernel.virtual else "no sensor is shown"
        found.append(Finding("HEAT", "temperature", f"not readable: {why}"))
    return found


def gpu_findings(facts: Facts) -> list[Finding]:
    """NVIDIA devices. Without one, a line that says why none is known."""
    gpus = facts.gpus
    if not gpus.devices:
        return [Finding("GPU", "NVIDIA", f"none known: {gpus.absent}")]
    return [_gpu(gpu) for gpu in gpus.devices]


def _sensor(sensor: Sensor) -> Finding:
    near = sensor.high is not None and sensor.now >= sensor.high - NEAR_HIGH
    limit = f" of {sensor.high:.0f}" if sensor.high is not None else ""
    advice = "near where the hardware slows down: cool it" if near else ""
    return Finding("HEAT", sensor.name, f"{sensor.now:.0f}{limit} °C", "look" if near else "ok", advice)


def _gpu(gpu: Gpu) -> Finding:
    parts = [
        f"driver {gpu.driver}" if gpu.driver else "",
        f"{gpu.clock_mhz} of {gpu.highest_mhz} MHz"
        if gpu.clock_mhz is not None and gpu.highest_mhz is not None
        else "",
        f"{gpu.celsius} °C" if gpu.celsius is not None else "",
        f"{gpu.free_mb} of {gpu.total_mb} MiB free" if gpu.free_mb is not None else "",
        f"held down by {', '.join(gpu.slowed)}" if gpu.slowed else "",
        "persistence off" if gpu.persistent is False else "",
    ]
    advice = [
        *(["a device that is held down breaks the times that plans were made with"] if gpu.slowed else ()),
        *(["the first use after a pause loads the driver: nvidia-smi -pm 1"] if gpu.persistent is False else ()),
    ]
    verdict: Verdict = "bad" if gpu.slowed else "look" if advice else "ok"
    return Finding(
        "GPU", gpu.name, ", ".join(filter(None, parts)) or "says nothing of itself", verdict, "; ".join(advice)
    )


def _bound(number: int | None) -> str:
    return "no bound" if number is None else str(number)
