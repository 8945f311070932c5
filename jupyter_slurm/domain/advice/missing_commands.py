"""Advice for ``module: command not found`` and the like: shell functions that a job's shell does not have."""

from __future__ import annotations

import re

__all__ = ["advise_missing_command"]

# bash, dash, zsh and fish; conda's own words if its shell function is missing
_MISSING = re.compile(
    r"(?:^|[:\s])(?P<name>module|ml|conda|mamba|micromamba): (?:command )?not found\s*$"
    r"|command not found: (?P<zsh>module|ml|conda|mamba|micromamba)\s*$"
    r"|Run 'conda init' before 'conda activate'|has not been properly configured to use 'conda activate'",
    re.MULTILINE,
)


def advise_missing_command(output: str, kind: str | None) -> str:
    """Return the way out for a missing shell function in the output of a job; empty if none is missing.

    Parameters
    ----------
    output : str
        End of the job's standard error.
    kind : str or None
        ``python`` for a Python cell.
    """
    found = _MISSING.search(output)
    if found is None:
        return ""
    name = found["name"] or found["zsh"] or "conda activate"
    if kind == "python":
        return (
            f"The shell of this cell has no `{name}`, and what a `!` line loads would not reach Python. "
            "Load it for the whole job with env=NAME."
        )
    return (
        f"The shell of the job has no `{name}`: only a login shell defines it. "
        "Write #!/bin/bash -l as the first line, or load the environment with env=NAME."
    )
