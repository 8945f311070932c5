"""Ranks of a job: which failed first, as the runner left it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.jobdir.untrusted import read_left
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ranks_of", "read_ranks"]

_MOST = 1_000_000


async def read_ranks(transport: Transport, entry: TrackedJob) -> api.JobRanks | None:
    """Return which rank of a cell failed first, as its runner left it (``runner/ranks/launch.py``); None where none
    did.
    """
    if entry.runner.ranks or entry.folder is None or entry.state.name == "COMPLETED":
        return entry.runner.ranks
    if not (entry.record and entry.record.launcher) or entry.is_array:
        return None
    try:
        return ranks_of(await read_left(transport, entry.folder.end_marker(None), _MOST))
    except (FileNotFoundError, TransportError, ValueError, RecursionError):
        return None


def ranks_of(marker: Any) -> api.JobRanks | None:
    """Return what an end marker says of the ranks; None where that is nothing, or nothing that we know."""
    try:
        told = marker["ranks"]
        first: api.JobRanksFirst = {"rank": int(told["first"]["rank"]), "node": str(told["first"]["node"])}
        first["exit_code"] = int(told["first"]["exit_code"])
        return {"first": first, "also": int(told["also"]), "ended": int(told["ended"])}
    except (ValueError, KeyError, TypeError):
        return None
