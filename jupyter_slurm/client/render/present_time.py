"""Present time by the clock of a job's cluster, for durations until now: this computer may have another time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["present_time"]


def present_time(data: api.Job) -> float:
    """Return the present time by the clock that the times of a job are of, in seconds since the epoch."""
    return time.time() + (data.get("clock_offset") or 0.0)
