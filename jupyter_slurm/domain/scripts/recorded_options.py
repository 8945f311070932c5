"""Options of a job that was submitted elsewhere, from what Slurm recorded of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_count, parse_tres, present

__all__ = ["accounted_request", "array_spec", "recorded_options", "stored_script"]

_MEMORY: Final = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_GPUS: Final = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task"})
_GPU: Final = "gres/gpu"
_MIB: Final = 1 << 20


def recorded_options(
    record: JobRecord, request: WaitingRequest, array: str, header: Mapping[str, str | None]
) -> list[str]:
    """Return the options of sbatch that give a job what Slurm recorded; each is one word, as sbatch reads it.

    Dependencies are left out: the jobs of then have ended.

    Parameters
    ----------
    record : JobRecord
        The job.
    request : WaitingRequest
        Its request, as the controller or accounting knows it.
    array : str
        Value of ``--array``; empty for a job that is no array.
    header : mapping
        Options in the ``#SBATCH`` lines, by name. What they request is left to them, unless the job had another value,
        which then stood on the command line.
    """
    minutes = None if record.time_limit is None else str(max(1, record.time_limit // 60))
    values = (
        ("job-name", record.name),
        ("partition", record.partition),
        ("account", record.account),
        ("qos", record.qos),
        ("time", minutes),
        ("chdir", record.work_dir),
        ("array", array),
        *_layout(request, header),
        *_resources(request, header),
        ("constraint", request.constraint if header.get("constraint") != request.constraint else ""),
        ("reservation", request.reservation),
        ("licenses", ",".join(f"{name}:{count}" for name, count in request.licenses.items())),
        ("nodelist", ",".join(sorted(request.node_list))),
    )
    found = [f"--{name}={value}" for name, value in values if value and value.isprintable()]
    return [*found, *(["--exclusive"] if request.is_exclusive and "exclusive" not in header else [])]


def accounted_request(row: Mapping[str, str], submitted: Mapping[str, str | None]) -> WaitingRequest:
    """Return what a job requested from accounting, which knows CPUs, but not how they belong to tasks.

    The options of its submission tell the tasks, if the number of CPUs agrees. Otherwise the job has one task on each
    node.

    Parameters
    ----------
    row : mapping
        Fields of sacct (:data:`~jupyter_slurm.domain.queries.job_history.REQUEST_FIELDS`).
    submitted : mapping
        Options of the command line and of the ``#SBATCH`` lines, by name.
    """
    tres = parse_tres(row["AllocTRES"]) or parse_tres(row["ReqTRES"])
    typed = {name.removeprefix(f"{_GPU}:"): count for name, count in tres.items() if name.startswith(f"{_GPU}:")}
    nodes, cpus = parse_count(row["NNodes"]) or 1, parse_count(row["ReqCPUS"]) or 1
    tasks, each, on_node = _tasks(submitted, nodes, cpus)
    return WaitingRequest(
        partitions=(),
        nodes=nodes,
        cpus=cpus,
        tasks=tasks,
        memory=tres.get("mem", 0),
        gpus=typed or {"": tres.get(_GPU, 0)},
        cpus_per_task=each,
        tasks_per_node=on_node,
        constraint=present(row["Constraints"]),
    )


def _tasks(submitted: Mapping[str, str | None], nodes: int, cpus: int) -> tuple[int, int, int]:
    """Return the number of tasks, of CPUs for each, and of tasks on each node (0: not requested)."""
    said = {name: _number(submitted.get(name)) for name in ("ntasks", "cpus-per-task", "ntasks-per-node")}
    on_node, each = said["ntasks-per-node"], said["cpus-per-task"] or 1
    tasks = said["ntasks"] or nodes * (on_node or 1)
    # Slurm rounds up to whole cores.
    if tasks * each <= cpus < 2 * tasks * each:
        return tasks, each, on_node
    if said["ntasks"] and cpus % tasks == 0:
        return tasks, cpus // tasks, 0
    return nodes, max(1, cpus // nodes), 0


def _layout(request: WaitingRequest, header: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Return the numbers of nodes, tasks and CPUs that the header does not say."""
    said = {name: _number(header.get(name)) for name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task")}
    tasks = said["ntasks"] or (said["nodes"] or 1) * (said["ntasks-per-node"] or 1)
    is_range = "nodes" in header and not said["nodes"]
    values = {
        "nodes": 0 if is_range or request.nodes == request.tasks == 1 else request.nodes,
        "ntasks": 0 if tasks == request.tasks else request.tasks,
        "ntasks-per-node": request.tasks_per_node,
        "cpus-per-task": 0 if request.cpus_per_task == (said["cpus-per-task"] or 1) else request.cpus_per_task,
    }
    return [(name, str(value)) for name, value in values.items() if value and value != said.get(name)]


def _number(value: str | None) -> int:
    return int(value) if value and re.fullmatch(r"[0-9]{1,9}", value) else 0


def _resources(request: WaitingRequest, header: Mapping[str, str | None]) -> list[tuple[str, str]]:
    found = []
    memory = max(1, request.memory // request.nodes // _MIB)
    if request.memory and not _MEMORY & set(header):
        found.append(("mem", f"{memory}M"))
    gpus = {kind: count for kind, count in request.gpus.items() if count}
    if gpus and not _GPUS & set(header):
        found.append(
            ("gpus", ",".join(f"{kind}:{count}" if kind else str(count) for kind, count in sorted(gpus.items())))
        )
    return found


def array_spec(indexes: Sequence[int]) -> str:
    """Return the value of ``--array`` for some tasks: ``1-3,7``."""
    ranges: list[list[int]] = []
    for index in sorted(set(indexes)):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def stored_script(answer: bytes) -> bytes | None:
    """Return the script in the answer to ``sacct --batch-script``: after a title and a rule; None: there is none.

    Of an array, sacct prints it for each task; the first is returned. sacct 22.05 adds a newline, 24.11 does not.
    """
    title, _, rest = answer.partition(b"\n")
    if job := re.match(rb"(Batch Script for \d+)(?:_\d+)?$", title):
        rest = re.split(job[1] + rb"_\d+\n-{20,}\n", rest, maxsplit=1)[0]
    rule, _, script = rest.partition(b"\n")
    if not rule.startswith(b"---") or script.strip() in (b"", b"NONE"):
        return None
    return script[:-1] if script.endswith(b"\n\n") else script
