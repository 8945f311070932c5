"""Cells that run in one process of an allocation, or in a kernel there: steps that are one step together.

In the job they are ``runner/allocation/process.py``, or ``runner/kernel/cells.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.options.step_options import advise_refused, is_out_of_memory, is_time_over
from jupyter_slurm.errors import JobError, SlurmError, UsageError
from jupyter_slurm.services.jobdir.job_json import KernelRecord
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.session_server import end_error

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["owner_of", "process_of", "to_kernel_record", "why_ended"]

_ANOTHER = "%%remote starts another one."
_RESTART = "Its notebook can restart it."


def process_of(entry: TrackedJob) -> str | None:
    """Return the key of the process that a cell runs in: they share a number. None for what is no such cell."""
    return entry.record.step.process if entry.record and entry.record.step else None


def owner_of(asked: api.Step, find: Callable[[str], TrackedJob | None], allocation: TrackedJob) -> TrackedJob | None:
    """Return the process, or the kernel, that a step is asked for in, of those that are found by a key; None: in none.

    Raises
    ------
    UsageError, JobError
        It is no process of this allocation, or it is over.
    """
    if asked.get("process") is None:
        return None
    process = find(asked["process"])
    if process is None or process.kind not in ("process", "kernel") or process.allocation != allocation.key:
        raise UsageError(f"{asked['process']!r} is not a process of this allocation")
    if asked["kind"] != "python":
        raise UsageError("only Python cells run in a process", hint="%%srun runs scripts, %srun commands.")
    if process.is_finished and process.kind == "kernel":
        raise JobError(f"The kernel {process.number or process.key} has ended.", hint=_RESTART)
    # One that never began since there was one: its cells run in that.
    if process.is_finished and not (process.number is None and process.exit_code == 0):
        if process.number is None and process.error is not None:
            raise JobError(f"The process for this cell: {process.error.message}", hint=process.error.hint)
        raise JobError(f"The process {process.number or process.key} has ended.", hint=_ANOTHER)
    return process


def why_ended(entry: TrackedJob, marker: Mapping[str, Any]) -> SlurmError | None:
    """Return what the end marker of a session, or of a step, says beside its exit code; None: nothing."""
    if marker["exit_code"] and marker.get("with_allocation"):
        ended = "reached its time limit" if is_time_over(str(marker.get("lost") or marker.get("said"))) else "ended"
        return JobError(f"Its allocation {ended}.", hint="%salloc asks for another one.", with_allocation=True)
    if entry.kind == "session":
        return end_error(marker)
    if entry.kind == "kernel" and marker.get("said"):
        return _in_slurms_words(str(marker["said"]))
    if "refused" in marker and (step := advise_refused(str(marker["refused"]))):
        is_process = entry.kind == "process"
        said = f"It ended before it began ({marker['refused']})." if is_process else "Slurm did not start it."
        return JobError(said, hint=step)
    return _lost(entry, marker) if "lost" in marker else None


def _in_slurms_words(said: str) -> JobError:
    """Return the error of a kernel that was ended: what Slurm has said of it is the reason, if there is one."""
    if is_out_of_memory(said):
        more = "It has the memory of its allocation: a kernel with a larger --mem has more."
        return JobError(f"It used more memory than its allocation has ({said}).", hint=more)
    return JobError(f"Slurm said: {said}")


def _lost(entry: TrackedJob, marker: Mapping[str, Any]) -> JobError:
    """Return the error of a cell whose process, or kernel, is gone."""
    why, is_kernel = str(marker["lost"]), bool(entry.record and entry.record.kernel)
    what, hint = ("kernel", _RESTART) if is_kernel else ("process", _ANOTHER)
    when = "before it began" if marker.get("interrupted") else f"while it ran: all variables of the {what} are gone"
    return JobError(f"Its {what} ended {when} ({why}).", hint=advise_refused(why) or hint)


def to_kernel_record(kernel: api.Kernel | api.KernelStep) -> KernelRecord:
    """Return what is recorded, and told, of a kernel: whose it is and which one, and nothing that is secret."""
    return KernelRecord(owner=kernel.get("owner"), name=kernel.get("name"), display_name=kernel.get("display_name"))
