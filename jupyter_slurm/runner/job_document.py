"""Types of what the runner reads and writes, for type checkers alone: no node has this file.

A document comes from another version of the package, too, or from another program: any field may be absent.
"""

from __future__ import annotations

from typing import Any, TypedDict

# -- job.json and what lies beside it


class ImageFolder(TypedDict, total=False):
    """Part of job.json that says where images are kept, and whether sudo calls Docker."""

    image_dir: str
    sudo: bool


class EnvironmentPart(ImageFolder, total=False):
    """Environment of a job."""

    python: str | None
    image: str
    runtime: str
    bind: list[str]
    variables: dict[str, str]
    gpu_variable: str
    gpus: str


class ImagePackages(TypedDict, total=False):
    """Python and packages that an image is made of."""

    python: str
    pip: list[str]
    conda: dict[str, list[str]] | None  # channels, packages


class ImageFile(TypedDict, total=False):
    """File that an image is built from, and what it takes along."""

    name: str
    kind: str
    text: str
    archive: str | None
    folder: str | None


_ImageSource = TypedDict("_ImageSource", {"from": str, "base": str}, total=False)


class ImagePart(ImageFolder, _ImageSource, total=False):
    """Image that a job fetches or builds."""

    act: str
    name: str
    runtime: str
    replace: bool
    build_dir: str
    file: ImageFile
    environment: ImagePackages


class EnvironmentBuildPart(TypedDict, total=False):
    """Python environment that a job makes."""

    name: str
    hash: str
    folder: str
    kind: str
    source: str
    files: dict[str, str]
    python: str | None
    tool: str | None
    replace: bool


class SessionPart(ImageFolder, total=False):
    """Request of a session."""

    base_url: str
    idle: float
    dir: str | None
    jupyter: str
    command: list[str]
    ssh: str
    ssh_host: str
    app: str
    package: str
    install: str
    lowest: str
    older: dict[str, list[str]]
    files: dict[str, str]
    node_ports: list[int]


class CellPart(TypedDict, total=False):
    """Source of a Python cell."""

    source: str
    filename: str
    python: str | None
    environment_hint: str


ValuesPart = TypedDict("ValuesPart", {"in": list[str], "out": list[str], "limit": int}, total=False)
"""Names of the variables that travel with a cell and come back."""


class ArrayPart(TypedDict, total=False):
    """Position of an array among those that are one for the user."""

    of: str
    number: int
    size: int


class SweepPart(TypedDict, total=False):
    """Names of the parameters of an array."""

    names: list[str]


class RequestPart(TypedDict, total=False):
    """Request of a submission."""

    python: str | None


class LeasePart(TypedDict, total=False):
    """End of an allocation that is not used."""

    seconds: float
    once: bool


class StepPart(TypedDict, total=False):
    """Allocation and process of a step."""

    allocation: str
    process: str


class JoinedPart(TypedDict):
    """Running job that a step holds open."""

    job: str


class StageFolder(TypedDict):
    """Folder that travels with a job."""

    dest: str


class StagePart(TypedDict, total=False):
    """Folders that travel with a job."""

    folders: list[StageFolder]
    local: str
    announced: bool


class JobDocument(TypedDict, total=False):
    """Fields of job.json that the runner reads."""

    key: str
    kind: str
    created: float
    script: str
    events: str
    label: str | None
    part: ArrayPart
    sweep: SweepPart | None
    cell: CellPart
    values: ValuesPart
    asked: RequestPart
    environment: EnvironmentPart  # null without one, which programs of containers never see
    image: ImagePart
    environment_build: EnvironmentBuildPart
    stage: StagePart
    launcher: str
    resume: int
    preemptible: bool
    run: list[str]
    lease: LeasePart
    session: SessionPart
    step: StepPart
    joined: JoinedPart


