"""Resubmission of a job: the request that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from jupyter_slurm.domain.scripts.resubmission import (
    OMIT_DEPENDENCY_HINT,
    JobEnd,
    awaited,
    changed,
    check_repeatable,
    dependency_value,
    has_source,
    remaining_dependency,
    repeated,
)
from jupyter_slurm.errors import JobNotFound, UsageError
from jupyter_slurm.services.jobs.lookup import JobLookup
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["JobSource", "repeat_request"]


class JobSource(Protocol):
    """Cluster of a repeated job: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def location(self) -> ClusterLocation: ...  # noqa: D102
    @property
    def client(self) -> SlurmClient: ...  # noqa: D102
    @property
    def results(self) -> ResultReader: ...  # noqa: D102
    @property
    def jobs(self) -> JobLookup: ...  # noqa: D102


async def repeat_request(cluster: JobSource, reference: str, requested: api.ResubmitJobRequest) -> SubmissionRequest:
    """Return the submission that repeats a job: text, options, arguments, environment, values, from the same folder.

    A task of an array becomes an array of this one task.

    Parameters
    ----------
    requested : mapping
        ``key`` and ``context`` of the new submission.

    Raises
    ------
    UsageError, JobError
        The job cannot be submitted again, also because another user can have changed its record.
    """
    record = await cluster.results.record(reference)
    check_repeatable(record)
    raw = await (cluster.results.source(reference) if has_source(record) else cluster.results.script(reference))
    text = raw.decode("utf-8", "surrogateescape")
    table = await cluster.client.options("sbatch")
    options, changes = record.get("options") or [], dict[str, Any]()
    if (value := dependency_value(table, options)) is not None and (
        now := await _open_dependency(cluster, value)
    ) != value:
        changes["dependency"] = now
    if (task := (await cluster.jobs.describe(reference))["task"]) is not None:
        changes["array"] = task
    context = dict(requested.get("context") or {})
    if record["cwd"] is not None:
        context["cwd"] = record["cwd"]
    submission = {
        **repeated(record, text, changed(table, options, text, changes) if changes else options),
        "key": requested["key"],
        "origin": {"folder": None, "notebook": record["notebook"]},
        "context": context,
    }
    return cast("SubmissionRequest", submission)


async def _open_dependency(cluster: JobSource, value: str) -> str | None:
    """Return the dependencies that still hold."""
    endings = dict[str, JobEnd]()
    for number in awaited(value):
        try:
            entry = await cluster.jobs.find_task(number)
        except JobNotFound as error:
            raise UsageError(f"--dependency={value}: {error.message}", hint=OMIT_DEPENDENCY_HINT) from None
        endings[number] = JobEnd(f"job {number}", entry.state.name if entry.is_finished else None)
    return remaining_dependency(value, endings)
