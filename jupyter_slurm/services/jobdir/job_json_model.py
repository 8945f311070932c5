"""Typed model of job.json: one dataclass for each object of job.schema.json, which documents every field.

A record is never changed in place: ``replace(record, label="x")`` makes the next one. Fields unknown to this version
are kept (``extra``), and a missing field stays absent: ``to_json(from_json(x)) == x``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from jupyter_slurm.services.jobdir.json_object import JsonObject, json_object, optional_object

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.errors import ProblemDocument

__all__ = [
    "ALWAYS_WRITTEN",
    "AdviceRecord",
    "CellRecord",
    "EndRecord",
    "EnvironmentBuildRecord",
    "EnvironmentRecord",
    "FolderRecord",
    "GitRecord",
    "GrantRecord",
    "ImageRecord",
    "JobRecordFile",
    "JoinedRecord",
    "KernelRecord",
    "LeaseRecord",
    "OutputsRecord",
    "PartRecord",
    "RequestRecord",
    "ReturnRecord",
    "SessionRecord",
    "SlurmJobRecord",
    "StageRecord",
    "StepRecord",
    "SweepRecord",
    "ValuesRecord",
]

ALWAYS_WRITTEN = frozenset(
    {
        *("label", "name", "work_dir", "array_tasks", "time_limit", "slurm_version", "notebook", "resubmitted_from"),
        *("job", "end"),
    }
)
"""Fields that a submission also writes if they are null."""


@json_object
class SweepRecord(JsonObject):
    """Parameters of the tasks of an array: names, and number of rows in the table."""

    names: Sequence[str]
    rows: int


@json_object
class PartRecord(JsonObject):
    """Position of an array among the parts of an array beyond MaxArraySize."""

    of: str
    tasks: str
    size: int
    numbers: Sequence[int]
    number: int


@json_object
class OutputsRecord(JsonObject):
    """Path, or filename pattern of sbatch(1), of each stream."""

    given: frozenset[str] = frozenset({"stdout", "stderr"})
    stdout: str | None = None
    stderr: str | None = None


@json_object
class CellRecord(JsonObject):
    """Source of a Python cell."""

    source: str
    filename: str
    python: str | None = None
    environment_hint: str | None = None


@json_object
class ValuesRecord(JsonObject):
    """Names of the variables sent to and returned by a Python cell, and the maximum size of each in bytes."""

    inputs: Sequence[str] = field(metadata={"key": "in"})
    outputs: Sequence[str] = field(metadata={"key": "out"})
    limit: int


@json_object
class RequestRecord(JsonObject):
    """Request of a submission, as far as needed to submit the same again."""

    given: frozenset[str] = frozenset({"cwd", "python"})
    options: Sequence[str]
    args: Sequence[str]
    cwd: str | None = None
    python: str | None = None
    default_python: str | None = None
    env: str | None = None
    stage: api.Stage | None = None


@json_object
class EnvironmentRecord(JsonObject):
    """Meaning of an environment's name, with absolute paths."""

    name: str
    venv: str | None = None
    conda: str | None = None
    modules: Sequence[str] | None = None
    variables: Mapping[str, str] | None = None
    work_dir: str | None = None
    python: str | None = None
    image: str | None = None
    runtime: str | None = None
    bind: Sequence[str] | None = None
    gpu_variable: str | None = None
    gpus: str | None = None
    image_dir: str | None = None
    sudo: bool | None = None


@json_object
class ImageRecord(JsonObject):
    """Container image that a job fetches or builds."""

    act: str
    name: str
    runtime: str | None = None
    source: str | None = field(default=None, metadata={"key": "from"})
    replace: bool | None = None
    base: str | None = None
    image_dir: str | None = None
    build_dir: str | None = None
    sudo: bool | None = None
    file: api.ImageWantedFile | None = None
    environment: api.ImageWantedEnvironment | None = None


@json_object
class EnvironmentBuildRecord(JsonObject):
    """Python environment that a job makes."""

    name: str
    hash: str
    folder: str
    kind: str
    source: str
    files: Mapping[str, str]
    python: str | None = None
    tool: str | None = None
    replace: bool | None = None


@json_object
class FolderRecord(JsonObject):
    """One folder staged with a job: source, destination, and inode number."""

    source: str
    dest: str
    inode: int


@json_object
class ReturnRecord(JsonObject):
    """Outcome of copying back the results of a job, and the restart after which this happened."""

    given: frozenset[str] = frozenset({"error"})
    files: int | None = None
    bytes: int | None = None
    left: Sequence[str] | None = None
    held: Sequence[str] | None = None
    refused: Sequence[str] | None = None
    error: str | None = None
    given_up: bool | None = None
    time: float | None = None
    restarts: int | None = None


@json_object
class StageRecord(JsonObject):
    """Folders staged with a job; ``back`` is None while no results have been copied back."""

    given: frozenset[str] = frozenset({"back"})
    folders: Sequence[FolderRecord] = field(metadata={"part": FolderRecord, "is_list": True})
    back: ReturnRecord | None = optional_object(ReturnRecord)
    checksum: bool | None = None
    delete: bool | None = None
    seal: str | None = None
    local: str | None = None
    announced: bool | None = None

    def is_back(self, restarts: int) -> bool:
        """Return whether the results of a run of the job were copied back, or that was given up."""
        return self.back is not None and self.back.restarts == restarts


