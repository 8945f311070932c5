"""Resources that jobs had in a period, from accounting (``sacct``): by user, account, partition, QOS and type of GPU.

Source: sacct(1). ``--truncate`` counts only the part of a job within the period.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.domain.queries.job_history import question_argv
from jupyter_slurm.domain.queries.output_frames import delimited_records
from jupyter_slurm.domain.slurm_values import parse_count, parse_epoch, parse_tres
from jupyter_slurm.domain.states import JobState

__all__ = ["AccountedJob", "accounted_argv", "below", "parse_accounted", "summed"]

_FIELDS: Final = (
    "JobID",
    "User",
    "Account",
    "Partition",
    "QOS",
    "State",
    "AllocTRES",
    "ElapsedRaw",
    "Start",
    "End",
    "JobName",
)
_KEYS: Final = ("user", "account", "partition", "qos", "gpu_type")


@dataclass(frozen=True)
class AccountedJob:
    """A job, or a task of an array, in accounting. Durations are seconds within the period, times are since the epoch.

    Parameters
    ----------
    id : str
        In sacct's form: ``12``, ``12_3``, ``12+1``.
    gpu_type : str
        Empty: GPUs without a type, or no GPUs; several types are joined by ``+``.
    """

    id: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    name: str
    seconds: int
    cpus: int
    gpus: int
    gpu_type: str
    start: int | None
    end: int | None

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the job in the form of the API."""
        return {**vars(self)}


def accounted_argv(start: int, end: int, mark: str, users: Sequence[str], accounts: Sequence[str]) -> list[str]:
    """Return the query for all jobs that ran in a period, of some users or of some accounts.

    Parameters
    ----------
    start, end : int
        Seconds since the epoch.
    mark : str
        Fresh random hexadecimal digits.
    users, accounts : sequence of str
        At least one of the two is not empty.
    """
    whose = [f"--user={','.join(users)}"] if users else ["--allusers"]
    if accounts:
        whose.append(f"--accounts={','.join(accounts)}")
    period = [f"--endtime=uts{end}", "--truncate"]
    return [
        *question_argv(start, mark),
        *period,
        *whose,
        "--allocations",
        "--duplicates",
        f"--format={','.join(_FIELDS)}",
    ]


def parse_accounted(output: bytes, mark: str) -> list[AccountedJob]:
    """Parse the answer to :func:`accounted_argv`, without jobs that never ran.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    jobs = []
    for row in delimited_records(output, mark, len(_FIELDS)):
        field = dict(zip(_FIELDS, row, strict=True))
        seconds = parse_count(field["ElapsedRaw"])
        if seconds or _has_run(field):
            jobs.append(_job(field, seconds or 0))
    return jobs


def _has_run(field: Mapping[str, str]) -> bool:
    """Return whether a job had resources: a pending job has none, and one that was cancelled before its start."""
    is_pending = JobState.parse(field["State"]).is_pending
    return not is_pending and bool(parse_tres(field["AllocTRES"])) and parse_epoch(field["Start"]) is not None


def _job(field: Mapping[str, str], seconds: int) -> AccountedJob:
    tres = parse_tres(field["AllocTRES"])
    types = {name.removeprefix("gres/gpu:"): n for name, n in tres.items() if name.startswith("gres/gpu:")}
    return AccountedJob(
        field["JobID"].strip(),
        field["User"].strip(),
        field["Account"].strip(),
        field["Partition"].strip(),
        field["QOS"].strip(),
        JobState.parse(field["State"]).name,
        field["JobName"].strip(),
        seconds,
        tres.get("cpu", 0),
        tres.get("gres/gpu", sum(types.values())),
        "+".join(sorted(types)),
        parse_epoch(field["Start"]),
        parse_epoch(field["End"]),
    )


def summed(jobs: Iterable[AccountedJob]) -> list[dict[str, str | int]]:
    """Return the number of jobs, CPU seconds and GPU seconds of each kind, ordered by kind."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for job in jobs:
        one = sums.setdefault(tuple(getattr(job, key) for key in _KEYS), [0, 0, 0])
        one[0] += 1
        one[1] += job.cpus * job.seconds
        one[2] += job.gpus * job.seconds
    return [
        {**dict(zip(_KEYS, kind, strict=True)), "jobs": count, "cpu_seconds": cpu, "gpu_seconds": gpu}
        for kind, (count, cpu, gpu) in sorted(sums.items())
    ]


def below(account: str, above: Mapping[str, str]) -> list[str]:
    """Return an account and all accounts below it; ``above`` maps each account to its parent, in lower case."""
    found = [account.lower()]
    for name in found:
        found += sorted(child for child, parent in above.items() if parent == name and child not in found)
    return found
