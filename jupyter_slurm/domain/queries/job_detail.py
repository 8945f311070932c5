"""All that Slurm knows about one job.

``scontrol show job`` is not used: its text has no quoting. A job name, a comment or (from 24.11 on) the submit line may
contain lines that look like Slurm's own. ``squeue`` is queried for one ID, with every field framed by a random mark, so
that nothing in the answer can be imitated.

The query costs one REQUEST_JOB_INFO_SINGLE and one REQUEST_PARTITION_INFO.

Source: squeue(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.all_jobs import job_gpus
from jupyter_slurm.domain.queries.cluster import GPU_GRES, Node, expand_hosts
from jupyter_slurm.domain.queries.output_frames import framed_records, long_format
from jupyter_slurm.domain.queries.output_paths import read_patterns
from jupyter_slurm.domain.queries.queue import POLL_FIELDS, queue_record
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_count, parse_gres, parse_tres, present
from jupyter_slurm.errors import ParseError

__all__ = ["WaitingRequest", "detail_argv", "parse_detail", "parse_waiting", "waiting_argv"]

_DETAIL_FIELDS: Final = (
    *POLL_FIELDS,
    "username",
    "comment",
    "command",
    "workdir",
    "stdout",
    "stderr",
    "tres-alloc",
    "dependency",
)

_REQUEST_FIELDS: Final = (
    *("state", "partition", "account", "qos", "numnodes", "numcpus", "numtasks", "tres-alloc"),
    *("tres-per-job", "tres-per-node", "tres-per-task", "feature", "licenses", "reservation", "reqnodes"),
    *("oversubscribe", "exclusive", "dependency"),
)
_LAYOUT_FIELDS: Final = (*_REQUEST_FIELDS, "cpus-per-task", "ntpernode")


@dataclass(frozen=True)
class WaitingRequest:
    """Resources that a waiting job requests.

    Parameters
    ----------
    partitions : tuple of str
        One of them suffices.
    nodes, cpus, tasks : int
        At least.
    memory : int
        Bytes on all nodes; 0 if unknown.
    gpus : mapping
        Number by type; an empty type is any GPU.
    gpus_per_node : int
        0 if the GPUs may be on any of the nodes.
    other_gres : mapping
        Number on each node of generic resources that are not GPUs or parts of them, by name and type.
    features : tuple of str
        Features that each node must have; empty if none, or if the request is more complex.
    node_list : frozenset of str
        Names of the requested nodes; empty if any node will do.
    is_exclusive : bool
        Whether the job shares its nodes with no other.
    licenses : mapping
        Number by name.
    reservation, qos, account, dependency : str
        Empty if unknown.
    cpus_per_task, tasks_per_node : int
        0 if unknown or not requested.
    constraint : str
        Features as they were requested.
    """

    partitions: tuple[str, ...]
    nodes: int = 1
    cpus: int = 1
    tasks: int = 1
    memory: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    gpus_per_node: int = 0
    other_gres: Mapping[tuple[str, str], int] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    node_list: frozenset[str] = frozenset()
    is_exclusive: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    reservation: str = ""
    qos: str = ""
    account: str = ""
    dependency: str = ""
    cpus_per_task: int = 0
    tasks_per_node: int = 0
    constraint: str = ""

    def candidates(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes on which the job may run."""
        wanted = {*self.features}
        return [
            node
            for node in nodes
            if {*node.partitions} & {*self.partitions}
            and wanted <= {*node.features}
            and (not self.node_list or node.name in self.node_list)
        ]


def detail_argv(job: JobId, mark: str) -> list[str]:
    """Return the query for one job that no free text can disturb.

    Parameters
    ----------
    job : JobId
        A job, array or task; for a step, its job is queried. Slurm forgets a job ``MinJobAge`` seconds after its end.
        The command then fails with "Invalid job id specified".
    mark : str
        Fresh random hexadecimal digits.
    """
    form = long_format(_DETAIL_FIELDS, mark)
    asked = JobId(job.job, job.task)
    return ["squeue", "--local", "--all", "--noheader", "--states=all", f"--jobs={asked}", f"--Format={form}"]


