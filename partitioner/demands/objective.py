"""What the best way is best in: four orders of preference, all of which put ways that are late by their p99 last.

* `latency`, the default: what agrees most with the whole model, then the fastest.
* `on-time`: the largest margin before the deadline, in spreads of the way's own time (its p99 less its middle); margins of
  `SURE` spreads and more count alike, then what agrees most, then the fastest. At a margin of 1 the p99 meets the deadline.
* `energy`: the fewest joules of the device, `compute_watts` while it computes and codes, `radio_watts` while bytes go either
  way. Waiting is not counted, and the radio's tail (some networks keep it up for seconds) neither.
* `cost`: the least money, `cloud_price` for an hour of computing in the cloud and `traffic_price` for a gigabyte sent either
  way.

Agreement is no part of a sum: it is bounded by the least agreement, and decides among ways that are alike. Among ways that
are all late the soonest by p99 is best, since nothing is saved by an answer that comes too late; for `on-time` the one with
the largest margin, which is the likeliest to be on time all the same.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, get_args

import msgspec

from partitioner.costs.cost import Candidate, Spread
from partitioner.options import LinkGuess
from shared.errors import UserError

ObjectiveName = Literal["latency", "on-time", "energy", "cost"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)

SURE = 2.0
"""Spreads before the deadline beyond which a way is not more surely on time than another."""
EQUAL = 0.005
"""The step of the grid to which agreements are rounded before they are put in order, measured as they are on a few hundred
answers. Those that round to one step are the same: two nearer than a step may fall on either side of an edge (0.9974 and 1.0
do), which keeps the order transitive, as a bound on differences would not."""
HOUR_US = 3.6e9

Amount = Annotated[float, msgspec.Meta(ge=0.0)]
Preference = tuple[bool, float, float, float, str]
"""What `Objective.preference` gives; the least is best."""


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An objective with what it counts with: watts of the device, and prices in any money."""

    name: ObjectiveName = "latency"
    compute_watts: Amount = 0.0
    radio_watts: Amount = 0.0
    cloud_price: Amount = 0.0
    traffic_price: Amount = 0.0

    @property
    def adds_up(self) -> bool:
        """Whether ways have a sum that is to be least."""
        return self.name in {"energy", "cost"}

    def amount(self, way: Candidate, link: LinkGuess) -> float:
        """Joules or money that a request takes by this way; 0 for objectives that have no such sum."""
        nbytes = way.bytes_up + way.bytes_down
        if self.name == "energy":
            computing_us = way.head.p50_us + way.encode.p50_us
            return (self.compute_watts * computing_us + self.radio_watts * nbytes * 8.0 / link.rate_mbit) / 1e6
        if self.name == "cost":
            return (
                self.cloud_price * (way.decode.p50_us + way.tail.p50_us) / HOUR_US + self.traffic_price * nbytes / 1e9
            )
        return 0.0

    def preference(self, total: Spread, agreement: float, label: str, deadline_ns: float, amount: float) -> Preference:
        """By what ways are put in order, the least first: whether it is late, then what the objective says, last its label,
        so that the order never depends on anything else."""
        late = total.p99_us * 1000.0 > deadline_ns
        if self.name == "on-time":
            return late, -min(margin(total, deadline_ns), SURE), 0.0 if late else -grade(agreement), total.p50_us, label
        if late:
            return late, total.p99_us, 0.0, 0.0, label
        return late, amount, -grade(agreement), total.p50_us, label

    def told(self, amount: float) -> str:
        """A way's amount in words; empty for objectives that have none."""
        if self.name == "energy":
            return f"{amount * 1000:.3g} mJ of the device"
        return f"{amount * 1e6:.3g} for a million requests" if self.name == "cost" else ""

    def __str__(self) -> str:
        match self.name:
            case "latency":
                return "on time first, then the highest agreement, then the fastest"
            case "on-time":
                return f"the largest margin before the deadline in spreads, up to {SURE:g}, then the highest agreement"
            case "energy":
                return (
                    f"on time first, then the least energy of the device at {self.compute_watts:g} W computing and "
                    f"{self.radio_watts:g} W sending"
                )
            case "cost":
                return (
                    f"on time first, then the least cost at {self.cloud_price:g} an hour of the cloud and "
                    f"{self.traffic_price:g} a gigabyte"
                )


LATENCY = Objective()


def margin(total: Spread, deadline_ns: float) -> float:
    """How many spreads (p99 less the middle) lie between the middle and the deadline; without a spread without end."""
    left_us = deadline_ns / 1000.0 - total.p50_us
    spread_us = total.p99_us - total.p50_us
    if spread_us <= 0.0:
        return math.inf if left_us >= 0.0 else -math.inf
    return left_us / spread_us


def grade(agreement: float) -> float:
    """The agreement as far as it counts: equal for those that are the same as measured."""
    return round(agreement / EQUAL) * EQUAL


def objective_of(
    name: str,
    compute_watts: float | None,
    radio_watts: float | None,
    profile_watts: float | None,
    cloud_price: float,
    traffic_price: float,
) -> Objective:
    """The objective of this name. `compute_watts` None takes `profile_watts`, the mean power that the device's profile
    states, `radio_watts` None counts the radio as nothing. Raises `UserError` for an unknown name, a number that makes no
    sense, and for energy without any power."""
    found: ObjectiveName | None = next((known for known in OBJECTIVES if known == name), None)
    if found is None:
        raise UserError(f"objective {name!r}: expected one of {', '.join(OBJECTIVES)}")
    numbers = {
        "compute watts": compute_watts or 0.0,
        "radio watts": radio_watts or 0.0,
        "cloud price": cloud_price,
        "traffic price": traffic_price,
    }
    for what, number in numbers.items():
        if not 0.0 <= number < math.inf:
            raise UserError(f"{what} {number:g}: expected 0 or more")
    if found == "energy":
        watts = profile_watts if compute_watts is None else compute_watts
        if watts is None:
            raise UserError(
                "objective energy: the power of the device is not known; give --compute-watts (and --radio-watts), or with "
                "--edge a profile that was measured where power can be read"
            )
        return Objective(found, compute_watts=watts, radio_watts=radio_watts or 0.0)
    if found == "cost":
        return Objective(found, cloud_price=cloud_price, traffic_price=traffic_price)
    return Objective(found)
