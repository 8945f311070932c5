"""The question for the jobs of everybody: for a person who wants to see them, never for the poller.

It costs the controller one REQUEST_JOB_INFO, which is its whole table, and one REQUEST_PARTITION_INFO. What a site
hides (``PrivateData=jobs`` in slurm.conf(5)) is not in the answer. No field of it holds free text of a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jupyter_slurm.domain.ids import parse_queue_id
from jupyter_slurm.domain.queries.framing import framed_records, long_format
from jupyter_slurm.domain.slurm_values import parse_epoch, present, read_time_limit
from jupyter_slurm.errors import ParseError

__all__ = ["COLUMNS", "everybody_argv", "hides_jobs", "parse_everybody"]

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

#: What a row of :func:`parse_everybody` holds.
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


def everybody_argv(mark: str) -> list[str]:
    """Return the question for all jobs that are not over.

    Parameters
    ----------
    mark : str
        Fresh random hexadecimal digits (see :mod:`~jupyter_slurm.domain.queries.framing`).
    """
    return ["squeue", "--local", "--all", "--noheader", f"--Format={long_format(_FIELDS, mark)}"]


def parse_everybody(output: bytes, mark: str, user: str) -> list[list[Any]]:
    """Read the answer to :func:`everybody_argv`, without the jobs of one user, whose own are known better.

    Returns
    -------
    list of list
        A row for each job, as :data:`COLUMNS` has it; ``tasks`` is how many tasks of an array it stands for, or
        ``None``. Times are seconds since the epoch, the limit is in seconds. What has no readable id is left out.

    Raises
    ------
    ParseError
        The answer is torn.
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
    """Whether a site shows people their own jobs only, by ``scontrol show config``."""
    return "jobs" in configuration.get("PrivateData", "").lower().split(",")
