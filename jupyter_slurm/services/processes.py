"""Cells that run in one process of an allocation: steps that are one step together (``runner/remote.py``)."""

from __future__ import annotations

from jupyter_slurm.errors import JobError
from jupyter_slurm.services.entry import Entry

__all__ = ["lost", "process_of"]


def process_of(entry: Entry) -> str | None:
    """Return the key of the process that a cell runs in: they share a number. None for what is no such cell."""
    step = (entry.record or {}).get("step") or {}
    key: str | None = step.get("process")
    return key


def lost(why: str, *, has_begun: bool) -> JobError:
    """Return the error of a cell whose process is gone."""
    when = "while it ran: all variables of the process are gone" if has_begun else "before it began"
    return JobError(f"Its process ended {when} ({why}).", hint="%%remote starts another one.")
