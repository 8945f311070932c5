"""Options of a job that was submitted elsewhere, from what Slurm recorded of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_tres

__all__ = ["array_spec", "recorded_options", "stored_script"]

_MEMORY: Final = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_GPUS: Final = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task"})
_GPU: Final = "gres/gpu"
_MIB: Final = 1 << 20


def recorded_options(
    record: JobRecord, request: WaitingRequest | None, array: str, header: Collection[str]
) -> list[str]:
    """Return the options of sbatch that give a job what Slurm recorded; each is one word, as sbatch reads it.

    Parameters
    ----------
    record : JobRecord
        The job.
    request : WaitingRequest, optional
        What the controller knows of its request; without, memory and GPUs are those that accounting counted.
    array : str
        Value of ``--array``; empty for a job that is no array.
    header : collection of str
        Names of the options in the ``#SBATCH`` lines: memory and GPUs that they request are left to them.
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
        *_resources(record, request, header),
    )
    return [f"--{name}={value}" for name, value in values if value and value.isprintable()]


def _resources(record: JobRecord, request: WaitingRequest | None, header: Collection[str]) -> list[tuple[str, str]]:
    tres = parse_tres(record.tres)
    typed = {name.removeprefix(f"{_GPU}:"): count for name, count in tres.items() if name.startswith(f"{_GPU}:")}
    gpus = request.gpus if request else typed or {"": tres.get(_GPU, 0)}
    memory, nodes = (request.memory, request.nodes) if request else (tres.get("mem", 0), record.node_count or 1)
    found = []
    if memory and not _MEMORY & set(header):
        found.append(("mem", f"{max(1, memory // nodes // _MIB)}M"))
    if any(gpus.values()) and not _GPUS & set(header):
        value = ",".join(f"{kind}:{count}" if kind else str(count) for kind, count in sorted(gpus.items()))
        found.append(("gpus", value))
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

    Of an array, sacct prints it for each task; the first is returned.
    """
    title, _, rest = answer.partition(b"\n")
    if job := re.match(rb"(Batch Script for \d+)(?:_\d+)?$", title):
        rest = re.split(rb"(?<=\n)" + job[1] + rb"_\d+\n-{20,}\n", rest, maxsplit=1)[0]
    rule, _, script = rest.partition(b"\n")
    if not rule.startswith(b"---") or script.strip() in (b"", b"NONE"):
        return None
    return script.removesuffix(b"\n")  # of sacct; the script has its own
