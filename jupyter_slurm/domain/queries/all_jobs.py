"""Query for the jobs of all users, run only on a user's request, never by the poller.

It costs the controller one REQUEST_JOB_INFO, which is its whole table, and one REQUEST_PARTITION_INFO. Jobs that a site
hides (``PrivateData=jobs`` in slurm.conf(5)) are missing. No field of the answer holds free text of a user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jupyter_slurm.domain.ids import parse_queue_id
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.slurm_values import parse_count, parse_epoch, parse_gres, parse_tres, present, read_time_limit
from jupyter_slurm.errors import ParseError

__all__ = [
    "COLUMNS",
    "RunningJob",
    "UsageSum",
    "all_jobs_argv",
    "hides_jobs",
    "job_gpus",
    "parse_all_jobs",
    "parse_running",
    "running_argv",
    "sum_running",
]

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

_RUNNING_FIELDS: Final = (
    *("jobarrayid", "username", "account", "partition", "nodelist", "endtime", "timelimit", "numcpus", "numnodes"),
    *("numtasks", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task"),
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


@dataclass(frozen=True)
class RunningJob:
    """A job that runs, with its folded list of nodes and its GPUs by type.

    ``end_time`` is the end of its time limit, in seconds since the epoch; 0 without a limit.
    """

    id: str
    user: str
    nodes: str
    end_time: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    account: str = ""
    partition: str = ""
    cpus: int = 0


def running_argv(mark: str) -> list[str]:
    """Return the query for the running jobs of all users (the same requests as :func:`all_jobs_argv`).

    Parameters
    ----------
    mark : str
        Fresh random hexadecimal digits.
    """
    form = long_format(_RUNNING_FIELDS, mark)
    return ["squeue", "--local", "--all", "--noheader", "--states=running,completing", f"--Format={form}"]


def parse_running(output: bytes, mark: str) -> list[RunningJob]:
    """Parse the answer to :func:`running_argv`.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    found = []
    for row in framed_records(output, mark, len(_RUNNING_FIELDS)):
        fields = dict(zip(_RUNNING_FIELDS, row, strict=True))
        is_limited = read_time_limit(fields["timelimit"]) is not None
        found.append(
            RunningJob(
                id=fields["jobarrayid"].strip(),
                user=fields["username"],
                nodes=present(fields["nodelist"]),
                end_time=(parse_epoch(fields["endtime"]) or 0) if is_limited else 0,
                gpus=_running_gpus(fields),
                account=present(fields["account"]),
                partition=present(fields["partition"]),
                cpus=parse_count(fields["numcpus"]) or 0,
            )
        )
    return found


@dataclass
class UsageSum:
    """Running jobs of a user in an account and a partition, and what they have."""

    user: str
    account: str
    partition: str
    jobs: int = 0
    cpus: int = 0
    gpus: dict[str, int] = field(default_factory=dict)


def sum_running(jobs: Iterable[RunningJob]) -> list[UsageSum]:
    """Return the sums of running jobs, those with the most GPUs and then CPUs first."""
    sums: dict[tuple[str, str, str], UsageSum] = {}
    for job in jobs:
        key = (job.user, job.account, job.partition)
        one = sums.setdefault(key, UsageSum(*key))
        one.jobs, one.cpus = one.jobs + 1, one.cpus + job.cpus
        for kind, count in job.gpus.items():
            one.gpus[kind] = one.gpus.get(kind, 0) + count
    return sorted(sums.values(), key=lambda one: (-sum(one.gpus.values()), -one.cpus, one.user, one.account))


def _running_gpus(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the GPUs that a job has by type; without accounting of GPUs, those that it requested.

    A job that shares its nodes with no other has more than it requested. Where accounting counts GPUs without their
    types, those of the request are returned if their number is the same.
    """
    has, asked = _allocated_gpus(fields["tres-alloc"]), job_gpus(fields)
    is_typed = any(has)
    return has if has and (is_typed or sum(asked.values()) != sum(has.values())) else asked


def _allocated_gpus(text: str) -> dict[str, int]:
    tres = parse_tres(text)
    found = {name.partition(":")[2]: count for name, count in tres.items() if name.startswith("gres/gpu:") and count}
    rest = tres.get("gres/gpu", 0) - sum(found.values())
    return {**found, "": rest} if rest > 0 else found


def job_gpus(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the GPUs that a job requested by type; without accounting, Slurm counts no GPUs in ``tres-alloc``."""
    nodes, tasks = parse_count(fields["numnodes"]) or 1, parse_count(fields["numtasks"]) or 1
    for name, times in (("tres-per-job", 1), ("tres-per-node", nodes), ("tres-per-task", tasks)):
        found: dict[str, int] = {}
        for gres in parse_gres(fields[name]):
            if gres.name == "gpu" and gres.count:
                found[gres.type or ""] = found.get(gres.type or "", 0) + gres.count * times
        if found:
            return found
    tres = parse_tres(fields["tres-alloc"])
    typed = {name.partition(":")[2]: count for name, count in tres.items() if name.startswith("gres/gpu:")}
    return typed or ({"": count} if (count := tres.get("gres/gpu", 0)) else {})
