"""Actions on jobs whose target changes meanwhile: a stopped action and a number that is used again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import JobError
from jupyter_slurm.services.clusters.job_actions import JobActions
from jupyter_slurm.services.jobs.job import TrackedJob


async def _nothing(*_: Any, **__: Any) -> None: ...


def _actions(entry: TrackedJob, present: TrackedJob, client: Any = None) -> JobActions:
    async def find(reference: str, *, is_shown: bool) -> TrackedJob:
        return entry

    tracker = SimpleNamespace(
        name="far", bus=None, clock=lambda: 0.0, find=lambda _: present, in_queue={7}, parts=lambda one: [one]
    )
    sources: Any = SimpleNamespace(
        client=client, tracker=tracker, poller=SimpleNamespace(wait_fresh=_nothing), checks=None
    )
    jobs: Any = SimpleNamespace(find=find)
    other: Any = SimpleNamespace(check_number=_nothing)
    actions = JobActions(sources, jobs, other, other, other, other)
    actions.progress = SimpleNamespace(publish=lambda _: None)  # type: ignore[assignment]
    return actions


async def test_a_number_that_another_job_has_now_is_not_requeued() -> None:
    over = TrackedJob("far", id=JobId(7), state=JobState("COMPLETED"))
    later = TrackedJob("far", id=JobId(7), state=JobState("RUNNING"))
    assert await _actions(over, over)._case("requeue", "7") is not None
    with pytest.raises(JobError, match="Job 7 has ended"):
        await _actions(over, later)._case("requeue", "7")


async def test_a_stopped_action_leaves_an_array_as_it_was_that_it_did_not_cancel() -> None:
    array = TrackedJob("far", id=JobId(7), state=JobState("PENDING"))
    array.submission.is_growing = True
    client = SimpleNamespace(cancels=SimpleNamespace(acquire=_nothing))
    actions = _actions(array, array, client)
    case = await actions._case("cancel", "7")
    assert case is not None

    async def stopped(waiting: Any) -> bool:
        await waiting
        return False

    progress: Any = SimpleNamespace(act="cancel", is_stopped=False, unless_stopped=stopped, note=lambda _: None)
    await actions._run(progress, [case], None)
    assert case.error is not None
    assert array.submission.is_growing
    assert not array.slurm.is_cancel_requested
