"""Cells that run in one process of an allocation, or in a kernel there: steps that are one step together.

In the job they are ``runner/allocation/process.py``, or ``runner/kernel/cells.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.services.jobdir.job_json import KernelRecord
from jupyter_slurm.services.jobs.job import TrackedJob

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["find_owner", "process_key", "to_kernel_record"]

_NEW_PROCESS_HINT = "%%remote starts another one."
_RESTART_HINT = "Its notebook can restart it."


def process_key(entry: TrackedJob) -> str | None:
    """Return the key of the process that a cell runs in: they share a number. None for what is no such cell."""
    return entry.record.step.process if entry.record and entry.record.step else None


def find_owner(
    requested: api.Step, find: Callable[[str], TrackedJob | None], allocation: TrackedJob
) -> TrackedJob | None:
    """Return the process, or the kernel, that a step is asked for in, of those that are found by a key; None: in none.

    Raises
    ------
    UsageError, JobError
        It is no process of this allocation, or it is over.
    """
    if requested.get("process") is None:
        return None
    process = find(requested["process"])
    if process is None or process.kind not in ("process", "kernel") or process.allocation != allocation.key:
        raise UsageError(f"{requested['process']!r} is not a process of this allocation")
    if requested["kind"] != "python":
        raise UsageError("only Python cells run in a process", hint="%%srun runs scripts, %srun commands.")
    if process.is_finished and process.kind == "kernel":
        raise JobError(f"The kernel {process.number or process.key} has ended.", hint=_RESTART_HINT)
    # One that never began since there was one: its cells run in that.
    if process.is_finished and not (process.number is None and process.exit_code == 0):
        if process.number is None and process.error is not None:
            raise JobError(f"The process for this cell: {process.error.message}", hint=process.error.hint)
        raise JobError(f"The process {process.number or process.key} has ended.", hint=_NEW_PROCESS_HINT)
    return process


def to_kernel_record(kernel: api.Kernel | api.KernelStep) -> KernelRecord:
    """Return what is recorded, and told, of a kernel: whose it is and which one, and nothing that is secret."""
    return KernelRecord(owner=kernel.get("owner"), name=kernel.get("name"), display_name=kernel.get("display_name"))
