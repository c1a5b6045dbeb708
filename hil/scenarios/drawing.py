"""The timeline of a run: each link's round trip, and every frame of both arms over the time at which it was due, with faults.

Faults are bands with numbers, which a list beside the drawing explains, so that no words lie on others. Points of one kind
are one path of dots: a run at 300 Hz has thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hil.scenarios.figures import ArmFigures, Point
from hil.scenarios.report import LinkLine, Report
from hil.scenarios.timeline import ARMS, Struck
from partitioner.charts.frame import BADGE, Box, Mark, badge
from partitioner.charts.scales import LinearScale
from partitioner.charts.svg import drawing, line, path, rect, tag, text, text_width

HEAD, FOOT = 26.0, 40.0
LINK_HIGH, ARM_HIGH, NARROW_ARM_HIGH = 56.0, 150.0, 120.0
TITLE = 30.0
LEFT, RIGHT = 40.0, 14.0
NARROW = 600.0
TOP_MS = 1.35
"""The upright axis ends at so many deadlines; what took longer stands there."""

STYLE = """
.dots{fill:none;stroke-linecap:round;stroke-width:4;stroke:var(--c);stroke-opacity:.8}
.dots.marked{stroke-opacity:.3}
.dots.late{stroke:var(--bad);stroke-width:5}
.crosses{fill:none;stroke:var(--bad);stroke-width:1.6}
.crosses.marked{stroke-opacity:.4}
.band{fill:var(--soft);fill-opacity:.16}
.moment{stroke:var(--soft);stroke-width:1.2}
.shut{fill:var(--bad);fill-opacity:.16}
.trip{fill:none;stroke:var(--k1);stroke-width:1.4}
"""
"""What the drawings need beside the style sheet of reports."""

CROSS = 3.2


def colour_of(source: str) -> int:
    """The number of a source's colour: the device, then nodes in order."""
    return 2 if source == "edge" else 1 + 2 * ((ord(source[-1]) - ord("a")) % 5) if source else 0


def timeline(report: Report, width: float) -> str:
    """The drawing."""
    seconds = report.scenario.stream.seconds
    across = LinearScale(0.0, seconds, LEFT, width - RIGHT)
    high = ARM_HIGH if width >= NARROW else NARROW_ARM_HIGH
    parts: list[str] = []
    boxes: list[Box] = []
    y = HEAD
    for one in report.links:
        box = Box(LEFT, y + TITLE, width - RIGHT, y + TITLE + LINK_HIGH)
        boxes.append(box)
        parts.append(_link(one, box, across))
        y = box.bottom
    for arm in ARMS:
        box = Box(LEFT, y + TITLE, width - RIGHT, y + TITLE + high)
        boxes.append(box)
        title = (
            "with the cloud: ms from a frame's time to its answer"
            if arm == "test"
            else "the control, on the device alone"
        )
        parts.append(_arm(report.figures.arm(arm), title, report.scenario.stream.deadline_ms, box, across))
        y = box.bottom
    bands = _bands(report.struck, seconds, boxes, across)
    foot = [text(across.at(tick.value), y + 16.0, tick.words, "middle", "tick") for tick in across.ticks()]
    foot.append(text((LEFT + width - RIGHT) / 2, y + 33.0, "seconds", "middle", "title"))
    figures = report.figures
    told = f"{figures.test.frames} frames through the cloud or the device, {figures.control.frames} of the control."
    return drawing(width, y + FOOT, f"timeline of {report.scenario.name}", told, bands, *parts, *foot)


