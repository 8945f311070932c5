"""Resources used by a job: from accounting (``sacct``), or for a running job from its nodes (``sstat``).

Peaks are summed over the tasks of a step. Over several steps, memory is the maximum and CPU time the sum.

Sources: sacct(1), sstat(1); ``nvidia-smi --help-query-gpu``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.job_history import question_argv
from jupyter_slurm.domain.queries.output_frames import delimited_records
from jupyter_slurm.domain.slurm_values import parse_count, parse_tres

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "GPU_QUERY",
    "Usage",
    "parse_allocated_gpus",
    "parse_gpus",
    "parse_usage",
    "sacct_usage_argv",
    "sstat_usage_argv",
]

_SACCT: Final = ("JobID", "ElapsedRaw", "TimelimitRaw", "AllocCPUS", "TotalCPU", "AllocTRES", "TRESUsageInTot")
_SSTAT: Final = ("JobID", "TRESUsageInTot")

#: Fields queried of each GPU of a job on a node. At some sites nvidia-smi also shows the GPUs of other jobs.
GPU_QUERY: Final = (
    "sh",
    "-c",
    'gpus=$CUDA_VISIBLE_DEVICES; case $gpus in "") exit ;; [0-9]* | GPU-*) set -- "$@" "--id=$gpus" ;; esac; exec "$@"',
    "sh",
    "nvidia-smi",
    "--query-gpu=name,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)

_CLOCK = re.compile(
    r"(?:(?:(?P<days>\d{1,9})-)?(?P<hours>\d{1,9}):)?(?P<minutes>\d{1,9}):(?P<seconds>\d{1,9}(?:\.\d{1,9})?)", re.ASCII
)


class UsageNumbers(TypedDict):
    """The fields of the API's ``Report`` about used and allocated resources."""

    elapsed: float | None
    time_limit: int | None
    cpus: int | None
    cpu_time: float | None
    cpu_efficiency: float | None
    memory_peak: int | None
    memory_asked: int | None
    memory_efficiency: float | None
    gpus_asked: int | None


@dataclass(frozen=True)
class Usage:
    """Used and allocated resources; None if unknown.

    Parameters
    ----------
    cpu : float, optional
        Seconds of CPU time.
    memory : int, optional
        Peak in bytes.
    elapsed, time_limit : float and int, optional
        Seconds.
    cpus : int, optional
    tres : str
        Allocated resources.
    requested_memory : int, optional
        Bytes, if ``tres`` does not have them.
    """

    cpu: float | None = None
    memory: int | None = None
    elapsed: float | None = None
    time_limit: int | None = None
    cpus: int | None = None
    tres: str = ""
    requested_memory: int | None = None

    def as_dict(self) -> UsageNumbers:
        """Return the numbers, and their fractions of the allocation: 0 to 1, or more if the allocation was exceeded."""
        asked = parse_tres(self.tres).get("mem", self.requested_memory)
        had = (self.elapsed or 0) * (self.cpus or 0)
        return {
            "elapsed": self.elapsed,
            "time_limit": self.time_limit,
            "cpus": self.cpus,
            "cpu_time": self.cpu,
            "cpu_efficiency": self.cpu / had if self.cpu is not None and had else None,
            "memory_peak": self.memory,
            "memory_asked": asked,
            "memory_efficiency": self.memory / asked if self.memory is not None and asked else None,
            # Slurm counts GPUs only where AccountingStorageTRES names them: a missing number is not 0.
            "gpus_asked": parse_tres(self.tres).get("gres/gpu"),
        }


def sacct_usage_argv(job: JobId, since_epoch: int, mark: str) -> list[str]:
    """Return the accounting query for a job, or array task, and its steps."""
    return [*question_argv(since_epoch, mark), f"--jobs={job}", f"--format={','.join(_SACCT)}"]


def sstat_usage_argv(raw_id: int) -> list[str]:
    """Return the query for the steps of a running job, by Slurm's number of the job."""
    argv = ["sstat", "--noheader", "--parsable2", "--noconvert", "--allsteps"]
    return [*argv, f"--jobs={raw_id}", f"--format={','.join(_SSTAT)}"]


def parse_usage(output: bytes, mark: str | None = None) -> Usage | None:
    """Parse an answer of sacct (with its mark) or of sstat; None if it contains no job.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    if mark is None:
        rows = [line.split("|") for line in output.decode("utf-8", "replace").splitlines()]
        steps = [dict(zip(_SSTAT, row, strict=True)) for row in rows if len(row) == len(_SSTAT)]
        whole: dict[str, str] = {}
    else:
        found = [dict(zip(_SACCT, row, strict=True)) for row in delimited_records(output, mark, len(_SACCT))]
        steps = [row for row in found if "." in row["JobID"]]
        whole = next((row for row in found if "." not in row["JobID"]), {})
    if not (whole or steps):
        return None
    clocks = [_clock(match[1]) for row in steps if (match := re.search(r"(?:^|,)cpu=([^,]*)", row["TRESUsageInTot"]))]
    peaks = [peak for row in steps if (peak := _memory(row["TRESUsageInTot"]))]  # 0: never measured
    limit = parse_count(whole.get("TimelimitRaw", ""))
    return Usage(
        cpu=_clock(whole["TotalCPU"]) if whole else sum(clock or 0.0 for clock in clocks),
        memory=max(peaks, default=None),
        elapsed=parse_count(whole.get("ElapsedRaw", "")),
        time_limit=None if limit is None else limit * 60,
        cpus=parse_count(whole.get("AllocCPUS", "")),
        tres=whole.get("AllocTRES", ""),
    )


def _memory(usage: str) -> int | None:
    """Return the used bytes of memory: a plain number with ``--noconvert``, though MiB in the requested resources."""
    match = re.search(r"(?:^|,)(mem=(\d{1,18})?[^,]*)", usage, re.ASCII)
    if match is None:
        return None
    return int(match[2]) if match[1] == f"mem={match[2]}" else parse_tres(match[1]).get("mem")


def _clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hours = int(match["days"] or 0) * 24 + int(match["hours"] or 0)
    return hours * 3600 + int(match["minutes"]) * 60 + float(match["seconds"])


def parse_allocated_gpus(output: bytes) -> int:
    """Return the GPUs of a job on its first node, as ``scontrol --details show job`` prints them; 0: none.

    GPUs of whole nodes (``--exclusive``) are in no other figure of the job.
    """
    found = re.search(rb"\bGRES=gpu(?::[^:()\s]{1,200})?:(\d{1,6})\(IDX", output)
    return int(found[1]) if found else 0


def parse_gpus(output: bytes) -> list[api.ReportGpu]:
    """Parse the output of :data:`GPU_QUERY`: name, utilization (0 to 1), bytes of used and total memory."""
    gpus: list[api.ReportGpu] = []
    for line in output.decode("utf-8", "replace").splitlines():
        fields: Sequence[str] = [field.strip() for field in line.rsplit(",", 3)]
        if len(fields) == 4:
            used, memory, total = (parse_count(field) for field in fields[1:])
            gpus.append(
                {
                    "name": fields[0],
                    "utilization": None if used is None else used / 100,
                    "memory_used": None if memory is None else memory << 20,
                    "memory_total": None if total is None else total << 20,
                }
            )
    return gpus
