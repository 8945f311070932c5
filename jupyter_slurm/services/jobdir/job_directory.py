"""The job directory: durable files of a job, and their names.

::

    ROOT/CLUSTER/cluster.json            data from which the cluster is restored
    ROOT/CLUSTER/runner-HASH-NAME.py     the files of the runner, once per version; a hyphen for each slash
    ROOT/CLUSTER/events/KEY.WHAT         signs of the runner: started, warned, ended; of an agent: renamed
    ROOT/CLUSTER/stage/NAME-DIGEST/      a folder staged with jobs, by default; in it .jupyter-slurm-stage: last
                                         common state of both sides
    ROOT/CLUSTER/KEY/job.json            the record (job.schema.json)
    ROOT/CLUSTER/.KEY.RANDOM/            an unfinished job directory; renamed when complete. Also the data sent with the
                                         job, during the transfer
    …/.RANDOM.tmp                        an unfinished file (Transport.write), or folder
                                         (transport/local/atomic_write.py)
    ROOT/CLUSTER/KEY/<script>            the batch script, unchanged; its name is the default job name. The submitting
                                         agent holds its lock (flock) until the answer of sbatch is known
    ROOT/CLUSTER/KEY/submit.N…           the N-th execution of sbatch and its answer (Transport.start_once)
    ROOT/CLUSTER/KEY/stdout, stderr      output, if the user gave no other path; with .TASK for arrays
    ROOT/CLUSTER/KEY/claim, end*.json    of the runner: owner of the job, its end, rank that failed first
    ROOT/CLUSTER/KEY/in.values, out*.values   variables from and to the notebook (runner/variables/values_file.py)
    ROOT/CLUSTER/KEY/context.tar         files of a laptop for an image, until the build
                                         (services/images/build_context.py)
    ROOT/CLUSTER/KEY/sweep.json          the parameters of a sweep (runner/cell/sweep_parameters.py); sweep.sh,
                                         sweep.script for
                                         scripts
                                         (also of ``resume``; sweep.task is the script of a task in that case)
                                         (for arrays in parts, services/jobs/array_parts.py: these and in.values are
                                         in the first part)
    ROOT/CLUSTER/KEY/tasks.json          ends of the tasks of an array (services/jobs/array_tasks.py)
    ROOT/CLUSTER/KEY/display*.jsonl      of the runner: display data of a Python cell
    ROOT/CLUSTER/KEY/used.json           of the runner: the Python and the environment in use
    ROOT/CLUSTER/KEY/usage.json          of the runner: usage of the job over time (runner/lifecycle/usage.py)
    ROOT/CLUSTER/KEY/resume[.TASK]/      of the runner: messages to the cell of a job with ``resume``
                                         (runner/lifecycle/resume.py)
    ROOT/CLUSTER/KEY/checkpoint[.TASK]/  of the cell: its state for a restart
    ROOT/CLUSTER/KEY/serving/            of the runner of a session: its token, configuration, and files of its Jupyter
    ROOT/CLUSTER/KEY/door.pem            key of a session that is reached over the network of its site
    ROOT/CLUSTER/KEY/served.json         of the runner of a session: progress, then the address of its Jupyter
    ROOT/CLUSTER/KEY/granted.json        of the runner of an allocation: nodes and GPUs from Slurm
    ROOT/CLUSTER/KEY/lease               its content or time changes while the allocation is in use
    ROOT/CLUSTER/KEY/steps/KEY[.SIGNAL.DIGITS]/   in an allocation: requests a step, or a signal to it
    ROOT/CLUSTER/KEY/step.json           of a step, which has its own job directory: the srun command;
                                         after the end without the environment of the cell
    ROOT/CLUSTER/KEY/begun, started.json of the runner of a step: its start, and its ID. Cells of one
                                         process are steps with the ID of that process
                                         (runner/allocation/process.py)
    ROOT/CLUSTER/KEY/kernel.json         of a kernel step: the kernel, and its secret
    ROOT/CLUSTER/KEY/keeper.json         of its runner: the address on which it listens (runner/kernel/keeper.py)

Other versions of this package read these files months later: fields unknown to them are kept.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import fastjsonschema

from jupyter_slurm.domain.ids import MAX_EXPANDED_TASKS, TaskRange
from jupyter_slurm.errors import ParseError
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobdir.job_written_files import parse_record, read_whole
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.transport.base import Transport

__all__ = ["FORMAT", "SWEEP_SCRIPT", "ClusterFolder", "JobFolder", "is_draft", "is_key", "script_name"]

_MAX_RECORD_BYTES = 32 << 20  # bytes of job.json: the source of a cell has 4 MiB, up to six times as much as JSON
FORMAT = 1
"""Format number of job.json. A reader refuses a higher number, whose meaning is unknown."""

_KEY = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8,32}")
_DRAFT = re.compile(rf"\.{_KEY.pattern}\.[0-9a-f]+|\.[0-9a-f]{{16}}\.tmp")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")
_RESERVED = re.compile(
    r"(job\.json|stdout|stderr|claim|context|submit|end|display|resume|checkpoint|in|out|sweep|tasks|used|usage|memory)(\..*)?|end.*\.json"
)


def is_key(text: str) -> bool:
    """Return whether a text has the form of a submission key: date, time (UTC) and random hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def is_draft(text: str) -> bool:
    """Return whether a text is the name of an unfinished job directory or file."""
    return _DRAFT.fullmatch(text) is not None


