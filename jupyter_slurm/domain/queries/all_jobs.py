"""Query for the jobs of all users, run only on a user's request, never by the poller.

It costs the controller one REQUEST_JOB_INFO, which is its whole table, and one REQUEST_PARTITION_INFO. Jobs that a site
hides (``PrivateData=jobs`` in slurm.conf(5)) are missing. No field of the answer holds free text of a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jupyter_slurm.domain.ids import parse_queue_id
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.slurm_values import parse_epoch, present, read_time_limit
from jupyter_slurm.errors import ParseError

__all__ = ["COLUMNS", "all_jobs_argv", "hides_jobs", "parse_all_jobs"]

_FIELDS: Final = (
    "jobarrayid",
    "username",
    "state",
    "reason",
    "partition",
    "account",
    "qos",
    "nodelist",
    "submittime",
    "starttime",
    "timelimit",
)

#: Columns of a row of :func:`parse_all_jobs`.
COLUMNS: Final = (
    "id",
    "tasks",
    "user",
    "state",
    "reason",
    "partition",
    "account",
    "qos",
    "nodes",
    "submit_time",
    "start_time",
    "time_limit",
)


def all_jobs_argv(mark: str) -> list[str]:
    """Return the query for all jobs that are not finished.

    Parameters
    ----------
    mark : str
        Fresh random hexadecimal digits (see :mod:`~jupyter_slurm.domain.queries.output_frames`).
    """
    return ["squeue", "--local", "--all", "--noheader", f"--Format={long_format(_FIELDS, mark)}"]


def parse_all_jobs(output: bytes, mark: str, user: str) -> list[list[Any]]:
    """Parse the answer to :func:`all_jobs_argv`, without the jobs of one user, of which more is known.

    Returns
    -------
    list of list
        A row for each job, by :data:`COLUMNS`. ``tasks`` is the number of array tasks that the row represents, or
        ``None``. Times are seconds since the epoch, the limit is in seconds. Rows without a readable ID are left out.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    rows = []
    for fields in framed_records(output, mark, len(_FIELDS)):
        shown, owner, state, reason, *places, submitted, starts, limit = fields
        if owner == user:
            continue
        try:
            job, tasks = parse_queue_id(shown.strip())
        except ParseError:
            continue
        rows.append(
            [
                str(job),
                tasks and tasks.count(),
                owner,
                state,
                "" if reason == "None" else present(reason),
                *map(present, places),
                parse_epoch(submitted),
                parse_epoch(starts),
                read_time_limit(limit),
            ]
        )
    return rows


def hides_jobs(configuration: Mapping[str, str]) -> bool:
    """Return whether a site shows users only their own jobs, by ``scontrol show config``."""
    return "jobs" in configuration.get("PrivateData", "").lower().split(",")
