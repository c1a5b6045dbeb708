"""A profile that a running agent or node measures of a model that it serves, on its own device.

Nothing is sent but a wish: the process has the model's segments, and finds them by the digest of its normal form, so that a
profile can only be of the very model that is here. What comes back are times by the names of kernels; the groups are found
here, where the model is. See `shared.measuring` for when the process does it, and `partitioner.profiles.inside` for how.
"""

from __future__ import annotations

import select
import time
import zlib

import msgspec

from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.graph.kernels import Kernel, known_kernels, optimised_graph
from partitioner.graph.recipe import build
from partitioner.graph.runtime import CPU
from partitioner.profiles.inside import BatchRuns, Inside
from partitioner.profiles.mapping import Charged, assign, charge, quiet_runs
from partitioner.profiles.measure import Asked, Progress, batch_times, batches_for, doubts_of
from partitioner.profiles.record import PROFILE_FORMAT, BatchTimes, Bucket, DeviceProfile, Machine, Origin
from partitioner.profiles.scaling import scaled
from partitioner.profiles.work import origins_of
from shared.bundle import UNREADABLE
from shared.endpoints import check_endpoint
from shared.errors import HeadtailError, UserError
from shared.events import LinkUp, Received, Send
from shared.ports import Transport
from shared.request import Buffer
from shared.wire.messages import PROTOCOL, Bye, Measure, Measured

LINK = "measure"
REACH_S = 10.0
"""How long the process may take to be reached, and to answer."""

AGAIN_S = 1.0
LONGEST_S = 8000.0
TURN_MS = 100
MOST_BYTES = 1 << 28
"""Of what comes back, once it is unpacked."""


def measure_through(endpoint: str, asked: Asked, progress: Progress) -> DeviceProfile:
    """What `asked` asks for, measured by the process at `endpoint` (`tcp://host:port`, `ipc:///path`), with the provider and
    the threads that it serves with.

    Raises `UserError` for what cannot be asked this way, for a refusal, and for a process that serves another model;
    `HeadtailError` where it cannot be reached or leaves.
    """
    check_endpoint(endpoint, binds=False)
    if len(asked.shapes) != 1:
        raise UserError("--through: a plan is of one set of shapes, and so is what is measured through it: give one")
    progress("reading and normalising the model", 0.0)
    model = build(asked.recipe(asked.shapes[0]))
    batches = () if asked.batches is None else batches_for(model, asked.batches)
    progress("finding its groups of operators", 0.0)
    groups = find_groups(CutFinder(model))
    wish = Measure(PROTOCOL, 1, model.digest, batches, asked.cadence_hz, asked.seconds)
    with_link = _open(endpoint)
    try:
        found = decode_inside(ask(with_link, endpoint, wish, progress), endpoint)
    finally:
        with_link.send(Send(LINK, Bye("closing")))
        with_link.close()
    return profile_of(found, groups, asked)


def profile_of(found: Inside, groups: Groups, asked: Asked) -> DeviceProfile:
    """What was measured inside a process as the profile of its machine. Pure but for one look at how the runtime here
    optimises the model, for the names of its kernels."""
    model = groups.finder.model
    cpu = found.provider == CPU
    graph = optimised_graph(model) if cpu else None
    times: list[BatchTimes] = []
    for batch in found.batches:
        charged = None
        if graph is not None:
            charged = _charged(batch, groups, known_kernels(graph, batch.kernels_us))
        times.append(batch_times(groups, batch.batch, batch.runs_us, charged))
    notes = doubts_of(found.provider, times)
    if found.segments > 1:
        notes.append(
            f"measured as it is served, in the {found.segments} segments of its bundle one after the other; in one piece a "
            "model takes up to a sixth less"
        )
    notes.append("codings were not measured: a plan takes theirs in proportion to the whole model's time")
    if found.stopped:
        notes.append(f"{found.stopped} runs were left out, since work came meanwhile")
    profile = DeviceProfile(
        format=PROFILE_FORMAT,
        side=asked.side,
        model=asked.model.name,
        preprocess=asked.preprocess,
        postprocess=asked.postprocess,
        origin=Origin(
            "measured", f"through {found.name}, which serves it there, while it was idle, with its golden inputs"
        ),
        machine=Machine(
            device=found.device,
            provider=found.provider,
            threads=found.threads,
            cadence_hz=found.cadence_hz,
            versions=found.versions,
            clocks=found.clocks,
            power=found.power,
        ),
        buckets=(Bucket(model.digest, model.inputs, tuple(times)),),
        codecs=(),
        disturbed_share=found.disturbed_share,
        notes=tuple(notes),
    )
    if found.slowdown > 1.0:
        return scaled(profile, f"through {found.name}, which stands for a slower device", found.slowdown)
    return profile


