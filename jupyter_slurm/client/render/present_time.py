"""Times of a job: its limit, and the present time by the clock of its cluster, which may differ from this one's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jupyter_slurm.domain.slurm_values import NO_LIMIT_S

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["present_time", "time_limit"]


def present_time(data: api.Job) -> float:
    """Return the present time by the clock that the times of a job are of, in seconds since the epoch."""
    return time.time() + (data.get("clock_offset") or 0.0)


def time_limit(data: api.Job) -> int | None:
    """Return the time limit of a job in seconds; None if it has none."""
    limit = data.get("time_limit")
    return limit if limit is not None and limit < NO_LIMIT_S else None
