"""Card of an allocation: its resources, its remaining time, and the event that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.render.present_time import present_time, time_limit
from jupyter_slurm.client.render.session_card import start_note
from jupyter_slurm.domain.advice.endings import is_near_limit
from jupyter_slurm.domain.slurm_values import duration_words, format_duration
from jupyter_slurm.domain.states import ENDING_STATES

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["held_facts", "held_notes", "is_open", "is_released", "job_name", "remaining_time"]


def is_released(data: api.Job) -> bool:
    """Return whether an allocation was or is being released; False if it ended otherwise before."""
    return bool(data.get("released")) and (not data.get("finished") or data.get("state") == "CANCELLED")


def is_open(data: api.Job) -> bool:
    """Return whether steps can be started in an allocation. Steps wait until it has started."""
    # A completing allocation counts as finished, and a released one will be soon.
    return not data.get("finished") and data.get("state") not in ENDING_STATES and not is_released(data)


def job_name(data: api.Job) -> str:
    """Return the displayed name of a job: that which the user gave, else Slurm's."""
    if data.get("kind") in ("allocation", "session") and data.get("label"):
        return f"{data['label']} ({data['kind']})"
    return str(data.get("label") or data.get("name") or "")


def remaining_time(data: api.Job) -> float | None:
    """Return the seconds until the time limit of a running job; None without a limit."""
    start, limit = data.get("start_time"), time_limit(data)
    if data.get("state") != "RUNNING" or not start or not limit:
        return None
    return max(0.0, float(start) + float(limit) - present_time(data))


def held_facts(data: api.Job) -> list[str]:
    """Return the resources of an allocation, and its remaining time."""
    if data.get("finished") or data.get("kind") != "allocation" or is_released(data):
        return []
    said, left = [], remaining_time(data)
    if gpus := data.get("gpus"):
        said.append(f"{gpus} GPU{'s' if gpus > 1 else ''}")
    if left is not None:
        said.append(f"{format_duration(left)} left")
    return said


def held_notes(data: api.Job) -> list[str]:
    """Return notes: the estimated start, a near end, and the event that ends the allocation automatically."""
    if is_released(data) and data.get("released") == "forgotten":
        return ["Its kernel was killed and did not start again, so it was released."]
    if is_released(data) and data.get("joined"):
        return ["The job continues. Only what jupyter_slurm started in it ends."]
    if data.get("finished") or is_released(data):
        return []
    said, left = [text for text in [start_note(data)] if text], remaining_time(data)
    if data.get("kind") != "allocation":
        return said
    if left is not None and is_near_limit(left, data["time_limit"] or 0):
        said.append(f"Warning: it ends in {format_duration(left)}, with all that runs in it.")
    if (lease := data.get("lease")) and data.get("joined"):
        after = f"after {duration_words(lease)} without a step or kernel"
        said.append(f"Used by %srun, %%srun and %%remote with on=. It is released {after}. The job continues.")
    elif lease:
        ends, unused = "It ends " if data.get("keep") else "It ends with its kernel, and ", duration_words(lease)
        said.append(f"Used by %srun, %%srun and %%remote. {ends}after {unused} without a step or kernel.")
    return said
