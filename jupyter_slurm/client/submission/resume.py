"""Keyword ``resume``: the maximum number of restarts of a job."""

from __future__ import annotations

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.errors import UsageError

__all__ = ["restarts_of"]

_RESTARTS = 20  # default of `resume`
_MOST = 1000


def restarts_of(parsed: MagicLine) -> int | None:
    """Return the maximum number of restarts of a job; None without `resume`.

    Raises
    ------
    UsageError
        The value is not a valid number.
    """
    if "resume" not in parsed.words:
        return None
    text = parsed.words["resume"] or str(_RESTARTS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST):
        hint = f"How often the job may begin anew, 1 to {_MOST}: resume={_RESTARTS}, the same as resume."
        raise UsageError(f"resume={text}: that is no number of restarts.", hint=hint)
    return int(text)
