"""Live log of a job, within a widget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.live_view import bundle
from jupyter_slurm.client.settings import settings
from jupyter_slurm.widgets.base import Button, WidgetPanel, html

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LogView"]


class LogView:
    """Card of one job, with the end of its output, below a table."""

    def __init__(self, owner: WidgetPanel) -> None:
        self._owner = owner
        self._card = html(width="100%")
        self._hide = Button("Hide", "Hide this log", self.hide)
        self.box = ipywidgets.VBox([], layout=ipywidgets.Layout(width="100%"))
        self._follower: Follower | None = None

    def show(self, cluster: Cluster, data: api.Job) -> None:
        """Show another job."""
        self.paused()
        which = str(data.get("key") or data["id"])
        self._follower = Follower(cluster, which, data, limit=settings().output_limit, display_limit=0)
        self.resumed()
        self.draw()
        self.box.children = (self._card, self._hide)

    def hide(self) -> None:
        """Show no job."""
        self.paused()
        self._follower = None
        self.box.children = ()

    def resumed(self) -> None:
        """Start following."""
        if self._follower is not None:
            self._follower.listen(self._changed)
            self._follower.start()

    def paused(self) -> None:
        """Stop following."""
        if self._follower is not None:
            self._follower.unlisten(self._changed)
            self._follower.stop()

    def _changed(self, stream: str, data: bytes) -> None:
        self._owner.changed()

    def draw(self) -> None:
        """Update the log."""
        follower = self._follower
        if follower is None:
            return
        with follower.lock:
            data, trouble = follower.data, follower.error.message if follower.error else follower.trouble
            panes, *_ = follower.timeline.blocks(settings().output_limit, data)
        self._card.value = bundle(data, panes if isinstance(panes, tuple) else (), trouble)["text/html"]
