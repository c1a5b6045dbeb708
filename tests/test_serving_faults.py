"""The faults that others had when serving under deadlines: each has a test that fails when the right behaviour is taken out.

Most of those tests stand where they belong, beside others of the same part; they are named here. Each is run again with the
function that does it right replaced by one that does it as it was done wrong elsewhere, and must then fail. Tests that
belong nowhere else are in `test_serving_faults_more.py`. The table in `docs/testing.md` is this list:

    HEADTAIL_WRITE_TABLE=1 pytest tests/test_serving_faults.py
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import serving_plants as plants
import test_codecs
import test_door
import test_executor
import test_front
import test_ort
import test_outcomes
import test_pair
import test_scheduler
import test_serving_faults_more as more
import test_session
from executor_rig import ROWS, Rig
from tiny import make_bundle

from shared.bundle import load_bundle
from shared.errors import HeadtailError

PAGE = Path(__file__).parent.parent / "docs" / "testing.md"
BEGIN = "<!-- serving faults: written by tests/test_serving_faults.py -->"
END = "<!-- serving faults: end -->"
WRITE = "HEADTAIL_WRITE_TABLE"

FAILS = (AssertionError, HeadtailError, KeyError, ValueError, pytest.fail.Exception)

Patch = pytest.MonkeyPatch
Test = Callable[..., object]


@dataclass(frozen=True)
class Fault:
    """A fault that others had: what went wrong, where it was reported, what is done here, the tests of that, and the plant
    that takes it out. `given` are the parameters with which the tests are run, where they have some."""

    what: str
    reports: str
    here: str
    tests: tuple[Test, ...]
    plant: Callable[[Patch], None]
    given: tuple[tuple[str, object], ...] = ()


FAULTS = (
    Fault(
        "A batch of one row ran while others waited",
        "triton server#3624",
        "a batch is formed the moment an executor is free, of all that waits and pays",
        (test_scheduler.test_a_launch_begins_the_moment_there_is_work_and_takes_all_that_pays,),
        plants.launch_one_at_a_time,
    ),
    Fault(
        "A queue's timeout was found only after the run before it, or every half second",
        "triton server#7512, #6796",
        "each expiry is a timer of its own",
        (
            test_session.test_a_waiting_request_expires_by_a_timer_not_by_the_end_of_the_one_before_it,
            test_scheduler.test_the_next_wake_up_is_when_waiting_work_no_longer_fits,
            test_scheduler.test_the_next_wake_up_is_for_a_job_behind_a_more_important_one_as_well,
        ),
        plants.look_for_the_expired_when_a_run_has_ended,
    ),
    Fault(
        "Requests were executed whose time had run out: queued ones",
        "triton server#6920, pytorch/serve#1322",
        "what can no longer be in time leaves the queue before a launch is formed",
        (test_scheduler.test_what_can_no_longer_be_on_time_is_given_up_and_never_launched,),
        plants.run_the_expired,
    ),
    Fault(
        "Requests were executed whose time had run out: launched ones",
        "triton server#6920, pytorch/serve#1322",
        "the executor looks once more before it copies a row",
        (
            test_executor.test_a_run_does_not_begin_after_its_latest_time,
            test_executor.test_the_latest_time_is_checked_when_the_run_would_begin_and_not_when_it_was_given,
        ),
        plants.begin_however_late,
    ),
    Fault(
        "The priority was lost between stages: from client to server",
        "triton server#7116",
        "class and deadline travel with the request",
        (more.test_class_and_deadline_go_from_the_client_to_the_agent,),
        plants.forget_the_class_on_the_way_to_the_agent,
    ),
    Fault(
        "The priority was lost between stages: from server to server",
        "triton server#7116",
        "class and what is left of the deadline travel with the attempt",
        (more.test_class_and_deadline_go_from_the_agent_to_the_node,),
        plants.forget_the_class_on_the_way_to_the_node,
    ),
    Fault(
        "Bursts broke the p99 that an even rate of the same height kept",
        "triton server#7318, #5957",
        "what is let in can be in time, the rest is told at once; tested evenly, at random and in bursts",
        (more.test_what_is_let_in_is_in_time_however_requests_come_and_the_rest_is_told_at_once,),
        plants.promise_whatever_is_asked,
        (("kind", "bursty"),),
    ),
    Fault(
        "Under load the oldest request was cancelled, for ever, and nothing was done",
        "BentoML PR#3646",
        "only what cannot be in time is given up, so that launches stay as large as they must be",
        (
            test_scheduler.test_under_overload_the_oldest_give_way_so_that_launches_stay_large,
            test_scheduler.test_while_the_executor_keeps_up_nothing_is_dropped,
        ),
        plants.cancel_the_oldest_for_ever,
    ),
    Fault(
        "One bad item failed its batch: in the model",
        "LitServe#340",
        "a batch that failed is tried again row by row, once",
        (test_executor.test_a_bad_item_does_not_fail_its_batch,),
        plants.fail_the_whole_batch,
    ),
    Fault(
        "One bad item failed its batch: when it was read",
        "LitServe#340",
        "a row that cannot be decoded fails alone",
        (test_executor.test_a_row_that_cannot_be_decoded_fails_alone,),
        plants.fail_all_where_one_cannot_be_read,
    ),
    Fault(
        "One bad item failed its batch: when it was answered",
        "LitServe#340",
        "each row of a run has a result of its own",
        (test_session.test_one_bad_row_does_not_spoil_its_batch,),
        plants.refuse_all_where_one_failed,
    ),
    Fault(
        "A timeout that was set was ignored: the setting",
        "mosec#651, kserve#1666",
        "a key that is taken is read by some code; others are refused by name",
        (more.test_every_setting_that_is_taken_is_read_by_somebody,),
        plants.take_a_setting_that_nobody_reads,
    ),
    Fault(
        "A timeout that was set was ignored, and nobody could see it",
        "mosec#651, kserve#1666",
        "agent and node tell the settings in force",
        (more.test_agent_and_node_tell_the_settings_in_force,),
        plants.tell_the_defaults,
    ),
    Fault(
        "A timeout that was set was ignored: the request's own",
        "mosec#651, kserve#1666",
        "every request has a deadline and a timer for it in the client",
        (test_outcomes.test_without_a_word_from_the_agent_the_request_is_missed_at_its_deadline_and_not_before,),
        plants.wait_as_long_for_every_request,
    ),
    Fault(
        "A queue full of requests that nobody wanted",
        "ray PR#21438, triton server#7077",
        "a cancelled job leaves the queue at once",
        (
            test_scheduler.test_a_cancelled_job_leaves_the_queue,
            test_scheduler.test_a_run_is_aborted_only_when_nobody_in_it_is_wanted,
            test_session.test_nothing_is_run_for_a_peer_that_is_gone,
        ),
        plants.keep_the_dead_in_the_queue,
    ),
    Fault(
        "A cancel was not honoured",
        "triton server#7077, #8030",
        "what is cancelled is stopped, also while it runs",
        (test_session.test_a_cancelled_request_is_aborted_and_answered_once,),
        plants.run_what_nobody_wants,
    ),
    Fault(
        "A client's end was not noticed",
        "triton server#8030",
        "whoever leaves or cannot be reached takes his requests along",
        (
            test_front.test_withdrawals_and_farewells_reach_the_broker,
            test_front.test_a_client_that_cannot_be_reached_is_gone,
        ),
        plants.miss_that_a_client_has_gone,
    ),
    Fault(
        "A worker was stuck after a failure",
        "pytorch/serve#1815",
        "a bug fails the run that met it, is told, and the executor serves on",
        (test_executor.test_a_bug_fails_the_run_that_met_it_is_told_and_the_next_is_served,),
        plants.end_the_thread_by_a_bug,
        (("in_place", False),),
    ),
    Fault(
        "A server was ready by its open port, and could not answer",
        "OVMS#4503",
        "the endpoint is bound when every model has run and its golden vectors came out right",
        (
            more.test_an_endpoint_is_bound_only_once_the_models_have_run,
            test_ort.test_golden_vectors_that_differ_name_the_program,
            test_ort.test_a_batch_size_that_is_baked_in_is_found_at_load,
        ),
        plants.say_ready_once_the_files_are_read,
        (("make", more.make_node),),
    ),
    Fault(
        "Work in flight was abandoned on a socket's error, and clients timed out",
        "mosec",
        "what a lost connection had is given up or sent elsewhere at once",
        (test_pair.test_a_killed_node_costs_no_answer_and_the_other_takes_over,),
        plants.leave_to_time_out_what_a_lost_connection_had,
    ),
    Fault(
        "Work in flight was abandoned where a connection stood still",
        "mosec",
        "what is overdue at one node is asked of another",
        (test_pair.test_a_request_at_a_stalled_node_is_tried_at_the_other_and_answered_once,),
        plants.leave_to_time_out_what_a_stalled_connection_has,
    ),
    Fault(
        "Expired jobs were dropped without a reply: by the server",
        "TorchServe",
        "whatever was let in ends as a reply, a refusal, or with its peer",
        (
            test_session.test_a_waiting_request_expires_by_a_timer_not_by_the_end_of_the_one_before_it,
            test_session.test_a_run_that_missed_its_window_ends_as_expired,
        ),
        plants.drop_the_expired_without_a_word,
    ),
    Fault(
        "Expired jobs were dropped without a reply: by the client",
        "TorchServe",
        "every request has exactly one outcome, by its deadline",
        (
            test_outcomes.test_without_a_word_from_the_agent_the_request_is_missed_at_its_deadline_and_not_before,
            test_outcomes.test_requests_that_no_agent_took_are_missed_at_their_deadline,
        ),
        plants.miss_without_a_word,
    ),
    Fault(
        "The runtime's memory grew with every new shape",
        "onnxruntime#5796, #23339",
        "only the plan's shapes, at one row up to the most, from slots that were made at start",
        (more.test_the_runtime_meets_no_shape_but_the_plans_own,),
        plants.hand_the_runtime_what_came,
    ),
    Fault(
        "Work piled up between stages without a bound: what is lent",
        "triton PR#8458",
        "a node takes no more than it lent",
        (test_session.test_credit_is_counted_and_comes_back,),
        plants.lend_without_a_limit,
    ),
    Fault(
        "Work piled up between stages without a bound: what waits",
        "triton PR#8458, server#980",
        "a full queue refuses at once",
        (test_session.test_a_full_queue_refuses_at_once, test_scheduler.test_a_full_queue_refuses),
        plants.queue_without_a_limit,
    ),
    Fault(
        "Death by overload",
        "triton server#980",
        "one request more than may be open is refused",
        (test_pair.test_too_many_open_requests_are_rejected_at_once,),
        plants.open_without_a_limit,
    ),
    Fault(
        "Responses were kept for whom nobody was waiting any more",
        "LitServe#452",
        "an answer to a request that is over is counted and let go",
        (test_outcomes.test_what_comes_for_unknown_or_finished_requests_is_counted_and_ignored,),
        plants.deliver_answers_that_nobody_waits_for,
    ),
    Fault(
        "Arrays that were not contiguous, or of another byte order, gave wrong results: at the door",
        "onnxruntime#13548",
        "what comes in is copied once into C order and the machine's byte order",
        (
            test_door.test_arrays_that_are_not_contiguous_are_converted,
            test_door.test_foreign_byte_order_is_converted_with_the_values_kept,
        ),
        plants.take_arrays_as_they_lie,
        (("view", "transposed"),),
    ),
    Fault(
        "Arrays that were not contiguous, or of another byte order, gave wrong results: on the wire",
        "onnxruntime#13548",
        "a frame is little-endian and in C order whatever the array is",
        (test_codecs.test_raw_frames_are_little_endian_c_order_whatever_the_array_is,),
        plants.send_arrays_as_they_lie,
        (("view", np.asfortranarray),),
    ),
)

CASES = [
    pytest.param(fault, test, id=f"{fault.plant.__name__}-{test.__name__}") for fault in FAULTS for test in fault.tests
]


@contextmanager
def arguments(fault: Fault, test: Test, folder: Path, patch: Patch) -> Generator[dict[str, object]]:
    """What pytest would give to a test of another module."""
    wanted = set(inspect.signature(test).parameters)
    known: dict[str, object] = {"tmp_path": folder, "monkeypatch": patch, **dict(fault.given)}
    with ExitStack() as stack:
        if "rig" in wanted:
            rig = Rig()
            stack.callback(lambda: [executor.close() for executor in rig.open])
            known["rig"] = rig
        for kind in wanted & {"identity", "chain"}:
            known[kind] = load_bundle(make_bundle(folder / "given", kind, elements=4, max_batch=ROWS))
        if "path" in wanted:
            known["path"] = make_bundle(folder / "given", "chain", max_batch=3)
        if "bench" in wanted:
            bench = known["bench"] = test_front.Bench()
            bench.attach()
        yield {name: known[name] for name in wanted}


@pytest.mark.parametrize(("fault", "test"), CASES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_the_right_behaviour_its_test_fails(
    fault: Fault, test: Test, tmp_path: Path, monkeypatch: Patch
) -> None:
    with arguments(fault, test, tmp_path, monkeypatch) as given:
        fault.plant(monkeypatch)
        with pytest.raises(FAILS):
            test(**given)


def table() -> str:
    lines = ["| what went wrong elsewhere | reported as | here | tested in |", "|---|---|---|---|"]
    for fault in FAULTS:
        files = sorted({f"`{Path(inspect.getfile(test)).name}`" for test in fault.tests})
        lines.append(f"| {fault.what} | {fault.reports} | {fault.here} | {', '.join(files)} |")
    return "\n".join(lines)


def test_the_table_in_the_documents_is_this_list() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END), f"{PAGE.name} has lost its marks"
    new = f"\n\n{table()}\n\n"
    if os.environ.get(WRITE):
        PAGE.write_text(before + begin + new + end + after, encoding="utf-8")
    elif old != new:
        pytest.fail(
            f"the table of serving faults in docs/{PAGE.name} is out of date: {WRITE}=1 pytest {Path(__file__).name}"
        )
