"""All that Slurm knows about one job.

``scontrol show job`` is not used: its text has no quoting. A job name, a comment or (from 24.11 on) the submit line may
contain lines that look like Slurm's own. ``squeue`` is queried for one ID, with every field framed by a random mark, so
that nothing in the answer can be imitated.

The query costs one REQUEST_JOB_INFO_SINGLE and one REQUEST_PARTITION_INFO.

Source: squeue(1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.queries.output_paths import read_patterns
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
            records.append(read_patterns(present(field["stdout"]), present(field["stderr"]), record))
    return records
