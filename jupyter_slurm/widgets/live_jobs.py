"""Base of job widgets: they listen to changes while visible, and show the log of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

import ipywidgets

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.widgets.base import WidgetPanel
from jupyter_slurm.widgets.job_feed import cluster_feed, identity
from jupyter_slurm.widgets.log_view import LogView

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LiveJobs", "show_lines"]


class JobLine(Protocol):
    """The line of one job in a widget."""

    box: ipywidgets.Box

    def show(self, data: api.Job) -> None:
        """Show the job."""


_Line = TypeVar("_Line", bound=JobLine)


def show_lines(
    place: ipywidgets.Box, lines: dict[str, _Line], create: Callable[[], _Line], jobs: Iterable[api.Job]
) -> None:
    """Show jobs in their order. Each keeps its line, so that a late click acts on no other job.

    Parameters
    ----------
    place : Box
        Parent of the lines.
    lines : dict of JobLine
        Known lines by identity of their job; updated.
    create : callable
        Returns a new line.
    jobs : iterable of Job
        Jobs to show; the lines of others are removed.
    """
    shown = {identity(data): data for data in jobs}
    gone = [lines.pop(which).box for which in lines.keys() - shown.keys()]
    for which, data in shown.items():
        if which not in lines:
            lines[which] = create()
        lines[which].show(data)
    boxes = tuple(lines[which].box for which in shown)
    if place.children != boxes:
        place.children = boxes
    for box in gone:
        box.close()


class LiveJobs(WidgetPanel):
    """A widget of the jobs of a cluster, with a place for a log.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the jobs.
    above, below : iterable of Widget
        Widgets above the log, and below it.
    """

    def __init__(
        self, cluster: Cluster, above: Iterable[ipywidgets.Widget], below: Iterable[ipywidgets.Widget] = ()
    ) -> None:
        self._cluster, self._feed, self._log = cluster, cluster_feed(cluster), LogView(self)
        super().__init__([*above, self._log.box, *below])
        self._feed.refresh()

    def resumed(self) -> None:
        """Start listening."""
        self._feed.listen(self.changed)
        self._log.resumed()

    def paused(self) -> None:
        """Stop listening."""
        self._feed.unlisten(self.changed)
        self._log.paused()

    def draw(self) -> None:
        """Update the widget."""
        self.draw_jobs()
        self._log.draw()

    def draw_jobs(self) -> None:
        """Update the jobs; to be overridden."""

    def show_log(self, data: api.Job) -> None:
        """Show the live log of a job."""
        self._log.show(self._cluster, data)

    def __repr__(self) -> str:
        return self.static()[0]
