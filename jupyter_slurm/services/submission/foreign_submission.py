"""Submission of a job that was submitted elsewhere, as far as Slurm still knows it: for a user who submits it again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_slurm.domain.queries.job_detail import WaitingRequest, parse_waiting, waiting_argv
from jupyter_slurm.domain.queries.job_history import REQUEST_FIELDS
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.scripts.recorded_options import accounted_request, array_spec, recorded_options
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.errors import CommandError, JobError, SlurmError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.submission.resubmission_request import JobSource

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["foreign_submission"]


async def foreign_submission(cluster: JobSource, reference: str) -> api.ForeignSubmission:
    """Return the script of a job, and the options with which Slurm recorded it.

    Raises
    ------
    JobError, CommandError, ControllerError
        Slurm does not have the script, or gives no answer.
    """
    whole = await cluster.jobs.find(reference)
    entry = cluster.jobs.select_task(reference, whole)
    record = entry.latest or whole.latest
    if record is None:
        raise JobError(f"Slurm has no record of job {reference}.", hint="Submit its script again by hand.")
    script = (await cluster.results.script(reference)).decode("utf-8", "replace")
    if whole.latest is not None and record.work_dir is None:
        record = _with_details(record, whole.latest)
    header = await _split(cluster, header_options(script))
    request = await _request(cluster, entry) or await _accounted(cluster, entry, record, header)
    return {"script": script, "options": recorded_options(record, request, _array_of(entry, header), header)}


async def _request(cluster: JobSource, entry: TrackedJob) -> WaitingRequest | None:
    """Return what the job requested; None if the controller has forgotten the job."""
    if entry.id is None:
        return None
    mark = secrets.token_hex(8)
    argv = waiting_argv(entry.id, mark, is_any_state=True)
    try:
        return await cluster.client.read(argv, lambda raw: parse_waiting(raw, mark, is_any_state=True))
    except CommandError:
        return None


async def _accounted(
    cluster: JobSource, entry: TrackedJob, record: JobRecord, header: Mapping[str, str | None]
) -> WaitingRequest:
    """Return what accounting knows of the request; without an answer, what the record says."""
    known = {"AllocTRES": record.tres, "NNodes": str(record.node_count or 1), "ReqCPUS": str(record.cpus or 1)}
    row: Mapping[str, str] = dict.fromkeys(REQUEST_FIELDS, "") | known
    if entry.id is not None:
        with contextlib.suppress(SlurmError):
            row = next(iter(await cluster.client.accounting.requests(entry.id)), row)
    # Slurm joins the words of the command line with blanks, without quotes.
    return accounted_request(row, {**header, **await _split(cluster, row["SubmitLine"].split()[1:])})


async def _split(cluster: JobSource, words: Sequence[str]) -> dict[str, str | None]:
    """Return options of sbatch by name; none if a word is not understood, which sbatch will say."""
    try:
        table = await cluster.client.options("sbatch")
        return {option.name: option.value for option in table.split(words).options}
    except SlurmError:
        return {}


def _with_details(record: JobRecord, whole: JobRecord) -> JobRecord:
    return replace(record, work_dir=whole.work_dir, name=record.name or whole.name)


def _array_of(entry: TrackedJob, header: Collection[str]) -> str:
    """Return the tasks of an array that Slurm knows, unless the script names them; of one task its number."""
    if entry.id is not None and entry.id.task is not None:
        return str(entry.id.task)
    if not entry.is_array or "array" in header:
        return ""
    waiting = [replace(row.tasks, limit=None) for row in entry.slurm.rest if row.tasks is not None]
    return ",".join(filter(None, [array_spec([*entry.slurm.tasks]), *map(str, waiting)]))
