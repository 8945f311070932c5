"""``resume``: how often a job may begin anew."""

from __future__ import annotations

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.errors import UsageError

__all__ = ["restarts_of"]

_RESTARTS = 20  # of `resume` without a number
_MOST = 1000


def restarts_of(parsed: MagicLine) -> int | None:
    """Return how often a job may begin anew; None where it is not to.

    Raises
    ------
    UsageError
        That is no such number.
    """
    if "resume" not in parsed.words:
        return None
    text = parsed.words["resume"] or str(_RESTARTS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST):
        hint = f"How often the job may begin anew, 1 to {_MOST}: resume={_RESTARTS}, the same as resume."
        raise UsageError(f"resume={text}: that is no number of restarts.", hint=hint)
    return int(text)
