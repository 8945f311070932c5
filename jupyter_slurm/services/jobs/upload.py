"""What travels to a cluster before a submission can begin: how far that is, and giving it up."""

from __future__ import annotations

import asyncio

from jupyter_slurm.errors import TransportError

__all__ = ["Upload", "may_run"]


class Upload:
    """Large files on their way.

    Parameters
    ----------
    task : asyncio.Task
        Who sends them.

    Attributes
    ----------
    done, total : int
        Bytes.
    """

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task, self.is_cancelled = task, False
        self.sent_bytes = self.total = 0

    def as_dict(self) -> dict[str, int]:
        """Return it as the API tells it."""
        return {"done": self.sent_bytes, "total": self.total}

    def cancel(self) -> bool:
        """Have them not arrive, and nothing submitted; may be called again."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._task.cancel()
        return self.is_cancelled


def may_run(error: BaseException) -> bool:
    """Whether what was to be started may be at work although that has failed: the link broke, and nobody has heard."""
    return isinstance(error, TransportError) and bool(error.details.get("may_run"))
