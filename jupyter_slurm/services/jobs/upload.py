"""Upload of files before a submission: progress and cancellation."""

from __future__ import annotations

import asyncio

from jupyter_slurm.errors import TransportError

__all__ = ["Upload", "may_run"]


class Upload:
    """Large files on their way to the cluster.

    Parameters
    ----------
    task : asyncio.Task
        Task that sends the files.

    Attributes
    ----------
    done, total : int
        Bytes.
    """

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task, self.is_cancelled = task, False
        self.sent_bytes = self.total = 0

    def as_dict(self) -> dict[str, int]:
        """Return the upload in the form of the API."""
        return {"done": self.sent_bytes, "total": self.total}

    def cancel(self) -> bool:
        """Cancel the upload and the submission; repeated calls are allowed."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._task.cancel()
        return self.is_cancelled


def may_run(error: BaseException) -> bool:
    """Return whether a command that failed may have started: the connection broke before an answer."""
    return isinstance(error, TransportError) and bool(error.details.get("may_run"))
