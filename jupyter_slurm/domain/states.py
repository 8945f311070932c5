"""The states of a job, as Slurm 22.05 to 26.05 name them.

Slurm keeps one base state (PENDING, RUNNING, COMPLETED …) and any number of flags beside it (COMPLETING, REQUEUED …).
``squeue`` and ``scontrol`` show one word for both: the flag, where there is one. ``sacct`` shows the base state, and
JSON shows all of them as a list.

Sources: squeue(1) and sacct(1), "JOB STATE CODES"; ``job_state_string()`` and ``job_state_string_complete()``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["ACTIVE_STATES", "COMPACT_CODES", "ENDING_STATES", "FINAL_STATES", "KNOWN_STATES", "STATE_FLAGS", "JobState"]

#: Base states after which a job uses no resources, unless a flag says that it is requeued.
FINAL_STATES: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)

#: States, in squeue's one word, in which no step can be started in an allocation.
ENDING_STATES: Final = FINAL_STATES | {"COMPLETING", "STAGE_OUT"}

#: Base states of a job that is not finished.
ACTIVE_STATES: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED"})

# The job waits in the queue (possibly again), held or not.
_WAITING_FLAGS: Final = frozenset({"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
# The job has nodes: they boot, or the job is stopped, changes size, ends its processes or moves its data.
_HOLDING_FLAGS: Final = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "EXPEDITING",
        "POWER_UP_NODE",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
    }
)
# These flags give a reason; the base state gives the state.
_TELLING_FLAGS: Final = frozenset({"GETENV_FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL"})

#: Words that Slurm shows beside the base state or, in squeue's one word, in place of it.
STATE_FLAGS: Final = _WAITING_FLAGS | _HOLDING_FLAGS | _TELLING_FLAGS | {"REVOKED"}

KNOWN_STATES: Final = ACTIVE_STATES | FINAL_STATES | STATE_FLAGS

#: Two-letter codes of ``squeue``'s ``%t`` (and OOM).
COMPACT_CODES: Final = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}

_CANCELLED_BY = re.compile(r"CANCELLED by (\d{1,10})", re.ASCII)


@dataclass(frozen=True)
class JobState:
    """State of a job.

    Parameters
    ----------
    name : str
        Base state, or the flag if Slurm showed only the flag. An unknown state keeps its name.
    flags : tuple of str
        Flags beside the base state.
    by : int, optional
        Numeric ID of the user who cancelled the job, if accounting has it (``CANCELLED by 1000``).
    """

    name: str
    flags: tuple[str, ...] = ()
    by: int | None = None

    @classmethod
    def parse(cls, text: str | Sequence[str]) -> JobState:
        """Parse a state in the form of ``squeue``, ``sacct``, ``scontrol`` or JSON. Never fails.

        Parameters
        ----------
        text : str or sequence of str
            ``RUNNING``, ``PD``, ``CANCELLED by 1000``, ``PENDING,REQUEUED`` or ``["RUNNING", "COMPLETING"]``.
        """
        by = None
        if isinstance(text, str):
            cancelled = _CANCELLED_BY.fullmatch(text.strip())
            if cancelled:
                return cls("CANCELLED", by=int(cancelled[1]))
            # sacct marks a truncated word with a plus.
            words = [word.strip().removesuffix("+") for word in text.split(",")]
        else:
            words = [str(word).strip() for word in text]
        names = list(dict.fromkeys(_full_name(word) for word in words if word))
        if not names:
            return cls("UNKNOWN")
        base = next((name for name in names if name in ACTIVE_STATES or name in FINAL_STATES), names[0])
        return cls(base, tuple(name for name in names if name != base), by)

    def __str__(self) -> str:
        return ",".join((self.name, *self.flags))

    def _has(self, words: frozenset[str]) -> bool:
        return self.name in words or any(flag in words for flag in self.flags)

    @property
    def is_pending(self) -> bool:
        """Return whether the job waits in the queue, for the first time or again. It may be held."""
        if self.is_running or self.is_revoked:
            return False
        return self.name == "PENDING" or self._has(_WAITING_FLAGS)

    @property
    def is_running(self) -> bool:
        """Return whether the job has nodes: it runs, is suspended, boots them, ends on them or stages data out."""
        if self.is_revoked:
            return False
        return self.name in ("RUNNING", "SUSPENDED") or self._has(_HOLDING_FLAGS)

    @property
    def is_finished(self) -> bool:
        """Return whether this run of the job is finished, its nodes are free and no flag says that it is requeued."""
        if self.is_revoked:
            return True
        return self.name in FINAL_STATES and not self._has(_WAITING_FLAGS | _HOLDING_FLAGS)

    @property
    def is_revoked(self) -> bool:
        """Return whether another cluster of a federation took the job, which is then finished on this cluster."""
        return self.name == "REVOKED" or "REVOKED" in self.flags


def _full_name(text: str) -> str:
    upper = text.upper()
    if upper in KNOWN_STATES:
        return upper
    # An unknown word stays unchanged.
    return COMPACT_CODES.get(upper, text)
