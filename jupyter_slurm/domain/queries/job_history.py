"""Accounting records of jobs that the controller has forgotten (``sacct``, which queries slurmdbd, not slurmctld).

Accounting lags behind: a job may be missing for a minute after its submission. Without slurmdbd the command fails with
"Slurm accounting storage is disabled". Comments exist only if the site stores them
(``AccountingStoreFlags=job_comment``). In names and comments, a double quote comes back as a backquote, and bytes that
are not UTF-8 as question marks.

Source: sacct(1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from jupyter_slurm.domain.ids import JobId, parse_queue_id
from jupyter_slurm.domain.queries.output_frames import check_mark, delimited_records, field_end
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_count, parse_epoch, parse_exit, present
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import ParseError

__all__ = [
    "REQUEST_FIELDS",
    "all_fields",
    "parse_requests",
    "parse_sacct",
    "parse_submissions",
    "question_argv",
    "sacct_argv",
    "submissions_argv",
    "user_argv",
]

# Only names that sacct has in every version from 22.05 to 26.05: sacct does not start with an unknown name.
_FIELDS: Final = (
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "Partition",
    "Account",
    "QOS",
    "User",
    "NodeList",
    "NNodes",
    "AllocCPUS",
    "TimelimitRaw",
    "AllocTRES",
    "Reason",
    "WorkDir",
    "JobName",
    "Comment",
)
REQUEST_FIELDS: Final = ("JobID", "NNodes", "ReqCPUS", "ReqTRES", "AllocTRES", "Constraints", "SubmitLine")
"""The fields about what a job requested."""
_LINE_FIELDS: Final = ("JobID", "Submit", "SubmitLine")
_OUTPUT_FIELDS: Final = ("StdOut", "StdErr")
_OUTPUT_VERSION: Final = (24, 5)

# slurmdb refuses "uts" times before this (parse_time.c).
_MIN_UTS_S: Final = 1_000_000


def sacct_argv(jobs: Sequence[JobId], since_epoch: int, mark: str, fields: Sequence[str] = _FIELDS) -> list[str]:
    """Return the query for accounting records.

    Parameters
    ----------
    jobs : sequence of JobId
        At least one. Without a job, sacct would list every job since `since_epoch`.
    since_epoch : int
        Seconds. IDs wrap, so give the time of submission, less a margin for differing clocks.
    mark : str
        Fresh random hexadecimal digits.
    fields : sequence of str, optional
        See :func:`all_fields`.

    Raises
    ------
    ValueError
        `jobs` is empty.
    """
    if not jobs:
        raise ValueError("sacct is asked for no job")
    ids = ",".join(str(job.allocation) for job in jobs)
    return [*question_argv(since_epoch, mark), f"--jobs={ids}", "--allocations", f"--format={','.join(fields)}"]


def question_argv(since_epoch: int, mark: str) -> list[str]:
    """Return the common beginning of every accounting query."""
    argv = ["sacct", "--local", "--noheader", "--parsable", f"--delimiter={field_end(check_mark(mark))}"]
    # "uts" and seconds since the epoch: no time zone, no daylight saving (parse_time.c).
    return [*argv, "--noconvert", f"--starttime=uts{max(since_epoch, _MIN_UTS_S)}"]


def submissions_argv(user: str, since_epoch: int, mark: str) -> list[str]:
    """Return the query for the command lines with which a user submitted jobs.

    Used only if the answer to a submission was lost and the queue no longer has the job.
    """
    fields = ",".join(_LINE_FIELDS)
    return [*question_argv(since_epoch, mark), f"--user={user}", "--allocations", "--duplicates", f"--format={fields}"]


def all_fields(version: tuple[int, int] | None) -> Sequence[str]:
    """Return the fields that sacct has in a version; None: only those of every version."""
    return (*_FIELDS, *_OUTPUT_FIELDS) if version is not None and version >= _OUTPUT_VERSION else _FIELDS


def user_argv(user: str, since_epoch: int, mark: str, fields: Sequence[str]) -> list[str]:
    """Return the query for the jobs of a user that were not over at a time in seconds."""
    argv = [*question_argv(since_epoch, mark), f"--user={user}", "--allocations"]
    return [*argv, f"--format={','.join(fields)}"]


def parse_submissions(output: bytes, mark: str, script: str) -> list[tuple[JobId, int | None]]:
    """Parse the answer to :func:`submissions_argv`: ID and submit time of the jobs of one script, the latest last.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    found = []
    for number, submitted, line in delimited_records(output, mark, len(_LINE_FIELDS)):
        if script in line:
            with contextlib.suppress(ParseError):
                found.append((JobId(parse_queue_id(number.strip())[0].job), parse_epoch(submitted)))
    return sorted(found, key=lambda job: job[1] or 0)


def parse_requests(output: bytes, mark: str) -> list[Mapping[str, str]]:
    """Parse the answer to :func:`sacct_argv` with :data:`REQUEST_FIELDS`: a mapping by field for each job.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    rows = delimited_records(output, mark, len(REQUEST_FIELDS))
    return [dict(zip(REQUEST_FIELDS, row, strict=True)) for row in rows]


def parse_sacct(output: bytes, mark: str, fields: Sequence[str] = _FIELDS) -> list[JobRecord]:
    """Parse the answer to :func:`sacct_argv` or :func:`user_argv`.

    A record without a readable ID is left out.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    found = (_record(dict(zip(fields, row, strict=True))) for row in delimited_records(output, mark, len(fields)))
    return [record for record in found if record is not None]


def _record(field: dict[str, str]) -> JobRecord | None:
    try:
        job, tasks = parse_queue_id(field["JobID"].strip())
    except ParseError:
        return None
    state = JobState.parse(field["State"])
    exit_code, signal = parse_exit(field["ExitCode"]) if state.is_finished else (None, None)
    minutes = parse_count(field["TimelimitRaw"])
    nodes = present(field["NodeList"])
    return JobRecord(
        id=job,
        state=state,
        tasks=tasks,
        raw_id=parse_count(field["JobIDRaw"].partition(".")[0]),
        reason=present(field["Reason"]),
        partition=field["Partition"],
        account=field["Account"],
        qos=field["QOS"],
        user=field["User"],
        name=field["JobName"],
        comment=field["Comment"] or None,
        submit_time=parse_epoch(field["Submit"]),
        start_time=parse_epoch(field["Start"]),
        end_time=parse_epoch(field["End"]),
        time_limit=None if minutes is None else minutes * 60,
        nodes="" if nodes == "None assigned" else nodes,
        node_count=parse_count(field["NNodes"]),
        cpus=parse_count(field["AllocCPUS"]),
        tres=field["AllocTRES"],
        exit_code=exit_code,
        signal=signal,
        work_dir=field["WorkDir"] or None,
        stdout=field.get("StdOut") or None,
        stderr=field.get("StdErr") or field.get("StdOut") or None,
    )
