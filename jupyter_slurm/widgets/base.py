"""Base of all widgets: background work, error messages, and the check whether clicks arrive."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import ipywidgets
from traitlets import Int

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.widgets.unanswered_clicks import ClickCheck, handle_events_in_subshell

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MimeBundle

_DEFECT_HINT = f"Report it: {page_url('help/troubleshooting')}"
__all__ = ["BAD", "CALM", "WARNING_STYLE", "Button", "WidgetPanel", "calm", "html", "text"]

CALM, BAD = "var(--jp-ui-font-color2,GrayText)", "var(--jp-error-color1,#d32f2f)"
WARNING_STYLE = "border-left:3px solid var(--jp-warn-color1,#f57c00);padding-left:.4em"
_MIN_DRAW_INTERVAL_S = 0.25  # seconds between two redraws
_CLOCK_INTERVAL_S = 5.0  # seconds between two redraws of clocks
_CONFIRM_TIMEOUT_S = 5.0  # seconds in which a second click confirms the first
_DOUBLE_CLICK_S = 0.4  # seconds in which a second click belongs to the first: the question cannot be read so fast


def html(value: str = "", **layout: str) -> ipywidgets.HTML:
    """Return a widget for HTML, whose content must be escaped if it is of other origin."""
    return ipywidgets.HTML(value, layout=ipywidgets.Layout(**{"margin": "0", **layout}))


def calm(text: str) -> str:
    """Return a remark as HTML."""
    return f'<span style="color:{CALM}">{escape(text)}</span>'


class Button(ipywidgets.Button):  # type: ignore[misc]  # ipywidgets has no types
    """A button, perhaps with a confirmation.

    Parameters
    ----------
    label, hint : str
        Label, and tooltip.
    clicked : callable
        Called in the thread that receives the click.
    asks : bool
        Whether the action is irreversible: a second click, soon after the first, confirms it.
    width : str
        Width in CSS, for buttons below each other.
    """

    def __init__(
        self, label: str, hint: str, clicked: Callable[[], None], *, asks: bool = False, width: str = "auto"
    ) -> None:
        self._label, self._clicked, self._needs_confirmation = label, clicked, asks
        self._confirm_requested_at = 0.0
        layout = ipywidgets.Layout(width=width, flex="0 0 auto", align_self="flex-start")
        super().__init__(description=label, tooltip=hint, layout=layout)
        handle_events_in_subshell(self)
        self.on_click(self._on_click)

    def reset(self) -> None:
        """Reset a first click."""
        if self._confirm_requested_at:
            self.description, self.button_style, self._confirm_requested_at = self._label, "", 0.0

    def _on_click(self, _: Any) -> None:
        if self._confirm_requested_at and time.monotonic() - self._confirm_requested_at < _DOUBLE_CLICK_S:
            return
        if not self._needs_confirmation or self._confirm_requested_at:
            self.reset()
            self._clicked()
            return
        self.description, self.button_style, self._confirm_requested_at = (
            f"Really {self._label.lower()}?",
            "danger",
            time.monotonic(),
        )
        event_loop.spawn(self._forget(self._confirm_requested_at), contextvars.copy_context())

    async def _forget(self, since: float) -> None:
        await asyncio.sleep(_CONFIRM_TIMEOUT_S)
        if self._confirm_requested_at == since:
            self.reset()


def text(label: str, *, options: Iterable[str] | None = None, **more: Any) -> Any:
    """Return a field for a line of text, with ``options`` as suggestions."""
    more = {"layout": ipywidgets.Layout(width="24em"), "style": {"description_width": "8em"}, **more}
    kind = ipywidgets.Text if options is None else ipywidgets.Combobox
    if options is not None:
        more |= {"options": list(options), "ensure_option": False}
    return handle_events_in_subshell(kind(description=label, **more))


class WidgetPanel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A widget with background updates.

    It is redrawn after changes, and at intervals for its clocks, while it is visible.
    """

    # The front end counts the visible views. An echo of the count would be a superfluous message.
    _view_count = Int(0, allow_none=True).tag(sync=True, echo_update=False)
    _is_closed = True  # until there is something to close: a subclass may fail before, for example without Slurm

    def __init__(self, children: Iterable[ipywidgets.Widget]) -> None:
        self._context = contextvars.copy_context()
        self._is_closed = False
        self._was_visible = False
        self._news: asyncio.Event | None = None
        self._drawing: Future[None] | None = None
        self._notice = html()
        self._waiting = ClickCheck(self)
        self._body = tuple(children)
        super().__init__([*self._body, self._notice])
        handle_events_in_subshell(self)
        self.observe(self._on_visibility, "_view_count")

    # To be overridden -----------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Update the content; called in the background."""

    def resumed(self) -> None:
        """Start listening: the widget is visible."""

    def paused(self) -> None:
        """Stop listening: the widget is not visible."""

    def static(self) -> tuple[str, str]:
        """Return the form stored in a notebook, as text and as HTML."""
        return repr(self), ""

    # For subclasses -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the widget before its display."""
        self._waiting.start()
        self.resumed()
        self.draw()
        self._drawing = event_loop.spawn(self._redraw_loop(), self._context.copy())

    @property
    def is_visible(self) -> bool:
        """Return whether the widget may be visible; without a count by the front end, assume so."""
        return bool(self._view_count) or not self._was_visible

    def changed(self) -> None:
        """Schedule a redraw; called in the background."""
        if self._news is not None:
            self._news.set()

    def work(self, call: Callable[[], Any]) -> None:
        """Run the action of a click in a thread of its own; the panel shows an error."""
        event_loop.spawn(self._work(call), self._context.copy())

    def run_later(self, seconds: float, call: Callable[[], Any], may_run: Callable[[], bool]) -> None:
        """Run a function after a delay, unless it is cancelled before."""
        event_loop.spawn(self._run_later(seconds, call, may_run), self._context.copy())

    def show_error(self, error: SlurmError | None) -> None:
        """Show an error, and the next step."""
        said = "" if error is None else sentences(error.message, error.hint)
        self._notice.value = f'<div role="alert" style="color:{BAD}">{escape(said)}</div>' if said else ""

    def close(self) -> None:
        """Close the widget and remove its display."""
        if not self._is_closed and self.comm is not None:
            self._is_closed = True
            self._waiting.stop()
            self.paused()
            if self._drawing is not None:
                self._drawing.cancel()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> MimeBundle:
        """Return the widget, with its current content as a fallback for other front ends and for the file."""
        plain, rich = self.static()
        known: MimeBundle = {} if self._is_closed else super()._repr_mimebundle_(**kwargs) or {}
        return {**known, "text/plain": plain, "text/html": rich}

    async def _work(self, call: Callable[[], Any]) -> None:
        try:
            await asyncio.to_thread(call)
        except SlurmError as error:
            self.show_error(error)
        except Exception as error:  # noqa: BLE001  a thread's error would be seen by nobody
            self.show_error(SlurmError(f"{type(error).__name__}: {error}", hint=_DEFECT_HINT))
        else:
            self.show_error(None)
        self.changed()

    async def _run_later(self, seconds: float, call: Callable[[], Any], may_run: Callable[[], bool]) -> None:
        await asyncio.sleep(seconds)
        if may_run() and not self._is_closed:
            await self._work(call)

    async def _redraw_loop(self) -> None:
        self._news = asyncio.Event()
        self._news.set()  # for changes before the start of listening
        while not self._is_closed:
            try:
                async with asyncio.timeout(_CLOCK_INTERVAL_S):
                    await self._news.wait()
            except TimeoutError:
                if not self.is_visible:
                    continue
            self._news.clear()
            try:
                self.draw()
            except Exception as error:  # noqa: BLE001  a thread's error would be seen by nobody
                self.show_error(SlurmError(f"{type(error).__name__}: {error}", hint=_DEFECT_HINT))
            await asyncio.sleep(_MIN_DRAW_INTERVAL_S)

    def _on_visibility(self, change: Mapping[str, int]) -> None:
        """Listen only while the widget is visible."""
        self._was_visible = True
        if change["new"] and not change["old"]:
            self.resumed()
            self.changed()
        elif not change["new"]:
            self.paused()
