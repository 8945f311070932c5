"""Check whether clicks arrive while a cell runs, with a note below a panel if they do not."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Protocol, TypeVar

import ipywidgets
from traitlets import Int

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.output.live_view import notebook

__all__ = ["ClickCheck", "ShowsNote", "handle_events_in_subshell", "handle_replies_in_subshell"]

_W = TypeVar("_W", bound=ipywidgets.Widget)

_NOTICE_DELAY_S = 1.0  # seconds after which the user may click during a cell
_ANSWER_TIMEOUT_S = 2.0  # seconds for the answer of a front end with subshells
_BORDER = "border-left:3px solid var(--jp-warn-color1,#f57c00);padding-left:.4em"
_BUSY_NOTICE = (
    f'<div role="status" style="{_BORDER}">A cell is running. This front end sends your clicks '
    "only when the cell has ended.</div>"
)


def handle_events_in_subshell(widget: _W) -> _W:
    """Handle the messages of a widget in the subshell to which the front end sends them, also while a cell runs."""
    handle_replies_in_subshell(widget.comm)
    return widget


def handle_replies_in_subshell(comm: Any) -> None:
    """Handle the messages of a comm in the subshell to which the front end sends them.

    ipykernel 7.4 routes them to the shell that last published in the comm: to the main shell, which is busy.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None  # tested for its presence only


class _Probe(ipywidgets.HTML):  # type: ignore[misc]  # ipywidgets has no types
    """Widget that reports its display: a message from the front end without a click."""

    _view_count = Int(0, allow_none=True).tag(sync=True, echo_update=False)


class ShowsNote(Protocol):
    """Panel with a note below it: :class:`jupyter_slurm.widgets.base.WidgetPanel`."""

    children: Any

    @property
    def is_visible(self) -> bool: ...  # noqa: D102


class ClickCheck:
    """Check, while a cell runs, whether messages of the front end arrive; if not, a panel shows a note."""

    def __init__(self, panel: ShowsNote) -> None:
        self._panel = panel
        self._shell: Any = None  # shell of the notebook, during the check
        self._cell = 0
        self._runs = False
        self._is_answered = False
        self._context = contextvars.copy_context()

    def start(self) -> None:
        """Check all cells that start from now on."""
        self._shell = notebook()
        if self._shell is not None:
            self._shell.events.register("pre_run_cell", self._on_cell_start)
            self._shell.events.register("post_run_cell", self._ends)

    def stop(self) -> None:
        """Stop checking."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._on_cell_start)
            self._shell.events.unregister("post_run_cell", self._ends)
            self._shell = None

    def _on_cell_start(self, info: Any) -> None:
        self._cell += 1
        self._runs = True
        if not self._is_answered and self._shell is not None and self._panel.is_visible:
            event_loop.spawn(self._show_probe(self._cell), self._context.copy())

    def _ends(self, result: Any) -> None:
        self._runs = False

    async def _show_probe(self, cell: int) -> None:
        """Display a probe. If its message arrives while the cell runs, clicks arrive, too."""
        if await self._is_over(cell, _NOTICE_DELAY_S):
            return
        probe = handle_events_in_subshell(_Probe(layout=ipywidgets.Layout(margin="0")))

        def seen(change: Any) -> None:
            self._is_answered = self._is_answered or (self._runs and self._cell == cell)

        probe.observe(seen, "_view_count")
        panel, shown = self._panel, self._panel.children
        panel.children = (*shown, probe)
        if not await self._is_over(cell, _ANSWER_TIMEOUT_S):
            probe.value = _BUSY_NOTICE
            while not await self._is_over(cell, _NOTICE_DELAY_S):
                pass
        panel.children = tuple(child for child in panel.children if child is not probe)
        probe.close()

    async def _is_over(self, cell: int, seconds: float) -> bool:
        """Wait; return whether no note is needed: the cell has ended, or messages arrive."""
        left = seconds
        while left > 0 and self._runs and self._cell == cell and not self._is_answered:
            await asyncio.sleep(0.1)
            left -= 0.1
        return not self._runs or self._cell != cell or self._is_answered
