"""Tests of the API object of a job."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.serialize import job_dict


@pytest.mark.parametrize(("state", "reason"), [("PENDING", "BeginTime"), ("RUNNING", ""), ("CANCELLED", "BeginTime")])
def test_why_a_job_waited_is_not_told_of_one_that_has_begun(state: str, reason: str) -> None:
    """The runner reports the start at once, the queue with the next query."""
    latest = JobRecord(JobId(12), state=JobState("PENDING"), reason="BeginTime")
    told = job_dict(TrackedJob("c", id=JobId(12), state=JobState(state), slurm=SlurmView(latest=latest)))
    assert told["reason"] == reason
    assert bool(told["reason_text"]) == bool(reason)


def test_what_killed_a_cell_is_told_before_the_queue_tells_it() -> None:
    """Its runner, which survived (resume, launchers), has stored the exit code separately."""
    told = job_dict(TrackedJob("c", id=JobId(12), state=JobState("FAILED"), exit_code=137))
    assert (told["reason"], told["reason_text"]) == ("NonZeroExitCode", "A program of the job was ended by SIGKILL.")
    assert "--mem" in told["next_step"]
    assert job_dict(TrackedJob("c", id=JobId(12), state=JobState("FAILED"), exit_code=1))["reason_text"] == ""


def test_an_array_has_started_with_its_first_task() -> None:
    """Its time does not jump back when that task has ended, and Slurm has forgotten it."""

    def row(task: int, state: str, start: int) -> JobRecord:
        return JobRecord(JobId(12, task), state=JobState(state), start_time=start, submit_time=50, nodes="n1")

    array = TrackedJob("c", id=JobId(12))
    array.update_from_slurm([row(1, "RUNNING", 100), row(2, "RUNNING", 101)], now=102.0)
    assert array.start_time == 100
    array.update_from_slurm([row(1, "COMPLETED", 100), row(2, "COMPLETED", 101), row(3, "RUNNING", 200)], now=201.0)
    assert array.start_time == 100
    array.update_from_slurm([row(4, "RUNNING", 300)], now=301.0)
    assert array.start_time == 100