def parse_detail(output: bytes, mark: str) -> list[JobRecord]:
    """Parse the answer to :func:`detail_argv`: all tasks of an array, all components of a heterogeneous job.

    Raises
    ------
    ParseError
        The answer is incomplete.
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
            records.append(read_patterns(present(field["stdout"]), present(field["stderr"]), record))
    return records


def waiting_argv(job: JobId, mark: str, *, is_any_state: bool = False) -> list[str]:
    """Return the query for what one waiting job requests (the same requests as :func:`detail_argv`).

    Parameters
    ----------
    job : JobId
        A job, array or task.
    mark : str
        Fresh random hexadecimal digits.
    is_any_state : bool
        Whether the job may also run, or have ended; then the layout of its tasks is asked for, too.
    """
    form = long_format(_LAYOUT_FIELDS if is_any_state else _REQUEST_FIELDS, mark)
    states = ["--states=all"] if is_any_state else []
    asked = f"--jobs={JobId(job.job, job.task)}"
    return ["squeue", "--local", "--all", "--noheader", *states, asked, f"--Format={form}"]


def parse_waiting(output: bytes, mark: str, *, is_any_state: bool = False) -> WaitingRequest | None:
    """Parse the answer to :func:`waiting_argv`; None if no part of the job waits, or is in any state.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    fields = _LAYOUT_FIELDS if is_any_state else _REQUEST_FIELDS
    rows = (dict(zip(fields, row, strict=True)) for row in framed_records(output, mark, len(fields)))
    row = next((row for row in rows if is_any_state or row["state"] == "PENDING"), None)
    if row is None:
        return None
    tres, nodes, tasks = parse_tres(row["tres-alloc"]), parse_count(row["numnodes"]) or 1, parse_count(row["numtasks"])
    gpus = job_gpus(row)
    is_per_node = len(gpus) == 1 and not present(row["tres-per-job"]) and present(row["tres-per-node"])
    features = present(row["feature"])
    licenses = (one.replace("=", ":").partition(":") for one in present(row["licenses"]).split(",") if one)
    return WaitingRequest(
        partitions=tuple(present(row["partition"]).split(",")),
        nodes=nodes,
        cpus=max(tres.get("cpu", 0), parse_count(row["numcpus"]) or 1),
        tasks=tasks or 1,
        memory=tres.get("mem", 0),
        gpus=gpus,
        gpus_per_node=sum(gpus.values()) // nodes if is_per_node else 0,
        other_gres={
            (one.name, one.type or ""): one.count
            for one in parse_gres(present(row["tres-per-node"]))
            if one.name not in GPU_GRES
        },
        features=tuple(features.split("&")) if re.fullmatch(r"[\w.&:-]+", features, re.ASCII) else (),
        node_list=_node_names(present(row["reqnodes"])),
        is_exclusive=_is_exclusive(row),
        licenses={name: parse_count(number) or 1 for name, _, number in licenses},
        reservation=present(row["reservation"]),
        qos=present(row["qos"]),
        account=present(row["account"]),
        dependency=present(row["dependency"]),
        cpus_per_task=parse_count(row.get("cpus-per-task", "")) or 0,
        tasks_per_node=parse_count(row.get("ntpernode", "")) or 0,
        constraint=features,
    )


def _is_exclusive(row: Mapping[str, str]) -> bool:
    # With 26.05, "oversubscribe" is NO for most jobs. An older squeue leaves "exclusive" empty, and warns on stderr.
    exclusive = row["exclusive"]
    return exclusive == "NODE" if exclusive else row["oversubscribe"] in ("NO", "EXCLUSIVE")


def _node_names(folded: str) -> frozenset[str]:
    try:
        return frozenset(expand_hosts(folded))
    except ParseError:
        return frozenset()
