"""Tests of the cause why a job can never start."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs.failures import note_blame
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView


def _entry(number: int, state: str, **more: object) -> TrackedJob:
    reason = str(more.pop("reason", ""))
    latest = JobRecord(id=JobId(number), state=JobState(state), reason=reason, name="train")
    return TrackedJob("c", id=JobId(number), state=JobState(state), slurm=SlurmView(latest=latest), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sbatch", "--dependency=afterok:7:8", "job.sh"], "Job 7 (train) ended as FAILED."),
        (["sbatch", "--depend", "afterok:7", "job.sh"], "Job 7 (train) ended as FAILED."),
        (["sbatch", "-d", "afterok:7?afterok:7", "job.sh"], "Job 7 (train) ended as FAILED."),
        (["sbatch", "-dafterok:9", "job.sh"], ""),
        (["sbatch", "job.sh", ":7"], ""),
        (["sbatch", "-d"], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_blame_is_found_on_the_command_line_if_there_is_one(argv: list[str] | None, said: str) -> None:
    jobs = {"7": _entry(7, "FAILED"), "8": _entry(8, "RUNNING")}
    record = None if argv is None else JobRecordFile.from_json({"argv": argv})
    waiting = _entry(12, "PENDING", reason="DependencyNeverSatisfied", record=record)
    assert note_blame(waiting, jobs.get) is bool(said)
    assert waiting.slurm.blame == said
    assert not note_blame(waiting, jobs.get)
    assert not note_blame(_entry(13, "PENDING", reason="Priority", record=record), jobs.get)
