"""What a person does with jobs in the queue, many at a time, and what Slurm says of those that it leaves alone.

Sources: scancel(1), scontrol(1); the complaints as Slurm 22.05 to 26.05 print them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["ACTS", "COSTS", "DONE", "act_argv", "refusals"]

#: What can be done.
ACTS: Final = ("cancel", "hold", "release", "requeue", "limit")
#: How a job is after it.
DONE: Final = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "requeue": "requeued",
    "limit": "given that time limit",
}
#: RPCs for each job: scontrol looks at a job before it holds or releases it.
COSTS: Final = {"cancel": 1, "hold": 2, "release": 2, "requeue": 1, "limit": 1}

# What is over needs no cancelling; of an array, Slurm also names the tasks with which all went well.
_NO_REFUSAL: Final = re.compile(r"already completing or completed|No error", re.IGNORECASE)
_SCANCEL: Final = re.compile(r"error: Kill job error on job id (?P<id>\S+): (?P<said>.+)")
_SCONTROL: Final = (
    re.compile(r"(?P<said>.+) for job (?P<id>\d\S*)"),
    re.compile(r"(?P<id>\d\S*): (?P<said>.+)"),
)


def act_argv(act: str, ids: Sequence[str], minutes: int | None = None) -> list[str]:
    """Return the command for some jobs; ``minutes`` are those of a time limit.

    A hold is that of its user, who can take it back: an operator's own word would be that of an administrator. Without
    -v, scancel says nothing of a job that is not there.
    """
    if act == "cancel":
        return ["scancel", "-v", *ids]
    if act == "limit":
        return ["scontrol", "update", f"JobId={','.join(ids)}", f"TimeLimit={minutes}"]
    return ["scontrol", "uhold" if act == "hold" else act, ",".join(ids)]


def refusals(act: str, ids: Sequence[str], stderr: str) -> dict[str, str]:
    """Return what Slurm said of the jobs with which it did nothing; those that it does not name went well."""
    patterns = (_SCANCEL,) if act == "cancel" else _SCONTROL
    said: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        found = next((match for pattern in patterns if (match := pattern.search(line))), None)
        meant = _meant(found["id"], ids) if found else None
        if found and meant is not None and not _NO_REFUSAL.search(found["said"]):
            said.setdefault(meant, []).append(found["said"].strip())
    return {job: "; ".join(dict.fromkeys(reasons)) for job, reasons in said.items()}


def _meant(told: str, ids: Sequence[str]) -> str | None:
    """Return which of the ids is meant; of an array, Slurm names tasks (12_[1-4])."""
    whole = re.match(r"\d+", told)
    return next((job for job in (told, whole[0] if whole else "") if job in ids), None)
