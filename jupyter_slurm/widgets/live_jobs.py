"""Widgets of jobs: they listen to what becomes of them while somebody looks, and show the log of one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import ipywidgets

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.widgets.base import WidgetPanel
from jupyter_slurm.widgets.job_feed import feed_of
from jupyter_slurm.widgets.log_view import LogView

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LiveJobs"]


class LiveJobs(WidgetPanel):
    """A widget of the jobs of a cluster, with a place for a log.

    Parameters
    ----------
    cluster : Cluster
        Whose jobs it shows.
    above, below : iterable of Widget
        What stands above the log, and below it.
    """

    def __init__(
        self, cluster: Cluster, above: Iterable[ipywidgets.Widget], below: Iterable[ipywidgets.Widget] = ()
    ) -> None:
        self._cluster, self._feed, self._log = cluster, feed_of(cluster), LogView(self)
        super().__init__([*above, self._log.box, *below])
        self._feed.look()

    def resumed(self) -> None:
        """Listen."""
        self._feed.listen(self.changed)
        self._log.resumed()

    def paused(self) -> None:
        """Listen no longer."""
        self._feed.unlisten(self.changed)
        self._log.paused()

    def draw(self) -> None:
        """Bring it up to date."""
        self.draw_jobs()
        self._log.draw()

    def draw_jobs(self) -> None:
        """Bring the jobs up to date: to be overridden."""

    def show_log(self, data: api.Job) -> None:
        """Show what a job has printed, and prints."""
        self._log.show(self._cluster, data)

    def __repr__(self) -> str:
        return self.static()[0]
