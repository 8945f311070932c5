"""Controls of a job below its card: its used time, and buttons."""

from __future__ import annotations

from typing import Any

import ipywidgets

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render.job_card import is_finished, title
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.sessions.session import Session
from jupyter_slurm.widgets.base import Button, WidgetPanel, html
from jupyter_slurm.widgets.job_row import progress

__all__ = ["JobControls", "controls"]


def controls(job: Job) -> JobControls:
    """Return the controls of an active job."""
    shown = JobControls(job)
    shown.start()
    return shown


class JobControls(WidgetPanel):
    """Controls below the card of a job until its end."""

    def __init__(self, job: Job) -> None:
        self._job, self._follower = job, job._follow()
        about = printable(title(job._data)).replace("\n", " ")
        self._used = html(flex="0 1 auto")
        if isinstance(job, Session):
            buttons = [Button("Stop", f"End {about}, with all that runs in it", self._cancel, asks=True)]
        else:
            word = "Release" if isinstance(job, Allocation) else "Cancel"
            buttons = [Button(word, f"{word} {about}", self._cancel, asks=True)]
        super().__init__([ipywidgets.HBox([*buttons, self._used], layout=ipywidgets.Layout(align_items="center"))])
        self.add_class("jupyter-slurm-controls")

    def resumed(self) -> None:
        """Start listening."""
        self._follower.unlisten(self._on_change)
        self._follower.listen(self._on_change)

    def paused(self) -> None:
        """Stop listening."""
        self._follower.unlisten(self._on_change)

    def draw(self) -> None:
        """Update the controls; close them at the end of the job."""
        data = self._follower.data
        self._used.value = progress(data)
        if is_finished(data) or self._follower.error is not None:
            self.close()

    def static(self) -> tuple[str, str]:
        """Return nothing: the card suffices."""
        return "", ""

    def _on_change(self, stream: str, data: bytes) -> None:
        if not stream:
            self.changed()

    def _cancel(self) -> None:
        job: Any = self._job
        self.work(job.stop if isinstance(job, Session) else job.cancel)
