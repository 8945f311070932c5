"""Everything Slurm knows of one job.

Two questions. :func:`detail_argv` asks ``squeue`` for one id with every field framed by a random mark: nothing can be
faked in the answer, so it is the one to use. :func:`job_argv` asks ``scontrol show job``, whose text has no quoting: a
job name, a comment or (from 24.11 on) the line of the submission may hold lines that look like Slurm's own. There, a
field that stands more than once with different values is given up; it is never guessed. Paths of output files are
expanded here where squeue shows patterns; scontrol expands them, 22.05 all but ``%%`` and symbols with a width.

Both cost one REQUEST_JOB_INFO_SINGLE; squeue's REQUEST_PARTITION_INFO comes on top.

Sources: squeue(1), scontrol(1), ``slurm_sprint_job_info()``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import pairwise
from typing import Any, Final

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.marks import decode, framed_records, long_format
from jupyter_slurm.domain.output_paths import default_pattern, expand_pattern, first_node
from jupyter_slurm.domain.queue import POLL_FIELDS, queue_record
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.domain.values import parse_count, parse_epoch, parse_exit, present, read_time_limit
from jupyter_slurm.errors import ParseError

__all__ = ["detail_argv", "job_argv", "parse_detail", "parse_job"]

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
    """Return the question for one job that no free text can disturb.

    Parameters
    ----------
    job : JobId
        A job, array or task; a step asks for its job. Slurm forgets a job ``MinJobAge`` seconds after its end: the
        command then fails with "Invalid job id specified".
    mark : str
        Fresh random hexadecimal digits.
    """
    form = long_format(_DETAIL_FIELDS, mark)
    asked = JobId(job.job, job.task)
    return ["squeue", "--local", "--all", "--noheader", "--states=all", f"--jobs={asked}", f"--Format={form}"]


def parse_detail(output: bytes, mark: str) -> list[JobRecord]:
    """Read the answer to :func:`detail_argv`: all tasks of an array, all components of a heterogeneous job.

    Raises
    ------
    ParseError
        The answer is torn.
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


def job_argv(job: JobId) -> list[str]:
    """Return ``scontrol show job`` for one job. Without ``--local`` it would ask for the federation too."""
    return ["scontrol", "--local", "--all", "show", "job", str(job.allocation)]


# Words at the start of a line that follow free text; a value ends before the next of them.
_AFTER_FREE_TEXT: Final = (
    "SLUID",
    "HetJobIdSet",
    "UserId",
    "SubmitLine",
    "WorkDir",
    "AdminComment",
    "SystemComment",
    "Comment",
    "Extra",
    "StdErr",
    "StdIn",
    "StdOut",
    "SegmentSize",
    "Power",
    "Switches",
    "BurstBuffer",
    "BurstBufferState",
    "NtasksPerTRES",
    "CpusPerTres",
    "MemPerTres",
    "TresBind",
    "TresFreq",
    "TresPerJob",
    "TresPerNode",
    "TresPerSocket",
    "TresPerTask",
    "MailUser",
    "ContainerType",
    "Container",
    "SELinuxContext",
    "ResvPorts",
    "GresAllowTaskSharing",
    "GresEnforceBind",
    "GresOneTaskPerSharing",
    "KillOInInvalidDependent",
    "KillOnInvalidDependent",
    "SpreadJob",
    "ExpeditedRequeue",
    "OOMKillStep",
)
_END = rf"(?=\n[ ]{{3}}(?:{'|'.join(_AFTER_FREE_TEXT)})=|\n[ ]{{3}}\n|\s*\Z)"
_START = re.compile(r"(?:\A|(?<=\n\n))(?=JobId=\d)")
_HEAD = re.compile(
    r"JobId=(?P<raw>\d{1,10}) (?:ArrayJobId=(?P<array>\d{1,10}) ArrayTaskId=(?P<task>[^ \n]+) )?"
    r"(?:ArrayTaskThrottle=(?P<limit>\d{1,10}) )?"
    r"(?:HetJobId=(?P<het>\d{1,10}) HetJobOffset=(?P<offset>\d{1,10}) )?JobName=",
    re.ASCII,
)

_FREE_TEXT: Final = frozenset({"name", "command", "work_dir", "comment", "stdout", "stderr"})

# Each as it stands on a line of its own; all groups of all matches must agree.
_LINES: Final = tuple(
    re.compile(rf"(?<=\n[ ]{{3}}){pattern}", re.ASCII)
    for pattern in (
        r"UserId=(?P<user>[^\n]*?)\(\d+\) GroupId=",
        r"Priority=\S+ Nice=\S+ Account=(?P<account>[^\n]*?) QOS=(?P<qos>[^\n]*?)(?: WCKey=[^\n]*)?(?=\n)",
        r"JobState=(?P<state>\S+) Reason=(?P<reason>[^\n]*?)(?: FailedNode=\S*)? Dependency=(?P<depends>[^\n]*)",
        r"Requeue=\d+ Restarts=(?P<restarts>\d+) [^\n]*ExitCode=(?P<exit>\d+:\d+)",
        r"RunTime=\S+ TimeLimit=(?P<limit>\S+)",
        r"SubmitTime=(?P<submit>\S+)",
        r"StartTime=(?P<start>\S+) EndTime=(?P<end>\S+)",
        r"Partition=(?P<partition>[^\n]*?) AllocNode:Sid=",
        r"NodeList=(?P<nodes>[^\n ]*)",
        r"NumNodes=(?P<node_count>\d+)\S* NumCPUs=(?P<cpus>\d+)",
        r"(?:AllocTRES|TRES)=(?P<tres>[^\n]*)",
        r"ReqTRES=(?P<req_tres>[^\n]*)",
        rf"Command=(?P<command>[\s\S]*?){_END}",
        rf"WorkDir=(?P<work_dir>[\s\S]*?){_END}",
        rf"Comment=(?P<comment>[\s\S]*?) ?{_END}",
        rf"StdErr=(?P<stderr>[\s\S]*?){_END}",
        rf"StdOut=(?P<stdout>[\s\S]*?){_END}",
    )
)
_NAME = re.compile(r"(?P<name>[\s\S]*?)(?=\n[ ]{3}(?:SLUID|HetJobIdSet|UserId)=|\Z)")


