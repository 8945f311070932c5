"""Typed model of job.json: one dataclass for each object of job.schema.json, which has what every field means.

A record is never changed in place: ``replace(record, label="x")`` makes the next one. What this version does not know
is kept (``extra``), and a field that the document lacks stays absent: ``to_json(from_json(x)) == x``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

__all__ = [
    "ALWAYS_WRITTEN",
    "AdviceRecord",
    "CellRecord",
    "EndRecord",
    "EnvironmentRecord",
    "FolderRecord",
    "GitRecord",
    "GrantRecord",
    "ImageRecord",
    "JobRecordFile",
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

_T = TypeVar("_T")

# Of each class, by key of the document: the attribute, the class of the object in it, whether it is a list of those.
_ATTRIBUTES: dict[type, dict[str, tuple[str, Any, bool]]] = {}

ALWAYS_WRITTEN = frozenset(
    {
        *("label", "name", "work_dir", "array_tasks", "time_limit", "slurm_version", "notebook", "resubmitted_from"),
        *("job", "end"),
    }
)
"""Fields that a submission writes also where they are null."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _record(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass; ``_JsonObject`` has its methods: generated, they cost each start of an agent 12 ms."""
    made = dataclass(init=False, repr=False, eq=False)(cls)
    _ATTRIBUTES[made] = {
        one.metadata.get("key", one.name): (one.name, one.metadata.get("part"), one.metadata.get("is_list", False))
        for one in fields(made)  # type: ignore[arg-type]
        if one.name not in ("given", "extra")
    }
    return made


@_record
class _JsonObject:
    """An object of job.json.

    Attributes
    ----------
    given : frozenset of str
        Names of the attributes that are written also where they are None: the document had them.
    extra : mapping or None
        Fields of the document that this version does not know.
    """

    given: frozenset[str] = frozenset()
    extra: Mapping[str, Any] | None = None

    if not TYPE_CHECKING:

        def __init__(self, **values):
            self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.from_json({self.to_json()!r})"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Take in a document that the schema allows."""
        known, values, given, extra = _ATTRIBUTES[cls], dict[str, Any](), list[str](), dict[str, Any]()
        for key, value in document.items():
            if key not in known:
                extra[key] = value
                continue
            name, part, is_list = known[key]
            given.append(name)
            if part is not None and value is not None:
                value = [part.from_json(item) for item in value] if is_list else part.from_json(value)
            values[name] = value
        return cls(**values, given=frozenset(given), extra=extra or None)

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        document: dict[str, Any] = {}
        for key, (name, part, is_list) in _ATTRIBUTES[type(self)].items():
            value = getattr(self, name)
            if value is None and name not in self.given:
                continue
            if part is not None and value is not None:
                value = [item.to_json() for item in value] if is_list else value.to_json()
            document[key] = value
        return document | dict(self.extra or {})


def _part(part: type[_JsonObject], key: str | None = None) -> Any:
    """Return the field of an object that may be absent; ``key``: its name in the document, if that is another one."""
    return field(default=None, metadata={"part": part, **({"key": key} if key else {})})


@_record
class SweepRecord(_JsonObject):
    """Parameters of the tasks of an array: their names, and how many rows the table has."""

    names: Sequence[str]
    rows: int


@_record
class PartRecord(_JsonObject):
    """Position of an array among those as which an array beyond MaxArraySize was submitted."""

    of: str
    tasks: str
    size: int
    numbers: Sequence[int]
    number: int


@_record
class OutputsRecord(_JsonObject):
    """Path, or filename pattern of sbatch(1), of each stream."""

    given: frozenset[str] = frozenset({"stdout", "stderr"})
    stdout: str | None = None
    stderr: str | None = None


@_record
class CellRecord(_JsonObject):
    """Source of a Python cell."""

    source: str
    filename: str
    python: str | None = None


@_record
class ValuesRecord(_JsonObject):
    """Names of the variables that travel with a Python cell and come back, and the most bytes of one."""

    inputs: Sequence[str] = field(metadata={"key": "in"})
    outputs: Sequence[str] = field(metadata={"key": "out"})
    limit: int


@_record
class RequestRecord(_JsonObject):
    """Request of a submission, as far as it takes to submit the same again."""

    given: frozenset[str] = frozenset({"cwd", "python"})
    options: Sequence[str]
    args: Sequence[str]
    cwd: str | None = None
    python: str | None = None
    default_python: str | None = None
    env: str | None = None
    stage: Mapping[str, Any] | None = None


@_record
class EnvironmentRecord(_JsonObject):
    """Meaning of the name of an environment, with absolute paths."""

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


@_record
class ImageRecord(_JsonObject):
    """Image of a container that a job fetches or builds."""

    act: str
    name: str
    runtime: str | None = None
    source: str | None = field(default=None, metadata={"key": "from"})
    replace: bool | None = None
    base: str | None = None
    image_dir: str | None = None
    build_dir: str | None = None
    file: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None


