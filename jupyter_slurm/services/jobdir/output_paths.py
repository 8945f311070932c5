"""Paths of a job's output files."""

from __future__ import annotations

import getpass

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.output_paths import BY_TASK, expand_pattern, first_node, record_path, symbols
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile

__all__ = ["DISPLAY", "STREAMS", "VALUES", "output_path", "runner_path"]

STREAMS = ("stdout", "stderr")

DISPLAY = "display"
"""Stream of a Python cell's display data: one line of JSON each (jupyter_slurm/runner/cell/display.py)."""

VALUES = "values"
"""Stream of the values that a Python cell returns to the notebook (jupyter_slurm/runner/variables/values_file.py)."""

_VALUE_FILES = {DISPLAY: ("display", ".jsonl"), VALUES: ("out", ".values")}


def runner_path(
    stream: str, job: JobId | None, folder: JobFolder | None, kind: str | None, *, is_array: bool
) -> str | None:
    """Return the file of a Python cell's display data or values; None for a script, and for an array without a task."""
    if folder is None or kind != "python":
        return None
    name, ending = _VALUE_FILES[stream]
    if not is_array:
        return folder.file(name + ending)
    return None if job is None or job.task is None else folder.file(f"{name}.{job.task}{ending}")


def output_path(
    stream: str,
    *,
    job: JobId | None,
    folder: JobFolder | None,
    record: JobRecordFile | None,
    latest: JobRecord | None,
    is_array: bool,
) -> str | None:
    """Return the file of a stream; None if unknown, or if each task of an array has its own.

    Parameters
    ----------
    stream : str
        ``stdout`` or ``stderr``.
    job : JobId or None
        The job or array task.
    folder, record : JobFolder, JobRecordFile or None
        Job directory and record of a job of jupyter_slurm.
    latest : JobRecord or None
        Latest record from Slurm.
    is_array : bool
        Whether the job is an array; without a task in ``job``, the whole array.
    """
    whole = is_array and (job is None or job.task is None)
    if record is None:
        if latest is None:
            return None
        told = latest.stdout if stream == "stdout" else latest.stderr
        return record_path(told, latest, None if latest.id.het is not None else job)
    pattern = record.outputs.stdout if stream == "stdout" else record.outputs.stderr
    own = folder.file(stream) if folder else None
    if pattern is None or pattern == own:  # jupyter_slurm's own path: not a pattern
        return own if pattern else None
    if own is not None and pattern == own + ".%a":
        return None if job is None or job.task is None else f"{own}.{job.task}"
    return None if job is None else _expanded(pattern, job, record, latest, whole=whole)


def _expanded(pattern: str, job: JobId, record: JobRecordFile, latest: JobRecord | None, *, whole: bool) -> str | None:
    used, raw_id = symbols(pattern), latest.raw_id if latest else None
    node = first_node(latest.nodes) if latest else ""
    if (whole and used & BY_TASK) or ("N" in used and not node):
        return None
    if job.task is not None and raw_id is None and used & {"j", "J"}:
        return None
    version = record.slurm_version
    return expand_pattern(
        pattern,
        job=job,
        raw_id=raw_id if job.task is not None else None,
        name=(latest.name if latest else None) or record.name or "",
        user=record.user or (latest.user if latest else "") or getpass.getuser(),
        node=node,
        work_dir=record.work_dir or (latest.work_dir if latest else None) or "/",
        restarts=(latest.restarts if latest else None) or 0,
        version=(version[0], version[1]) if version else None,
    )
