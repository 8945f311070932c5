"""A job under its cell: drawn when shown, redrawn in place while the job goes on."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

from jupyter_slurm.handles import background
from jupyter_slurm.handles.card import Pane, as_html, as_text
from jupyter_slurm.handles.follow import STREAMS, Follower

__all__ = ["View", "bundle", "cell_of", "notebook"]

_SHORTEST = 0.25  # seconds between two drawings
_BYTES_PER_SECOND = 256 * 1024  # a large output is drawn less often
_CPU_SHARE = 0.05  # and so is one that takes long to draw: the kernel has other things to do


def notebook() -> Any:
    """Return the IPython shell whose front end can redraw an output in place; None in a terminal and in a script."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


def cell_of(shell: Any) -> str:
    """Return something that names the cell being run."""
    header = getattr(shell.display_pub, "parent_header", None) or {}
    return str(header.get("msg_id") or shell.execution_count)


def panes(follower: Follower, limit: int) -> list[Pane]:
    """Return what there is of each stream; two share the space."""
    with follower.lock:
        used = [stream for stream in STREAMS if follower.screens[stream] or follower.skipped[stream]]
        return [
            Pane.of(s, follower.screens[s], follower.skipped[s], follower.data.get(s), limit // max(1, len(used)))
            for s in used
        ]


def bundle(data: Mapping[str, Any], shown: list[Pane], trouble: str = "") -> dict[str, str]:
    """Return a job in all the forms that front ends know."""
    return {"text/plain": as_text(data, shown, trouble), "text/html": as_html(data, shown, trouble)}


class View:
    """One place in the notebook where a job is shown.

    Parameters
    ----------
    shell : InteractiveShell
        The one of the running kernel.
    follower : Follower
        Who knows the job.
    limit : int
        Bytes of output that are shown.
    """

    def __init__(self, shell: Any, follower: Follower, limit: int) -> None:
        self.cell = cell_of(shell)
        self._shell, self._follower, self._limit = shell, follower, limit
        self._id = "jupyter-slurm-" + secrets.token_hex(8)
        self._lock = threading.Lock()
        self._closed = False
        self._drawn: list[int] = []  # of each output beside the job's own: which version is there
        self._parent: dict[str, Any] = dict(getattr(shell.display_pub, "parent_header", None) or {})

    def open(self, *, live: bool = True) -> None:
        """Show the job under the cell being run and, if ``live``, keep it up to date."""
        self._publish(update=False)
        if live and not self._follower.ended.is_set():
            background.spawn(self._keep_drawing(), contextvars.copy_context())

    def finish(self) -> None:
        """Draw for the last time, now and in this thread."""
        with self._lock:
            self._closed = True
            self._publish(update=True)

    async def _keep_drawing(self) -> None:
        """Draw when something changed, and now and then for the clock; never more than a few times a second."""
        news, over = asyncio.Event(), asyncio.Event()

        def changed(stream: str, data: bytes) -> None:
            news.set()
            if self._follower.ended.is_set():
                over.set()

        self._follower.listen(changed)
        began = time.monotonic()
        try:
            while not self._follower.ended.is_set() and not self._closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), _tick(time.monotonic() - began))
                news.clear()
                since = time.monotonic()
                size = self._draw()
                cost = time.monotonic() - since
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), max(_SHORTEST, size / _BYTES_PER_SECOND, cost / _CPU_SHARE))
        finally:
            self._follower.unlisten(changed)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._publish(update=True)

    def _draw(self) -> int:
        with self._lock:
            return 0 if self._closed else self._publish(update=True)

    def _publish(self, *, update: bool) -> int:
        follower = self._follower
        with follower.lock:
            data, shown = follower.data, panes(follower, self._limit)
            trouble = follower.error.message if follower.error else follower.trouble
            if count := follower.displays.left_out:
                said = f"{count} figures, tables or updates of them are not shown; all are in {data.get('folder')}."
                data = {**data, "warnings": [*(data.get("warnings") or []), said]}
        drawn = bundle(data, shown, trouble)
        self._shell.display_pub.publish(drawn, transient={"display_id": self._id}, update=update)
        return sum(map(len, drawn.values())) + self._publish_displays()

    def _publish_displays(self) -> int:
        """Show figures, tables and the like below the job, each in a place of its own; return how much that was."""
        with self._follower.lock:
            shown = list(self._follower.displays.shown)
        size = 0
        for place, output in enumerate(shown):
            if place == len(self._drawn):
                self._send(place, output.data, output.metadata, update=False)
                self._drawn.append(output.version)
            elif self._drawn[place] != output.version:
                self._send(place, output.data, output.metadata, update=True)
                self._drawn[place] = output.version
            else:
                continue
            size += output.size
        for place in range(len(shown), len(self._drawn)):  # it was cleared; the place is used again
            if self._drawn[place]:
                self._send(place, {}, {}, update=True)
                self._drawn[place] = 0
        return size

    def _send(self, place: int, data: dict[str, Any], metadata: dict[str, Any], *, update: bool) -> None:
        """Publish under the cell that shows the job, also when another one runs by now."""
        publisher = self._shell.display_pub
        transient = {"display_id": f"{self._id}-{place}"}
        if not self._parent or getattr(publisher, "session", None) is None:
            publisher.publish(data, metadata, transient=transient, update=update)
            return
        publisher.session.send(
            publisher.pub_socket,
            "update_display_data" if update else "display_data",
            {"data": data, "metadata": metadata, "transient": transient},
            parent=self._parent,
            ident=publisher.topic,
        )


def _tick(age: float) -> float:
    """Return after how long the clock of a job is drawn again: often at first, rarely when it has run for hours."""
    return min(60.0, max(1.0, age / 10))
