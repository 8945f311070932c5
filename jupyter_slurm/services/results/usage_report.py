"""Usage report of a job: from accounting, else from its nodes during the run, else from the runner's end marker."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from jupyter_slurm.domain.queries import job_usage
from jupyter_slurm.domain.queries.job_usage import Usage
from jupyter_slurm.errors import CommandError, ControllerError, ParseError, SlurmError, TransportError, UsageError
from jupyter_slurm.services.jobdir.job_written_files import read_untrusted
from jupyter_slurm.services.jobdir.ownership import is_owned
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.accounting import has_no_accounting, why_no_answer
from jupyter_slurm.services.slurm.client import SlurmClient

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["report_to_api"]

_CLOCK_MARGIN_S = 60.0  # seconds by which clocks may differ


async def report_to_api(client: SlurmClient, entry: TrackedJob, now: float) -> api.Report:
    """Return the report in the form of the API.

    Parameters
    ----------
    client : SlurmClient
    entry : TrackedJob
        The job, or one task of an array.
    now : float
        Seconds since the epoch.

    Raises
    ------
    UsageError
        The job is a whole array or a step, or has not started.
    """
    if entry.is_step:
        raise UsageError(
            "A step has no usage report of its own.", hint="Use the report of its allocation: step.allocation.report()."
        )
    if entry.id is None or not (entry.is_finished or entry.state.is_running):
        raise UsageError("The job has not started, so it has used nothing.", hint="job.reason_text says why it waits.")
    if entry.is_array and entry.id.task is None:
        raise UsageError(
            "An array has no usage report, but each of its tasks has one.",
            hint=f"Use the report of one task, for example job[3].report() or `jupyter slurm report {entry.id}_3`.",
        )
    notes: list[str] = []
    source, found = await _used(client, entry, notes)
    known = await _allocated(client, entry, found, now)
    told = known.as_dict()
    if source != "sacct" and known.memory is not None and entry.is_finished:
        notes.append("Memory is that of the largest process, because the job has no control group.")
    gpus = await _gpus(client, entry, told["gpus_asked"], notes)
    own = {"id": str(entry.id), "state": entry.state.name, "source": source}
    return cast("api.Report", {**own, **told, "gpus": gpus, "notes": notes})


async def _used(client: SlurmClient, entry: TrackedJob, notes: list[str]) -> tuple[str | None, Usage]:
    assert entry.id is not None
    mark = secrets.token_hex(8)
    await client.people.acquire()
    if entry.is_finished:
        since = int((entry.submit_time or 0.0) - _CLOCK_MARGIN_S)
        try:
            argv = job_usage.sacct_usage_argv(entry.id, since, mark)
            found = await client.read(argv, lambda raw: job_usage.parse_usage(raw, mark))
            if found is not None and found.elapsed is not None:
                return "sacct", found
            notes.append("Accounting does not know the job yet. Try again in a minute.")
        except (ControllerError, CommandError) as error:
            none = has_no_accounting(error)
            notes.append("The cluster has no accounting (sacct)." if none else f"No data: {why_no_answer(error)}.")
        except ParseError:
            notes.append("The answer of accounting (sacct) could not be read.")
        marker = await _marker(client, entry)
        if marker is not None:
            return "runner", marker
        notes.append(
            "The usage of a script is not recorded after its end. Ask for the report while the job is running."
        )
        return None, Usage()
    raw = entry.latest.raw_id if entry.latest else None
    try:
        found = await client.read(job_usage.sstat_usage_argv(raw or entry.id.job), job_usage.parse_usage)
    except SlurmError as error:
        notes.append(f"The usage on its nodes could not be read (sstat): {error.message}")
        found = None
    return ("sstat", found) if found is not None else (None, Usage())


async def _marker(client: SlurmClient, entry: TrackedJob) -> Usage | None:
    """Return the runner's measurements of a Python cell."""
    if entry.kind != "python" or entry.folder is None or entry.id is None:
        return None
    try:
        if not await is_owned(client.transport, entry.folder.path):
            return None
        used = (await read_untrusted(client.transport, entry.folder.end_marker(entry.id.task)))["used"]
        return Usage(
            cpu=float(used["cpu"]),
            memory=int(used["memory"]),
            elapsed=float(used["elapsed"]),
            cpus=int(used.get("cpus") or 0) or None,
            requested_memory=int(used.get("memory_asked") or 0) or None,
        )
    except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError, RecursionError):
        return None


async def _allocated(client: SlurmClient, entry: TrackedJob, usage: Usage, now: float) -> Usage:
    """Add the allocated resources from the controller if accounting lacks them."""
    latest, at_end = entry.latest, entry.record.end if entry.record else None
    if not usage.tres and entry.id is not None:
        told = [record for record in await client.find_jobs(entry.id) if record.id == entry.id]
        latest = told[0] if told and entry.is_described_by(told) else latest
    end = entry.end_time if entry.is_finished else now + entry.slurm.clock_offset
    # The clock of the cluster is known only to within some milliseconds.
    lasted = max(0.0, end - entry.start_time) if end is not None and entry.start_time is not None else None
    return replace(
        usage,
        elapsed=usage.elapsed if usage.elapsed is not None else lasted,
        time_limit=usage.time_limit
        if usage.time_limit is not None
        else (latest and latest.time_limit) or (at_end.time_limit if at_end else None),
        cpus=usage.cpus if usage.cpus is not None else (latest and latest.cpus) or (at_end.cpus if at_end else None),
        tres=usage.tres or (latest.tres if latest else ""),
    )


def _first_sentence(said: str) -> str:
    """Return the first line of an error output, without the name of the command."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = lines[0].removeprefix("srun: ").removeprefix("error: ") if lines else "no answer"
    return first if first.endswith(".") else f"{first}."


async def _gpus(client: SlurmClient, entry: TrackedJob, requested: int | None, notes: list[str]) -> list[api.ReportGpu]:
    """Query the GPUs of a running job, in a step that takes no resources from the job."""
    if entry.is_finished or entry.id is None:
        if requested:
            notes.append("The usage of GPUs is known only while the job is running.")
        return []
    nodes = (entry.latest.node_count if entry.latest else None) or 1
    raw = (entry.latest.raw_id if entry.latest else None) or entry.id.job
    place = [f"--jobid={raw}", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap", "--mem=0"]
    argv = ["srun", *place, "--quiet"]
    try:
        gpus = await client.read([*argv, *job_usage.GPU_QUERY], job_usage.parse_gpus) if requested else []
        if not gpus:  # with whole nodes the job has all GPUs, and a step gets none without a request
            shown = ["scontrol", "--details", "show", "job", str(raw)]
            given = await client.read(shown, job_usage.parse_allocated_gpus)
            if not (given or requested):
                notes.append("The job has no GPUs.")
                return []
            whole = [*argv, f"--gres=gpu:{given}", *job_usage.GPU_QUERY]
            gpus = await client.read(whole, job_usage.parse_gpus) if given else []
    except SlurmError as error:
        is_missing = "nvidia-smi" in error.message and ("not found" in error.message or "No such file" in error.message)
        notes.append(
            "The usage of its GPUs could not be read: the nodes of the job have no nvidia-smi."
            if is_missing
            else f"The usage of its GPUs could not be read: {_first_sentence(error.message)}"
        )
        return []
    if not gpus:
        notes.append("nvidia-smi shows no GPU on the nodes of the job.")
    return gpus
