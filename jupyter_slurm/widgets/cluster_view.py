"""View of the free resources of a cluster."""

from __future__ import annotations

import time

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.resources import ask
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.widgets.base import Button, WidgetPanel, calm, html
from jupyter_slurm.widgets.job_feed import feed_of

__all__ = ["ClusterView", "cluster_view"]

_OLD = 60.0  # seconds for which an answer of the agent is used despite starting and ending jobs
_BAR = "width:12em;vertical-align:middle"


def cluster_view() -> ClusterView:
    """Show the free resources of this cluster: GPUs by type, partitions, and your own limits and use."""
    shown = ClusterView(current())
    shown.go()
    return shown


class ClusterView(WidgetPanel):
    """View of :func:`cluster_view`. It is refreshed when your jobs start or end, and on request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._feed = cluster, feed_of(cluster)
        self._name = str(cluster.client.get(cluster.path())["name"])
        self._known = ask(cluster)
        self._asked = time.monotonic()
        self._free, self._tables = html(width="100%"), html(width="100%")
        self._again = Button("Ask again", "Ask Slurm now", lambda: self.work(lambda: self._ask(newer=True)))
        super().__init__([self._free, self._again, self._tables])
        self.add_class("jupyter-slurm-cluster")

    def resumed(self) -> None:
        """Start listening, and fetch the changes of the meantime."""
        self._feed.listen(self._heard)
        self._heard()

    def paused(self) -> None:
        """Stop listening."""
        self._feed.unlisten(self._heard)

    def draw(self) -> None:
        """Draw the last answer."""
        known = self._known
        head = f"<b>Free on {escape(self._name)}</b> {calm(known.age)}"
        self._free.value = f"<div>{head}</div>{''.join(map(_gpu, known.gpus))}"
        tables = [known.partitions, *([known.limits] if known.limits else [])]
        self._tables.value = "".join(table._repr_html_() for table in tables) + calm(f"Your jobs: {known.own}")

    def static(self) -> tuple[str, str]:
        """Return the last answer."""
        return repr(self._known), self._known._repr_html_()

    def __repr__(self) -> str:
        return self.static()[0]

    def _heard(self) -> None:
        """Refresh after a start or end of the user's jobs, unless just done."""
        if time.monotonic() - self._asked > _OLD:
            self._asked = time.monotonic()
            self.work(self._ask)

    def _ask(self, *, newer: bool = False) -> None:
        self._known = ask(self._cluster, newer=newer)
        self._asked = time.monotonic()


def _gpu(one: dict[str, object]) -> str:
    """Return the number of free GPUs of a type, as a bar and in words."""
    kind = escape(str(one["GPU"]).replace("(no type)", "GPUs"))
    free, total = int(str(one["FREE"])), int(str(one["TOTAL"]))
    bar = f'<progress style="{_BAR}" aria-label="{kind} that are free" value="{free}" max="{max(1, total)}"></progress>'
    return f"<div>{bar} {free} of {total} {kind} free</div>"
