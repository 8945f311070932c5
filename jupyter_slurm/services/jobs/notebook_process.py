"""Cells in one process of an allocation, or in a kernel on its node: steps that share one step of Slurm.

In the job they run in ``runner/allocation/process.py`` or ``runner/kernel/cells.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.services.jobdir.job_json_model import KernelRecord
from jupyter_slurm.services.jobs.job import TrackedJob

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["find_owner", "process_key", "to_kernel_record"]

_NEW_PROCESS_HINT = "Run %%remote again to start a new process."
_RESTART_HINT = "Restart the kernel in its notebook."


def process_key(entry: TrackedJob) -> str | None:
    """Return the key of the process in which a cell runs, whose ID it shares; None for any other job."""
    return entry.record.step.process if entry.record and entry.record.step else None


def find_owner(
    requested: api.Step, find: Callable[[str], TrackedJob | None], allocation: TrackedJob
) -> TrackedJob | None:
    """Return the process or the kernel in which a step is requested to run; None: in neither.

    Raises
    ------
    UsageError, JobError
        The process does not belong to this allocation, or is over.
    """
    if requested.get("process") is None:
        return None
    process = find(requested["process"])
    if process is None or process.kind not in ("process", "kernel") or process.allocation != allocation.key:
        raise UsageError(
            f"{requested['process']!r} is not a process of this allocation.",
            hint="Run the cell with %%remote, which starts a process.",
        )
    if requested["kind"] != "python":
        raise UsageError("Only Python cells run in a process.", hint="Use %%srun for scripts and %srun for commands.")
    if process.is_finished and process.kind == "kernel":
        raise JobError(f"The kernel {process.number or process.key} has ended.", hint=_RESTART_HINT)
    # If a process never started because one existed, its cells run in the existing process.
    if process.is_finished and not (process.number is None and process.exit_code == 0):
        if process.number is None and process.error is not None:
            raise JobError(f"The process of this cell failed: {process.error.message}", hint=process.error.hint)
        raise JobError(f"The process {process.number or process.key} has ended.", hint=_NEW_PROCESS_HINT)
    return process


def to_kernel_record(kernel: api.Kernel | api.KernelStep) -> KernelRecord:
    """Return the recorded and published fields of a kernel, its owner and its kernelspec, without secrets."""
    return KernelRecord(owner=kernel.get("owner"), name=kernel.get("name"), display_name=kernel.get("display_name"))
