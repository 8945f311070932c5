"""Messages of all front ends in words of a terminal: magics become commands, functions become subcommands."""

from __future__ import annotations

import re

__all__ = ["for_terminal"]

_RULES = (
    (re.compile(r"`?jupyter_slurm\.jobs\(\)`?"), "`jupyter slurm jobs --all`"),
    (re.compile(r"`?jupyter_slurm\.job\(['\"]?([\w.+-]+)['\"]?\)(?:\.state)?`?"), r"`jupyter slurm show \1`"),
    (re.compile(r"`?%%sbatch\?`?"), "`sbatch --help`"),
    (
        re.compile(
            r"%{1,2}(?=(?:cd|pwd|s(?:acct|acctmgr|batch|cancel|control|diag|info|prio|queue|report|share|stat))\b)"
        ),
        "",
    ),
)


def for_terminal(text: str) -> str:
    """Return a message or hint in which commands of the terminal replace those of a notebook."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
