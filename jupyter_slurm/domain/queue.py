"""The poller's one question: all jobs of the user, and how they stand.

``squeue --me --local`` costs the controller one REQUEST_JOB_USER_INFO and one REQUEST_PARTITION_INFO; the latter cannot
be avoided (squeue sorts by it), and without ``--local`` a REQUEST_FED_INFO comes on top. Which fields are asked for
changes nothing on the wire, with one exception: a ``C`` in ``-o`` asks for details of each job. ``-j A,B`` would fetch
the whole table.

Sources: squeue(1); ``src/squeue/squeue.c`` and ``src/api/job_info.c`` of Slurm; measured with sdiag(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from jupyter_slurm.domain.ids import JobId, TaskRange, parse_queue_id
from jupyter_slurm.domain.marks import framed_records, long_format
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.domain.values import parse_count, parse_epoch, parse_time_limit
from jupyter_slurm.errors import ParseError, UsageError

__all__ = [
    "QUERY_ENV",
    "SCRUBBED_FORMATS",
    "lookup_argv",
    "parse_lookup",
    "parse_poll",
    "poll_argv",
    "wait_status",
]

#: What every question of ours has in its environment: untranslated words, times as seconds since the epoch, and lists
#: of array tasks in full up to 8 KiB (64 bytes otherwise).
QUERY_ENV: Final[Mapping[str, str]] = MappingProxyType(
    {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "8192"}
)

#: Variables that change what the commands print or leave out. They are cleared before a question of ours.
#: ``SLURM_CONF`` and ``SLURM_CLUSTERS`` stay: they say which cluster is meant, and jobs are submitted under them too.
SCRUBBED_FORMATS: Final[tuple[str, ...]] = (
    "SACCT_FEDERATION",
    "SACCT_FORMAT",
    "SACCT_LOCAL",
    "SCONTROL_ALL",
    "SCONTROL_FEDERATION",
    "SCONTROL_FUTURE",
    "SCONTROL_LOCAL",
    "SCONTROL_SIBLING",
    "SINFO_ALL",
    "SINFO_FEDERATION",
    "SINFO_FORMAT",
    "SINFO_LOCAL",
    "SINFO_PARTITION",
    "SINFO_SORT",
    "SLURM_DEBUG_FLAGS",
    "SQUEUE_ACCOUNT",
    "SQUEUE_ALL",
    "SQUEUE_ARRAY",
    "SQUEUE_ARRAY_UNIQUE",
    "SQUEUE_FEDERATION",
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES",
    "SQUEUE_LOCAL",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY",
    "SQUEUE_QOS",
    "SQUEUE_SIB",
    "SQUEUE_SIBLING",
    "SQUEUE_SORT",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
)

# --all: one's own jobs in hidden partitions too.
_QUESTION: Final = ("squeue", "--me", "--local", "--all", "--noheader", "--states=all")

_POLL_FIELDS: Final = (
    "jobarrayid",
    "jobid",
    "state",
    "reason",
    "partition",
    "account",
    "qos",
    "submittime",
    "starttime",
    "endtime",
    "timelimit",
    "nodelist",
    "numnodes",
    "numcpus",
    "exit_code",
    "restartcnt",
)
_LOOKUP_FIELDS: Final = ("jobarrayid", "jobid", "state", "submittime", "exit_code", "command")

# squeue prints these where there is no value.
_NOTHING: Final = frozenset({"(null)", "N/A", "n/a", "None"})


def poll_argv(mark: str) -> list[str]:
    """Return the question. No field of it holds free text of a user.

    Parameters
    ----------
    mark : str
        Fresh random hexadecimal digits (see :mod:`~jupyter_slurm.domain.marks`).
    """
    return [*_QUESTION, f"--Format={long_format(_POLL_FIELDS, mark)}"]


def parse_poll(output: bytes, mark: str) -> list[JobRecord]:
    """Read the answer to :func:`poll_argv`.

    A record whose id cannot be read is left out: the others are still true.

    Raises
    ------
    ParseError
        The answer is torn.
    """
    records = []
    for row in framed_records(output, mark, len(_POLL_FIELDS)):
        field = dict(zip(_POLL_FIELDS, row, strict=True))
        head = _head(field)
        if head is None:
            continue
        job, tasks, state = head
        exit_code, signal = wait_status(field["exit_code"]) if state.is_finished else (None, None)
        records.append(
            JobRecord(
                id=job,
                state=state,
                tasks=tasks,
                raw_id=parse_count(field["jobid"]),
                reason=_text(field["reason"]),
                partition=_text(field["partition"]),
                account=_text(field["account"]),
                qos=_text(field["qos"]),
                submit_time=parse_epoch(field["submittime"]),
                start_time=parse_epoch(field["starttime"]),
                end_time=parse_epoch(field["endtime"]),
                time_limit=_time_limit(field["timelimit"]),
                nodes=_text(field["nodelist"]),
                node_count=parse_count(field["numnodes"]),
                cpus=parse_count(field["numcpus"]),
                exit_code=exit_code,
                signal=signal,
                restarts=parse_count(field["restartcnt"]),
            )
        )
    return records


def lookup_argv(mark: str) -> list[str]:
    """Return the question that finds a job by the path of its script.

    Asked only when a submission's answer was lost: the path is free text.
    """
    return [*_QUESTION, f"--Format={long_format(_LOOKUP_FIELDS, mark)}"]


def parse_lookup(output: bytes, mark: str) -> list[JobRecord]:
    """Read the answer to :func:`lookup_argv`: id, state, submit time, exit code and command are filled.

    Raises
    ------
    ParseError
        The answer is torn.
    """
    records = []
    for row in framed_records(output, mark, len(_LOOKUP_FIELDS)):
        field = dict(zip(_LOOKUP_FIELDS, row, strict=True))
        head = _head(field)
        if head is None:
            continue
        job, tasks, state = head
        exit_code, signal = wait_status(field["exit_code"]) if state.is_finished else (None, None)
        records.append(
            JobRecord(
                id=job,
                state=state,
                tasks=tasks,
                raw_id=parse_count(field["jobid"]),
                submit_time=parse_epoch(field["submittime"]),
                exit_code=exit_code,
                signal=signal,
                command=_text(field["command"]) or None,
            )
        )
    return records


def wait_status(text: str) -> tuple[int | None, int | None]:
    """Split a status as wait(2) packs it, which is what ``squeue -O exit_code`` prints, into exit code and signal."""
    status = parse_count(text)
    if status is None or status > 0xFFFF:
        return None, None
    return status >> 8, status & 0x7F


def _head(field: Mapping[str, str]) -> tuple[JobId, TaskRange | None, JobState] | None:
    try:
        job, tasks = parse_queue_id(field["jobarrayid"].strip())
    except ParseError:
        return None
    return job, tasks, JobState.parse(field["state"])


def _text(value: str) -> str:
    return "" if value in _NOTHING else value


def _time_limit(text: str) -> int | None:
    try:
        return parse_time_limit(text)
    except UsageError:
        # NOT_SET, INVALID, Partition_Limit
        return None
