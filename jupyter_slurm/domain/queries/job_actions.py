"""Actions on jobs in the queue, many at a time, and Slurm's messages about jobs that it left unchanged.

Sources: scancel(1), scontrol(1); the messages as Slurm 22.05 to 26.05 print them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["ACTIONS", "ACTION_COSTS", "ACTION_RESULTS", "act_argv", "refusals"]

#: The possible actions.
ACTIONS: Final = ("cancel", "hold", "release", "requeue", "requeuehold", "suspend", "resume", "limit")
#: State of a job after each action.
ACTION_RESULTS: Final = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "requeue": "requeued",
    "requeuehold": "requeued and held",
    "suspend": "suspended",
    "resume": "resumed",
    "limit": "given that time limit",
}
#: RPCs for each job: scontrol reads a job before it holds or releases it.
ACTION_COSTS: Final = {act: 2 if act in ("hold", "release") else 1 for act in ACTIONS}

# A finished job needs no cancelling. For an array, Slurm also names the tasks that succeeded.
_MAX_LINE: Final = 1000  # characters: the patterns take quadratic time
_NO_REFUSAL: Final = re.compile(r"already completing or completed|No error", re.IGNORECASE)
_SCANCEL: Final = re.compile(r"error: Kill job error on job id (?P<id>\S+): (?P<said>.+)")
_SCONTROL: Final = (
    re.compile(r"(?P<said>.+) for job (?P<id>\d\S*)"),
    re.compile(r"(?P<id>\d\S*): (?P<said>.+)"),
)


def act_argv(act: str, ids: Sequence[str], minutes: int | None = None) -> list[str]:
    """Return the command for an action on some jobs; ``minutes`` are those of a time limit.

    The hold is a user's hold, which the user can release; an operator's plain hold would be an administrator's. Without
    -v, scancel prints nothing about a missing job.
    """
    if act == "cancel":
        return ["scancel", "-v", *ids]
    if act == "limit":
        return ["scontrol", "update", f"JobId={','.join(ids)}", f"TimeLimit={minutes}"]
    return ["scontrol", "uhold" if act == "hold" else act, ",".join(ids)]


def refusals(act: str, ids: Sequence[str], stderr: str) -> dict[str, str]:
    """Return Slurm's messages about jobs that it left unchanged. For all other jobs the action succeeded."""
    patterns = (_SCANCEL,) if act == "cancel" else _SCONTROL
    said: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        found = next((match for pattern in patterns if (match := pattern.search(line[:_MAX_LINE]))), None)
        meant = _meant(found["id"], ids) if found else None
        if found and meant is not None and not _NO_REFUSAL.search(found["said"]):
            said.setdefault(meant, []).append(found["said"].strip())
    return {job: "; ".join(dict.fromkeys(reasons)) for job, reasons in said.items()}


def _meant(text: str, ids: Sequence[str]) -> str | None:
    """Return the ID that a message means; for an array, Slurm names tasks (12_[1-4])."""
    whole = re.match(r"\d+", text)
    return next((job for job in (text, whole[0] if whole else "") if job in ids), None)
