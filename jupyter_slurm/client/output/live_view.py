"""Live view of a job under its cell: drawn at first, redrawn in place during the job.

Text before the first display stands in the card of the job. Later displays and text have places of their own below the
card, in their order of creation.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.rich_output import DisplayedOutput
from jupyter_slurm.client.output.timeline import Panes, omitted_text
from jupyter_slurm.client.render.allocation_card import is_released
from jupyter_slurm.client.render.job_card import as_html, as_text, output_as_html, output_as_text
from jupyter_slurm.client.render.session_card import hides_log

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart, MimeBundle
    from jupyter_slurm.domain import api_types as api

__all__ = ["LiveView", "bundle", "cell_name", "is_under_cell", "is_visible", "notebook"]

_MIN_DRAW_INTERVAL_S = 0.25  # seconds between two redraws
_BYTES_PER_SECOND = 256 * 1024  # a large output is redrawn less often
_CPU_SHARE = 0.05  # a slow redraw happens less often: the kernel has other work


def notebook() -> Any:
    """Return the IPython shell whose front end can redraw an output in place; None in a terminal or a script."""
    # If IPython is not imported, it has no shell, and a script need not wait for the import.
    get_ipython = getattr(sys.modules.get("IPython.core.getipython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


def cell_name(shell: Any) -> str:
    """Return an object that names the running cell; None outside a notebook."""
    if shell is None:
        return ""
    header = getattr(shell.display_pub, "parent_header", None) or {}
    return str(header.get("msg_id") or shell.execution_count)


def is_under_cell(views: Iterable[LiveView]) -> bool:
    """Return whether one of the views is under the running cell."""
    shell = notebook()
    return shell is not None and any(shown.cell == cell_name(shell) for shown in views)


def is_visible() -> bool:
    """Return whether the user sees the view under the running cell: a front end with cells has asked for it.

    nbconvert and papermill report only the error of a cell, and `jupyter console` redraws nothing. Their requests name
    no cell.
    """
    shell = notebook()
    request = shell.get_parent() if hasattr(shell, "get_parent") else None
    return bool(((request or {}).get("metadata") or {}).get("cellId"))


def bundle(data: api.Job, panes: Panes = (), trouble: str = "", *, printed: bool = False) -> dict[str, str]:
    """Return a job in all MIME types of the front ends."""
    if is_released(data) or hides_log(data):  # its only output is Slurm's message that the job was cancelled
        panes = ()
    return {
        "text/plain": as_text(data, panes, trouble, printed=printed),
        "text/html": as_html(data, panes, trouble, printed=printed),
    }


def _content(block: Panes | DisplayedOutput) -> tuple[MimeBundle, MimeBundle]:
    """Return data and metadata of a place below the card."""
    if isinstance(block, DisplayedOutput):
        return block.data, block.metadata
    return {"text/plain": output_as_text(block), "text/html": output_as_html(block)}, {}


class LiveView:
    """One place of the notebook that shows a job.

    Parameters
    ----------
    shell : InteractiveShell
        Shell of the running kernel.
    follower : Follower
        Follower of the job.
    limit : int
        Bytes of output to show.
    controls : callable, optional
        Function that returns a widget below the card, with the actions of the job.
    """

    def __init__(self, shell: Any, follower: Follower, limit: int, controls: Callable[[], Any] | None = None) -> None:
        self.cell = cell_name(shell)
        self._shell, self._follower, self._limit = shell, follower, limit
        self._id = "jupyter-slurm-" + secrets.token_hex(8)
        self._controls = controls
        self._lock = threading.Lock()
        self._closed = False
        self._card: Any = None  # state and time of the last redraw
        self._drawn_at = 0.0
        self._drawn: list[Panes | DisplayedOutput | None] = []  # content of each place below the card
        self._began = time.monotonic()
        self._parent: MessagePart = dict(getattr(shell.display_pub, "parent_header", None) or {})

    def open(self, *, live: bool = True) -> None:
        """Show the job under the running cell and, if ``live``, keep the view up to date."""
        self._publish(update=False)
        if live and not self._follower.ended.is_set():
            event_loop.spawn(self._redraw_loop(), contextvars.copy_context())

    def finish(self) -> None:
        """Draw for the last time, in this thread."""
        with self._lock:
            self._closed = True
            self._publish(update=True)

    async def _redraw_loop(self) -> None:
        """Redraw after changes, and now and then for the clock; never more than a few times a second."""
        news, over = asyncio.Event(), asyncio.Event()

        def changed(stream: str, data: bytes) -> None:
            news.set()
            if self._follower.ended.is_set():
                over.set()

        self._follower.listen(changed)
        try:
            while not self._follower.ended.is_set() and not self._closed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._tick()):
                        await news.wait()
                news.clear()
                since = time.monotonic()
                size = self.draw()
                cost = time.monotonic() - since
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(_MIN_DRAW_INTERVAL_S, size / _BYTES_PER_SECOND, cost / _CPU_SHARE)):
                        await over.wait()
        finally:
            self._follower.unlisten(changed)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._publish(update=True)

    def draw(self) -> int:
        """Redraw now; return the size of the output."""
        with self._lock:
            return 0 if self._closed else self._publish(update=True)

    def _publish(self, *, update: bool) -> int:
        """Publish the changed parts; return their size."""
        follower = self._follower
        with follower.lock:
            data, left_out = follower.data, follower.timeline.omitted
            trouble = follower.error.message if follower.error else follower.trouble
            first, *blocks = follower.timeline.blocks(self._limit, data)
        printed = bool(first) or any(not isinstance(block, DisplayedOutput) for block in blocks)
        size = self._publish_card(data, trouble, left_out, first, printed, update)
        if self._controls is not None and not update:
            as_bundle = self._controls()._repr_mimebundle_
            if as_bundle is not None:  # the job has not ended meanwhile, which closes the widget
                self._shell.display_pub.publish(as_bundle(), transient={"display_id": f"{self._id}-controls"})
        return size + self._publish_below(blocks)

    def _publish_card(self, data: api.Job, trouble: str, omitted: int, panes: Any, printed: bool, update: bool) -> int:
        card, now = (data, trouble, omitted, panes, printed), time.monotonic()
        if card == self._card and now - self._drawn_at < self._tick() / 2 and not self._closed:
            return 0
        self._card, self._drawn_at = card, now
        if omitted:
            said = omitted_text(omitted, data.get("folder"), self._follower.timeline)
            data = {**data, "warnings": [*(data.get("warnings") or []), said]}
        drawn = bundle(data, panes, trouble, printed=printed)
        self._shell.display_pub.publish(drawn, transient={"display_id": self._id}, update=update)
        return sum(map(len, drawn.values()))

    def _publish_below(self, blocks: list[Panes | DisplayedOutput]) -> int:
        """Publish displays and the text between them, each in its place; cleared places become empty."""
        size = 0
        for place in range(max(len(blocks), len(self._drawn))):
            block = blocks[place] if place < len(blocks) else None
            is_new = place == len(self._drawn)
            if is_new:
                self._drawn.append(block)
            elif block is self._drawn[place] or (
                not isinstance(block, DisplayedOutput) and block == self._drawn[place]
            ):
                continue
            self._drawn[place] = block
            data, metadata = _content(block) if block is not None else ({}, {})
            self._send(place, data, metadata, update=not is_new)
            size += block.size if isinstance(block, DisplayedOutput) else sum(map(len, data.values()))
        return size

    def _send(self, place: int, data: MimeBundle, metadata: MimeBundle, *, update: bool) -> None:
        """Publish under the cell that shows the job, even if another cell is running."""
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

    def _tick(self) -> float:
        """Return the seconds until the next redraw of a job's clock: few at first, many after hours."""
        return min(60.0, max(1.0, (time.monotonic() - self._began) / 10))
