"""The largest messages that a plan may lead to, held against what a transport takes.

A transport drops a connection over a message that is longer than its limit, so that a plan whose messages may be too long
would work until the first picture that compresses badly. What counts is therefore the bound of each coding and not what a
frame usually takes: a worst QOI image is 4/3 of the raw one, a JPEG of full colour twice as much. Both ends ask this when
they load a plan.
"""

from __future__ import annotations

from shared.codecs import frame_bounds
from shared.errors import InvariantBroken, SettingsError
from shared.plan import Plan
from shared.wire.messages import MAX_HEADER

MEGABYTE = 1 << 20


def worst_messages(plan: Plan, rows: int) -> list[tuple[str, int]]:
    """Each kind of message that carries tensors of this plan at `rows` rows, in words, and the most bytes that it may have,
    the header at its largest included: a client's request, each route's, and the answer."""
    found = [
        (f"a request of model {plan.name!r}", sum(spec.nbytes(rows) for spec in plan.inputs)),
        (f"an answer of model {plan.name!r}", sum(spec.nbytes(rows) for spec in plan.outputs)),
    ]
    for route in plan.routes:
        cut = plan.cuts[route.cut]
        coding = cut.coding(route.coding)
        if coding is None:
            raise InvariantBroken(f"plan {plan.name}: a route names coding {route.coding}, which cut {cut.name} lacks")
        nbytes = sum(frame_bounds(coding, spec, rows)[1] for spec in cut.tensors)
        found.append((f"cut {cut.name!r} of model {plan.name!r} as {coding.name}, at its worst,", nbytes))
    return [(what, nbytes + MAX_HEADER) for what, nbytes in found]


def rows_in_a_message(plan: Plan, most_rows: int, max_message_mb: int) -> int:
    """The most rows, up to `most_rows`, with which every message of the plan fits.

    Raises `SettingsError` that names the largest message and the limit that would do, where not even one row fits.
    """
    room = max_message_mb * MEGABYTE
    for rows in range(most_rows, 0, -1):
        if all(nbytes <= room for _, nbytes in worst_messages(plan, rows)):
            return rows
    what, nbytes = max(worst_messages(plan, 1), key=lambda pair: pair[1])
    raise SettingsError(
        f"limits.max_message_mb: {what} may have {nbytes} bytes; expected at least {-(-nbytes // MEGABYTE)}, got "
        f"{max_message_mb}"
    )
