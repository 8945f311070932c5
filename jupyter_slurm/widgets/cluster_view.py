"""View of the free resources of a cluster."""

from __future__ import annotations

import threading
import time

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.cluster_names import shown_name
from jupyter_slurm.client.clusters.resources import request_resources
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.widgets.base import Button, WidgetPanel, calm, html
from jupyter_slurm.widgets.job_feed import cluster_feed

__all__ = ["ClusterView", "cluster_view"]

_MAX_AGE_S = 60.0  # seconds for which an answer of the agent is used despite starting and ending jobs
_BAR = "width:12em;vertical-align:middle"


def cluster_view() -> ClusterView:
    """Show the free resources of this cluster: GPUs by type, partitions, and your own limits and use."""
    shown = ClusterView(current())
    shown.start()
    return shown


class ClusterView(WidgetPanel):
    """View of :func:`cluster_view`. It is refreshed when your jobs start or end, and on request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._feed = cluster, cluster_feed(cluster)
        self._name = shown_name(cluster)
        self._resources = request_resources(cluster)
        self._refreshed_at = time.monotonic()
        self._refreshing = threading.Lock()
        self._free, self._tables = html(width="100%"), html(width="100%")
        self._refresh_button = Button(
            "Refresh", "Query Slurm now", lambda: self.work(lambda: self._refresh(newer=True))
        )
        super().__init__([self._free, self._refresh_button, self._tables])
        self.add_class("jupyter-slurm-cluster")

    def resumed(self) -> None:
        """Start listening, and fetch the changes of the meantime."""
        self._feed.listen(self._on_change)
        self._on_change()

    def paused(self) -> None:
        """Stop listening."""
        self._feed.unlisten(self._on_change)

    def draw(self) -> None:
        """Draw the last answer."""
        known = self._resources
        head = f"<b>Free on {escape(self._name)}</b> {calm(known.age)}"
        self._free.value = f"<div>{head}</div>{''.join(map(_gpu, known.gpus))}"
        tables = [known.partitions, *([known.limits] if known.limits else [])]
        self._tables.value = "".join(table._repr_html_() for table in tables) + calm(f"You use: {known.own}")

    def static(self) -> tuple[str, str]:
        """Return the last answer."""
        return repr(self._resources), self._resources._repr_html_()

    def __repr__(self) -> str:
        return self.static()[0]

    def _on_change(self) -> None:
        """Refresh after a start or end of the user's jobs, unless just done."""
        if time.monotonic() - self._refreshed_at > _MAX_AGE_S:
            self._refreshed_at = time.monotonic()
            self.work(self._refresh)

    def _refresh(self, *, newer: bool = False) -> None:
        with self._refreshing:  # one after the other: an earlier, slow answer must not replace a newer one
            self._resources = request_resources(self._cluster, newer=newer)
            self._refreshed_at = time.monotonic()


def _gpu(item: dict[str, object]) -> str:
    """Return the number of free GPUs of a type, as a bar and in words."""
    kind = escape(str(item["GPU"]).replace("(no type)", "GPUs"))
    free, total = int(str(item["FREE"])), int(str(item["TOTAL"]))
    bar = f'<progress style="{_BAR}" aria-label="{kind} that are free" value="{free}" max="{max(1, total)}"></progress>'
    return f"<div>{bar} {free} of {total} {kind} free</div>"
