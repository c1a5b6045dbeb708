"""What pressure must come to: nothing at low load; at high load more in time, and less refused."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hil.pressed.play import Outcome

LOW = 0.5
"""Up to this load nothing may be otherwise."""
HIGH = 1.5
"""From this load on it must pay."""


class Pair(msgspec.Struct, frozen=True):
    """The same requests at a node that tells no pressure, and at one that does."""

    silent: Outcome
    told: Outcome


def judge(pair: Pair) -> Iterator[str]:
    """What is over a bound, in words."""
    silent, told = pair.silent, pair.told
    load = told.press.load
    if load <= LOW and (told.stepped_back or told.kinds != silent.kinds or told.refused != silent.refused):
        yield f"load {load:g}: {told.stepped_back} requests stepped back; at {LOW:g} and below nothing may be otherwise"
    if load < HIGH:
        return
    if told.on_time <= silent.on_time:
        yield f"load {load:g}: {told.on_time:.2%} in time, without pressure {silent.on_time:.2%}; expected more"
    if told.turned_down >= silent.turned_down:
        yield f"load {load:g}: {told.turned_down} refused, without pressure {silent.turned_down}; expected fewer"
