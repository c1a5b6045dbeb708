"""Where the time of an answer went. The stages made here add up exactly to the time from the request's arrival at the
broker to `until_ns`; the client adds its own part before and after."""

from __future__ import annotations

from operator import itemgetter

from shared.request import Stages


def local_stages(arrived_ns: int, began_ns: int, ended_ns: int, until_ns: int) -> Stages:
    """Stages of a local answer: it waited until `began_ns`, ran until `ended_ns`, was held until `until_ns`."""
    stages: Stages = {"edge_queue": began_ns - arrived_ns, "rung": ended_ns - began_ns, "hold": until_ns - ended_ns}
    return _clean(stages)


def cloud_stages(
    arrived_ns: int,
    sent_ns: int,
    received_ns: int,
    head: tuple[int, int, int],
    node: Stages,
    uplink_share: float,
    until_ns: int,
) -> Stages:
    """Stages of a cloud answer.

    `head` is (began, ended, codec time) of the work on the device before sending, all 0 where there was none. `node` are
    the node's own stages from its reply. `uplink_share` (0 to 1) divides what is left, the network, between its
    directions.
    """
    began, ended, codec = head
    left = min(sum(node.values()), received_ns - sent_ns)
    network = received_ns - sent_ns - left
    uplink = int(network * uplink_share)
    decoding = min(node.get("codec", 0), left)
    left -= decoding
    tail = min(node.get("tail", 0), left)
    stages: Stages = {
        "edge_queue": (began - arrived_ns) if began else 0,
        "head": ended - began - codec,
        "codec": codec + decoding,
        "agent": sent_ns - (ended if ended else arrived_ns),
        "uplink": uplink,
        "downlink": network - uplink,
        "hold": until_ns - received_ns,
        "tail": tail,
        "cloud_queue": left - tail,
    }
    return _clean(stages)


def uplink_share(
    sent_ns: int, node_received_ns: int, received_ns: int, node_ns: int, offset: tuple[int | None, int | None]
) -> float:
    """Share of the network time that was the way up, by the middle of the clock offset interval; a half where unknown."""
    low, high = offset
    network = received_ns - sent_ns - node_ns
    if low is None or high is None or network <= 0:
        return 0.5
    up = node_received_ns - (low + high) // 2 - sent_ns
    return min(1.0, max(0.0, up / network))


def _clean(stages: Stages) -> Stages:
    """Without what took no time."""
    return dict(filter(itemgetter(1), stages.items()))
