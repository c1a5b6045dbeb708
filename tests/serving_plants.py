"""What others' servers did wrong, each put in the place of what is done right here: see `test_serving_faults.py`."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import test_front
import test_serving_faults_more as more

import cloud.node
import edge.broker
import edge.cloud_way
import edge.door
import edge.front
from cloud.credit import Credits
from cloud.session import Session
from edge.attempts import Attempts
from edge.client_events import ClientAction
from edge.outcomes import Outcomes
from shared.codecs import raw
from shared.errors import ModelError
from shared.events import Action, ClientGone, Event, Failed, Finished, Resolve, Row, RowResult
from shared.executors import ort, staging, thread
from shared.executors.buffers import Slot
from shared.executors.staging import Staged
from shared.executors.thread import ThreadExecutor
from shared.fakes import FakeMachine
from shared.queue import DeadlineQueue, Job
from shared.request import TensorSpec
from shared.running import NEVER_NS
from shared.scheduler import Decision, Scheduler
from shared.settings import CloudSettings

Patch = pytest.MonkeyPatch


# --- batches and deadlines -----------------------------------------------------------------------------------------------


def launch_one_at_a_time(patch: Patch) -> None:
    patch.setattr(Scheduler, "_batch", lambda self, head, now: [head])


def look_for_the_expired_when_a_run_has_ended(patch: Patch) -> None:
    patch.setattr(Scheduler, "next_wakeup", lambda self, now: self._running.overdue_ns if len(self._running) else None)


def run_the_expired(patch: Patch) -> None:
    patch.setattr(Scheduler, "_give_up", lambda self, now: [])


def begin_however_late(patch: Patch) -> None:
    right = ThreadExecutor._carry_out

    def carry_out(self: ThreadExecutor, job: thread._Job) -> Finished | Failed:
        job.run = msgspec.structs.replace(job.run, latest_ns=NEVER_NS)
        return right(self, job)

    patch.setattr(ThreadExecutor, "_carry_out", carry_out)


def with_one_class(patch: Patch, module: object, name: str) -> None:
    """Every message or request of this kind is of class 1."""
    right = getattr(module, name)
    patch.setattr(module, name, lambda *of, **fields: msgspec.structs.replace(right(*of, **fields), priority=1))


def forget_the_class_on_the_way_to_the_agent(patch: Patch) -> None:
    with_one_class(patch, edge.front, "Request")


def forget_the_class_on_the_way_to_the_node(patch: Patch) -> None:
    with_one_class(patch, edge.cloud_way, "Infer")


def promise_whatever_is_asked(patch: Patch) -> None:
    patch.setattr(Scheduler, "can_promise", lambda self, now, work: True)
    patch.setattr(Scheduler, "_shed", lambda self, now: ())


def cancel_the_oldest_for_ever(patch: Patch) -> None:
    def schedule(self: Scheduler, now: int) -> Decision:
        waiting = (job for lane in self._queue.lanes() for job in lane.jobs)
        oldest = min(waiting, key=lambda job: job.deadline_ns, default=None)
        if oldest is None:
            return Decision()
        self._queue.remove(oldest.id)
        return Decision(expired=(oldest,))

    patch.setattr(Scheduler, "schedule", schedule)


def fail_the_whole_batch(patch: Patch) -> None:
    def execute(self: ThreadExecutor, job: thread._Job) -> list[RowResult]:
        run = job.run
        known = self._known(run)
        return self._attempt(job, known, known.slots[run.slot], run.rows)

    patch.setattr(ThreadExecutor, "_execute", execute)


def fail_all_where_one_cannot_be_read(patch: Patch) -> None:
    right = staging.stage

    def stage(rows: Sequence[Row], specs: Sequence[TensorSpec], slot: Slot) -> Staged:
        staged = right(rows, specs, slot)
        if staged.errors:
            raise ModelError("a row cannot be read")
        return staged

    patch.setattr(thread, "stage", stage)
    fail_the_whole_batch(patch)


def refuse_all_where_one_failed(patch: Patch) -> None:
    right = Session._finished

    def finished(self: Session, event: Finished, now: int, out: list[Action]) -> None:
        error = next((result.error for result in event.results if result.error), "")
        results = tuple(RowResult(r.job, () if error else r.outputs, error) for r in event.results)
        right(self, msgspec.structs.replace(event, results=results), now, out)

    patch.setattr(Session, "_finished", finished)


def take_a_setting_that_nobody_reads(patch: Patch) -> None:
    ignored = msgspec.defstruct("Ignored", [("timeout_of_the_queue_ms", float, 0.0)])
    patch.setattr(more, "KINDS", [*more.KINDS, ignored])


def tell_the_defaults(patch: Patch) -> None:
    right = cloud.node.Node.stats
    patch.setattr(cloud.node.Node, "stats", lambda self: msgspec.structs.replace(right(self), settings=CloudSettings()))


def wait_as_long_for_every_request(patch: Patch) -> None:
    right = Outcomes.handle

    def handle(self: Outcomes, event: object, now: int) -> object:
        if hasattr(event, "deadline_ns"):
            event = msgspec.structs.replace(event, deadline_ns=60 * 10**9)
        return right(self, event, now)  # type: ignore[arg-type]

    patch.setattr(Outcomes, "handle", handle)


# --- withdrawal and life ---------------------------------------------------------------------------------------------------


def keep_the_dead_in_the_queue(patch: Patch) -> None:
    patch.setattr(Scheduler, "cancel", lambda self, job: None)


def run_what_nobody_wants(patch: Patch) -> None:
    patch.setattr(Session, "_stop", lambda self, job, out: None)


def miss_that_a_client_has_gone(patch: Patch) -> None:
    right = test_front.FakeMachine.handle

    def handle(self: FakeMachine, event: Event, now: int) -> list[Action]:
        return [] if isinstance(event, ClientGone) else right(self, event, now)

    patch.setattr(test_front.FakeMachine, "handle", handle)


def end_the_thread_by_a_bug(patch: Patch) -> None:
    def ended(self: ThreadExecutor, job: thread._Job) -> Finished | Failed:
        try:
            return self._carry_out(job)
        except Exception as error:
            threading.excepthook(threading.ExceptHookArgs((type(error), error, None, None)))
            self._closing = True
            return Failed(job.run.run, "error", f"a bug of the executor: {type(error).__name__}")

    patch.setattr(ThreadExecutor, "_ended", ended)


def say_ready_once_the_files_are_read(patch: Patch) -> None:
    patch.setattr(ort, "_warm", lambda *_: None)
    patch.setattr(ort, "_check_golden", lambda *_: None)


def leave_to_time_out_what_a_lost_connection_had(patch: Patch) -> None:
    patch.setattr(Attempts, "lost", lambda *_: [])


def leave_to_time_out_what_a_stalled_connection_has(patch: Patch) -> None:
    patch.setattr(Attempts, "stalled", lambda *_: [])


def drop_the_expired_without_a_word(patch: Patch) -> None:
    right = Session._refuse_job

    def refuse(self: Session, job: int, reason: str, detail: str, now: int, out: list[Action]) -> None:
        if reason == "expired":
            self._settle(job)
        else:
            right(self, job, reason, detail, now, out)

    patch.setattr(Session, "_refuse_job", refuse)


def miss_without_a_word(patch: Patch) -> None:
    right = Outcomes.handle

    def handle(self: Outcomes, event: object, now: int) -> list[object]:
        actions = right(self, event, now)  # type: ignore[arg-type]
        return [a for a in actions if getattr(getattr(a, "outcome", None), "stage", "") != "agent"]

    patch.setattr(Outcomes, "handle", handle)


# --- memory and inputs -----------------------------------------------------------------------------------------------------


def hand_the_runtime_what_came(patch: Patch) -> None:
    patch.setattr(staging, "_check_array", lambda *_: None)
    patch.setattr(staging, "_write", lambda *_: None)
    patch.setattr(
        ThreadExecutor,
        "_run",
        lambda self, job, known, slot, rows: known.programs.run(
            job.run.range, {"x": np.concatenate([row.inputs[0] for row in job.run.rows])}, job.interrupt
        ),
    )


def lend_without_a_limit(patch: Patch) -> None:
    patch.setattr(Credits, "take", lambda self, peer: self._out.__setitem__(peer, self._out[peer] + 1) is None)
    patch.setattr(Credits, "validate", lambda self: None)


def queue_without_a_limit(patch: Patch) -> None:
    right = DeadlineQueue.push

    def push(self: DeadlineQueue, job: Job, *rest: int) -> bool:
        self._limit = NEVER_NS
        return right(self, job, *rest)

    patch.setattr(DeadlineQueue, "push", push)


def deliver_answers_that_nobody_waits_for(patch: Patch) -> None:
    right = Outcomes._on_resolve

    def resolve(self: Outcomes, agent: int, event: Resolve, now: int, actions: list[ClientAction]) -> None:
        if event.sequence not in self._open:
            actions.append(event)
        right(self, agent, event, now, actions)

    patch.setattr(Outcomes, "_on_resolve", resolve)


def open_without_a_limit(patch: Patch) -> None:
    patch.setattr(edge.broker, "refusal", lambda *_, **__: None)


def take_arrays_as_they_lie(patch: Patch) -> None:
    patch.setattr(edge.door, "_in_order", lambda array, dtype, *, copy: array.copy(order="K"))


def send_arrays_as_they_lie(patch: Patch) -> None:
    patch.setattr(raw, "raw_frame", lambda array: array.tobytes("A"))
