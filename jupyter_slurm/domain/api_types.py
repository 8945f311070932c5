"""The objects of the API (generated from ``agent/openapi.yaml`` by ``tests/agent/api_types.py``; not edited by hand).

Imported as ``from jupyter_slurm.domain import api_types as api``, and where that is enough for type checkers only, so
that ``api.Job`` is the object of the document and ``Job`` may be a class.

Enumerations are texts, with their values beside them: what is newer than this package may say others. Arrays are
``Sequence``: tuples are sent as they are. Objects that the document leaves open are ``Mapping[str, Any]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

__all__ = [
    "AccountedUsage",
    "AccountedUsageJob",
    "AccountedUsageSum",
    "Act",
    "ActOnJobsRequest",
    "ActOnJobsResponseItem",
    "AdmitKeyRequest",
    "AdmitKeyResponse",
    "Agent",
    "AgentApi",
    "AnswerPromptRequest",
    "BringResultsRequest",
    "CancelJobRequest",
    "ChangeFileRequest",
    "CleanRequest",
    "Cleaned",
    "Client",
    "Cluster",
    "ClusterAddress",
    "ClusterLaunch",
    "ClusterPoll",
    "CommandResult",
    "CommandResultTable",
    "ConnectClusterRequest",
    "Connection",
    "Context",
    "EnvironmentWanted",
    "EnvironmentWantedOrigin",
    "Environments",
    "Estimate",
    "Examination",
    "ExaminationKeyless",
    "ExamineClusterRequest",
    "FileChange",
    "FileEntry",
    "FileList",
    "FilePart",
    "Finding",
    "ForeignSubmission",
    "GetFileEntryRequest",
    "Gpus",
    "Image",
    "ImageWanted",
    "ImageWantedEnvironment",
    "ImageWantedEnvironmentConda",
    "ImageWantedFile",
    "ImageWantedOrigin",
    "Images",
    "Job",
    "JobComponent",
    "JobFailedTask",
    "JobMemory",
    "JobNextEnd",
    "JobPart",
    "JobRanks",
    "JobRanksFirst",
    "JobSending",
    "JobStage",
    "JobStageFolder",
    "JoinJobRequest",
    "KeepAllocationRequest",
    "Kernel",
    "KernelPlace",
    "KernelStep",
    "Launch",
    "LaunchAppValues",
    "LaunchOrigin",
    "ListFilesRequest",
    "LoginCommandEnd",
    "MadeEnvironment",
    "MakeEnvironmentResponse",
    "Name",
    "Names",
    "NodeGres",
    "OpenSessionResponse",
    "Option",
    "OptionProblem",
    "Options",
    "OtherGres",
    "Preview",
    "Problem",
    "Prompt",
    "PromptQuestion",
    "Queue",
    "ReadFileRequest",
    "Record",
    "RecordGit",
    "RecordValues",
    "RecordVersions",
    "RemoveEnvironmentRequest",
    "RemoveEnvironmentResponse",
    "RemoveImageRequest",
    "RemoveImageResponse",
    "RenameSessionRequest",
    "Report",
    "ReportGpu",
    "Resources",
    "ResourcesCost",
    "ResourcesLimit",
    "ResourcesNode",
    "ResourcesNodeGpu",
    "ResourcesPartition",
    "ResubmitJobRequest",
    "Room",
    "RoomKept",
    "RoomReport",
    "RoomSpace",
    "RunCommandRequest",
    "RunLoginCommandRequest",
    "RunningUse",
    "RunningUseSum",
    "Session",
    "SessionStep",
    "SessionWay",
    "Stage",
    "StageFolder",
    "StartTerminalRequest",
    "Step",
    "StopAgentRequest",
    "Submission",
    "SubmissionLease",
    "SubmissionOrigin",
    "Sweep",
    "Tasks",
    "Terminal",
    "TerminalSocket",
    "Transfer",
    "TransferWanted",
    "TransferWantedJob",
    "TransferWantedJobOrigin",
    "Tunnel",
    "TunnelWanted",
    "Usage",
    "UsagePoint",
    "User",
    "Values",
    "Variables",
]


class Finding(TypedDict):
    status: str  # ok, warning, failed
    about: str
    said: str
    todo: str


class ExaminationKeyless(TypedDict):
    host: str
    public: str


class Examination(TypedDict):
    findings: Sequence[Finding]
    failed: bool
    keyless: Sequence[ExaminationKeyless]


class Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    hint: str
    details: Mapping[str, Any]


class AgentApi(TypedDict):
    major: int
    minor: int


class Agent(TypedDict):
    name: str
    version: str
    api: AgentApi
    capabilities: Sequence[str]
    pid: int
    host: str  # daemon, server, inprocess
    started: float
    holds: Mapping[str, int]
    log: NotRequired[str | None]
    warnings: NotRequired[Sequence[str]]


class TunnelWanted(TypedDict):
    job: NotRequired[str | None]
    port: int
    node: NotRequired[str | None]
    local_port: NotRequired[int | None]
    socket: NotRequired[bool]


class Tunnel(TypedDict):
    id: str
    cluster: str
    job: str | None
    node: str | None
    port: int
    local_port: int | None
    socket: str | None
    url: str | None
    way: str | None  # login, hop, ssh, nested, step, direct
    failed: Mapping[str, str]
    proven: bool
    state: str  # open, preparing, broken, closed
    message: str
    since: float
    connections: int


class TransferWantedJobOrigin(TypedDict, total=False):
    folder: str | None
    notebook: str | None


class Context(TypedDict, total=False):
    cwd: str | None
    env: Mapping[str, str] | None
    umask: int | None
    limits: Mapping[str, str] | None


class TransferWantedJob(TypedDict, total=False):
    options: Sequence[str]
    origin: TransferWantedJobOrigin | None
    context: Context


class TransferWanted(TypedDict):
    kind: str  # put, get, copy, stage
    sources: Sequence[str]
    dest: str
    to_cluster: NotRequired[str | None]
    overwrite: NotRequired[bool]
    delete: NotRequired[bool]
    job: NotRequired[TransferWantedJob | None]


class Transfer(TypedDict):
    id: str
    cluster: str
    kind: str
    sources: Sequence[str]
    dest: str
    to_cluster: str | None
    state: str
    bytes: int
    total: int | None
    files: int | None
    unchanged: int
    rate: float | None
    job: str | None
    waits: str | None
    warnings: Sequence[str]
    error: Problem | None
    started: float
    ended: float | None


class ClusterAddress(TypedDict, total=False):
    slurm_conf: str | None
    path: str | None
    profile: str | None


class PromptQuestion(TypedDict):
    text: str
    echo: bool


class Prompt(TypedDict):
    id: str
    cluster: str
    host: str
    kind: str
    title: str
    instruction: str
    questions: Sequence[PromptQuestion]
    asked: float
    settled: NotRequired[bool]


class Connection(TypedDict):
    state: str  # disconnected, connecting, connected, lost
    hosts: Sequence[str]
    since: float
    message: str
    notice: NotRequired[str]


class Client(TypedDict):
    kind: str
    name: str


class User(TypedDict):
    kind: str
    name: str
    pid: int | None
    since: float


class ClusterLaunch(TypedDict):
    idle: float
    partition: NotRequired[str]
    gpus: NotRequired[int]
    gpu_type: NotRequired[str]
    cpus: NotRequired[int]
    memory: NotRequired[str]
    time: NotRequired[str]
    account: NotRequired[str]
    qos: NotRequired[str]
    env: NotRequired[str]
    dir: NotRequired[str]


class ClusterPoll(TypedDict):
    seconds_since: float | None
    failing_for: NotRequired[float | None]
    interval: float | None
    error: Problem | None


class Cluster(TypedDict):
    users: NotRequired[Sequence[User]]
    profile: NotRequired[str | None]
    connection: NotRequired[Connection | None]
    id: str
    name: str
    slurm_conf: str | None
    python: NotRequired[str]
    folder: NotRequired[str]
    home: NotRequired[str]
    user: NotRequired[str]
    active: NotRequired[int]
    gpus: NotRequired[bool]
    launch: NotRequired[ClusterLaunch]
    poll: ClusterPoll


Variables = TypedDict(
    "Variables",
    {
        "in": "Sequence[str]",
        "out": "Sequence[str]",
        "limit": "int",
        "file": "NotRequired[str | None]",
    },
)


class SubmissionLease(TypedDict):
    seconds: float
    once: NotRequired[bool]
    keep: NotRequired[bool]


class Sweep(TypedDict):
    names: Sequence[str]
    rows: Sequence[Sequence[str]]


class StageFolder(TypedDict):
    source: str
    dest: NotRequired[str | None]


class Stage(TypedDict):
    folders: Sequence[StageFolder]
    checksum: NotRequired[bool]
    delete: NotRequired[bool]


class SubmissionOrigin(TypedDict, total=False):
    folder: str | None
    notebook: str | None


class Kernel(TypedDict, total=False):
    owner: str | None
    name: str | None
    display_name: str | None


class Submission(TypedDict):
    key: str
    client: NotRequired[Client]
    kind: str  # script, python, allocation
    text: str
    options: NotRequired[Sequence[str]]
    args: NotRequired[Sequence[str]]
    python: NotRequired[str | None]
    env: NotRequired[str | None]
    default_python: NotRequired[str | None]
    label: NotRequired[str | None]
    script_name: NotRequired[str | None]
    filename: NotRequired[str | None]
    resume: NotRequired[int | None]
    launcher: NotRequired[str | None]
    values: NotRequired[Variables | None]
    lease: NotRequired[SubmissionLease]
    sweep: NotRequired[Sweep | None]
    stage: NotRequired[Stage | None]
    origin: NotRequired[SubmissionOrigin | None]
    again: NotRequired[str | None]
    kernel: NotRequired[Kernel]
    dry_run: NotRequired[bool]
    test_only: NotRequired[bool]
    context: NotRequired[Context]


class ImageWantedFile(TypedDict):
    name: str
    text: str
    folder: NotRequired[str | None]
    context: NotRequired[str | None]


class ImageWantedEnvironmentConda(TypedDict):
    channels: Sequence[str]
    packages: Sequence[str]


class ImageWantedEnvironment(TypedDict):
    python: str
    pip: Sequence[str]
    conda: NotRequired[ImageWantedEnvironmentConda | None]


class ImageWantedOrigin(TypedDict, total=False):
    folder: str | None
    notebook: str | None


ImageWanted = TypedDict(
    "ImageWanted",
    {
        "key": "str",
        "act": "str",  # pull, build
        "image": "str",
        "runtime": "NotRequired[str | None]",
        "from": "NotRequired[str | None]",
        "replace": "NotRequired[bool]",
        "base": "NotRequired[str | None]",
        "file": "NotRequired[ImageWantedFile | None]",
        "environment": "NotRequired[ImageWantedEnvironment | None]",
        "options": "NotRequired[Sequence[str]]",
        "origin": "NotRequired[ImageWantedOrigin | None]",
        "context": "NotRequired[Context]",
        "dry_run": "NotRequired[bool]",
    },
)


class Image(TypedDict):
    image: str
    path: str | None
    node: str | None
    runtime: str | None
    size: float | None
    made: float | None
    source: str | None
    user: str | None
    job: str | None
    shared: bool
    environments: Sequence[str]


class Images(TypedDict):
    folder: str
    images: Sequence[Image]


class EnvironmentWantedOrigin(TypedDict, total=False):
    folder: str | None
    notebook: str | None


class EnvironmentWanted(TypedDict):
    key: str
    name: str
    kind: str  # requirements, uv.lock, conda
    source: str
    files: Mapping[str, str]
    python: NotRequired[str | None]
    tool: NotRequired[str | None]
    replace: NotRequired[bool]
    force: NotRequired[bool]
    where: NotRequired[str]  # job, login
    options: NotRequired[Sequence[str]]
    origin: NotRequired[EnvironmentWantedOrigin | None]
    context: NotRequired[Context]
    dry_run: NotRequired[bool]


class MadeEnvironment(TypedDict):
    name: str
    path: str
    tool: str | None
    python: str | None
    source: str | None
    made: float | None
    packages: int | None
    job: str | None
    cuda: int | None
    failed_imports: Sequence[str]


class Environments(TypedDict):
    folder: str
    environments: Sequence[MadeEnvironment]


class LaunchAppValues(TypedDict, total=False):
    logdir: str
    notebook: str
    store: str


class LaunchOrigin(TypedDict, total=False):
    folder: str | None
    notebook: str | None


class Launch(TypedDict):
    key: str
    name: NotRequired[str | None]
    resume: NotRequired[int | None]
    idle: float
    dir: NotRequired[str | None]
    jupyter: NotRequired[str | None]  # install
    command: NotRequired[Sequence[str] | None]
    app: NotRequired[str | None]  # jupyter, code-server, marimo, mlflow, rstudio, tensorboard
    app_values: NotRequired[LaunchAppValues]
    ssh: NotRequired[str | None]
    ssh_host: NotRequired[str | None]
    port: NotRequired[int | None]
    on: NotRequired[str | None]
    prefix: NotRequired[str | None]
    options: NotRequired[Sequence[str]]
    python: NotRequired[str | None]
    default_python: NotRequired[str | None]
    env: NotRequired[str | None]
    origin: NotRequired[LaunchOrigin | None]
    stage: NotRequired[Stage | None]
    context: NotRequired[Context]
    dry_run: NotRequired[bool]
    test_only: NotRequired[bool]


class SessionStep(TypedDict):
    state: str  # submitted, pending, starting, ready, ended
    time: float


class Session(TypedDict):
    state: str  # submitted, pending, starting, ready, reconnecting, unreachable, ending, ended
    message: str
    url: str | None
    browser_url: NotRequired[str | None]
    path: str
    command: Sequence[str] | None
    app: NotRequired[str | None]
    ssh_host: NotRequired[str | None]
    resume: NotRequired[int | None]
    server: NotRequired[str | None]
    port: NotRequired[int | None]
    local_port: NotRequired[int | None]
    way: NotRequired[str | None]
    ready_time: NotRequired[float | None]
    ends: NotRequired[float | None]
    steps: Sequence[SessionStep]
    idle: float
    dir: NotRequired[str | None]
    on: NotRequired[str | None]


class SessionWay(TypedDict):
    port: int
    path: str
    base_url: str
    token: str | None
    scheme: NotRequired[str]  # Bearer
    host_key: NotRequired[str]


class KernelStep(TypedDict):
    owner: NotRequired[str | None]
    name: NotRequired[str | None]
    display_name: NotRequired[str | None]
    kernel: NotRequired[str | None]
    argv: NotRequired[Sequence[str] | None]
    secret: str
    idle: float
    lease: float
    dir: NotRequired[str | None]
    transport: NotRequired[str]  # ipc, tcp


class Step(TypedDict):
    key: str
    kind: str  # script, python, command, process, kernel
    process: NotRequired[str]
    text: NotRequired[str]
    options: NotRequired[Sequence[str]]
    args: NotRequired[Sequence[str]]
    node_variables: NotRequired[Sequence[Sequence[int]]]
    python: NotRequired[str | None]
    filename: NotRequired[str | None]
    env: NotRequired[str | None]
    default_python: NotRequired[str | None]
    kernel: NotRequired[KernelStep]
    values: NotRequired[Variables | None]
    context: NotRequired[Context]


class KernelPlace(TypedDict):
    state: str
    finished: bool
    node: str | None
    port: int | None
    stage: str | None
    unused: NotRequired[str | None]


class OptionProblem(TypedDict):
    option: str
    scope: str
    limit: str
    text: str


class Estimate(TypedDict):
    start: float | None
    clock_offset: NotRequired[float]
    cpus: int | None
    nodes: str | None
    partition: str | None
    said: str


class Preview(TypedDict):
    argv: Sequence[str]
    script: str
    options: NotRequired[Mapping[str, str | None]]
    warnings: NotRequired[Sequence[str]]
    doubts: NotRequired[Sequence[str]]
    problems: NotRequired[Sequence[OptionProblem]]
    estimate: NotRequired[Estimate]


class JobRanksFirst(TypedDict, total=False):
    rank: int
    node: str
    exit_code: int


class JobRanks(TypedDict, total=False):
    first: JobRanksFirst
    also: int
    ended: int


class JobMemory(TypedDict):
    now: int
    most: int


class JobSending(TypedDict):
    done: int
    total: int


class JobNextEnd(TypedDict):
    id: str
    name: str
    own: bool
    time: float


class JobFailedTask(TypedDict):
    task: int
    state: str
    exit_code: int | None
    signal: int | None


class JobComponent(TypedDict):
    id: str
    state: str
    nodes: str
    partition: str


class JobPart(TypedDict):
    offset: int
    id: str | None
    state: str


class JobStageFolder(TypedDict):
    source: str
    dest: str


class JobStage(TypedDict):
    folders: Sequence[JobStageFolder]
    local: str | None
    state: str  # there, coming, back, elsewhere
    done: int
    total: int
    files: int | None
    bytes: int | None
    left: Sequence[str]
    held: NotRequired[Sequence[str]]
    refused: NotRequired[Sequence[str]]
    error: str | None
    given_up: bool


class Job(TypedDict):
    key: str | None
    cluster: str
    id: str | None
    state: str
    reason: NotRequired[str | None]
    reason_text: NotRequired[str | None]
    next_step: NotRequired[str | None]
    submit_time: NotRequired[float | None]
    start_time: NotRequired[float | None]
    end_time: NotRequired[float | None]
    clock_offset: NotRequired[float]
    exit_code: NotRequired[int | None]
    signal: NotRequired[int | None]
    partition: NotRequired[str | None]
    nodes: NotRequired[str | None]
    name: NotRequired[str | None]
    time_limit: NotRequired[int | None]
    restarts: NotRequired[int]
    launcher: NotRequired[str | None]
    ranks: NotRequired[JobRanks | None]
    stdout: NotRequired[str | None]
    stderr: NotRequired[str | None]
    script_path: NotRequired[str | None]
    work_dir: NotRequired[str | None]
    kind: NotRequired[str | None]
    allocation: NotRequired[str | None]
    joined: NotRequired[str | None]
    process: NotRequired[str | None]
    kernel: NotRequired[Kernel | None]
    gpus: NotRequired[int | None]
    memory: NotRequired[JobMemory]
    lease: NotRequired[float | None]
    keep: NotRequired[bool | None]
    kept_for: NotRequired[str | None]
    released: NotRequired[str | None]  # asked, forgotten
    session: NotRequired[Session | None]
    label: NotRequired[str | None]
    sending: NotRequired[JobSending | None]
    state_since: NotRequired[float | None]
    finished: NotRequired[bool]
    known: bool
    unknown_since: NotRequired[float | None]
    estimated_start: NotRequired[float | None]
    next_end: NotRequired[JobNextEnd | None]
    account: NotRequired[str | None]
    qos: NotRequired[str | None]
    folder: NotRequired[str | None]
    argv: NotRequired[Sequence[str] | None]
    environment_offer: NotRequired[str | None]
    warnings: NotRequired[Sequence[str]]
    doubts: NotRequired[Sequence[str]]
    tasks: NotRequired[Mapping[str, int] | None]
    failed_task: NotRequired[JobFailedTask | None]
    components: NotRequired[Sequence[JobComponent] | None]
    array: NotRequired[str | None]
    task: NotRequired[int | None]
    parts: NotRequired[Sequence[JobPart] | None]
    sweep: NotRequired[Sequence[str] | None]
    stage: NotRequired[JobStage | None]
    error: NotRequired[Problem | None]


class Act(TypedDict):
    id: str
    cluster: str
    act: str  # cancel, hold, release, requeue, requeuehold, suspend, resume, limit
    state: str  # running, stopping, stopped, finished
    total: int
    done: int
    failed: int
    error: Problem | None
    unread: bool


class Tasks(TypedDict):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    names: Sequence[str]
    parameters: Sequence[Sequence[str]]


class Values(TypedDict):
    values: Sequence[Sequence[Any]]
    next: int | None


class ReportGpu(TypedDict, total=False):
    name: str
    utilization: float | None
    memory_used: int | None
    memory_total: int | None


class Report(TypedDict):
    id: str
    state: str
    source: str | None  # sacct, sstat, runner
    elapsed: NotRequired[float | None]
    time_limit: NotRequired[float | None]
    cpus: NotRequired[int | None]
    cpu_time: NotRequired[float | None]
    cpu_efficiency: NotRequired[float | None]
    memory_peak: NotRequired[int | None]
    memory_asked: NotRequired[int | None]
    memory_efficiency: NotRequired[float | None]
    gpus_asked: NotRequired[int | None]
    gpus: Sequence[ReportGpu]
    notes: Sequence[str]


class UsagePoint(TypedDict):
    time: float
    cpus: float
    memory: int
    gpu: float | None
    gpu_memory: int | None


class Usage(TypedDict):
    node: str | None
    cpus: int | None
    memory: int | None
    gpus: int
    points: Sequence[UsagePoint]
    note: str


class ForeignSubmission(TypedDict):
    script: str
    options: Sequence[str]


RecordValues = TypedDict(
    "RecordValues",
    {
        "in": "Sequence[str]",
        "out": "Sequence[str]",
        "limit": "int",
    },
    total=False,
)


class RecordVersions(TypedDict, total=False):
    jupyter_slurm: str | None
    slurm: str | None
    python: str | None
    ipython: str | None


class RecordGit(TypedDict, total=False):
    commit: str
    branch: str | None
    dirty: bool | None


class Record(TypedDict):
    key: str
    id: str | None
    kind: str  # script, python
    created: float
    label: NotRequired[str | None]
    name: NotRequired[str | None]
    script: str
    filename: NotRequired[str | None]
    argv: Sequence[str]
    options: NotRequired[Sequence[str] | None]
    args: NotRequired[Sequence[str] | None]
    cwd: NotRequired[str | None]
    work_dir: NotRequired[str | None]
    values: NotRequired[RecordValues | None]
    env: NotRequired[str | None]
    environment: NotRequired[Mapping[str, Any] | None]
    python: NotRequired[str | None]
    watched: NotRequired[bool | None]
    default_python: NotRequired[str | None]
    stage: NotRequired[Stage | None]
    used: NotRequired[Mapping[str, Any] | None]
    versions: RecordVersions
    notebook: NotRequired[str | None]
    image: NotRequired[Mapping[str, Any] | None]
    sweep: NotRequired[Mapping[str, Any] | None]
    part: NotRequired[Mapping[str, Any] | None]
    git: NotRequired[RecordGit | None]
    resume: NotRequired[int | None]
    launcher: NotRequired[str | None]
    resubmitted_from: NotRequired[str | None]


class LoginCommandEnd(TypedDict):
    exit_code: int
    reason: str


class FileEntry(TypedDict):
    name: str
    type: str  # file, directory, other
    is_link: bool
    size: int
    modified: float
    version: str


class FileList(TypedDict):
    path: str
    entries: Sequence[FileEntry]
    is_whole: bool


class FileChange(TypedDict):
    entry: FileEntry | None


class FilePart(TypedDict):
    path: str
    draft: str
    offset: int
    is_last: bool
    data: str
    version: NotRequired[str]


class Terminal(TypedDict):
    id: str
    job: str | None
    name: str | None
    node: str | None
    host: str
    started: float


class TerminalSocket(TypedDict):
    socket: str
    has_files: NotRequired[bool]


class CommandResultTable(TypedDict):
    title: NotRequired[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class CommandResult(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    hint: NotRequired[str]
    table: CommandResultTable | None


class Option(TypedDict):
    name: str
    short: str | None
    names: NotRequired[Sequence[str]]
    takes_value: str  # yes, no, optional
    help: str | None


class Options(TypedDict):
    command: NotRequired[str]
    version: Sequence[int]
    options: Sequence[Option]


class Name(TypedDict):
    name: str
    about: str


class Names(TypedDict):
    taken: float | None
    names: Sequence[Name]


class AccountedUsageSum(TypedDict):
    user: str
    account: str
    partition: str
    qos: str
    gpu_type: str
    jobs: int
    cpu_seconds: int
    gpu_seconds: int


class AccountedUsageJob(TypedDict):
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


class AccountedUsage(TypedDict):
    note: NotRequired[str]
    asked_at: float
    start: int
    end: int
    user: str | None
    accounts: Sequence[str]
    sums: Sequence[AccountedUsageSum]
    jobs: Sequence[AccountedUsageJob]
    left_out: int
    cost: Mapping[str, Any] | None


class Queue(TypedDict):
    asked_at: float
    unknown_since: float | None
    said: str
    interval: float
    user: str
    clock_offset: NotRequired[float]
    is_private: bool
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    reasons: NotRequired[Mapping[str, str]]


class RunningUseSum(TypedDict):
    user: str
    account: str
    partition: str
    jobs: int
    cpus: int
    gpus: Mapping[str, int]


class RunningUse(TypedDict):
    asked_at: float
    unknown_since: float | None
    said: str
    user: str
    is_private: bool
    sums: Sequence[RunningUseSum]


class RoomSpace(TypedDict):
    folder: str | None
    file_system: str
    tool: str
    owner: str
    used: int | None
    limit: int | None
    free: int | None
    files: int | None
    files_limit: int | None


class RoomReport(TypedDict):
    name: str
    text: str


class RoomKept(TypedDict):
    kind: str
    folder: str
    used: int | None


class Room(TypedDict):
    asked_at: float
    unknown_since: float | None
    said: str
    spaces: Sequence[RoomSpace]
    reports: Sequence[RoomReport]
    kept: Sequence[RoomKept]


class Gpus(TypedDict):
    type: str
    total: int
    used: int
    free: int
    most: int
    soon: NotRequired[int]


class OtherGres(TypedDict):
    name: str
    type: str
    total: int
    used: int
    free: int
    most: int
    soon: NotRequired[int]


class ResourcesPartition(TypedDict):
    name: str
    is_default: bool
    state: str
    time_limit: int | None
    default_time: int | None
    nodes: Mapping[str, int]
    cpus: int
    cpus_free: int
    gpus: Sequence[Gpus]
    gres: NotRequired[Sequence[OtherGres]]


class ResourcesNodeGpu(TypedDict):
    type: str
    total: int
    used: int


class NodeGres(TypedDict):
    name: str
    type: str
    total: int
    used: int


class ResourcesNode(TypedDict):
    name: str
    state: str
    flags: Sequence[str]
    is_up: bool
    partitions: Sequence[str]
    cpus: int
    cpus_used: int
    memory: int
    memory_used: int
    load: float | None
    gpus: Sequence[ResourcesNodeGpu]
    gres: NotRequired[Sequence[NodeGres]]
    features: Sequence[str]
    reason: str


class ResourcesLimit(TypedDict):
    scope: str  # user, account, qos, qos-user
    name: str
    kind: str  # in-use, job, minutes, jobs, submitted
    resource: str
    most: int
    used: int | None
    partition: str


class ResourcesCost(TypedDict):
    unit: str
    cpu_hour: NotRequired[float]
    gpu_hour: NotRequired[float | Mapping[str, float]]
    partitions: NotRequired[Mapping[str, float]]


class Resources(TypedDict):
    asked_at: float
    unknown_since: float | None
    said: str
    gpus: Sequence[Gpus]
    gres: NotRequired[Sequence[OtherGres]]
    partitions: Sequence[ResourcesPartition]
    nodes: Sequence[ResourcesNode]
    use: Mapping[str, int] | None
    limits: Sequence[ResourcesLimit] | None
    cost: ResourcesCost | None


class Cleaned(TypedDict):
    removed: Sequence[str]
    kept: int


class StopAgentRequest(TypedDict, total=False):
    only_idle: bool


class ConnectClusterRequest(TypedDict, total=False):
    client: Client


class ExamineClusterRequest(TypedDict, total=False):
    job: str  # none, later, now
    options: Sequence[str]


class AdmitKeyRequest(TypedDict):
    host: str


class AdmitKeyResponse(TypedDict):
    host: str
    public: str
    is_new: bool
    is_taken: bool | None


class AnswerPromptRequest(TypedDict):
    answers: Sequence[str] | None


class CancelJobRequest(TypedDict, total=False):
    signal: str | None


class KeepAllocationRequest(TypedDict):
    keep: bool
    notebook: NotRequired[str | None]


class JoinJobRequest(TypedDict):
    key: str
    python: str
    lease: float
    context: NotRequired[Context]


class ActOnJobsRequest(TypedDict):
    act: str  # cancel, hold, release, requeue, requeuehold, suspend, resume, limit
    time_limit: NotRequired[str]
    jobs: Sequence[str]


class ActOnJobsResponseItem(TypedDict):
    job: str
    error: Problem | None
    now: Job | None


class ResubmitJobRequest(TypedDict):
    key: str
    context: NotRequired[Context]


class BringResultsRequest(TypedDict, total=False):
    also: Sequence[str]


class RunCommandRequest(TypedDict):
    argv: Sequence[str]
    table: NotRequired[bool]
    context: NotRequired[Context]


class RunLoginCommandRequest(TypedDict):
    text: str
    context: NotRequired[Context]


class ListFilesRequest(TypedDict):
    path: str


class GetFileEntryRequest(TypedDict):
    path: str


class ReadFileRequest(TypedDict):
    path: str
    offset: NotRequired[int]
    limit: NotRequired[int]
    version: NotRequired[str]


class ChangeFileRequest(TypedDict):
    action: str  # mkdir, rename, copy, delete
    path: str
    to: NotRequired[str]


class StartTerminalRequest(TypedDict):
    job: str | None
    host: NotRequired[bool]
    columns: int
    rows: int


class RemoveImageRequest(TypedDict):
    image: str


class RemoveImageResponse(TypedDict):
    removed: Sequence[str]
    nodes: Sequence[str]


class MakeEnvironmentResponse(TypedDict):
    command: str | None
    job: Job | None
    environment: MadeEnvironment | None
    preview: Preview | None


class RemoveEnvironmentRequest(TypedDict):
    name: str


class RemoveEnvironmentResponse(TypedDict):
    removed: Sequence[str]


class OpenSessionResponse(Job):
    page: str | None


class RenameSessionRequest(TypedDict):
    name: str


class CleanRequest(TypedDict, total=False):
    older_than_days: float | None
    dry_run: bool
