"""Cells that run in one process of an allocation: steps that are one step together (``runner/remote.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_slurm.domain.steps import advise_refused, is_time_over
from jupyter_slurm.errors import JobError, SlurmError
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.served import end_error

__all__ = ["process_of", "why_ended"]


def process_of(entry: Entry) -> str | None:
    """Return the key of the process that a cell runs in: they share a number. None for what is no such cell."""
    step = (entry.record or {}).get("step") or {}
    key: str | None = step.get("process")
    return key


def why_ended(entry: Entry, marker: Mapping[str, Any]) -> SlurmError | None:
    """Return what the end marker of a session, or of a step, says beside its exit code; None: nothing."""
    if marker["exit_code"] and marker.get("with_allocation"):
        ended = "reached its time limit" if is_time_over(str(marker.get("lost") or marker.get("said"))) else "ended"
        return JobError(f"Its allocation {ended}.", hint="%salloc asks for another one.")
    if entry.kind == "session":
        return end_error(marker)
    if "refused" in marker and (step := advise_refused(str(marker["refused"]))):
        is_process = entry.kind == "process"
        said = f"It ended before it began ({marker['refused']})." if is_process else "Slurm did not start it."
        return JobError(said, hint=step)
    return _lost(str(marker["lost"]), has_begun=not marker.get("interrupted")) if "lost" in marker else None


def _lost(why: str, *, has_begun: bool) -> JobError:
    """Return the error of a cell whose process is gone."""
    when = "while it ran: all variables of the process are gone" if has_begun else "before it began"
    return JobError(f"Its process ended {when} ({why}).", hint=advise_refused(why) or "%%remote starts another one.")