def script_name(wanted: str | None, fallback: str) -> str:
    """Return the file name of the script, which is Slurm's default job name."""
    name = posixpath.basename(wanted or "")
    return name if _SCRIPT_NAME.fullmatch(name) and not _RESERVED.fullmatch(name) else fallback


@dataclass(frozen=True)
class ClusterFolder:
    """Folder of one cluster's job directories."""

    path: str

    @property
    def events(self) -> str:
        """Return the folder of the runner's signs."""
        return posixpath.join(self.path, "events")

    def job(self, key: str) -> JobFolder:
        """Return the directory of one job.

        Raises
        ------
        ValueError
            The text does not have the form of a key (and so cannot lead out of the folder).
        """
        if not is_key(key):
            raise ValueError(f"not a submission key: {key!r}")
        return JobFolder(posixpath.join(self.path, key))


@dataclass(frozen=True)
class JobFolder:
    """One job directory."""

    path: str

    @property
    def key(self) -> str:
        """Return the submission key."""
        return posixpath.basename(self.path)

    def file(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return posixpath.join(self.path, name)

    def answer(self, attempt: int) -> str:
        """Return the prefix of the files written by the ``attempt``-th execution of sbatch."""
        return self.file(f"submit.{attempt}")

    def end_marker(self, task: int | None) -> str:
        """Return the path of the runner's end marker."""
        return self.file("end.json" if task is None else f"end.{task}.json")

    async def load(self, transport: Transport) -> JobRecordFile:
        """Read job.json.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ParseError, UsageError
            The file is torn, of a newer format, or too large to be jupyter_slurm's.
        """
        raw = await read_whole(transport, self.file("job.json"), _MAX_RECORD_BYTES)
        return await call_off_loop(self._parse, raw)

    def _parse(self, raw: bytes) -> JobRecordFile:
        try:
            record = parse_record(raw)
        except ValueError as error:
            raise ParseError(f"{self.file('job.json')} is damaged: {error}") from error
        return self.check(record)

    def check(self, record: Any) -> JobRecordFile:
        """Return a parsed document as the record of this job, if valid.

        Raises
        ------
        ParseError
            The document is not valid, or is of a newer format.
        """
        if not isinstance(record, dict) or not isinstance(record.get("format"), int):
            raise ParseError(f"{self.file('job.json')} is not a job record.")
        if record["format"] > FORMAT:
            raise ParseError(
                f"{self.file('job.json')} has format {record['format']}, but this version reads formats "
                f"up to {FORMAT}.",
                hint="Update jupyter_slurm: a newer version wrote the file.",
            )
        try:
            _validator()(record)
        except fastjsonschema.JsonSchemaValueException as error:
            raise ParseError(f"{self.file('job.json')} is not a job record: {error.message}") from error
        if record["key"] != self.key or not script_name(record["script"], "") == record["script"]:
            raise ParseError(f"{self.file('job.json')} is not the record of this directory.")
        if record.get("part"):
            self._check_part(record["part"])
        return JobRecordFile.from_json(record)

    def _check_part(self, part: Mapping[str, Any]) -> None:
        """Refuse a part of an array that the array does not have: the parts are shown together.

        Raises
        ------
        ParseError
            The tasks are not those of an array, or do not have these parts.
        """
        tasks = TaskRange.requested(part["tasks"])
        is_small = tasks.count() <= MAX_EXPANDED_TASKS
        if not is_small or part["numbers"] != list(tasks.split(part["size"])) or part["number"] not in part["numbers"]:
            raise ParseError(f"{self.file('job.json')} is not the record of a part of an array.")

    async def save(self, transport: Transport, record: JobRecordFile) -> None:
        """Write job.json in one step."""
        await transport.write(self.file("job.json"), dump(record.to_json()))


@functools.cache
def _validator() -> Any:
    schema = json.loads(resources.files(__package__).joinpath("job.schema.json").read_bytes())
    return fastjsonschema.compile(schema, use_default=False)


def dump(document: Mapping[str, object]) -> bytes:
    """Return the serialized form of a document."""
    # One line for each item. With ``indent`` the standard library uses its slow Python encoder, while a job waits.
    return json.dumps(document, separators=(",\n", ": ")).encode() + b"\n"


SWEEP_SCRIPT = "sweep.script"
"""The user's own script in the job directory, if Slurm's script starts something else first."""
