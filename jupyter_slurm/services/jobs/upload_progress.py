"""Progress of an upload, as the API tells it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jupyter_slurm.errors import JobError
from jupyter_slurm.transport.base import Sent

if TYPE_CHECKING:
    from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.upload import Upload

__all__ = ["on_its_way"]


@contextlib.contextmanager
def on_its_way(entry: TrackedJob) -> Iterator[Sent]:
    """Note at a job or a step how far its large files are, which this task sends, and let that be given up.

    Gives what is to be told of it.

    Raises
    ------
    JobError
        It was given up: nothing of it is there.
    """
    task = asyncio.current_task()
    assert task is not None
    sending = Upload(task)

    def sent(done: int, total: int) -> None:
        sending.done, sending.total = done, total
        entry.submission.upload = sending if done < total else None  # what is all there may be at work

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
        entry.submission.upload = None