@json_object
class GitRecord(JsonObject):
    """Commit of the notebook's folder."""

    given: frozenset[str] = frozenset({"branch", "dirty"})
    commit: str
    branch: str | None = None
    dirty: bool | None = None


@json_object
class AdviceRecord(JsonObject):
    """Advice of the site that was in force."""

    memory: str | None = None


@json_object
class LeaseRecord(JsonObject):
    """End of an unused allocation: after some seconds, or with its first step; the notebook that it is kept for."""

    seconds: float
    once: bool | None = None
    keep: bool | None = None
    notebook: str | None = None


@json_object
class SessionRecord(JsonObject):
    """Request of a session."""

    base_url: str
    idle: float
    prefix: str | None = None
    dir: str | None = None
    port: int | None = None
    jupyter: str | None = None
    image_dir: str | None = None
    command: Sequence[str] | None = None
    ssh: str | None = None
    ssh_host: str | None = None
    app: str | None = None
    package: str | None = None
    install: str | None = None
    lowest: str | None = None
    older: Mapping[str, Sequence[str]] | None = None
    files: Mapping[str, str] | None = None
    node_ports: Sequence[int] | None = None
    on: str | None = None

    @property
    def has_token(self) -> bool:
        """Return whether the server has a login by a token of its own: Jupyter, or an app that reads one."""
        return not self.command or any("{secret_file}" in word for word in self.command)


@json_object
class GrantRecord(JsonObject):
    """Nodes and GPUs that Slurm gave to an allocation or a session; last time and port at which a session was ready."""

    nodes: str | None = None
    gpus: int | None = None
    ready: float | None = None
    port: int | None = None


@json_object
class KernelRecord(JsonObject):
    """Kernel of a notebook: its owner (a hash), and its kernelspec."""

    given: frozenset[str] = frozenset({"owner", "name", "display_name"})
    owner: str | None = None
    name: str | None = None
    display_name: str | None = None


@json_object
class StepRecord(JsonObject):
    """Allocation of a step, its ID and nodes once started, and the process in which a cell runs."""

    given: frozenset[str] = frozenset({"id", "nodes"})
    allocation: str
    process: str | None = None
    id: str | None = None
    nodes: str | None = None
    restarts: int | None = None


@json_object
class JoinedRecord(JsonObject):
    """Running job that a step of jupyter_slurm holds open for more steps."""

    job: str


@json_object
class SlurmJobRecord(JsonObject):
    """Identity of a job in Slurm: its ID, and the time of submission as soon as the queue has shown the job."""

    given: frozenset[str] = frozenset({"submit_time"})
    id: str
    submit_time: int | None = None


@json_object
class EndRecord(JsonObject):
    """End of a job; all fields are written, known or unknown."""

    given: frozenset[str] = frozenset(
        {
            *("state", "reason", "exit_code", "signal", "start_time", "end_time", "nodes", "partition", "account"),
            *("qos", "cpus", "time_limit", "tasks", "components", "ranks", "error"),
        }
    )
    state: str
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    start_time: float | None = None
    end_time: float | None = None
    nodes: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    cpus: int | None = None
    time_limit: int | None = None
    tasks: Mapping[str, int] | None = None
    components: Sequence[api.JobComponent] | None = None
    ranks: api.JobRanks | None = None
    restarts: int | None = None
    error: ProblemDocument | None = None


@json_object
class JobRecordFile(JsonObject):
    """Content of job.json: all durable data about a job submitted by jupyter_slurm."""

    format: int
    key: str
    kind: str
    created: float
    script: str
    argv: Sequence[str]
    events: str
    outputs: OutputsRecord = field(metadata={"part": OutputsRecord})
    writer: str | None = None
    label: str | None = None
    name: str | None = None
    user: str | None = None
    work_dir: str | None = None
    array: bool | None = None
    array_tasks: str | None = None
    heterogeneous: bool | None = None
    sweep: SweepRecord | None = optional_object(SweepRecord)
    part: PartRecord | None = optional_object(PartRecord)
    time_limit: int | None = None
    slurm_version: Sequence[int] | None = None
    cell: CellRecord | None = optional_object(CellRecord)
    values: ValuesRecord | None = optional_object(ValuesRecord)
    request: RequestRecord | None = optional_object(RequestRecord, "asked")
    environment: EnvironmentRecord | None = optional_object(EnvironmentRecord)
    image: ImageRecord | None = optional_object(ImageRecord)
    environment_build: EnvironmentBuildRecord | None = optional_object(EnvironmentBuildRecord)
    copies_to: str | None = None
    stage: StageRecord | None = optional_object(StageRecord)
    notebook: str | None = None
    git: GitRecord | None = optional_object(GitRecord)
    resubmitted_from: str | None = None
    launcher: str | None = None
    resume: int | None = None
    preemptible: bool | None = None
    advised: AdviceRecord | None = optional_object(AdviceRecord)
    hold: bool | None = None
    run: Sequence[str] | None = None
    lease: LeaseRecord | None = optional_object(LeaseRecord)
    session: SessionRecord | None = optional_object(SessionRecord)
    released: str | None = None
    granted: GrantRecord | None = optional_object(GrantRecord)
    kernel: KernelRecord | None = optional_object(KernelRecord)
    step: StepRecord | None = optional_object(StepRecord)
    joined: JoinedRecord | None = optional_object(JoinedRecord)
    attempts: int | None = None
    job: SlurmJobRecord | None = optional_object(SlurmJobRecord)
    cancel: bool | None = None
    seen_running: float | None = None
    end: EndRecord | None = optional_object(EndRecord)
