"""The commands of Slurm that are passed through for a person."""

from __future__ import annotations

from typing import Final

__all__ = ["COMMANDS", "REPEATABLE"]

#: Those that only ask, or do the same the second time: an answer that was lost may be asked for again.
REPEATABLE: Final = frozenset({"sacct", "scancel", "sdiag", "sinfo", "sprio", "squeue", "sreport", "sshare", "sstat"})

COMMANDS: Final = REPEATABLE | {"sacctmgr", "scontrol"}
