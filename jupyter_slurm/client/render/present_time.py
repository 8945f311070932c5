"""Times of a job by the clock of its cluster, which may differ from this one's, and the age of an answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.slurm_values import NO_LIMIT_S

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["answer_age", "present_time", "time_limit"]


def present_time(data: api.Job) -> float:
    """Return the present time by the clock that the times of a job are of, in seconds since the epoch."""
    return time.time() + (data.get("clock_offset") or 0.0)


def time_limit(data: api.Job) -> int | None:
    """Return the time limit of a job in seconds; None if it has none."""
    limit = data.get("time_limit")
    return limit if limit is not None and limit < NO_LIMIT_S else None


def answer_age(asked_at: float, unknown_since: float | None, said: str) -> str:
    """Return when the cluster gave an answer, and since when there is no newer one, and why."""
    now = time.time()
    asked = f"Checked {clock_text(asked_at, now, has_seconds=True)}."
    if unknown_since is None:
        return asked
    since = clock_text(unknown_since, now, has_seconds=True)
    return f"{asked} Not updated since {since}. {said}".rstrip()
