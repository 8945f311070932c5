"""What the API tells of a job."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.telling import job_dict


@pytest.mark.parametrize(("state", "reason"), [("PENDING", "BeginTime"), ("RUNNING", ""), ("CANCELLED", "BeginTime")])
def test_why_a_job_waited_is_not_told_of_one_that_has_begun(state: str, reason: str) -> None:
    """The runner tells of the begin at once, the queue with the next look."""
    latest = JobRecord(JobId(12), state=JobState("PENDING"), reason="BeginTime")
    told = job_dict(Entry("c", id=JobId(12), state=JobState(state), latest=latest))
    assert told["reason"] == reason
    assert bool(told["reason_text"]) == bool(reason)