class StepRequest(TypedDict, total=False):
    """step.json: how srun is to be run."""

    args: list[str]
    node_variables: list[list[int]]
    options: list[str]
    wrapper: list[str]
    python: str | None
    cwd: str | None
    env: dict[str, str] | None
    variables: dict[str, str]
    umask: int
    has_cpus: bool
    has_gpus: bool
    has_output: bool


class KernelSettings(TypedDict, total=False):
    """kernel.json of a job directory: which kernel, and the secret that leads to it."""

    name: str | None
    argv: list[str]
    env: dict[str, str] | None
    interrupt_mode: str | None
    cwd: str | None
    image: EnvironmentPart | None
    transport: str | None
    secret: str
    lease: float | None
    idle: float | None


class Kernelspec(TypedDict, total=False):
    """kernel.json of a kernelspec."""

    argv: list[str]
    env: dict[str, str] | None
    interrupt_mode: str


class Granted(TypedDict):
    """Nodes, GPUs and number of tasks that Slurm gave to an allocation."""

    nodes: str
    gpus: int
    tasks: str | None


# -- images


class ImageNote(TypedDict, total=False):
    """Note of an image: a file beside it."""

    image: str
    runtime: str
    node: str
    source: str
    job: str
    user: str
    made: float
    size: float
    path: str
    shared: bool


class ImageRemoval(TypedDict, total=False):
    """Outcome of the removal of an image."""

    removed: list[str]
    nodes: list[str]
    error: str


# -- ends of ranks


class RankEnd(TypedDict):
    """End of a rank, as it tells it."""

    exit_code: int
    node: str
    ranks: int
    cpu: float
    memory: int


class FailedRank(TypedDict):
    """Rank that failed first."""

    rank: int
    node: str
    exit_code: int


class RanksFailure(TypedDict):
    """Failure of the ranks, in the end marker."""

    first: FailedRank
    also: int
    ended: int


# -- files of values


class ValuesItem(TypedDict, total=False):
    """Item of the header of a file of values."""

    kind: str
    name: str
    names: list[str]
    safe: bool
    sizes: list[int]
    source: str
    filename: str
    future: list[str]
    error: str


class ValuesHeader(TypedDict, total=False):
    """Header of a file of values."""

    format: int
    python: str
    executable: str
    items: list[ValuesItem]


PackedItem = tuple[ValuesItem, list[Any]]
"""An item and its pieces, which are bytes or views of them."""

# -- messages

MimeBundle = dict[str, Any]
"""What is displayed, or is said of that, by MIME type, which says what it is: text, bytes or any JSON."""


class DisplayMessage(TypedDict, total=False):
    """Line of the record of what a cell shows."""

    type: str
    data: MimeBundle
    metadata: MimeBundle
    id: str | None
    wait: bool


class CellNews(TypedDict, total=False):
    """Report of a kernel to its keeper about a cell of another notebook."""

    begun: bool
    exit_code: int


class Transient(TypedDict, total=False):
    """Metadata of an output in a message."""

    display_id: str


class LanguageInfo(TypedDict, total=False):
    """Language of a kernel."""

    name: str


class MessageHeader(TypedDict, total=False):
    """Header, or parent header, of a message of Jupyter."""

    msg_id: str
    msg_type: str


class MessageContent(TypedDict, total=False):
    """Content of a message of Jupyter, as far as a keeper reads or writes it."""

    status: str
    execution_state: str
    name: str
    text: str
    data: MimeBundle
    metadata: MimeBundle
    transient: Transient
    wait: bool
    ename: str
    traceback: list[Any]
    payload: list[Any]
    restart: bool
    implementation: str
    language_info: LanguageInfo
    code: str
    silent: bool
    store_history: bool
    user_expressions: dict[str, str]
    allow_stdin: bool
    stop_on_error: bool


class MessagePart(MessageHeader, MessageContent, total=False):
    """Part of a message that was read: which one, its reader knows."""


class KernelOver(TypedDict, total=False):
    """Note that a kernel ends since nobody used it, or came back."""

    event: str
    seconds: float
