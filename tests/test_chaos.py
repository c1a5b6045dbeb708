"""Agent and nodes killed and stopped at random moments under load, and the books that such a run is held against."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console

from hil.chaos import play, show
from hil.chaos_account import Account, Tally
from hil.chaos_plan import VICTIMS, draw_askings, draw_cycles
from hil.ledger import Claim, References
from hil.references import references, telling_frames
from hil.small_plans import ROUTES, RUNGS, make_images, write_small
from shared.bundle import load_bundle
from shared.request import EXACT, Answer, Fidelity, Missed, Outcome

CYCLES = 20
SEED = 3
RATE_HZ = 100.0

MS = 1_000_000
ONE, OTHER = "contract-1", "contract-2"
SMALL = Fidelity("rung", "small", 0.5)


def test_agent_and_nodes_die_and_stop_under_load_and_every_request_has_its_one_right_outcome() -> None:
    report = play(SEED, CYCLES, RATE_HZ, Console(), told=True)
    show(report, Console())
    tally = report.tally
    assert report.holds, (tally.broken, f"seed {SEED}", report.story)
    assert tally.requests == sum(tally.outcomes.values()) > 0
    assert (tally.lost, tally.duplicated, tally.unasked, tally.wrong) == (0, 0, 0, 0)
    assert sum(report.strikes.values()) >= CYCLES
    assert {"cloud exact", "cloud lossy(int8)", "cloud lossy(jpeg90)", "edge exact"} <= set(tally.answers)
    assert report.attaches > report.strikes["agent kill"]
    assert report.back_s


def test_one_seed_draws_one_run_and_strikes_every_process_in_every_way() -> None:
    cycles = draw_cycles(SEED, CYCLES)
    assert cycles == draw_cycles(SEED, CYCLES) != draw_cycles(SEED + 1, CYCLES)
    struck = {(strike.victim, strike.kind) for cycle in cycles for strike in cycle}
    assert struck == {(victim, kind) for victim in VICTIMS for kind in ("kill", "stop")}
    for cycle in cycles:
        assert len({strike.victim for strike in cycle}) == len(cycle)
    askings = list(islice(draw_askings(SEED, 5, 8), 1000))
    assert askings == list(islice(draw_askings(SEED, 5, 8), 1000))
    assert {asking.model for asking in askings} == set(range(5))
    assert 100 < sum(asking.streamed for asking in askings) < 400


def known() -> dict[str, References]:
    """Two plans and two images; the whole model answers the image's number, the small one its negative."""

    def of(contract: str, plus: float) -> References:
        return {
            Claim(contract, "exact"): [{"y": np.full(1, plus + image)} for image in (1, 2)],
            Claim(contract, "rung", "small"): [{"y": np.full(1, -plus - image)} for image in (1, 2)],
        }

    return {ONE: of(ONE, 0.0), OTHER: of(OTHER, 10.0)}


def answer(value: float, fidelity: Fidelity = EXACT, contract: str = ONE) -> Answer:
    return Answer({"y": np.full(1, value)}, "edge", None, "whole", None, fidelity, contract)


def tally_of(*delivered: tuple[int, Outcome], hanging: frozenset[int] = frozenset()) -> Tally:
    """Requests 1 and 2 of plan `ONE`, images 0 and 1, and request 3 of plan `OTHER`, image 0."""
    account = Account()
    account.delivered(*delivered[0], MS)
    for sequence, contract, image in ((1, ONE, 0), (2, ONE, 1), (3, OTHER, 0)):
        account.asked(sequence, contract, image, 0)
    for sequence, outcome in delivered[1:]:
        account.delivered(sequence, outcome, MS)
    return account.close(known(), set(hanging))


def test_a_run_in_which_all_is_well_adds_up() -> None:
    tally = tally_of((1, answer(1)), (2, answer(-2, SMALL)), (3, Missed("agent")))
    assert tally.broken == ()
    assert (tally.requests, tally.outcomes) == (3, {"on_time": 2, "missed": 1})
    assert tally.answers == {"edge exact": 1, "edge rung(small, 0.5)": 1}
    assert tally.details == {"agent": 1}


def test_what_is_lost_doubled_or_made_up_is_found() -> None:
    lost = tally_of((1, answer(1)), (2, answer(2)))
    assert (lost.lost, lost.broken) == (1, ("1 lost: no outcome ever came",))
    hanging = tally_of((1, answer(1)), (2, answer(2)), (3, answer(11, contract=OTHER)), hanging=frozenset({2}))
    assert hanging.lost == 1
    doubled = tally_of((1, answer(1)), (1, Missed("agent")), (2, answer(2)), (3, answer(11, contract=OTHER)))
    assert (doubled.duplicated, doubled.broken) == (1, ("1 delivered again",))
    unasked = tally_of((1, answer(1)), (2, answer(2)), (3, answer(11, contract=OTHER)), (4, answer(1)))
    assert (unasked.unasked, len(unasked.broken)) == (1, 1)


def test_swapped_answers_and_answers_of_another_plan_or_rung_are_wrong() -> None:
    swapped = tally_of((1, answer(2)), (2, answer(1)), (3, answer(11, contract=OTHER)))
    assert (swapped.wrong, len(swapped.broken)) == (2, 2)
    foreign = tally_of((1, answer(11, contract=OTHER)), (2, answer(2)), (3, answer(11, contract=OTHER)))
    assert foreign.wrong == 1
    posing = tally_of((1, answer(-1)), (2, answer(2)), (3, answer(11, contract=OTHER)))
    assert posing.wrong == 1


def test_the_small_plans_tell_their_images_apart_in_every_way(tmp_path: Path) -> None:
    bundle = load_bundle(write_small(tmp_path, "all", rungs=tuple(RUNGS), routes=tuple(ROUTES)))
    images = make_images(24, SEED)
    found = references(bundle, images)
    assert len(found) == 4
    assert telling_frames(found) == list(range(24))
    for answers in found.values():
        for one in answers:
            (scores,) = one.values()
            assert np.array_equal(scores * 256, np.round(scores * 256))
