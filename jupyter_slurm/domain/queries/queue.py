"""The poller's only query: all jobs of the user, and their states.

``squeue --me --local`` costs the controller one REQUEST_JOB_USER_INFO and one REQUEST_PARTITION_INFO. The latter cannot
be avoided (squeue sorts by it). Without ``--local`` a REQUEST_FED_INFO is added. The choice of fields does not change
the requests, with one exception: a ``C`` in ``-o`` requests details of each job. ``-j A,B`` would fetch the whole
table.

Sources: squeue(1); ``src/squeue/squeue.c`` and ``src/api/job_info.c`` of Slurm; measured with sdiag(1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from jupyter_slurm.domain.ids import parse_queue_id
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.queries.output_paths import read_patterns
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_count, parse_epoch, parse_exit, present, read_time_limit
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import ParseError

__all__ = [
    "POLL_FIELDS",
    "files_argv",
    "lookup_argv",
    "parse_files",
    "parse_lookup",
    "parse_poll",
    "poll_argv",
    "queue_record",
    "runs_script",
]

# --all includes the user's jobs in hidden partitions.
_QUESTION: Final = ("squeue", "--me", "--local", "--all", "--noheader", "--states=all")

#: Fields of the poller's query, named as in ``squeue -O``. The name is the only text that a user chose freely: it tells
#: the jobs of a terminal apart. Paths are long: they are requested once.
POLL_FIELDS: Final = (
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
    "name",
)
_LOOKUP_FIELDS: Final = ("jobarrayid", "jobid", "state", "submittime", "exit_code", "command")
_FILES_FIELDS: Final = (
    *("jobarrayid", "jobid", "state", "submittime", "exit_code"),
    *("username", "workdir", "stdout", "stderr"),
)


def poll_argv(mark: str) -> list[str]:
    """Return the poller's query.

    Parameters
    ----------
    mark : str
        Fresh random hexadecimal digits (see :mod:`~jupyter_slurm.domain.queries.output_frames`).
    """
    return [*_QUESTION, f"--Format={long_format(POLL_FIELDS, mark)}"]


def parse_poll(output: bytes, mark: str) -> list[JobRecord]:
    """Parse the answer to :func:`poll_argv`.

    A record without a readable ID is left out; the others remain valid.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    return _records(output, mark, POLL_FIELDS)


def queue_record(field: Mapping[str, str]) -> JobRecord | None:
    """Build a record from the fields of a row; ``None`` if its ID cannot be read."""
    try:
        job, tasks = parse_queue_id(field["jobarrayid"].strip())
    except ParseError:
        return None
    state = _state(field["state"])
    exit_code, signal = parse_exit(field["exit_code"]) if state.is_finished else (None, None)
    return JobRecord(
        id=job,
        state=state,
        tasks=tasks,
        raw_id=parse_count(field["jobid"]),
        reason=present(field.get("reason", "")),
        partition=present(field.get("partition", "")),
        account=present(field.get("account", "")),
        qos=present(field.get("qos", "")),
        submit_time=parse_epoch(field["submittime"]),
        start_time=parse_epoch(field.get("starttime", "")),
        end_time=parse_epoch(field.get("endtime", "")),
        time_limit=read_time_limit(field.get("timelimit", "")),
        nodes=present(field.get("nodelist", "")),
        node_count=parse_count(field.get("numnodes", "")),
        cpus=parse_count(field.get("numcpus", "")),
        exit_code=exit_code,
        signal=signal,
        restarts=parse_count(field.get("restartcnt", "")),
        name=field.get("name"),
        command=present(field.get("command", "")) or None,
        user=present(field.get("username", "")),
        work_dir=present(field.get("workdir", "")) or None,
    )


@lru_cache(maxsize=64)
def _state(text: str) -> JobState:
    return JobState.parse(text)


def lookup_argv(mark: str) -> list[str]:
    """Return the query that finds a job by the path of its script.

    Used only if a submission's answer was lost, because the path is free text.
    """
    return [*_QUESTION, f"--Format={long_format(_LOOKUP_FIELDS, mark)}"]


def parse_lookup(output: bytes, mark: str) -> list[JobRecord]:
    """Parse the answer to :func:`lookup_argv`: ID, state, submit time, exit code and command are filled.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    return _records(output, mark, _LOOKUP_FIELDS)


def files_argv(mark: str) -> list[str]:
    """Return the query for the owners and output files of jobs.

    Used once for each job that jupyter_slurm did not submit, because the paths are long.
    """
    return [*_QUESTION, f"--Format={long_format(_FILES_FIELDS, mark)}"]


def parse_files(output: bytes, mark: str) -> list[JobRecord]:
    """Parse the answer to :func:`files_argv`: ID, state, submit time, exit code, user, working directory
    and patterns of the output files are filled.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    rows = [dict(zip(_FILES_FIELDS, row, strict=True)) for row in framed_records(output, mark, len(_FILES_FIELDS))]
    found = ((queue_record(row), present(row["stdout"]), present(row["stderr"])) for row in rows)
    return [read_patterns(stdout, stderr, record) for record, stdout, stderr in found if record is not None]


def _records(output: bytes, mark: str, fields: Sequence[str]) -> list[JobRecord]:
    rows = framed_records(output, mark, len(fields))
    records = (queue_record(dict(zip(fields, row, strict=True))) for row in rows)
    return [record for record in records if record is not None]


def runs_script(record: JobRecord, path: str) -> bool:
    """Return whether a record of :func:`parse_lookup` is a job of this script.

    Slurm keeps the script's path and its arguments as one text, separated by a blank.
    """
    return record.command is not None and (record.command == path or record.command.startswith(f"{path} "))