def decode_inside(content: Buffer, where: str) -> Inside:
    """What a process says that it measured. Raises `UserError` that begins with `where` for what cannot be that."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(content, MOST_BYTES)
        if unpacking.unconsumed_tail:
            raise UserError(f"{where}: what was measured is larger than {MOST_BYTES:,} bytes")
        found = msgspec.json.decode(text, type=Inside)
    except (zlib.error, *UNREADABLE) as error:
        raise UserError(
            f"{where}: what was measured there cannot be read: {error}; is it of another version?"
        ) from None
    for batch in found.batches:
        runs = {len(times) for part in batch.kernels_us for times in part.values()}
        if not batch.runs_us or len(runs) > 1 or any(not 0 <= place < max(runs, default=0) for place in batch.quiet):
            raise UserError(f"{where}: what was measured there contradicts itself at batch {batch.batch}")
    if not found.batches or (found.provider == CPU and any(not any(b.kernels_us) for b in found.batches)):
        raise UserError(f"{where}: what was measured there holds no times")
    return found


def ask(link: Transport, endpoint: str, wish: Measure, progress: Progress) -> Buffer:
    """Say the wish again every second until its last word comes; the frame that comes with that.

    Raises `UserError` for a refusal, `HeadtailError` where the process is not there, does not answer, or leaves.
    """
    began_s = heard_s = time.monotonic()
    said_s = 0.0
    up = False
    poller = select.poll()
    poller.register(link.fileno(), select.POLLIN)
    while True:
        now_s = time.monotonic()
        for event in link.drain():
            if isinstance(event, LinkUp):
                up, said_s = True, 0.0
            if isinstance(event, Received) and (found := _heard(event, endpoint, wish, progress)) is not None:
                return found
            if isinstance(event, Received):
                heard_s = now_s
        if up and now_s - said_s >= AGAIN_S:
            link.send(Send(LINK, wish))
            said_s = now_s
        if now_s - heard_s > REACH_S:
            words = "does not answer: is it an agent or a node of this version?" if up else "cannot be reached"
            raise HeadtailError(f"{endpoint}: {words}")
        if now_s - began_s > LONGEST_S:
            raise HeadtailError(f"{endpoint}: it was not done within {LONGEST_S / 60:.0f} minutes")
        if not link.pending():
            poller.poll(TURN_MS)


def _heard(event: Received, endpoint: str, wish: Measure, progress: Progress) -> Buffer | None:
    """The result, where this is it."""
    match event.message:
        case Measured(number=number) as measured if number == wish.number:
            if measured.state == "refused":
                raise UserError(f"{endpoint}: {measured.detail}")
            if measured.state == "done":
                if not event.frames:
                    raise HeadtailError(f"{endpoint}: it is done, and nothing came with that")
                return event.frames[0]
            words = "timing there" if measured.state == "running" else "waiting until it is idle there"
            progress(words, min(1.0, max(0.0, measured.share)))
        case Bye():
            raise HeadtailError(f"{endpoint}: the process left")
        case _:
            pass
    return None


def _charged(batch: BatchRuns, groups: Groups, kernels: tuple[Kernel, ...]) -> Charged:
    count = len(kernels[0].times_us)
    disturbed = set(range(count)) - set(batch.quiet)
    return charge(
        kernels, assign(kernels, origins_of(groups)), len(groups.nodes), quiet_runs(kernels, range(count), disturbed)
    )


def _open(endpoint: str) -> Transport:
    try:
        from shared.transport import Dealers
        from shared.wire.codec import decode_node
    except ImportError:
        raise UserError("--through needs the package pyzmq (extra edge or cloud)") from None
    dealers = Dealers("profile", time.monotonic_ns(), decode_node)
    dealers.connect(LINK, endpoint)
    return dealers
