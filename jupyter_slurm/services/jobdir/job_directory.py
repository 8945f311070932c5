"""The job directory: what of a job is durable, in which files, under which names.

::

    ROOT/CLUSTER/cluster.json            how that cluster is reached
    ROOT/CLUSTER/runner-HASH-NAME.py     the files of the runner, once per version; a hyphen for each slash
    ROOT/CLUSTER/events/KEY.WHAT         signs of the runner: started, warned, ended; of an agent: renamed
    ROOT/CLUSTER/stage/NAME-DIGEST/      a folder that travels with jobs, where nobody named another place for it; in it
                                         .jupyter-slurm-stage: how both sides were when they were alike
    ROOT/CLUSTER/KEY/job.json            the record (job.schema.json)
    ROOT/CLUSTER/.KEY.RANDOM/            a job directory in the making; it gets its name when it is whole. Also what it
                                         takes along, while that is on its way
    …/.RANDOM.tmp                        a file in the making (Transport.write), or a folder
                                         (transport/local/atomic_write.py)
    ROOT/CLUSTER/KEY/<script>            the batch script, byte for byte; its name is the default job name. Whoever
                                         submits the job has its lock (flock) until the answer of sbatch is known
    ROOT/CLUSTER/KEY/submit.N…           the N-th execution of sbatch and its answer (Transport.start_once)
    ROOT/CLUSTER/KEY/stdout, stderr      output, where the person named no other place; with .TASK for arrays
    ROOT/CLUSTER/KEY/claim, end*.json    of the runner: whose job it is, how it ended, which rank failed first
    ROOT/CLUSTER/KEY/in.values, out*.values   what the notebook sends along and gets back (runner/variables/values.py)
    ROOT/CLUSTER/KEY/context.tar         what an image takes of a laptop, until it is built
                                         (services/images/build_context.py)
    ROOT/CLUSTER/KEY/sweep.json          the parameters of a sweep (runner/cell/sweep.py); sweep.sh, sweep.script for
                                         scripts
                                         (also of ``resume``; sweep.task is what that runs then for a task)
                                         (of an array in parts, services/jobs/array_parts.py: these and in.values of the
                                         first)
    ROOT/CLUSTER/KEY/tasks.json          how the tasks of an array ended (services/jobs/array_tasks.py)
    ROOT/CLUSTER/KEY/display*.jsonl      of the runner: what a Python cell shows beside text
    ROOT/CLUSTER/KEY/used.json           of the runner: the Python and the environment that it found
    ROOT/CLUSTER/KEY/usage.json          of the runner: what the job uses as time goes by (runner/lifecycle/usage.py)
    ROOT/CLUSTER/KEY/resume[.TASK]/      of the runner: what a job with ``resume`` tells its cell
                                         (runner/lifecycle/resume.py)
    ROOT/CLUSTER/KEY/checkpoint[.TASK]/  of the cell: what it finds again when it is restarted
    ROOT/CLUSTER/KEY/serving/            of the runner of a session: its token, configuration, and files of its Jupyter
    ROOT/CLUSTER/KEY/door.pem            of a session that is reached over the network of its site: the key to it
    ROOT/CLUSTER/KEY/served.json         of the runner of a session: how far it is, then where its Jupyter listens
    ROOT/CLUSTER/KEY/granted.json        of the runner of an allocation: what Slurm gave
    ROOT/CLUSTER/KEY/lease               its content, or its time, changes while somebody uses the allocation
    ROOT/CLUSTER/KEY/steps/KEY[.SIGNAL.DIGITS]/   in an allocation: asks for a step, or for a signal to it
    ROOT/CLUSTER/KEY/step.json           of a step, which has a job directory of its own: how srun is to be run;
                                         when it has ended, without the environment of the cell
    ROOT/CLUSTER/KEY/begun, started.json of the runner of a step: it was begun, and under which number. Cells of one
                                         process are steps with the number of that process
                                         (runner/allocation/process.py)
    ROOT/CLUSTER/KEY/kernel.json         of a step that is a kernel: which one, and the secret that leads to it
    ROOT/CLUSTER/KEY/keeper.json         of its runner: where it listens (runner/kernel/keeper.py)

Other versions of this package read these files months later: fields they do not know are kept.
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

from jupyter_slurm.errors import ParseError
from jupyter_slurm.services.jobdir.job_json import JobRecordFile
from jupyter_slurm.services.jobdir.untrusted import read_whole
from jupyter_slurm.transport.base import Transport

__all__ = ["FORMAT", "SWEEP_SCRIPT", "ClusterFolder", "JobFolder", "is_draft", "is_key", "script_name"]

FORMAT = 1
"""Format number of job.json. A reader refuses a higher one: it would not know what it means."""

_KEY = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8,32}")
_DRAFT = re.compile(rf"\.{_KEY.pattern}\.[0-9a-f]+|\.[0-9a-f]{{16}}\.tmp")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")
_RESERVED = re.compile(
    r"(job\.json|stdout|stderr|claim|context|submit|end|display|resume|checkpoint|in|out|sweep|tasks|used|usage|memory)(\..*)?|end.*\.json"
)


def is_key(text: str) -> bool:
    """Tell whether a text has the form of a submission key: date, time (UTC) and random hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def is_draft(text: str) -> bool:
    """Tell whether a text is the name of a job directory, or of a file, in the making."""
    return _DRAFT.fullmatch(text) is not None