def _bands(struck: Sequence[Struck], seconds: float, boxes: Sequence[Box], across: LinearScale) -> str:
    """A band or a line through all panels for each fault, with its number above where there is room."""
    parts: list[str] = []
    free = -100.0
    for one in struck:
        begin = across.at(one.begin_ms / 1e3)
        end = across.at(seconds if one.end_ms is None else one.end_ms / 1e3)
        for box in boxes:
            if end - begin > 1.5:
                parts.append(rect(begin, box.top, end - begin, box.bottom - box.top, "band"))
            else:
                parts.append(line(begin, box.top, begin, box.bottom, "moment"))
        middle = max(begin, BADGE)
        if middle > free:
            parts.append(badge(middle, 12.0, Mark(str(one.fault + 1), 0)))
            free = middle + 2 * BADGE + 3.0
    return "".join(parts)


def _link(one: LinkLine, box: Box, across: LinearScale) -> str:
    """A link's round trip as a line, and where nothing passes a band."""
    known = sorted(value for value in one.round_trip_ms if value is not None)
    top = max(1.0, 1.1 * known[int(0.98 * (len(known) - 1))]) if known else 1.0
    up = LinearScale(0.0, top, box.bottom, box.top)
    parts = _box(box, up, f"{one.name}: round trip of the link, ms", across, few=True)
    points: list[tuple[float, float]] = []
    step_s = one.step_ms / 1e3
    for number, value in enumerate((*one.round_trip_ms, None)):
        if value is not None:
            points.append((across.at(number * step_s), up.at(value)))
            continue
        if points:
            parts.append(tag("path", d=path(points), class_="trip"))
        points = []
        if number < len(one.round_trip_ms):
            begin = across.at(number * step_s)
            parts.append(rect(begin, box.top, across.at((number + 1) * step_s) - begin, box.bottom - box.top, "shut"))
    return "".join(parts)


def _arm(arm: ArmFigures, title: str, deadline_ms: float, box: Box, across: LinearScale) -> str:
    up = LinearScale(0.0, deadline_ms * TOP_MS, box.bottom, box.top)
    parts = _box(box, up, title, across)
    due = up.at(deadline_ms)
    parts.append(line(box.left, due, box.right, due, "due"))
    kinds: dict[str, list[Point]] = {}
    for point in arm.timeline:
        kinds.setdefault(_class(point), []).append(point)
    for class_, points in sorted(kinds.items()):
        places = [
            (
                across.at(point.due_ms / 1e3),
                up.at(deadline_ms * TOP_MS if point.latency_ms is None else point.latency_ms),
            )
            for point in points
        ]
        shape = _crosses(places) if class_.startswith("crosses") else "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        parts.append(tag("path", d=shape, class_=class_))
    return "".join(parts)


def _class(point: Point) -> str:
    marked = " marked" if point.marked else ""
    if point.outcome == "on_time":
        return f"dots k{colour_of(point.source)}{marked}"
    return f"dots late{marked}" if point.outcome == "late" else f"crosses{marked}"


def _crosses(places: Sequence[tuple[float, float]]) -> str:
    return "".join(
        f"M{x - CROSS:.1f} {y - CROSS:.1f}l{2 * CROSS} {2 * CROSS}m{-2 * CROSS} 0l{2 * CROSS} {-2 * CROSS}"
        for x, y in places
    )


def _box(box: Box, up: LinearScale, title: str, across: LinearScale, few: bool = False) -> list[str]:
    ticks = up.ticks()
    if few and len(ticks) > 2:
        ticks = [ticks[0], ticks[-1]]
    parts = [rect(box.left, box.top, box.width, box.height, "frame")]
    for tick in ticks:
        parts.append(line(box.left, up.at(tick.value), box.right, up.at(tick.value), "grid"))
        parts.append(text(box.left - 6.0, up.at(tick.value) + 4.0, tick.words, "end", "tick"))
    parts += [
        line(across.at(tick.value), box.top, across.at(tick.value), box.bottom, "grid faint") for tick in across.ticks()
    ]
    while text_width(title) > box.right - 4.0 and " " in title:
        title = title.rsplit(" ", 1)[0]
    parts.append(text(4.0, box.top - 11.0, title.rstrip(":,"), class_="title"))
    return parts
