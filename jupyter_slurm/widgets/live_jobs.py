"""Base of job widgets: they listen to changes while visible, and show the log of one job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import ipywidgets

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.widgets.base import WidgetPanel
from jupyter_slurm.widgets.job_feed import cluster_feed
from jupyter_slurm.widgets.log_view import LogView

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LiveJobs"]


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