def script_name(wanted: str | None, fallback: str) -> str:
    """Return the file name of the script; Slurm makes it the job's name when nobody gives another."""
    name = posixpath.basename(wanted or "")
    return name if _SCRIPT_NAME.fullmatch(name) and not _RESERVED.fullmatch(name) else fallback


@dataclass(frozen=True)
class ClusterFolder:
    """The folder of one cluster's job directories."""

    path: str

    @property
    def events(self) -> str:
        """Folder of the runner's signs."""
        return posixpath.join(self.path, "events")

    def job(self, key: str) -> JobFolder:
        """Return the directory of one job.

        Raises
        ------
        ValueError
            The key is not of the form of a key (so it cannot lead out of the folder).
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
        """The submission key."""
        return posixpath.basename(self.path)

    def file(self, name: str) -> str:
        """Return the path of a file in it."""
        return posixpath.join(self.path, name)

    def answer(self, attempt: int) -> str:
        """Return the prefix of the files that the ``attempt``-th execution of sbatch leaves."""
        return self.file(f"submit.{attempt}")

    def end_marker(self, task: int | None) -> str:
        """Return the runner's end marker."""
        return self.file("end.json" if task is None else f"end.{task}.json")

    async def load(self, transport: Transport) -> JobRecordFile:
        """Read job.json.

        Raises
        ------
        FileNotFoundError
            There is none.
        ParseError, UsageError
            It is torn, of a newer format, or so large that we have not written it.
        """
        raw = await read_whole(transport, self.file("job.json"))
        try:
            record = json.loads(raw.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise ParseError(f"{self.file('job.json')} is damaged: {error}") from error
        return self.check(record)

    def check(self, record: Any) -> JobRecordFile:
        """Return what was read as the record of this job, if it is one.

        Raises
        ------
        ParseError
            It is not, or it is of a newer format.
        """
        if not isinstance(record, dict) or not isinstance(record.get("format"), int):
            raise ParseError(f"{self.file('job.json')} is not a job record")
        if record["format"] > FORMAT:
            raise ParseError(
                f"{self.file('job.json')} has format {record['format']}, this version reads up to {FORMAT}",
                hint="A newer version of jupyter_slurm wrote it: update this one.",
            )
        try:
            _validator()(record)
        except fastjsonschema.JsonSchemaValueException as error:
            raise ParseError(f"{self.file('job.json')} is not a job record: {error.message}") from error
        if record["key"] != self.key or not script_name(record["script"], "") == record["script"]:
            raise ParseError(f"{self.file('job.json')} is not the record of this folder")
        return JobRecordFile.from_json(record)

    async def save(self, transport: Transport, record: JobRecordFile) -> None:
        """Write job.json in one step."""
        await transport.write(self.file("job.json"), dump(record.to_json()))


@functools.cache
def _validator() -> Any:
    schema = json.loads(resources.files(__package__).joinpath("job.schema.json").read_bytes())
    return fastjsonschema.compile(schema, use_default=False)


def dump(document: Mapping[str, Any]) -> bytes:
    """Return a document as it stands on disk."""
    # A line an item. With ``indent`` the standard library falls back to its encoder in Python: a job waits for this.
    return json.dumps(document, separators=(",\n", ": ")).encode() + b"\n"


SWEEP_SCRIPT = "sweep.script"
"""The person's own script, in the job directory, where Slurm has one that does something else first."""
