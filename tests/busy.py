"""A lively run of an edge and two nodes on virtual time, its machines recorded: all kinds of work, trouble and returns."""

from __future__ import annotations

import random

from plans import INT8_ROUTE, RAW_ROUTE, make_input, make_plan

from hil.pair import CLIENT, MS, Pair
from shared.events import ClientGone, ClockJumped, StreamClosed, StreamOpened, Withdrawn
from shared.journal.recorder import Recorder
from shared.settings import EdgeSettings, NodeAddress

TWO = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"), NodeAddress(name="b", endpoint="tcp://127.0.0.1:2"))


def busy_pair(seed: int = 0, *, journal: int = 100_000, requests: int = 300) -> Pair:
    """A pair after `requests` requests of single calls and of two streams, while node `a` is killed and comes back, node `b`
    is stalled, calls are withdrawn, a client leaves and all hosts are suspended. Its end is in the middle of things."""
    contract, plan = make_plan(routes=(RAW_ROUTE, INT8_ROUTE))
    pair = Pair({contract: plan}, EdgeSettings(nodes=TWO), seed=seed, journal=journal)
    rng = random.Random(seed)
    pair.run(50)
    for stream, priority in ((1, 0), (2, 2)):
        pair._feed(pair.edge, StreamOpened(CLIENT, stream, contract, 1, 33 * MS, 20 * MS, priority, stream == 2))
    for number in range(requests):
        stream = rng.choice((0, 0, 1, 2))
        fields = {"stream": stream, "latest_wins": stream == 2} if stream else {}
        inputs = make_input(number, rng.choice((1, 1, 1, 2)))
        sequence = pair.ask(inputs, rng.choice((5.0, 8.0, 10.0, 20.0, 50.0)), **fields)
        if rng.random() < 0.05:
            pair._feed(pair.edge, Withdrawn(CLIENT, sequence))
        trouble(pair, number / requests, rng)
        pair.run(rng.choice((0.1, 1.0, 3.0, 12.0, 40.0)))
    for number in range(6):
        pair.ask(make_input(number), 30.0)
    pair.run(3)
    return pair


def trouble(pair: Pair, done: float, rng: random.Random) -> None:
    if rng.random() < 0.02:
        pair.edge.slow = rng.choice((1.0, 1.0, 3.0))
    if done == 0.25:
        pair.kill("a")
    elif done == 0.4:
        pair.stall("b")
    elif done == 0.5:
        pair.resume("b")
    elif done == 0.6:
        pair.start("a")
    elif done == 0.7:
        pair._feed(pair.edge, ClientGone(CLIENT))
    elif done == 0.8:
        pair._feed(pair.edge, ClockJumped(3_000 * MS))
        for host in pair.nodes.values():
            pair._feed(host, ClockJumped(3_000 * MS))
    elif done == 0.9:
        pair._feed(pair.edge, StreamClosed(CLIENT, 1))


def recorders(pair: Pair) -> dict[str, Recorder]:
    """The recorders of the edge and of the nodes as they are now, by name."""
    hosts = {"edge": pair.edge, **pair.nodes}
    return {name: host.recorder for name, host in hosts.items() if host.recorder is not None}
