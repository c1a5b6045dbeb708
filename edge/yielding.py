"""Which requests step back from a node that is pressed, and are content with what the device has promised.

A node tells of each class what share of it had better be done without it (`cloud.pressure`). A request steps back only where
the device's answer is promised, so that none is lost by it; where its class is not among those that the settings keep
out of it; and where the rung agrees as much as the settings ask for. Everything else asks the node as ever.

Which ones, of a class, is decided by the request's number: multiples of an irrational number fall evenly on a circle,
whichever of them are looked at, so that of each stream the same share steps back, evenly spread over time. There is nothing
to remember, a request that was refused elsewhere decides the same again, and a larger share has all of a smaller one.
Rejected: a draw for each request, since those that step back would come in runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.balance import Insured
from shared.settings import EdgePressure
from shared.wire.messages import FULL_PRESSURE

CIRCLE = 1 << 32
GOLDEN = 2_654_435_769
"""Of `CIRCLE`, the golden ratio's part: of all numbers the one whose multiples stay furthest apart."""


def may_yield(settings: EdgePressure, priority: int, insured: Insured) -> bool:
    """Whether a request of this class may step back from a node, by what the device has promised."""
    return insured.promised and priority >= settings.from_class and insured.agreement >= settings.least_agreement


def yields(pressure: Sequence[int], priority: int, number: int) -> bool:
    """Whether the request of this number steps back from a node that told this pressure: thousandths of each class from 0
    on; classes beyond are like the last."""
    if not pressure:
        return False
    share = pressure[min(priority, len(pressure) - 1)]
    return number * GOLDEN % CIRCLE * FULL_PRESSURE < share * CIRCLE
