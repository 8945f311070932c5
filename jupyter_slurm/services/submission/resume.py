"""What a job with ``resume`` is submitted with, so that it begins anew after preemption and time limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_slurm.errors import OptionError

__all__ = ["lead", "with_resume"]

_MAX_WARNING_S = 120  # seconds before the time limit, at most; Slurm may send the signal a minute earlier
_MIN_WARNING_S = 10


def with_resume(chosen: Mapping[str, str | None], time_limit: int | None, added: Sequence[str]) -> list[str]:
    """Return the options to add, where the person is silent.

    Parameters
    ----------
    chosen : mapping
        The options in force, by their long names.
    time_limit : int or None
        Seconds asked for.
    added : sequence of str
        What has been added already.

    Raises
    ------
    OptionError
        The options forbid it.
    """
    if "no-requeue" in chosen:
        raise OptionError(
            "resume has the job requeued, which --no-requeue forbids",
            hint="Leave one of them out.",
            option="no-requeue",
        )
    options = {
        "requeue": "--requeue",
        "open-mode": "--open-mode=append",
        "signal": f"--signal=B:USR1@{lead(time_limit)}",
    }
    return [word for name, word in options.items() if name not in chosen and word not in added]


def lead(time_limit: int | None) -> int:
    """Return how long before the time limit the cell is told, in seconds: not most of the time it has."""
    return _MAX_WARNING_S if time_limit is None else max(_MIN_WARNING_S, min(_MAX_WARNING_S, time_limit // 4))