def parse_job(output: bytes, job: JobId | None = None) -> list[JobRecord]:
    """Read the answer to :func:`job_argv`. Nothing raises.

    Times are read if they were asked for with ``SLURM_TIME_FORMAT=%s``.

    Parameters
    ----------
    output : bytes
    job : JobId, optional
        What was asked for. What looks like the record of any other job is then read as the text that it is.
    """
    text = decode(output)
    starts = [start.start() for start in _START.finditer(text) if _belongs(text, start.start(), job)]
    blocks = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    found: dict[tuple[JobId, TaskRange | None], list[JobRecord]] = {}
    for block in blocks:
        record = _record(block)
        if record is not None:
            found.setdefault((record.id, record.tasks), []).append(record)
    return [_agreed(records) for records in found.values()]


def _belongs(text: str, start: int, job: JobId | None) -> bool:
    """Whether a record of the job starts here; else this is text within the record before."""
    head = _HEAD.match(text, start)
    if head is None:
        return False
    return job is None or str(job.job) in (head["raw"], head["array"], head["het"])


def _record(block: str) -> JobRecord | None:
    head = _HEAD.match(block)
    identity = _identity(head) if head else None
    if head is None or identity is None:
        return None
    name = _NAME.match(block, head.end())
    values = {"name": name["name"] if name else ""}
    disputed: set[str] = set()
    for line in _LINES:
        matches = list(line.finditer(block))
        if len(matches) > 1:
            # One of them is text that a user wrote: where that text ends cannot be told either.
            disputed |= _FREE_TEXT
        for match in matches:
            for key, value in match.groupdict().items():
                if values.setdefault(key, value) != value:
                    disputed.add(key)
    return _from_values(*identity, {key: value for key, value in values.items() if key not in disputed})


def _identity(head: re.Match[str]) -> tuple[JobId, TaskRange | None, int] | None:
    raw = int(head["raw"])
    try:
        if head["array"]:
            task = head["task"]
            if task.isdecimal():
                return JobId.parse(f"{head['array']}_{task}"), None, raw
            limit = f"%{head['limit']}" if head["limit"] and "%" not in task else ""
            return JobId.parse(head["array"]), TaskRange.parse(task + limit), raw
        if head["het"]:
            return JobId.parse(f"{head['het']}+{head['offset']}"), None, raw
        return JobId.parse(head["raw"]), None, raw
    except ParseError:
        return None


def _output_path(value: str, tasks: TaskRange | None) -> str | None:
    # Of tasks that wait Slurm shows one path, with 4294967294 or nothing in place of the task.
    return None if tasks is not None else present(value) or None


def _expanded(pattern: str, record: JobRecord) -> str | None:
    """Return the path that squeue's pattern stands for."""
    if record.tasks is not None or not present(pattern):
        return None
    if record.id.task is not None and pattern == f"{record.work_dir}/slurm-{record.raw_id}.out":
        # squeue 22.05 names the default file of a task wrongly.
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


def _from_values(job: JobId, tasks: TaskRange | None, raw: int, values: Mapping[str, str]) -> JobRecord:
    state = JobState.parse(values.get("state", ""))
    exit_code, signal = parse_exit(values.get("exit", "")) if state.is_finished else (None, None)

    def text(key: str) -> str:
        return present(values.get(key, ""))

    return JobRecord(
        id=job,
        state=state,
        tasks=tasks,
        raw_id=raw,
        # scontrol puts underscores for the blanks of a sentence.
        reason=text("reason").replace(",_", ", ").replace("_", " ") if "," in text("reason") else text("reason"),
        partition=text("partition"),
        account=text("account"),
        qos=text("qos"),
        user=text("user"),
        name=values.get("name"),
        comment=text("comment") or None,
        submit_time=parse_epoch(values.get("submit", "")),
        start_time=parse_epoch(values.get("start", "")),
        end_time=parse_epoch(values.get("end", "")),
        time_limit=read_time_limit(values.get("limit", "")),
        nodes=text("nodes"),
        node_count=parse_count(values.get("node_count", "")),
        cpus=parse_count(values.get("cpus", "")),
        tres=text("tres") or text("req_tres"),
        exit_code=exit_code,
        signal=signal,
        restarts=parse_count(values.get("restarts", "")),
        stdout=_output_path(text("stdout"), tasks),
        stderr=_output_path(text("stderr") or text("stdout"), tasks),
        work_dir=text("work_dir") or None,
        command=text("command") or None,
        depends=text("depends"),
    )


def _agreed(records: Sequence[JobRecord]) -> JobRecord:
    """What all records of one id say; one of them may be text of a comment, and which one cannot be told."""
    first = records[0]
    if len(records) == 1:
        return first
    changes: dict[str, Any] = {}
    for field in fields(JobRecord):
        if any(getattr(record, field.name) != getattr(first, field.name) for record in records):
            changes[field.name] = JobState("UNKNOWN") if field.default is MISSING else field.default
    return replace(first, **changes)
