"""All that Slurm knows about one job.

``scontrol show job`` is not used: its text has no quoting. A job name, a comment or (from 24.11 on) the submit line may
contain lines that look like Slurm's own. ``squeue`` is queried for one ID, with every field framed by a random mark, so
that nothing in the answer can be imitated. This module expands paths of output files, since squeue shows patterns.

The query costs one REQUEST_JOB_INFO_SINGLE and one REQUEST_PARTITION_INFO.

Source: squeue(1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.queries.output_paths import default_pattern, expand_pattern, first_node
from jupyter_slurm.domain.queries.queue import POLL_FIELDS, queue_record
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import present

__all__ = ["detail_argv", "parse_detail"]

_DETAIL_FIELDS: Final = (
    *POLL_FIELDS,
    "username",
    "name",
    "comment",
    "command",
    "workdir",
    "stdout",
    "stderr",
    "tres-alloc",
    "dependency",
)


def detail_argv(job: JobId, mark: str) -> list[str]:
    """Return the query for one job that no free text can disturb.

    Parameters
    ----------
    job : JobId
        A job, array or task; for a step, its job is queried. Slurm forgets a job ``MinJobAge`` seconds after its end.
        The command then fails with "Invalid job id specified".
    mark : str
        Fresh random hexadecimal digits.
    """
    form = long_format(_DETAIL_FIELDS, mark)
    asked = JobId(job.job, job.task)
    return ["squeue", "--local", "--all", "--noheader", "--states=all", f"--jobs={asked}", f"--Format={form}"]


def parse_detail(output: bytes, mark: str) -> list[JobRecord]:
    """Parse the answer to :func:`detail_argv`: all tasks of an array, all components of a heterogeneous job.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    records = []
    for row in framed_records(output, mark, len(_DETAIL_FIELDS)):
        field = dict(zip(_DETAIL_FIELDS, row, strict=True))
        record = queue_record(field)
        if record is not None:
            record = replace(
                record,
                user=present(field["username"]),
                name=field["name"],
                comment=present(field["comment"]) or None,
                command=present(field["command"]) or None,
                work_dir=present(field["workdir"]) or None,
                tres=present(field["tres-alloc"]),
                depends=present(field["dependency"]),
            )
            stdout, stderr = _expanded(field["stdout"], record), _expanded(field["stderr"], record)
            records.append(replace(record, stdout=stdout, stderr=stderr or stdout))
    return records


def _expanded(pattern: str, record: JobRecord) -> str | None:
    """Return the path for squeue's pattern."""
    if record.tasks is not None or not present(pattern):
        return None
    if record.id.task is not None and pattern == f"{record.work_dir}/slurm-{record.raw_id}.out":
        # squeue 22.05 shows a wrong default file for a task.
        pattern = default_pattern(array=True)
    return expand_pattern(
        pattern,
        job=record.id if record.id.het is None else JobId(record.raw_id or record.id.job),
        name=record.name or "",
        user=record.user,
        node=first_node(record.nodes),
        work_dir=record.work_dir or "/",
        raw_id=record.raw_id,
        restarts=record.restarts or 0,
    )
