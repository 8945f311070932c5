"""Order of the list of jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.services.clusters.job_catalog import newest_first


def _job(number: int | None, time: float | None) -> Any:
    return SimpleNamespace(id=None if number is None else JobId(number), submit_time=time)


def test_jobs_of_one_second_have_the_order_of_their_numbers() -> None:
    """Slurm gives whole seconds, and a job that it has not described yet has the fraction of this computer."""
    jobs = [_job(7, 100.8), _job(9, 100.0), _job(None, 100.9), _job(8, 100.0), _job(12, 99.0), _job(2, 101.0)]
    assert [job.id and job.id.job for job in newest_first(jobs)] == [2, None, 9, 8, 7, 12]
