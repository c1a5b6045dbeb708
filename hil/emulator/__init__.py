"""A link emulated packet by packet: network namespaces, joined by TUN devices that one process of ours reads and writes.

    with Emulator((Link("air", "edge", "cloud"),), seed=1) as emulator:
        emulator.shape(up=Shape(delay_ms=12.0, rate_mbit=20.0, bursts=GilbertElliott.of(0.01, 5.0)), down=Shape(delay_ms=8.0))
        subprocess.Popen(emulator.command_at("edge", ["headtail", "edge", "--config", "edge.toml"]))

`Emulator` is in `hil.emulator.handle`, `Link` in `.messages`, `Shape` and `GilbertElliott` in `.shape`. Two sites may share
several links, and a site may have links to several others. Each direction has a delay, jitter, a rate with a queue, loss one
by one and in bursts, reordering, stalls and blackouts (`Shape`), changed at any time, or by a schedule or a trace of
`hil.links` that the emulator times itself (`ShapeSource`). One side's address can change while packets flow. What is decided
is pure and tested on virtual time (`shape`, `fates`, `direction`, `sources`, `trace_*`, `way`, `messages`); the rest is a
thin shell.

It needs Linux, root (or CAP_NET_ADMIN and CAP_SYS_ADMIN), /dev/net/tun and the command `ip`. Without them `hil.proxy` shapes
connections on loopback, without packet faults: no loss, no reordering, no address. `headtail hil check` sends real packets
and holds them against what was told.

Why a process of ours, in Python: the kernel's netem would be faster, but many kernels (of containers, of small boards, of
CI) have none, and each change of a trace of 10 ms steps would be a command to it. The price, as measured by
`headtail hil check --cost` on two busy virtual cores (Xeon, Python 3.11) with packets of 1,200 bytes: 140,000 packets a
second in one direction of an open link, 100,000 with rate, loss, delay and jitter (a receiver beside it included), which is
about 1 Gbit/s; a delay of 5 ms grew by 0.1 ms (p50) and 0.4 ms (p99), and by 3 ms at p99 in a run where other work took both
cores; a delay of 0 ms was 0.02 ms (p50) and 0.04 ms (p99). Nothing is early. Every report says how late packets left
(`lateness`) and whether the emulation itself dropped any (`unread`, `refused`): a run in which it did says nothing about the
link.
"""