@_record
class FolderRecord(_JsonObject):
    """One folder that travels with a job: from where, to where, and its inode number."""

    source: str
    dest: str
    inode: int


@_record
class ReturnRecord(_JsonObject):
    """Outcome of bringing back the results of a job, after which restart of it."""

    given: frozenset[str] = frozenset({"error"})
    files: int | None = None
    bytes: int | None = None
    left: Sequence[str] | None = None
    error: str | None = None
    given_up: bool | None = None
    time: float | None = None
    restarts: int | None = None


@_record
class StageRecord(_JsonObject):
    """Folders that travel with a job; ``back`` is None while nothing has come back."""

    given: frozenset[str] = frozenset({"back"})
    folders: Sequence[FolderRecord] = field(metadata={"part": FolderRecord, "is_list": True})
    back: ReturnRecord | None = _part(ReturnRecord)
    checksum: bool | None = None
    delete: bool | None = None
    seal: str | None = None
    local: str | None = None
    announced: bool | None = None

    def is_back(self, restarts: int) -> bool:
        """Tell whether the results of a run of the job came back, or that was given up."""
        return self.back is not None and self.back.restarts == restarts


@_record
class GitRecord(_JsonObject):
    """Commit of the notebook's folder."""

    given: frozenset[str] = frozenset({"branch", "dirty"})
    commit: str
    branch: str | None = None
    dirty: bool | None = None


@_record
class AdviceRecord(_JsonObject):
    """Advice of the site that was in force."""

    memory: str | None = None


@_record
class LeaseRecord(_JsonObject):
    """End of an allocation that is not used: after how many seconds, or with its first step."""

    seconds: float
    once: bool | None = None
    keep: bool | None = None


@_record
class SessionRecord(_JsonObject):
    """Request of a session."""

    base_url: str
    idle: float
    prefix: str | None = None
    dir: str | None = None
    port: int | None = None
    jupyter: str | None = None
    image_dir: str | None = None
    command: Sequence[str] | None = None
    node_ports: Sequence[int] | None = None


@_record
class GrantRecord(_JsonObject):
    """Nodes and GPUs that Slurm gave to an allocation or a session; when and on which port a session was ready last."""

    nodes: str | None = None
    gpus: int | None = None
    ready: float | None = None
    port: int | None = None


@_record
class KernelRecord(_JsonObject):
    """Kernel of a notebook: whose it is (a hash), and which kernelspec it has."""

    given: frozenset[str] = frozenset({"owner", "name", "display_name"})
    owner: str | None = None
    name: str | None = None
    display_name: str | None = None


@_record
class StepRecord(_JsonObject):
    """Allocation of a step, its number and nodes once it has begun, and the process in which a cell runs."""

    given: frozenset[str] = frozenset({"id", "nodes"})
    allocation: str
    process: str | None = None
    id: str | None = None
    nodes: str | None = None
    restarts: int | None = None


@_record
class SlurmJobRecord(_JsonObject):
    """Identity of a job in Slurm: its number, and the time of submission as soon as the queue has shown it."""

    given: frozenset[str] = frozenset({"submit_time"})
    id: str
    submit_time: int | None = None


@_record
class EndRecord(_JsonObject):
    """End of a job; all of it is written, known or not."""

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
    components: Sequence[Mapping[str, Any]] | None = None
    ranks: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


@_record
class JobRecordFile(_JsonObject):
    """Content of job.json: all that is durable about a job that was submitted by jupyter_slurm."""

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
    sweep: SweepRecord | None = _part(SweepRecord)
    part: PartRecord | None = _part(PartRecord)
    time_limit: int | None = None
    slurm_version: Sequence[int] | None = None
    cell: CellRecord | None = _part(CellRecord)
    values: ValuesRecord | None = _part(ValuesRecord)
    request: RequestRecord | None = _part(RequestRecord, "asked")
    environment: EnvironmentRecord | None = _part(EnvironmentRecord)
    image: ImageRecord | None = _part(ImageRecord)
    stage: StageRecord | None = _part(StageRecord)
    notebook: str | None = None
    git: GitRecord | None = _part(GitRecord)
    resubmitted_from: str | None = None
    launcher: str | None = None
    resume: int | None = None
    preemptible: bool | None = None
    advised: AdviceRecord | None = _part(AdviceRecord)
    run: Sequence[str] | None = None
    lease: LeaseRecord | None = _part(LeaseRecord)
    session: SessionRecord | None = _part(SessionRecord)
    released: str | None = None
    granted: GrantRecord | None = _part(GrantRecord)
    kernel: KernelRecord | None = _part(KernelRecord)
    step: StepRecord | None = _part(StepRecord)
    attempts: int | None = None
    job: SlurmJobRecord | None = _part(SlurmJobRecord)
    cancel: bool | None = None
    end: EndRecord | None = _part(EndRecord)
