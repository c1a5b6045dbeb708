"""What the weighing expected of each part, against what the bundle's own files were then measured to take.

The profile is of the files as they were written, timed once more, so the two differ by the noise of the machine, and by
what cutting did to a part; a large difference is a reason to distrust the choice. The times of a side that has a device
profile are that profile's and were not measured here, so that side is left out.
"""

from __future__ import annotations

from partitioner.charts.ratios import Pair
from partitioner.choose import WHOLE
from partitioner.records.record import Record, Source
from shared.plan import Plan


def compared(record: Record, plan: Plan) -> list[Pair]:
    """Parts that are in both, at the asked device, the kept ways only; none twice. Nothing where there is no profile."""
    edge, cloud = plan.profile("edge"), plan.profile("cloud")
    if edge is None or cloud is None:
        return []
    last = len(plan.cuts) - 1
    names = [cut.name for cut in plan.cuts]
    found: dict[str, Pair] = {}

    def add(words: str, source: Source, predicted_us: float, measured_us: float | None) -> None:
        if source.kind == "here" and measured_us and predicted_us > 0.0:
            found.setdefault(words, Pair(words, predicted_us, measured_us))

    for place in record.rungs:
        way = record.ways[place].weighed_on(edge.slowdown)
        program = 0 if way.rung == WHOLE else next((i for i, p in enumerate(plan.programs) if p.name == way.rung), None)
        time = None if program is None else edge.time(program, 0, len(plan.programs[program].segments))
        add(f"{way.rung} on the device", record.edge, way.head.p50_us, time.p50_us if time else None)
    for place in record.routes:
        way = record.ways[place].weighed_on(edge.slowdown)
        if way.cut not in names:
            continue
        cut = names.index(way.cut)
        head, tail = edge.time(0, 0, cut), cloud.time(0, cut, last)
        coded, decoded = edge.codec_time(cut, way.coding), cloud.codec_time(cut, way.coding)
        if way.kind == "split":
            add(f"head to {way.cut}", record.edge, way.head.p50_us, head.p50_us if head else None)
            add(f"tail from {way.cut}", record.cloud, way.tail.p50_us, tail.p50_us if tail else None)
        else:
            add("whole in the cloud", record.cloud, way.tail.p50_us, tail.p50_us if tail else None)
        add(f"encode {way.label}", record.edge, way.encode.p50_us, coded.encode_us if coded else None)
        add(f"decode {way.label}", record.cloud, way.decode.p50_us, decoded.decode_us if decoded else None)
    return list(found.values())
