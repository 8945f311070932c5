"""Keyword ``resume``: the maximum number of restarts of a job."""

from __future__ import annotations

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.errors import UsageError

__all__ = ["parse_restarts"]

_DEFAULT_RESTARTS = 20  # default of `resume`
_MAX_RESTARTS = 1000


def parse_restarts(parsed: MagicLine) -> int | None:
    """Return the maximum number of restarts of a job; None without `resume`.

    Raises
    ------
    UsageError
        The value is not a valid number.
    """
    if "resume" not in parsed.keywords:
        return None
    text = parsed.keywords["resume"] or str(_DEFAULT_RESTARTS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MAX_RESTARTS):
        hint = (
            f"How often the job may begin anew, 1 to {_MAX_RESTARTS}: resume={_DEFAULT_RESTARTS}, the same as resume."
        )
        raise UsageError(f"resume={text}: that is no number of restarts.", hint=hint)
    return int(text)
