"""What travels to a cluster before a submission can begin: how far that is, and giving it up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jupyter_slurm.errors import JobError, TransportError
from jupyter_slurm.transport.base import Sent

if TYPE_CHECKING:
    from jupyter_slurm.services.jobs.job import Entry

__all__ = ["Sending", "may_run", "on_its_way"]


class Sending:
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
        self._task, self.is_given_up = task, False
        self.done = self.total = 0

    def as_dict(self) -> dict[str, int]:
        """Return it as the API tells it."""
        return {"done": self.done, "total": self.total}

    def give_up(self) -> bool:
        """Have them not arrive, and nothing submitted; may be called again."""
        if not self.is_given_up:
            self.is_given_up = True
            self._task.cancel()
        return self.is_given_up


@contextlib.contextmanager
def on_its_way(entry: Entry) -> Iterator[Sent]:
    """Note at a job or a step how far its large files are, which this task sends, and let that be given up.

    Gives what is to be told of it.

    Raises
    ------
    JobError
        It was given up: nothing of it is there.
    """
    task = asyncio.current_task()
    assert task is not None
    sending = Sending(task)

    def sent(done: int, total: int) -> None:
        sending.done, sending.total = done, total
        entry.sending = sending if done < total else None  # what is all there may be at work

    try:
        yield sent
    except asyncio.CancelledError:
        if not sending.is_given_up:
            raise
        task.uncancel()
        raise JobError(
            f"{entry.key} was given up while what it takes along was on the way: nothing was submitted.",
            hint="Run the cell again.",
        ) from None
    finally:
        entry.sending = None


def may_run(error: BaseException) -> bool:
    """Whether what was to be started may be at work although that has failed: the link broke, and nobody has heard."""
    return isinstance(error, TransportError) and bool(error.details.get("may_run"))
